package tui

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// beat is what one bin of a replica's timeline shows.
type beat uint8

// The beats: first what a bin is filled with, then what stands out, the worst
// last.
const (
	beatNone   beat = iota // nothing can be known: before it joined, link down, not yet
	beatUntold             // older than the tape, so batches cannot be told from silence
	beatQuiet
	beatBusy
	_
	_
	beatBusiest
	beatReplay
	beatHealed
	beatUp
	beatCleared
	beatDown
	beatUndecodable
	beatRestart
	beatGap
	numBeats
)

// beats says how each beat looks and what the legend calls it.
var beats = [numBeats]struct {
	glyph, ascii string
	words        string
}{
	beatNone:        {" ", " ", ""},
	beatUntold:      {"┄", "_", "before the tape"},
	beatQuiet:       {glyphRule, "-", "quiet"},
	beatBusy:        {"▁", ".", ""},
	beatBusy + 1:    {"▃", ":", ""},
	beatBusy + 2:    {"▅", "+", ""},
	beatBusiest:     {"▇", "#", "busy"},
	beatReplay:      {glyphReplay, "~", "replay"},
	beatHealed:      {"╱", "/", "gap, healed"},
	beatUp:          {"├", "[", "joined late or back"},
	beatCleared:     {glyphClear, "o", "cleared"},
	beatDown:        {"┤", "]", "link lost"},
	beatUndecodable: {"!", "!", "unreadable"},
	beatRestart:     {glyphRestart, "|", "restart"},
	beatGap:         {glyphGap, "x", "gap"},
}

// markBeats maps kinds of marks. Gaps are taken from the list of gaps, which
// says whether they healed.
var markBeats = map[string]beat{
	"restart": beatRestart, "cleared": beatCleared, "undecodable": beatUndecodable,
	"replay-begin": beatReplay, "link-down": beatDown, "link-up": beatUp, "join": beatUp,
}

// period is a stretch of time with both ends.
type period struct{ from, to wire.Time }

// bin gives the bin of w that holds t; times outside go to the nearest one.
func (p period) bin(t wire.Time, w int) int {
	if p.to <= p.from || t <= p.from {
		return 0
	}
	// In float64, because hostile times times bins overflow an int64.
	share := (float64(t) - float64(p.from)) / (float64(p.to) - float64(p.from))
	return min(max(int(share*float64(w)), 0), w-1)
}

// pulse counts batches per bin of each replica from the tape, and says from
// when on the tape is whole.
type pulse struct {
	counts map[wire.Replica][]int
	// before holds, for each replica, the receive times of its batches.
	before map[wire.Replica][]wire.Time
	whole  wire.Time
	most   int
}

// takePulse reads the tape once for all the replicas that are shown.
func takePulse(snap *observe.Snapshot, shown []*diagnose.Replica, p period, w int) *pulse {
	out := &pulse{counts: map[wire.Replica][]int{}, before: map[wire.Replica][]wire.Time{}}
	var all uint64
	for i := range snap.Replicas {
		all += snap.Replicas[i].Batches
	}
	for _, r := range shown {
		out.counts[r.Replica] = make([]int, w)
	}
	for _, e := range snap.Tape {
		if c := out.counts[e.Replica]; c != nil {
			i := p.bin(e.At, w)
			c[i]++
			out.most = max(out.most, c[i])
			out.before[e.Replica] = append(out.before[e.Replica], e.At)
		}
	}
	if all > uint64(len(snap.Tape)) && len(snap.Tape) > 0 {
		out.whole = snap.Tape[0].At
	}
	return out
}

// sign is something that stands out, in the bin where it belongs.
type sign struct {
	bin  int
	kind beat
}

// strip gives a replica's timeline, a beat for each of w bins.
func strip(r *diagnose.Replica, p period, now wire.Time, pulse *pulse, w int) []beat {
	out := make([]beat, w)
	if w <= 0 {
		return out
	}
	fillBusy(out, r, p, now, pulse)
	fillSilence(out, r, p)
	fillReplays(out, r, p, now)
	var signs []sign
	for _, g := range r.Gaps {
		kind := beatGap
		if g.Healed {
			kind = beatHealed
		}
		at := p.bin(g.Seen, w)
		signs = append(signs, sign{at, kind})
		// It is seen with the batch behind it and began after the one before.
		for i := p.bin(lastBefore(pulse.before[r.Replica], g.Seen), w); i < at; i++ {
			out[i] = max(out[i], kind)
		}
	}
	for _, m := range r.Marks {
		if kind, ok := markBeats[string(m.Kind)]; ok && (m.Kind != "join" || m.Seq > 0) {
			signs = append(signs, sign{p.bin(m.At, w), kind})
		}
	}
	place(out, signs)
	return out
}

// fillBusy shows how dense the batches are from the time the replica was seen.
func fillBusy(out []beat, r *diagnose.Replica, p period, now wire.Time, pulse *pulse) {
	w := len(out)
	counts := pulse.counts[r.Replica]
	if r.Joined == 0 && r.Epoch == 0 {
		return // never reached
	}
	untold := p.bin(pulse.whole, w)
	levels := int(beatBusiest - beatBusy + 1)
	for i := p.bin(r.Joined, w); i <= p.bin(now, w); i++ {
		switch n := counts[i]; {
		case n > 0:
			out[i] = beatBusy + beat((n*levels-1)/max(pulse.most, 1))
		case pulse.whole > 0 && i < untold:
			out[i] = beatUntold
		default:
			out[i] = beatQuiet
		}
	}
}

// fillSilence blanks the time without a link, during which nothing is known.
func fillSilence(out []beat, r *diagnose.Replica, p period) {
	down := -1
	for _, m := range r.Marks {
		i := p.bin(m.At, len(out))
		switch m.Kind {
		case "link-down":
			if down < 0 {
				down = i
			}
		case "link-up":
			blank(out, down, i)
			down = -1
		}
	}
	blank(out, down, len(out))
}

// blank clears the quiet bins behind one and before another.
func blank(out []beat, after, before int) {
	for i := after + 1; after >= 0 && i < before; i++ {
		if out[i] == beatQuiet {
			out[i] = beatNone
		}
	}
}

func fillReplays(out []beat, r *diagnose.Replica, p period, now wire.Time) {
	w, begun := len(out), -1
	fill := func(to int) {
		for i := begun; begun >= 0 && i <= to; i++ {
			out[i] = beatReplay
		}
		begun = -1
	}
	for _, m := range r.Marks {
		switch m.Kind {
		case "replay-begin":
			begun = p.bin(m.At, w)
		case "replay-end":
			fill(p.bin(m.At, w))
		}
	}
	fill(p.bin(now, w))
}

// lastBefore gives the last of some times in order that is before t, or t.
func lastBefore(times []wire.Time, t wire.Time) wire.Time {
	i, _ := slices.BinarySearch(times, t)
	if i == 0 {
		return t
	}
	return times[i-1]
}

// place puts signs on a strip so that every kind that occurs can be seen. The
// rarest kind is placed first, the worse one of two equals; a bin that is taken
// sends a sign to the nearest free one, and where none is free a kind that was
// not placed yet takes one from the kind that has most.
func place(out []beat, signs []sign) {
	slices.SortFunc(signs, func(a, b sign) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.bin, b.bin)) })
	signs = slices.Compact(signs)
	var many [numBeats]int
	for _, s := range signs {
		many[s.kind]++
	}
	slices.SortStableFunc(signs, func(a, b sign) int {
		return cmp.Or(cmp.Compare(many[a.kind], many[b.kind]), cmp.Compare(b.kind, a.kind))
	})
	taken := make([]bool, len(out))
	var placed [numBeats]int
	for _, s := range signs {
		const far = 8 // bins; further off it would tell a wrong time
		i := nearest(s.bin, len(out), far, func(i int) bool { return !taken[i] })
		if i < 0 && placed[s.kind] == 0 {
			most := slices.Max(placed[:])
			i = nearest(s.bin, len(out), len(out), func(i int) bool { return most > 1 && placed[out[i]] == most })
		}
		if i < 0 {
			continue
		}
		if taken[i] {
			placed[out[i]]--
		}
		taken[i], out[i] = true, s.kind
		placed[s.kind]++
	}
}

// nearest gives the bin nearest to i, at most far off, that is fit, or -1.
func nearest(i, w, far int, fit func(int) bool) int {
	for d := 0; d <= far; d++ {
		for _, j := range [2]int{i + d, i - d} {
			if j >= 0 && j < w && fit(j) {
				return j
			}
		}
	}
	return -1
}

// ticks are the distances between labels of the time axis.
var ticks = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 7 * 24 * time.Hour, 28 * 24 * time.Hour, 364 * 24 * time.Hour,
}

// axis labels w bins with times in UTC, or with ages before now.
func axis(p period, now wire.Time, w int, relative bool) string {
	line := []byte(strings.Repeat(" ", max(w, 0)))
	length := time.Duration(p.to - p.from)
	form, digits := "15:04:05", 8
	if length > 24*time.Hour {
		form, digits = "02 Jan 15:04", 12
	}
	for _, step := range ticks {
		if float64(step)/float64(max(length, 1))*float64(w) < float64(digits+3) {
			continue
		}
		if form == "15:04:05" && step >= time.Minute {
			form = "15:04"
		}
		first, label := ceilTo(p.from, wire.Time(step)), func(t wire.Time) string {
			return time.Unix(0, int64(t)).UTC().Format(form)
		}
		if relative {
			first, label = p.from+(now-p.from)%wire.Time(step), func(t wire.Time) string {
				age := time.Duration(now - t).Round(time.Second).String()
				return "-" + strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(age)
			}
		}
		for t := first; t >= p.from && t <= min(p.to, math.MaxInt64-wire.Time(step)); t += wire.Time(step) {
			if i, text := p.bin(t, w), label(t); i+len(text) <= w {
				copy(line[i:], text)
			}
		}
		break
	}
	return string(line)
}

func ceilTo(t, step wire.Time) wire.Time {
	if rest := t % step; rest > 0 {
		return t + step - rest
	}
	return t
}

// plights words each reason for doubt on a timeline, where it came from and
// when; the keys are those of stream.Reason.
var plights = map[string]func(*diagnose.Replica) string{
	"link-lost":      func(r *diagnose.Replica) string { return "link lost" + markedAt(r, "link-down") },
	"reconnected":    func(r *diagnose.Replica) string { return "back" + markedAt(r, "link-up") + ", silent since" },
	"never-reached":  func(*diagnose.Replica) string { return "never reached" },
	"no-events":      func(*diagnose.Replica) string { return "no event ever came" },
	"gap":            gapWords,
	"replay-clipped": gapWords,
	"late-join":      func(r *diagnose.Replica) string { return "joined at " + wire.Grouped(r.First) },
	"orphan-parents": func(r *diagnose.Replica) string { return wire.Counted(r.Index.Orphans, "block") + " without a parent" },
	"undecodable":    func(r *diagnose.Replica) string { return wire.Grouped(r.Undecodable) + " unreadable" },
	"over-capacity":  func(*diagnose.Replica) string { return "more blocks than it has" },
	"index-full":     func(*diagnose.Replica) string { return "index full" },
}

// plight says what is worst about a replica's stream now, else what happened to
// it last.
func plight(r *diagnose.Replica) string {
	if r.Trust.Word == "REPLAYING" {
		if m := lastMark(r, "replay-begin"); m >= 0 {
			return "replaying from " + wire.Grouped(r.Marks[m].Seq)
		}
		return "replaying"
	}
	for _, reason := range r.Trust.Reasons {
		if words := plights[string(reason)]; words != nil {
			return words(r)
		}
	}
	restart, clear := lastMark(r, "restart"), lastMark(r, "cleared")
	switch {
	case restart > clear:
		return "restarted" + markedAt(r, "restart")
	case clear >= 0:
		return "cleared" + markedAt(r, "cleared")
	}
	return ""
}

func lastMark(r *diagnose.Replica, kind string) int {
	for i := len(r.Marks) - 1; i >= 0; i-- {
		if string(r.Marks[i].Kind) == kind {
			return i
		}
	}
	return -1
}

func markedAt(r *diagnose.Replica, kind string) string {
	if i := lastMark(r, kind); i >= 0 {
		return " " + clock(r.Marks[i].At)
	}
	return ""
}

// gapWords names the widest gap that is open.
func gapWords(r *diagnose.Replica) string {
	worst, open := -1, 0
	for i, g := range r.Gaps {
		if g.Healed || g.Epoch != r.Epoch {
			continue
		}
		open++
		if worst < 0 || g.To-g.From >= r.Gaps[worst].To-r.Gaps[worst].From {
			worst = i
		}
	}
	if worst < 0 {
		return "a gap, no longer listed"
	}
	s := "gap " + rangeOf(r.Gaps[worst].From, r.Gaps[worst].To) + " not healed"
	if open > 1 {
		s += fmt.Sprintf(" +%d", open-1)
	}
	return s
}

func rangeOf(from, to uint64) string {
	if from == to {
		return wire.Grouped(from)
	}
	return wire.Grouped(from) + "–" + wire.Grouped(to)
}

// births lists when the lives of a replica's publisher began, but the first.
func births(r *diagnose.Replica) []wire.Time {
	var out []wire.Time
	if r != nil {
		for i := range r.Marks {
			if r.Marks[i].Kind == "restart" {
				out = append(out, r.Marks[i].At)
			}
		}
	}
	return out
}

// lifeBegan gives when the life began in which t lies, 0 for the first one.
func lifeBegan(births []wire.Time, t wire.Time) wire.Time {
	i := sort.Search(len(births), func(i int) bool { return births[i] > t })
	if i == 0 {
		return 0
	}
	return births[i-1]
}

// glyph gives a beat for a terminal.
func (b beat) glyph(t *theme) string {
	if t.ascii {
		return beats[b].ascii
	}
	return beats[b].glyph
}

// style gives what a beat means.
func (b beat) style(t *theme) style {
	switch b {
	case beatGap, beatUndecodable, beatDown:
		return t.bad
	case beatRestart:
		return t.warn
	case beatReplay, beatHealed, beatUp, beatCleared:
		return t.info
	case beatNone, beatUntold, beatQuiet:
		return t.dim
	}
	return t.ok
}

// drawBeats gives a strip's cells; those from ahead on are still to come.
func drawBeats(line []beat, ahead int, t *theme) string {
	var out, run strings.Builder
	var on style
	for i, b := range line {
		glyph, st := b.glyph(t), b.style(t)
		// The life that a restart begins is numbered from 0.
		if i > 0 && line[i-1] == beatRestart && b < beatReplay {
			glyph, st = "0", beatRestart.style(t)
		}
		if i >= ahead {
			st = t.dim
		}
		if st != on {
			out.WriteString(on.render(run.String()))
			run.Reset()
			on = st
		}
		run.WriteString(glyph)
	}
	out.WriteString(on.render(run.String()))
	return out.String()
}
