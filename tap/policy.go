package tap

import (
	"fmt"
	"strconv"
	"strings"
)

// policyKind orders the policies by how much they ask.
type policyKind uint8

const (
	unset policyKind = iota
	never
	gaps
	recent
	full
)

var policyNames = [...]string{"", "never", "gaps", "recent", "full"}

// DefaultRecent is the N of `recent`: how many batches before the first one
// seen are asked for.
const DefaultRecent = 1000

// maxRecent is ten times as many as an engine keeps unless told otherwise.
const maxRecent = 100_000

// Policy says which replays may be asked for without a person's word:
//
//	never      none; wants are refused
//	gaps       what a Want asks for
//	recent:N   that, and once for each replica the N batches before the first seen
//	full       that, and once for each replica all that it still keeps
//
// The zero Policy is gaps. A Policy is a value to compare and print.
type Policy struct {
	kind policyKind
	n    uint64
}

// ParsePolicy reads never, gaps, recent, recent:N or full; empty is gaps. The
// error is one sentence.
func ParsePolicy(s string) (Policy, error) {
	word, number, counted := strings.Cut(s, ":")
	for i, name := range policyNames {
		if name != word {
			continue
		}
		p := Policy{kind: policyKind(i)}
		switch {
		case counted && p.kind != recent:
			return Policy{}, fmt.Errorf("replay policy %q: only recent takes a number", s)
		case p.kind == unset:
			p.kind = gaps
		case p.kind == recent:
			p.n = DefaultRecent
		}
		if counted {
			n, err := strconv.ParseUint(number, 10, 64)
			if err != nil || n == 0 || n > maxRecent {
				return Policy{}, fmt.Errorf("replay policy %q: want a number of batches from 1 to %d after recent", s, maxRecent)
			}
			p.n = n
		}
		return p, nil
	}
	return Policy{}, fmt.Errorf("replay policy %q: want never, gaps, recent, recent:N or full", s)
}

func (p Policy) String() string {
	switch p.kind {
	case unset:
		return policyNames[gaps]
	case recent:
		return policyNames[recent] + ":" + strconv.FormatUint(p.n, 10)
	}
	return policyNames[p.kind]
}

// Never reports whether nothing is ever asked for.
func (p Policy) Never() bool { return p.kind == never }

// joined gives the batch from which to ask when the first one seen of a replica
// is seq, and reports false where nothing is to be asked.
func (p Policy) joined(seq uint64) (from uint64, ok bool) {
	if p.kind != recent || seq == 0 {
		return 0, false
	}
	return seq - min(seq, p.n), true
}
