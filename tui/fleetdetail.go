package tui

import (
	"fmt"
	"strings"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// Below the fleet's rows, where there is room, stands what is known of the
// selected replica: the whole trust, and what to do next.
const (
	detailLeast = 5  // lines, or it is left out
	detailMost  = 14 // lines
)

// detailLines shares a body of h lines between n rows and the detail.
func detailLines(n, h int) int {
	room := h - 2 - n // below the head and a blank line
	if room < detailLeast {
		return 0
	}
	return min(room, detailMost)
}

// detail draws what is known of a replica in at most h lines.
func (f *fleetView) detail(s *scene, r *diagnose.Replica, w, h int) []string {
	t := s.theme
	out := boxHead(t, nameOf(r.Replica)+": "+trustText(r), w)
	said := func(name, text string) {
		for i, l := range wrap(clean(text), w-12, 2) {
			if i > 0 {
				name = ""
			}
			out = append(out, " "+t.dim.render(fit(name, 9))+" "+l)
		}
	}
	said("stream", streamWords(s, r))
	said("engine", engineWords(r))
	if asked, ok := s.snap.Replay[r.Replica]; ok {
		said("replay", replayWords(&asked))
	}
	if r.LastError != "" {
		said("error", r.LastError)
	}
	if r.ScrapeError != "" {
		said("metrics", r.ScrapeError)
	}
	quiet := true
	for i := range s.snap.Findings {
		x := &s.snap.Findings[i]
		if x.Subject != string(r.Replica) {
			continue
		}
		quiet = false
		state := ""
		if !x.Open() {
			state = " (over)"
		}
		said(x.Severity.String(), s.when(x.Since)+" "+x.Title+state)
		if x.Open() {
			said("", glyphArrow+" "+x.Next)
		}
	}
	if quiet {
		said("findings", "none")
	}
	if len(out) > h {
		out = append(out[:h-1], " "+t.dim.render(fmt.Sprintf("%s %d more lines: 5 shows all findings", glyphMore, len(out)-h+1)))
	}
	return out
}

// streamWords says what came of the stream.
func streamWords(s *scene, r *diagnose.Replica) string {
	if !r.Heard {
		return "no batch yet, " + linkWords(r)
	}
	said := []string{
		fmt.Sprintf("batches %s–%s of epoch %d", wire.Grouped(r.First), wire.Grouped(r.Last), r.Epoch),
		"last one " + s.when(r.LastBatch),
	}
	if r.Restarts > 0 {
		said = append(said, wire.Counted(r.Restarts, "restart"))
	}
	if r.GapsOpen > 0 {
		said = append(said, fmt.Sprintf("%s open (%s missing)", wire.Counted(r.GapsOpen, "gap"), wire.Grouped(r.MissingNow)))
	}
	if r.GapsHealed > 0 {
		said = append(said, wire.Counted(r.GapsHealed, "gap")+" healed")
	}
	if r.Link != wire.LinkUnknown {
		said = append(said, linkWords(r))
	}
	if r.Undecodable > 0 {
		said = append(said, wire.Grouped(r.Undecodable)+" undecodable")
	}
	return strings.Join(said, ", ")
}

// linkWords says how the link is, and why.
func linkWords(r *diagnose.Replica) string {
	link := "link " + r.Link.String()
	if r.LinkText != "" && r.LinkText != r.Link.String() {
		link += " (" + r.LinkText + ")"
	}
	return link
}

// replayWords says what was asked of the replay socket, and what still may be.
func replayWords(a *observe.Replay) string {
	if a.Address == "" {
		return "no replay socket of this replica is known"
	}
	said := fmt.Sprintf("policy %s, %s sent, %d left this minute", a.Policy, wire.Counted(int(a.Requests), "request"), a.Left)
	if a.Batches > 0 {
		said += ", " + wire.Counted(int(a.Batches), "batch") + " received"
	}
	switch {
	case a.Running:
		said += ", an answer is coming"
	case a.Last != "":
		said += "; the last one: " + a.Last
	}
	return said
}

// engineWords says what runs there.
func engineWords(r *diagnose.Replica) string {
	said := []string{"model " + orNone(r.Model), "block size " + wire.Grouped(r.Index.BlockSize), "events " + orNone(r.Dialect)}
	if r.Index.Recipe != "" {
		said = append(said, "hash "+r.Index.Recipe)
	}
	if r.Index.Orphans > 0 {
		said = append(said, wire.Counted(r.Index.Orphans, "orphan block"))
	}
	if r.Index.Implied > 0 {
		said = append(said, wire.Counted(r.Index.Implied, "block")+" proved by use")
	}
	return strings.Join(said, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
