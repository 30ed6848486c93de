package diff

import (
	"fmt"
	"strings"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// Summary says in a sentence where the prompts, by these names, part, what is
// there, and what it costs. It holds no text of the prompts but names of headers.
func (d *Diff) Summary(a, b string) string {
	var out strings.Builder
	total := d.total()
	switch d.Relation {
	case Equal:
		fmt.Fprintf(&out, "%s and %s are equal", a, b)
		if d.HasTokens {
			fmt.Fprintf(&out, ": %s, %s", wire.Counted(d.common(), "token"), wire.Counted(d.common()/d.BlockSize, "full block"))
		}
	case Extends:
		longer, shorter := a, b
		if d.A.After == "" && d.Tokens[0] <= d.Tokens[1] {
			longer, shorter = b, a
		}
		fmt.Fprintf(&out, "%s begins with all of %s", longer, shorter)
		if d.HasTokens {
			fmt.Fprintf(&out, ": %s, %s", wire.Counted(d.common(), "token"), wire.Counted(d.common()/d.BlockSize, "full block"))
		}
	case Unrelated:
		fmt.Fprintf(&out, "%s and %s are unrelated", a, b)
		if d.HasTokens {
			fmt.Fprintf(&out, ": they share the first %s, %d of %s", wire.Counted(d.common(), "token"), d.Reuse.Now, wire.Counted(total, "block"))
		}
	case Parts:
		fmt.Fprintf(&out, "%s and %s part at %s, %s", a, b, d.at(), d.Difference(a, b))
	}
	if d.HasTokens && d.Certain < max(d.Tokens[0], d.Tokens[1]) {
		fmt.Fprintf(&out, "; tokens from %s on cannot be compared, since the engine puts media there", wire.Grouped(d.Certain))
	}
	if d.Namespace != "" {
		fmt.Fprintf(&out, "; their %s differs, so they share no block whatever their tokens are", d.Namespace)
	}
	return out.String()
}

// Difference says what parts the prompts, without where; it is empty unless they
// part in spans.
func (d *Diff) Difference(a, b string) string {
	if d.Relation != Parts {
		return ""
	}
	out := d.Spans[0].phrase(a, b)
	if more := d.others(); more != "" {
		out += "; " + more
	}
	if d.HasTokens && d.Namespace == "" {
		out += "; " + d.cost(d.total())
	}
	return out
}

// common counts the leading tokens that are surely shared.
func (d *Diff) common() int { return min(d.Common, d.Certain) }

// total counts the full blocks that the prompts could share at most.
func (d *Diff) total() int { return min(d.Tokens[0], d.Tokens[1]) / max(d.BlockSize, 1) }

// at says where the prompts part.
func (d *Diff) at() string {
	at := fmt.Sprintf("byte %s", wire.Grouped(d.A.Byte))
	if d.HasTokens {
		at = fmt.Sprintf("token %s (block %s)", wire.Grouped(d.Common), wire.Grouped(d.Block))
	}
	where := d.A.Where
	if d.Spans[0].A.empty() || !where.known() {
		where = d.B.Where
	}
	switch {
	case where.Part == prompt.Tools:
		at += " in the tools"
	case where.Message >= 0:
		at += fmt.Sprintf(" in message %d", where.Message)
		if where.Role != "" {
			at += ", " + wire.Printable(where.Role)
		}
	}
	return at
}

// phrase says what a span is.
func (s *Span) phrase(a, b string) string {
	what := classes[s.Class].phrase
	switch s.Class {
	case Deletion:
		what += " " + a + " has"
	case Insertion:
		what += " " + b + " has"
	}
	switch {
	case s.Class == Timestamp:
		what += map[string]string{
			"second": " of 1 s resolution", "minute": " of 1 min resolution",
			"ms": " of 1 ms resolution", "µs": " of 1 µs resolution", "ns": " of 1 ns resolution",
		}[s.Detail]
	case s.Detail != "" && s.Class != Date:
		what += " (" + wire.Printable(s.Detail) + ")"
	}
	was, is := s.A.End-s.A.Start, s.B.End-s.B.Start
	switch {
	case s.Kind == Uncounted:
		return what
	case s.Kind == Replaced:
		return fmt.Sprintf("%s, %s replaced by as many", what, wire.Counted(was, "token"))
	case was == 0 || is == 0:
		return fmt.Sprintf("%s, %s", what, wire.Counted(was+is, "token"))
	}
	return fmt.Sprintf("%s, %s resized to %s", what, wire.Counted(was, "token"), wire.Grouped(is))
}

// others names the volatile spans, where there is more than the first.
func (d *Diff) others() string {
	var names []string
	for _, s := range d.Spans {
		if s.Remedied {
			names = append(names, s.Class.String())
		}
	}
	if len(names) < 2 {
		return ""
	}
	const most = 4
	more := ""
	if len(names) > most {
		more = fmt.Sprintf(" and %d more", len(names)-most)
	}
	return fmt.Sprintf("%d volatile spans (%s%s)", len(names), strings.Join(names[:min(len(names), most)], ", "), more)
}

// cost says what is reusable.
func (d *Diff) cost(total int) string {
	now := fmt.Sprintf("%s of %s reusable", wire.Grouped(d.Reuse.Now), wire.Counted(total, "full block"))
	if d.Reuse.Lost == 0 {
		return now
	}
	how := "with it moved last"
	switch n, forms := d.remedies(); {
	case n == forms:
		how = "in one form"
		switch d.Spans[0].Class {
		case ToolOrder, ListOrder, KeyOrder:
			how = "in one order"
		}
	case n > 1 && forms > 0:
		how = "with them moved last or in one form"
	case n > 1:
		how = "with them moved last"
	}
	return fmt.Sprintf("%s, %s %s", now, wire.Grouped(d.Reuse.Moved), how)
}

// remedies counts the spans that are remedied, and those by one form.
func (d *Diff) remedies() (n, forms int) {
	for _, s := range d.Spans {
		if s.Remedied {
			n++
			if s.Remedy == SameForm {
				forms++
			}
		}
	}
	return n, forms
}
