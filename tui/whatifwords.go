package tui

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// promptParts says what was asked and as of when.
func (v *whatIf) promptParts(s *scene) []string {
	var sizes []string
	for i := range v.answer.Rows {
		r := &v.answer.Rows[i]
		if r.BlockSize <= 0 {
			continue
		}
		if words := wire.Counted(r.Blocks, "block") + " of " + wire.Grouped(r.BlockSize); !slices.Contains(sizes, words) {
			sizes = append(sizes, words)
		}
	}
	parts := []string{s.theme.title.render("prompt " + wire.Counted(v.answer.Tokens, "token"))}
	if len(sizes) > 0 {
		parts = append(parts, strings.Join(sizes[:min(len(sizes), 3)], ", "))
	}
	if v.rule.model != "" {
		parts = append(parts, "model "+clean(v.rule.model))
	}
	if v.why != nil {
		parts = append(parts, "policy "+v.why.Policy)
	}
	now := "as of " + clock(v.answer.Now) + " UTC"
	if s.frozen && !s.recording {
		now = s.theme.warn.render("as of now, " + clock(v.answer.Now) + " UTC: the screen is frozen")
	}
	parts = append(parts, now)
	if v.waits() { // asking again goes on all the time in a live fleet
		parts = append(parts, "reading another prompt"+waitWords(s))
	}
	if made := v.prompt.madeBy(); made != "" {
		parts = append(parts, made)
	}
	switch notes := v.prompt.Notes; {
	case len(notes) == 1 && len(notes[0]) <= shortNote:
		parts = append(parts, s.theme.dim.render(clean(notes[0])))
	case len(notes) > 0:
		parts = append(parts, s.theme.warn.render(wire.Counted(len(notes), "note")+" on it below"))
	}
	for i := range parts[1:] {
		parts[i+1] = "· " + parts[i+1]
	}
	return parts
}

// shortNote is how long a note can be that stands among what was asked.
const shortNote = 48

// waitWords says what a prompt can be waiting for.
func waitWords(s *scene) string {
	if s.state == "" {
		return ""
	}
	return " (" + clean(s.state) + ")"
}

// verdict says in a sentence who holds most. Of those that hold as much it tells the
// number of one that is sure.
func (v *whatIf) verdict() string {
	rows := v.answer.Rows
	if len(rows) == 0 {
		return "No replica has been seen."
	}
	best, many := &rows[0], 0
	for i := range rows {
		switch r := &rows[i]; {
		case r.CachedTokens > best.CachedTokens:
			best, many = r, 1
		case r.CachedTokens == best.CachedTokens:
			if many++; about(best) != "" {
				best = r
			}
		}
	}
	if best.CachedTokens == 0 {
		return "No replica holds its beginning: it is computed from the first token, wherever it goes."
	}
	who, where := nameOf(best.Replica)+" holds most", "its cache"
	switch {
	case many > 1 && many == len(rows):
		who, where = fmt.Sprintf("All %d replicas hold as much", many), "any of their caches"
	case many > 1:
		who, where = fmt.Sprintf("%d replicas hold most", many), "any of their caches"
	}
	return fmt.Sprintf("%s: %s of %s tokens (%s) would come from %s.",
		who, about(best)+wire.Grouped(best.CachedTokens), wire.Grouped(v.answer.Tokens), v.share(&whatIfRow{Row: best}), where)
}
