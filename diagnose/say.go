package diagnose

import (
	"fmt"
	"strconv"
	"strings"
)

// String says in words what a finding rests on.
func (e *Evidence) String() string {
	var words []string
	if e.Replica != "" {
		words = append(words, "replica "+string(e.Replica))
	}
	if b := e.Batches(); b != "" {
		words = append(words, b)
	}
	if e.Block != nil {
		words = append(words, "block "+grouped(*e.Block))
	}
	if e.Token != nil {
		words = append(words, "token "+grouped(*e.Token))
	}
	if e.Span != nil {
		words = append(words, "“"+*e.Span+"”")
	}
	return strings.Join(words, ", ")
}

// Batches says which batches a finding rests on, "" for none.
func (e *Evidence) Batches() string {
	switch {
	case e.SeqFrom == nil:
		return ""
	case e.SeqTo != nil && *e.SeqFrom > *e.SeqTo:
		return "batch " + grouped(*e.SeqTo) + " after " + grouped(*e.SeqFrom)
	case e.SeqTo != nil && *e.SeqFrom < *e.SeqTo:
		return "batches " + grouped(*e.SeqFrom) + "–" + grouped(*e.SeqTo)
	}
	return "batch " + grouped(*e.SeqFrom)
}

// String says in words how much a finding matters.
func (e *Effect) String() string {
	var words []string
	if e.Blocks != nil {
		words = append(words, several(*e.Blocks, "block"))
	}
	if e.Tokens != nil {
		words = append(words, several(*e.Tokens, "token"))
	}
	if e.Share != nil {
		words = append(words, fmt.Sprintf("%.1f %% of its capacity", 100**e.Share))
	}
	return strings.Join(words, ", ")
}

func several(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + one + "s"
}

// grouped writes a number with a space between thousands.
func grouped[N int | uint64](n N) string {
	s := strconv.FormatUint(uint64(max(n, 0)), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}
