package prompt

import (
	"strings"

	"github.com/kvscope/kvscope/prompt/template"
)

// cover makes parts that cover a text of n bytes: the known ones, in order and
// apart from each other, and what lies between them. That is markup of the part
// that follows it, or of the same kind as its neighbours, where both are the tools
// or the calls of one message; what follows the last is of the kind rest.
func cover(known []Part, n int, rest Kind) []Part {
	var out []Part
	at := 0
	for _, p := range known {
		if p.Start > at {
			gap := Part{span(at, p.Start), Markup, p.Message, p.Role}
			if last := len(out) - 1; last >= 0 && out[last].joins(p) {
				gap.Kind = p.Kind
			}
			out = appendPart(out, gap)
		}
		out = appendPart(out, p)
		at = max(at, p.End)
	}
	if at < n {
		p := Part{span(at, n), rest, -1, ""}
		if len(out) > 0 && rest == Markup {
			p.Message, p.Role = out[len(out)-1].Message, out[len(out)-1].Role
		}
		out = appendPart(out, p)
	}
	return out
}

// joins tells that what lies between two parts is part of both.
func (p Part) joins(next Part) bool {
	return p.Kind == next.Kind && p.Message == next.Message && (p.Kind == Tools || p.Kind == Call)
}

// appendPart appends a part, or lengthens the last one by it.
func appendPart(parts []Part, p Part) []Part {
	if p.Start >= p.End {
		return parts
	}
	if last := len(parts) - 1; last >= 0 {
		q := &parts[last]
		if q.End == p.Start && q.Kind == p.Kind && q.Message == p.Message {
			q.End = p.End
			return parts
		}
	}
	return append(parts, p)
}

// kinds says what a field of a message becomes in a prompt; the others, such as
// its role, are markup.
var kinds = map[string]Kind{"content": Content, "reasoning": Content, "reasoning_content": Content, "tool_calls": Call}

// kindAt gives the kind of what stems from a place of a template's input, such as
// messages[3].content[0].text.
func kindAt(path string) Kind {
	if strings.HasPrefix(path, "tools") {
		return Tools
	}
	_, inner, _ := strings.Cut(path, "].")
	if end := strings.IndexAny(inner, ".["); end >= 0 {
		inner = inner[:end]
	}
	return kinds[inner]
}

// rendered is a chat as text.
type rendered struct {
	text  string
	parts []Part
}

// newRendered makes parts of what a template tells about its text.
func newRendered(r template.Rendered, messages []Message) rendered {
	var known []Part
	for _, l := range r.Leaves {
		p := Part{span(l.Start, min(l.End, r.Opening)), kindAt(l.Path), -1, ""}
		if l.Message >= 0 && l.Message < len(messages) {
			p.Message, p.Role = l.Message, messages[l.Message].Role
		} else if p.Kind != Tools {
			continue
		}
		if p.Start < p.End {
			known = append(known, p)
		}
	}
	parts := cover(known, r.Opening, Markup)
	return rendered{r.Text, appendPart(parts, Part{span(r.Opening, len(r.Text)), Opening, -1, ""})}
}

// unseen are the messages that have text of which none is in the rendered chat.
func (d *rendered) unseen(messages []Message) []int {
	seen := make([]bool, len(messages))
	for _, p := range d.parts {
		if p.Message >= 0 && (p.Kind == Content || p.Kind == Call) {
			seen[p.Message] = true
		}
	}
	var out []int
	for i := range messages {
		if said := strings.TrimSpace(strings.Join(messages[i].Texts(), "")); said != "" && !seen[i] {
			out = append(out, i)
		}
	}
	return out
}
