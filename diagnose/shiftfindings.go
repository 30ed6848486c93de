package diagnose

import (
	"fmt"
	"strings"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/wire"
)

const (
	// least is how many members make a finding: a few prompts may always part.
	least = 4
	// quiet is how long no new member came when a family is over.
	quiet = wire.Time(600e9)
	// dear is the part of all blocks stored that must be wasted to warn: one of so many.
	dear = 25
)

// shiftsOf gives the findings of one check among the families.
func shiftsOf(code string) func(View, Memory) []Finding {
	return func(v View, memory Memory) []Finding {
		m := memory.(*shifts)
		var out []Finding
		for _, f := range m.families {
			if f.code == code && f.members >= least && v.Now-f.last <= quiet {
				out = append(out, f.finding(v.Now, m))
			}
		}
		return out
	}
}

// finding words a family.
func (f *family) finding(now wire.Time, m *shifts) Finding {
	members, blocks := f.hour.last(now)
	all, stored := m.requests.last(now)
	out := Finding{
		Severity: Warning, Subject: "fleet", Since: f.first, about: fmt.Sprint(f.id),
		Evidence: Evidence{Block: p(f.low / f.size), Token: p(f.low)},
		Effect:   Effect{Blocks: p(blocks), Tokens: p(blocks * f.size)},
	}
	if blocks*dear < stored {
		out.Severity = Info
	}
	if !f.ownText() {
		members++ // the first, which lost nothing
	}
	requests := fmt.Sprintf("%s of %s requests that stored blocks in the last hour", wire.Grouped(members), wire.Grouped(max(all, members)))
	wasted := fmt.Sprintf("%s were computed again", count(uint64(blocks), "block"))
	where := fmt.Sprintf("token %s (block %s)", wire.Grouped(f.low), wire.Grouped(f.low/f.size))
	if f.ownText() {
		where = fmt.Sprintf("token %s (block %s)", wire.Grouped(f.token), wire.Grouped(f.token/f.size))
		out.Evidence.Block, out.Evidence.Token = p(f.token/f.size), p(f.token)
	}
	what := f.what()
	if f.spelled {
		out.Evidence.Span = p(strings.TrimSpace(f.class.String() + " " + f.detail))
	}
	switch f.code {
	case "boundary-shift":
		out.Title = fmt.Sprintf("%s differ at %s in %s, before text that is the same: %s", requests, where, what, wasted)
		out.Counterfactual = fmt.Sprintf("with it behind the text that stays the same, %s of %s blocks of such a request are reused, now %s", wire.Grouped(f.can), wire.Grouped(f.total), wire.Grouped(f.now))
		out.Next = "move it behind the text that stays the same: to the end of the system prompt or into the last message"
	case "order-shift":
		out.Title = fmt.Sprintf("%s have the same content from %s on, in another order or form: %s, %s", requests, where, what, wasted)
		out.Counterfactual = fmt.Sprintf("in one order or form, %s of %s blocks of such a request are reused, now %s", wire.Grouped(f.can), wire.Grouped(f.total), wire.Grouped(f.now))
		out.Next = "have every client write it alike: tools and JSON keys sorted by name, one serialiser, and nothing that iterates over a map"
	case "template-drift":
		out.Title = fmt.Sprintf("%s render what was there before differently, the last at %s: %s, %s", requests, where, what, wasted)
		out.Counterfactual = fmt.Sprintf("rendered alike, %s of %s blocks of such a request are reused, now %s", wire.Grouped(f.can), wire.Grouped(f.total), wire.Grouped(f.now))
		out.Next = "render two turns of one chat and compare them (kvscope diff): have the template keep what was generated, think blocks included, and add one beginning-of-text token"
	case "multimodal-first":
		out.Title = fmt.Sprintf("%s have the same text behind other pictures, from block %s on: %s", requests, wire.Grouped(f.low/f.size), wasted)
		out.Counterfactual = fmt.Sprintf("with the pictures behind the text that stays the same, %s more blocks of such a request are reused", wire.Grouped(f.lost()))
		out.Next = "put pictures behind the instructions that stay the same"
	}
	if !f.spelled && f.code != "multimodal-first" {
		out.Next = "give --tokenizer DIR to see what is there; then " + out.Next
	}
	return out
}

// what names the span.
func (f *family) what() string {
	how := fmt.Sprintf("%s replaced by as many", count(uint64(f.is), "token"))
	if f.resized {
		how = fmt.Sprintf("about %s resized, so that what follows shifts", count(uint64(max(f.is, f.was)), "token"))
	}
	switch {
	case f.class == diff.ListOrder && !f.spelled:
		return "the same tokens in another order"
	case !f.spelled && f.class != diff.BOS:
		return how
	}
	name := f.class.String()
	if f.detail != "" {
		name += " (" + f.detail + ")"
	}
	if f.also != "" {
		name += " and " + f.also
	}
	return name + ", " + how
}
