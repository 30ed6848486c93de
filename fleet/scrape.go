package fleet

import (
	"context"
	"fmt"
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
// readers of recordings that want more, unless all shares of one page would be
// more than 16 MB.
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
	var parts shares
	if err == nil {
		parts, err = s.share(page, members, whole)
	}
	for _, m := range members {
		rec := wire.Record{At: page.Received, Replica: m.Name, Kind: wire.Scrape}
		if err != nil {
			rec.Err = err.Error()
		} else {
			rec.Text = parts.of(m.Rank)
		}
		emit(rec)
	}
}

// share cuts a page for its members. Where it is too large to be handed on
// whole to all of them, what ParseMetrics reads has to do.
func (s *Scraper) share(page Page, members []Member, whole bool) (shares, error) {
	text := string(page.Body)
	parts, ok := share(text, ranksWanted(members), whole)
	if !ok && whole {
		parts, ok = share(text, ranksWanted(members), false)
	}
	if !ok {
		return parts, fmt.Errorf("GET %s: a page of %d bytes is too large for each of the %d replicas that share it: give each a page of its own, or no metrics", page.URL, len(text), len(members))
	}
	return parts, nil
}
