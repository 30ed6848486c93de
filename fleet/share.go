package fleet

import (
	"strconv"
	"strings"
)

// maxShared bounds what one page becomes for all members that share it, in
// bytes: four of them can have the largest page whole.
const maxShared = 4 * maxBody

// shares is a page as its members need it: the lines of a rank, where the page
// speaks for it and others.
type shares struct {
	// apart are the shares of ranks that the page tells apart, and rest is
	// everybody else's.
	apart map[int]string
	rest  string
}

func (s *shares) of(rank int) string {
	if text, ok := s.apart[rank]; ok {
		return text
	}
	return s.rest
}

// share cuts a page for members of these ranks, each of which counts, with all
// that ParseMetrics does not read left out unless whole. A series without a rank
// stays in a rank's share only if it is of the whole process, since ParseMetrics
// would take it for the rank's alone. It reports false where the shares are
// larger than maxShared together. The page is gone through twice, however many
// ranks there are.
func share(text string, ranks []int, whole bool) (shares, bool) {
	known := ranksOf(text)
	type part struct {
		strings.Builder
		rank, members int
	}
	var rest part
	apart := map[string]*part{}
	for _, rank := range ranks {
		of := strconv.Itoa(rank)
		switch {
		case len(known) < 2 || !known[of]:
			rest.members++
			continue
		case apart[of] == nil:
			apart[of] = &part{rank: rank}
		}
		apart[of].members++
	}
	size := 0
	write := func(p *part, line string) {
		if size += p.members * len(line); size <= maxShared {
			p.WriteString(line)
		}
	}
	// One string serves all that get everything.
	if whole {
		size = rest.members * len(text)
	}
	for line := range strings.Lines(text) {
		name := nameOf(line)
		f, read := wanted[name]
		if !read && !whole {
			continue
		}
		if !whole {
			write(&rest, line)
		}
		switch of := rankIn(line); {
		case name == "" || of == "" && (!read || f.process):
			for _, p := range apart {
				write(p, line)
			}
		case apart[of] != nil:
			write(apart[of], line)
		}
		if size > maxShared {
			return shares{}, false
		}
	}
	out := shares{apart: map[int]string{}, rest: rest.String()}
	if whole {
		out.rest = text
	}
	for _, p := range apart {
		out.apart[p.rank] = p.String()
	}
	return out, true
}

func ranksWanted(members []Member) []int {
	ranks := make([]int, len(members))
	for i, m := range members {
		ranks[i] = m.Rank
	}
	return ranks
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
