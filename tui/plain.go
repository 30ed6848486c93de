package tui

import (
	"fmt"
	"io"
	"strings"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// Plain prints what changes between snapshots, one line each, for screen
// readers and logs. It never moves the cursor and uses no colour.
type Plain struct {
	w        io.Writer
	begun    bool
	replicas map[wire.Replica]*seen
	open     map[string]string // open findings by what they are about: title
	closed   map[string]bool
	headline string
	noted    map[said]int // notes by how often they had been made when last said
}

// said is what tells one note from another.
type said struct {
	replica wire.Replica
	text    string
}

// seen is what was said of a replica.
type seen struct {
	trust string
	link  wire.LinkState
	marks int // marks said, those that fell off the list included
}

// NewPlain makes a Plain that has said nothing.
func NewPlain(w io.Writer) *Plain {
	return &Plain{w: w, replicas: map[wire.Replica]*seen{}, open: map[string]string{}, closed: map[string]bool{}, noted: map[said]int{}}
}

// markWords says which marks get a line, and how it begins. Joins and links
// show as trust and link.
var markWords = map[string]string{
	"gap": "gap", "healed": "healed", "restart": "restarted", "cleared": "cleared its cache in batch",
	"undecodable": "undecodable", "replay-begin": "replay began from", "replay-end": "replay ended at",
}

// Next prints what is different in a newer snapshot.
func (p *Plain) Next(s *observe.Snapshot) error {
	var b strings.Builder
	line := func(t wire.Time, format string, args ...any) {
		fmt.Fprintf(&b, "%s %s\n", clock(t), clean(fmt.Sprintf(format, args...)))
	}
	if !p.begun && s.Until != 0 {
		p.begun = true
		line(s.Until, "%s, from %s UTC", s.Source, date(s.From))
	}
	for i := range s.Replicas {
		p.replica(&s.Replicas[i], s.Until, line)
	}
	for _, n := range s.Notes {
		key := said{n.Replica, n.Text}
		if p.noted[key] >= n.Times {
			continue
		}
		p.noted[key] = n.Times
		who := ""
		if n.Replica != "" {
			who = string(n.Replica) + ": "
		}
		line(n.At, "note %s%s", who, n.Text)
	}
	p.findings(s, line)
	h := diagnose.Headline(diagnose.View{Now: s.Until, Replicas: s.Replicas}, s.Findings)
	if gist := strings.Map(withoutDigits, h); p.begun && gist != p.headline { // a doubt that shrinks is no news
		p.headline = gist
		line(s.Until, "%s", h)
	}
	_, err := io.WriteString(p.w, b.String())
	return err
}

func (p *Plain) replica(r *diagnose.Replica, now wire.Time, line func(wire.Time, string, ...any)) {
	was := p.replicas[r.Replica]
	trust := r.Trust.String()
	if was == nil {
		was = &seen{trust: trust, link: r.Link}
		p.replicas[r.Replica] = was
		line(now, "%s seen, trust %s, link %s%s", r.Replica, trust, r.Link, linkWhy(r))
	}
	all := r.MarksLost + len(r.Marks)
	for _, m := range r.Marks[min(max(was.marks-r.MarksLost, 0), len(r.Marks)):] {
		if word, ok := markWords[string(m.Kind)]; ok {
			line(m.At, "%s %s%s", r.Replica, word, markRange(string(m.Kind), m.Seq, m.To, m.Text))
		}
	}
	was.marks = all
	if was.link != r.Link {
		line(now, "%s link %s -> %s%s", r.Replica, was.link, r.Link, linkWhy(r))
	}
	if was.trust != trust {
		line(now, "%s trust %s -> %s%s", r.Replica, was.trust, trust, doubtWords(r))
	}
	was.trust, was.link = trust, r.Link
}

// linkWhy is the reason of a link that is not up.
func linkWhy(r *diagnose.Replica) string {
	if r.Link == wire.LinkUp || r.LinkText == "" || r.LinkText == r.Link.String() {
		return ""
	}
	return ": " + r.LinkText
}

func withoutDigits(r rune) rune {
	if r >= '0' && r <= '9' {
		return -1
	}
	return r
}

func doubtWords(r *diagnose.Replica) string {
	if r.Trust.Exact() || r.Doubt <= 0 {
		return ""
	}
	return fmt.Sprintf(", %d of %d blocks in doubt", r.Doubt, r.Facts.Capacity)
}

// markRange says which batches a mark is about.
func markRange(kind string, seq, to uint64, text string) string {
	out := fmt.Sprintf(" %d", seq)
	switch {
	case kind == "restart":
		out = fmt.Sprintf(": batch %d after %d", to, seq)
	case to > seq:
		out = fmt.Sprintf(" %d-%d", seq, to)
	}
	if text != "" {
		out += ", " + text
	}
	return out
}

// findings says which findings are new and which are over.
func (p *Plain) findings(s *observe.Snapshot, line func(wire.Time, string, ...any)) {
	for i := range s.Findings {
		f := &s.Findings[i]
		key := fmt.Sprintf("%s %s %d", f.Code, f.Subject, f.Since)
		_, known := p.open[key]
		if !known && !p.closed[key] {
			line(f.Since, "finding %s %s %s: %s. Next: %s", f.Severity, f.Code, f.Subject, f.Title, f.Next)
		}
		switch {
		case f.Open():
			p.open[key] = f.Title
		case !p.closed[key]:
			if known {
				line(*f.Until, "finding over: %s %s", f.Code, f.Subject)
			}
			delete(p.open, key)
			p.closed[key] = true
		}
	}
}
