package fleet

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// Scraper fetches metrics pages again and again.
type Scraper struct {
	*Prober
	// whole is when a page was last handed on as a whole, by URL.
	whole map[string]wire.Time
}

// NewScraper makes a Scraper.
func NewScraper(opt Options) *Scraper {
	return &Scraper{Prober: NewProber(opt), whole: map[string]wire.Time{}}
}

// Run fetches the metrics page of each member now and then every Interval,
// until ctx is done; members is asked for anew each time. A page that several
// members share is fetched once. Records are emitted one at a time: a page for
// each member, cut to its rank where the page tells ranks apart, so that
// ParseMetrics needs no rank; or why there is none. Most pages are also cut to
// the lines that ParseMetrics reads, a twentieth of the page. The first of a
// URL, the first after a failure and one every WholeEvery has all lines, for
// readers of recordings that want more.
//
// A Scraper runs once.
func (s *Scraper) Run(ctx context.Context, members func() []Member, emit func(wire.Record)) {
	for {
		start := s.opt.Clock.Now()
		s.round(ctx, members(), emit)
		// Many scrapers that began together drift apart.
		wait := time.Duration(float64(s.opt.Interval) * (0.9 + 0.2*s.opt.Rand()))
		next, stop := s.opt.Clock.After(max(0, wait-s.opt.Clock.Now().Sub(start)))
		select {
		case <-next:
		case <-ctx.Done():
			stop()
			return
		}
	}
}

// round fetches each page once.
func (s *Scraper) round(ctx context.Context, members []Member, emit func(wire.Record)) {
	sharing := map[string][]Member{}
	var urls []string
	for _, m := range members {
		if m.Metrics == "" {
			continue
		}
		if sharing[m.Metrics] == nil {
			urls = append(urls, m.Metrics)
		}
		sharing[m.Metrics] = append(sharing[m.Metrics], m)
	}
	for url := range s.whole {
		if sharing[url] == nil {
			delete(s.whole, url)
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	work := make(chan string)
	for range min(len(urls), s.opt.Parallel) {
		wg.Go(func() {
			for url := range work {
				page, err := s.Probe(ctx, url)
				if ctx.Err() != nil {
					continue
				}
				if page.Received == 0 { // it was never asked
					page.Received = s.now()
				}
				mu.Lock()
				s.hand(url, page, err, sharing[url], emit)
				mu.Unlock()
			}
		})
	}
	for _, url := range urls {
		work <- url
	}
	close(work)
	wg.Wait()
}

// hand emits what came of one GET, for each member that shares the page.
func (s *Scraper) hand(url string, page Page, err error, members []Member, emit func(wire.Record)) {
	last, ok := s.whole[url]
	whole := !ok || page.Received-last >= wire.Time(s.opt.WholeEvery)
	switch {
	case err != nil:
		delete(s.whole, url)
	case whole:
		s.whole[url] = page.Received
	}
	text := string(page.Body)
	ranks := ranksOf(text)
	for _, m := range members {
		rec := wire.Record{At: page.Received, Replica: m.Name, Kind: wire.Scrape}
		if err != nil {
			rec.Err = err.Error()
		} else {
			rec.Text = cut(text, ranks, m.Rank, whole)
		}
		emit(rec)
	}
}

// cut gives the lines of a page that a member needs: of its rank, where the
// page speaks for it and others, and with all else left out unless whole. A
// series without a rank stays then only if it is of the whole process, since
// ParseMetrics would take it for the rank's alone.
func cut(text string, ranks map[string]bool, rank int, whole bool) string {
	mine := strconv.Itoa(rank)
	apart := len(ranks) > 1 && ranks[mine]
	if whole && !apart {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		name := nameOf(line)
		f, read := wanted[name]
		if !read && !whole {
			continue
		}
		if of := rankIn(line); apart && name != "" && of != mine && (of != "" || read && !f.process) {
			continue
		}
		b.WriteString(line)
	}
	return b.String()
}

// ranksOf gives the ranks that the series read of a page are labelled with.
func ranksOf(text string) map[string]bool {
	ranks := map[string]bool{}
	for line := range strings.Lines(text) {
		if wanted[nameOf(line)] == nil {
			continue
		}
		if r := rankIn(line); r != "" && len(ranks) < maxRanks {
			ranks[r] = true
		}
	}
	return ranks
}

// rankIn finds the rank of a sample without parsing it: a quote within a value
// is escaped, so that the name with = and a quote behind it is a label.
func rankIn(line string) string {
	for _, label := range rankLabels {
		for rest := line; ; {
			at := strings.Index(rest, label+`="`)
			if at < 0 {
				break
			}
			value := rest[at+len(label)+2:]
			if at > 0 && strings.IndexByte("{, ", rest[at-1]) >= 0 {
				v, _, _ := strings.Cut(value, `"`)
				return v
			}
			rest = value
		}
	}
	return ""
}
