package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// ExplainText writes where a prompt, asked, would go for people; damage as for
// Text.
func ExplainText(w io.Writer, a *explain.Answer, asked *prompt.Prompt, damage string) error {
	var b strings.Builder
	incomplete(&b, damage)
	fmt.Fprintf(&b, "%s\n", strings.TrimSpace(a.Verdict()+" "+a.Longest()))
	model := ""
	if a.Model != "" {
		model = ", model " + wire.Printable(a.Model)
	}
	fmt.Fprintf(&b, "A prompt of %s, %s of %d%s, by the policy %s as of %s.\n\n", wire.Counted(a.Tokens, "token"),
		wire.Counted(a.Blocks, "full block"), a.BlockSize, model, a.Policy, clock(a.Now))
	if asked.Encoder != "" {
		fmt.Fprintf(&b, "Read as %s.\n\n", Prompt(asked))
	}
	if len(a.ByPolicy) > 0 {
		policyTable(&b, a)
	} else {
		candidateTable(&b, a)
		candidateNotes(&b, a)
		flips(&b, a)
	}
	divergence(&b, a)
	routers(&b, a)
	settings(&b, a)
	for _, n := range a.Notes {
		fmt.Fprintf(&b, "note: %s\n", wire.Printable(n))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// candidateColumn is a column of the table of candidates. Those that no candidate
// fills are left out.
type candidateColumn struct {
	head  string
	value func(*explain.Candidate) string
}

// mostCandidates is how many rows are shown.
const mostCandidates = 20

func candidateTable(b *strings.Builder, a *explain.Answer) {
	cols := []candidateColumn{
		{"replica", func(c *explain.Candidate) string { return name(c.Replica) }},
		{"trust", func(c *explain.Candidate) string { return c.Trust.Words }},
		{"cost", func(c *explain.Candidate) string {
			if c.Rank == 0 {
				return "out"
			}
			return explain.Number(c.Cost)
		}},
		{"chance", func(c *explain.Candidate) string {
			if c.Probability == 0 {
				return ""
			}
			return percent(c.Probability, 1)
		}},
	}
	for tier, word := range []string{"device", "host", "disk", "external"} {
		cols = append(cols, candidateColumn{word, func(c *explain.Candidate) string {
			if c.Match[tier] == 0 && tier > 0 {
				return ""
			}
			return approx(c) + wire.Grouped(c.Match[tier])
		}})
	}
	cols = append(
		cols,
		candidateColumn{"cached tok", func(c *explain.Candidate) string { return approx(c) + wire.Grouped(c.CachedTokens) }},
		candidateColumn{"wait", func(c *explain.Candidate) string { return millis(c, c.WaitMS) }},
		candidateColumn{"prefill", func(c *explain.Candidate) string { return millis(c, c.PrefillMS) }},
		candidateColumn{"load", func(c *explain.Candidate) string { return c.Load.State.String() }},
	)
	cols = append(cols, termColumns(a)...)
	var shown []candidateColumn
	for _, col := range cols {
		if slices.ContainsFunc(a.Candidates, func(c explain.Candidate) bool { return col.value(&c) != "" }) {
			shown = append(shown, col)
		}
	}
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	for _, col := range shown {
		fmt.Fprintf(t, "%s\t", col.head)
	}
	fmt.Fprintln(t)
	for i := range a.Candidates[:min(len(a.Candidates), mostCandidates)] {
		for _, col := range shown {
			fmt.Fprintf(t, "%s\t", col.value(&a.Candidates[i]))
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	if more := len(a.Candidates) - mostCandidates; more > 0 {
		fmt.Fprintf(b, "… and %d more (--json lists all)\n", more)
	}
	if equal := a.Equal(); equal != "" {
		fmt.Fprintf(b, "%s\n", equal)
	}
}

// termColumns are the terms that differ, by what they add to the cost.
func termColumns(a *explain.Answer) []candidateColumn {
	var out []candidateColumn
	for _, i := range a.Telling() {
		head := a.Candidates[0].Terms[i].Name
		if head == a.Deciding {
			head += " ◂"
		}
		out = append(out, candidateColumn{head, func(c *explain.Candidate) string {
			if c.Rank == 0 {
				return ""
			}
			return explain.Number(c.Terms[i].Cost)
		}})
	}
	return out
}

// approx marks numbers of a replica that is not EXACT.
func approx(c *explain.Candidate) string {
	if c.Trust.Exact {
		return ""
	}
	return "~"
}

func millis(c *explain.Candidate, ms float64) string {
	if !c.Timed {
		return ""
	}
	return explain.Number(math.Round(ms*10)/10) + " ms"
}

// candidateNotes says where loads come from, candidates of one kind together, and
// what else there is to say of each.
func candidateNotes(b *strings.Builder, a *explain.Answer) {
	var order []string
	who := map[string][]wire.Replica{}
	say := func(words string, of wire.Replica) {
		if who[words] == nil {
			order = append(order, words)
		}
		who[words] = append(who[words], of)
	}
	for i := range a.Candidates {
		c := &a.Candidates[i]
		say("load "+c.Load.Words(), c.Replica)
		for _, note := range []string{c.Out, c.Note} {
			if note != "" {
				say(note, c.Replica)
			}
		}
	}
	for _, words := range order {
		fmt.Fprintf(b, "%s: %s\n", explain.Names(who[words]), wire.Printable(words))
	}
}

func flips(b *strings.Builder, a *explain.Answer) {
	if len(a.Flips) == 0 {
		return
	}
	b.WriteString("\nThe smallest changes that flip it:\n")
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	for _, f := range a.Flips {
		fmt.Fprintf(t, "  %s\t--set %s=%s\t%s in place of %s: then %s\n", f.Kind, wire.Printable(f.What), f.To, f.To, f.From, explain.Names(f.Then))
	}
	t.Flush()
}

func divergence(b *strings.Builder, a *explain.Answer) {
	d := a.Divergence
	b.WriteByte('\n')
	switch {
	case d == nil && a.Blocks == 0:
		b.WriteString("It has no full block, so nothing of it can be cached.\n")
		return
	case a.Unlike:
		fmt.Fprintf(b, "No candidate has blocks of %s, so none of it can be found in their caches.\n", wire.Counted(a.BlockSize, "token"))
		return
	case d == nil:
		b.WriteString("All its full blocks are stored as one chain.\n")
		return
	case d.Block == 0 && d.Token == 0:
		b.WriteString("No stored chain begins with its first token.\n")
		return
	}
	who := "no chain goes on from there"
	switch {
	case d.Replica != "" && d.Known:
		who = name(d.Replica) + " holds the chain that runs alongside it longest"
	case d.Replica != "":
		who = name(d.Replica) + " holds the nearest chain, whose tokens were not kept"
	}
	foreign := d.Foreign && len(d.Asked) == 0
	switch {
	case d.Foreign && len(d.Asked) > 0 && d.Known:
		who += ", but under another cache salt or LoRA (--salt, --lora)"
	case foreign:
		who = name(d.Replica) + " holds the same tokens under another cache salt or LoRA (--salt, --lora)"
	}
	fmt.Fprintf(b, "It leaves all stored chains in block %s at token %s (both from 0): %s. From there on no cache has it (%s).\n",
		wire.Grouped(d.Block), wire.Grouped(d.Token), who, wire.Counted(d.Lost, "full block"))
	if d.Diff == nil || foreign { // other chains have less in common
		return
	}
	const stored, here = "the stored chain", "this prompt"
	if what := d.Diff.Difference(stored, here); what != "" {
		fmt.Fprintf(b, "What parts it from a stored chain: %s.\n", what)
	}
	diffPlaces(b, d.Diff, stored, here)
	switch {
	case len(d.Diff.Spans) > 0:
		diffSpans(b, d.Diff, stored, here)
	case d.Diff.Relation == diff.Unrelated:
		b.WriteString("What follows has too little in common to say what differs.\n")
	}
}

// routers sets what routers said beside ours.
func routers(b *strings.Builder, a *explain.Answer) {
	if len(a.Asked) == 0 {
		return
	}
	b.WriteString("\nWhat was asked of routers:\n")
	for i := range a.Asked {
		said := &a.Asked[i]
		verdict, why := "differs", said.Why
		switch {
		case said.Err != "":
			verdict, why = "gives no answer", wire.Printable(said.Err)
		case said.Agrees:
			verdict = "agrees"
		}
		fmt.Fprintf(b, "  %s %s %s: %s\n", said.Who, wire.Printable(said.At), verdict, why)
		if said.Said != "" {
			fmt.Fprintf(b, "    %s\n", wire.Printable(said.Said))
		}
		if said.Err != "" || said.Choice == "" { // why is all of them
			continue
		}
		for _, d := range said.Differences {
			if !strings.Contains(why, d.Text) {
				fmt.Fprintf(b, "    %s: %s\n", d.What, d.Text)
			}
		}
	}
	b.WriteByte('\n')
}

// settings lists what is not a default.
func settings(b *strings.Builder, a *explain.Answer) {
	var own []string
	for _, s := range a.Config {
		if s.Origin != route.OriginDefault {
			own = append(own, fmt.Sprintf("%s %s (%s)", s.Name, or(wire.Printable(s.Value), "empty"), wire.Printable(s.Origin)))
		}
	}
	if len(own) == 0 {
		b.WriteString("Settings: all defaults.\n")
		return
	}
	fmt.Fprintf(b, "Settings that are no defaults: %s.\n", strings.Join(own, ", "))
}
