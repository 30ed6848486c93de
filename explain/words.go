package explain

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// This file holds the words that all views of an answer share.

// Verdict says in a sentence where the prompt goes and why.
func (a *Answer) Verdict() string {
	why := "all that are eligible are equal"
	switch {
	case len(a.Choice) == 0:
		return "It goes nowhere: " + a.Why + "."
	case a.Deciding != "":
		why = fmt.Sprintf("before %s by %s (%s)", name(a.Against), a.Deciding, Number(a.Margin))
	case len(a.Choice) == 1:
		why = "it alone is eligible"
	}
	switch n := len(a.Choice); {
	case n == 1:
		return fmt.Sprintf("It goes to %s, %s.", name(a.Choice[0]), why)
	case n == len(a.Best):
		return fmt.Sprintf("It goes to any of %s, which tie: %s.", Names(a.Choice), why)
	}
	return fmt.Sprintf("It is drawn, most likely to go to %s, %s.", name(a.Choice[0]), why)
}

// Longest says in a sentence who has the most of the prompt cached, and what it costs
// there, where that is not who gets it; it is empty otherwise.
func (a *Answer) Longest() string {
	if len(a.Choice) == 0 {
		return ""
	}
	depth := func(c *Candidate) (n int) {
		for _, blocks := range c.Match {
			n += blocks
		}
		return n
	}
	var best, chosen *Candidate
	for i := range a.Candidates {
		c := &a.Candidates[i]
		if best == nil || depth(c) > depth(best) {
			best = c
		}
		if slices.Contains(a.Choice, c.Replica) && (chosen == nil || depth(c) > depth(chosen)) {
			chosen = c
		}
	}
	if chosen == nil || depth(best) <= depth(chosen) {
		return ""
	}
	said := fmt.Sprintf("The longest prefix is on %s, %d of %s", name(best.Replica), depth(best), wire.Counted(a.Blocks, "block"))
	if best.Rank == 0 {
		return said + ", but it is not eligible."
	}
	return said + fmt.Sprintf(", at a cost of %s against %s.", Number(best.Cost), Number(chosen.Cost))
}

// Equal says in a sentence which terms cancel; it is empty where none does that
// costs anything.
func (a *Answer) Equal() string {
	var same []string
	for _, c := range a.Candidates[:min(len(a.Candidates), 1)] {
		for _, t := range c.Terms {
			if slices.Contains(a.Cancels, t.Name) && t.Cost != 0 {
				same = append(same, t.Name+" "+Number(t.Cost))
			}
		}
	}
	if len(same) == 0 {
		return ""
	}
	return "Equal for all, so it cancels: " + strings.Join(same, ", ") + "."
}

// Telling are the terms, by their places, that differ and cost anybody something.
func (a *Answer) Telling() []int {
	var out []int
	if len(a.Candidates) == 0 {
		return nil
	}
	for i, t := range a.Candidates[0].Terms {
		costs := func(c Candidate) bool { return c.Rank > 0 && c.Terms[i].Cost != 0 }
		if !slices.Contains(a.Cancels, t.Name) && slices.ContainsFunc(a.Candidates, costs) {
			out = append(out, i)
		}
	}
	return out
}

// Words says how a load is known. They may hold text of a source.
func (l *Load) Words() string {
	words := l.State.String()
	if l.From != "" {
		words += ", from " + l.From
	}
	if len(l.Missing) > 0 && l.State != route.LoadUnknown {
		words += "; nobody tells " + strings.Join(l.Missing, ", ") + ", which counts as 0"
	}
	if l.Note != "" {
		words += "; " + l.Note
	}
	return words
}

// ByHand says that something of the load was given by hand.
func (l *Load) ByHand() bool { return strings.HasSuffix(l.From, fromHand) }

// Names lists some replicas.
func Names(all []wire.Replica) string {
	const most = 8
	out := make([]string, 0, most)
	for i, r := range all {
		if i == most {
			return strings.Join(out, ", ") + fmt.Sprintf(" and %d more", len(all)-most)
		}
		out = append(out, name(r))
	}
	return strings.Join(out, ", ")
}

// Number writes a cost with up to three decimals.
func Number(v float64) string {
	return strconv.FormatFloat(math.Round(v*1e3)/1e3, 'f', -1, 64)
}

func name(r wire.Replica) string {
	if r == "" {
		return `""`
	}
	return wire.Printable(string(r))
}
