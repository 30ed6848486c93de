package diagnose

import (
	"fmt"
	"strings"

	"github.com/kvscope/kvscope/wire"
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
		words = append(words, "block "+wire.Grouped(*e.Block))
	}
	if e.Token != nil {
		words = append(words, "token "+wire.Grouped(*e.Token))
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
		return "batch " + wire.Grouped(*e.SeqTo) + " after " + wire.Grouped(*e.SeqFrom)
	case e.SeqTo != nil && *e.SeqFrom < *e.SeqTo:
		return "batches " + wire.Grouped(*e.SeqFrom) + "–" + wire.Grouped(*e.SeqTo)
	}
	return "batch " + wire.Grouped(*e.SeqFrom)
}

// String says in words how much a finding matters.
func (e *Effect) String() string {
	var words []string
	if e.Blocks != nil {
		words = append(words, wire.Counted(*e.Blocks, "block"))
	}
	if e.Tokens != nil {
		words = append(words, wire.Counted(*e.Tokens, "token"))
	}
	if e.Share != nil {
		words = append(words, fmt.Sprintf("%.1f %% of its capacity", 100**e.Share))
	}
	return strings.Join(words, ", ")
}
