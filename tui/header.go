package tui

import (
	"fmt"
	"math"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// header draws the lines above a view's body.
func (m *model) header(s *scene, l layout) []string {
	out := []string{m.topLine(s, l.w)}
	if l.headline > 0 {
		text := diagnose.Headline(diagnose.View{Now: s.snap.Until, Replicas: s.snap.Replicas}, s.snap.Findings)
		for _, line := range wrap(clean(text), l.w-2, l.headline) {
			out = append(out, " "+m.theme.strong.render(line))
		}
	}
	if l.counters > 0 {
		out = append(out, flow(counters(s.snap, m.theme), l.w, l.counters)...)
	}
	if l.rule {
		out = append(out, m.theme.rule.render(strings.Repeat(glyphRule, l.w)))
	}
	return out
}

// topLine says what is shown, of which moment, and where help is.
func (m *model) topLine(s *scene, w int) string {
	t := m.theme
	right := t.key.render("?") + t.dim.render(" help ")
	narrow := w < 60
	if narrow {
		right = t.key.render("?") + " "
	} else {
		right = m.moment(s) + "  " + right
	}
	v := m.view()
	left := []string{
		t.title.render(" kvscope"), t.title.render(fmt.Sprintf("%c %s", v.digit(), title(v.name()))),
		clean(s.snap.Source), wire.Counted(len(s.snap.Replicas), "replica"),
	}
	if narrow {
		left = append(left[:2:2], m.shortMoment(s))
	}
	if f := m.filters[v.name()]; f.active() {
		left = append(left[:2:2], append([]string{t.warn.render("/" + clean(f.String()))}, left[2:]...)...)
	}
	room := w - ansi.StringWidth(right) - 1
	line := left[0]
	for i, part := range left[1:] {
		sep := "  "
		if i > 0 {
			sep = t.dim.render(" · ")
		}
		if ansi.StringWidth(line+sep+part) > room {
			part = cut(part, room-ansi.StringWidth(line+sep))
			if ansi.StringWidth(part) < 4 {
				break
			}
		}
		line += sep + part
	}
	return fit(line, room) + " " + right
}

// shortMoment is moment for narrow terminals.
func (m *model) shortMoment(s *scene) string {
	sign := map[bool]string{true: glyphPlay, false: glyphPause}[m.play.playing]
	at := clock(s.snap.Until) + "Z"
	switch {
	case m.opt.Player != nil:
		return sign + " " + at
	case m.frozen:
		return "frozen " + at
	}
	return "live " + at
}

func title(name string) string { return strings.ToUpper(name[:1]) + name[1:] }

// moment says when the shown state was, and whether time goes on.
func (m *model) moment(s *scene) string {
	at := clock(s.snap.Until) + " UTC"
	t := m.theme
	switch {
	case m.opt.Player == nil && m.frozen:
		age := m.opt.Clock().Sub(m.frozenAt)
		more := uint64(0)
		if m.newest != nil && m.newest.Records > s.snap.Records {
			more = m.newest.Records - s.snap.Records
		}
		return t.warn.render(fmt.Sprintf("frozen %02d:%02d, +%s records", int(age.Minutes()), int(age.Seconds())%60, wire.Grouped(more))) + " " + at
	case m.opt.Player != nil && m.play.playing: // also where nothing happens for a while
		at = clock(min(m.play.target(m.opt.Clock()), m.end.Until)) + " UTC"
	case m.opt.Player == nil:
		return t.ok.render("live") + " " + at
	}
	word := glyphPause + " paused"
	if m.play.playing {
		word = fmt.Sprintf("%s playing %s×", glyphPlay, speeds[m.play.speed].word)
	}
	if m.play.busy && !m.play.playing {
		word = "seeking"
	}
	share := 100
	if m.play.of > 0 {
		share = m.play.at * 100 / m.play.of
	}
	return t.info.render(fmt.Sprintf("recording %3d %% %s", share, word)) + " " + at
}

// worst is the highest badness of a word of trust.
const worst = 4

// counters gives the fleet's numbers as pieces that stay whole.
func counters(s *observe.Snapshot, t *theme) []string {
	var count [worst + 1]int // of replicas, by how bad their trust is
	var word [worst + 1]string
	for i := range s.Replicas {
		w := s.Replicas[i].Trust.Word
		count[w.Badness()]++
		word[w.Badness()] = string(w)
	}
	sure := count[0] == len(s.Replicas)
	mark := ""
	if !sure {
		mark = glyphApprox
	}
	trust := []string{t.dim.render("trust")}
	for bad := worst; bad >= 0; bad-- {
		if n := count[bad]; n > 0 {
			trust = append(trust, t.trust(bad).render(fmt.Sprintf("%d %s", n, word[bad])))
		}
	}
	b := s.Blocks
	blocks := fmt.Sprintf("%s %s%s resident, %s%s unique", t.dim.render("blocks"), mark, wire.Grouped(b.Resident),
		mark, percent(float64(b.Resident-b.Shared), float64(b.Resident)))
	hit, cv := load(s.Replicas)
	parts := []string{
		strings.Join(trust, " "), blocks,
		fmt.Sprintf("%s %s %s %s %s", t.dim.render("hit"), hit, t.dim.render(glyphBar), t.dim.render("cv"), cv),
	}
	return append(parts, ledger(s, t, mark)...)
}

// load gives the share of looked-up prompt tokens that the engines' caches
// served, and how unevenly requests are spread: standard deviation over mean
// of running and waiting requests. A high hit rate bought with a high cv is no
// good routing.
func load(replicas []diagnose.Replica) (hit, cv string) {
	var hits, queried float64
	var n, sum, squares float64
	for i := range replicas {
		l := &replicas[i].Load
		if !l.Known {
			continue
		}
		if _, ok := l.HitRate(); ok {
			hits += l.HitTokens
			queried += l.QueriedTokens
		}
		x := l.Running + l.Waiting
		n++
		sum += x
		squares += x * x
	}
	hit, cv = percent(hits, queried), glyphNone
	if n >= 2 && sum > 0 {
		mean := sum / n
		cv = fmt.Sprintf("%.2f", math.Sqrt(max(0, squares/n-mean*mean))/mean)
	}
	return hit, cv
}

// ledger says why blocks had to be stored, in shares.
func ledger(s *observe.Snapshot, t *theme, mark string) []string {
	l := s.Ledger
	total := float64(l.First + l.Elsewhere + l.EvictedHere + l.EvictedElsewhere + l.Duplicate + l.Unattached)
	if total == 0 {
		return []string{t.dim.render("of stores: ") + glyphNone}
	}
	var said []string
	for _, x := range []struct {
		n    uint64
		word string
	}{
		{l.First, "new"},
		{l.Elsewhere, "cached elsewhere"},
		{l.EvictedHere + l.EvictedElsewhere, "evicted before"},
		{l.Duplicate, "duplicate"},
		{l.Unattached, "unknown"},
	} {
		if x.n > 0 {
			said = append(said, fmt.Sprintf("%s%.0f %% %s", mark, 100*float64(x.n)/total, x.word))
		}
	}
	said[0] = t.dim.render("of stores: ") + said[0]
	for i := range said[:len(said)-1] {
		said[i] += ","
	}
	return said
}

// flow puts pieces on at most most lines; what does not fit is left out, last
// ones first.
func flow(parts []string, w, most int) []string {
	var out []string
	line := ""
	for _, p := range parts {
		sep := "   "
		if strings.HasSuffix(line, ",") {
			sep = " "
		}
		switch {
		case line == "":
			line = " " + p
		case ansi.StringWidth(line+sep+p) <= w-1:
			line += sep + p
		case len(out)+1 < most:
			out = append(out, line)
			line = " " + p
		default:
			return append(out, cut(strings.TrimSuffix(line, ","), w))
		}
	}
	return append(out, cut(line, w))
}
