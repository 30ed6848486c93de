package tui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

func TestScreenStreams(t *testing.T) {
	t.Parallel()
	for _, fixture := range []string{"a_fleet", "c_reset", "d_restart"} {
		t.Run(fixture, func(t *testing.T) {
			t.Parallel()
			eachSize(t, func(t *testing.T, w, h int, mode string) { screen(t, fixture, "streams", w, h, mode) })
		})
	}
}

// The panes below the strips, one after the other.
func TestScreenStreamsPanes(t *testing.T) {
	t.Parallel()
	eachSize(t, func(t *testing.T, w, h int, mode string) {
		x := newHarness(t, "d_restart", w, h, mode)
		x.m.show("streams")
		x.press("down", "down", "enter", "down") // c, its last batch but one
		for _, pane := range []string{"batches", "events", "bytes"} {
			x.golden(fmt.Sprintf("streams-%s_d_restart_%dx%d_%s", pane, w, h, mode))
			x.press("enter", "down", "down")
		}
	})
}

// With a tokenizer the tokens of a store are read, and a row of them is marked in
// the bytes.
func TestScreenStreamsWords(t *testing.T) {
	t.Parallel()
	eachSize(t, func(t *testing.T, w, h int, mode string) {
		p := recording(t, "d_restart")
		x := newHarnessOn(t, Options{Feed: p, Player: p, Look: lookOf(mode), Words: fakeWords{}}, w, h)
		x.m.show("streams")
		x.press("down", "down", "enter", "down", "enter")
		x.frame()
		v := x.m.view().(*streams)
		for from, to := v.lineTokens(v.study); to <= from; from, to = v.lineTokens(v.study) {
			x.press("down")
			x.frame()
		}
		x.press("down", "down")
		x.golden(fmt.Sprintf("streams-words_d_restart_%dx%d_%s", w, h, mode))
	})
}

// A recording at an earlier moment shows what is still to come.
func TestScreenStreamsAhead(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "d_restart", 120, 24, noColour)
	x.m.show("streams")
	x.press("[", "[")
	x.golden("streams-ahead_d_restart_120x24_none")
}

// lossy is a replica that lost batches, got some back, was cleared and
// restarted, as a snapshot.
func lossy() *observe.Snapshot {
	r := diagnose.Replica{State: stream.State{
		Replica: "r3", Epoch: 1, Heard: true, First: 0, Last: 9, Joined: second, Batches: 6,
		Gaps: []stream.Gap{
			{From: 2, To: 3, Epoch: 1, Seen: 5 * second, Healed: true, HealedAt: 6 * second},
			{From: 6, To: 8, Epoch: 1, Seen: 10 * second, Reason: "replay port closed"},
		},
		GapsOpen: 1, GapsHealed: 1,
		Trust: stream.Trust{Word: stream.Degraded, Reasons: []stream.Reason{stream.GapOpen}},
	}}
	s := &observe.Snapshot{From: second, Until: 20 * second, Replicas: []diagnose.Replica{r, {State: stream.State{
		Replica: "blind\x1b[31m\n", Trust: stream.Trust{Word: stream.Blind, Reasons: []stream.Reason{stream.NeverReached}},
	}}}}
	for _, seq := range []uint64{0, 1, 4, 5, 9} {
		e := entry(seq, stored(wire.Handle{}, seq+1))
		e.Replica, e.Payload = "r3", []byte(strings.Repeat("x", 40))
		s.Tape = append(s.Tape, e)
	}
	return s
}

func sceneOf(snap *observe.Snapshot) *scene {
	return &scene{snap: snap, theme: newTheme("none", true)}
}

func shown(v view, s *scene, w, h int) string {
	return ansi.Strip(strings.Join(v.draw(s, w, h), "\n"))
}

func TestStreamsGaps(t *testing.T) {
	t.Parallel()
	got := shown(newStreams(), sceneOf(lossy()), 100, 30)
	for _, want := range []string{
		"gap 6–8 not healed", "x gap 6–8, 3 batches, replay port closed", "/ gap 2–3, 2 batches, healed 00:00:06",
		"DEGRADED: gap 6–8", "never reached", "blind?[31m", "x gap", "/ gap, healed",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

// What is selected stays selected when newer batches come and when another view
// was shown in between; the newest one is followed until another is picked.
func TestStreamsSelection(t *testing.T) {
	t.Parallel()
	snap := lossy()
	s, v := sceneOf(snap), newStreams()
	v.draw(s, 100, 30)
	v.handle(s, actOpen)
	if e := v.entry(s); e.Batch.Seq != 9 {
		t.Fatalf("batch %d", e.Batch.Seq)
	}
	newer := *snap
	next := entry(10)
	next.Replica = "r3"
	newer.Tape = append(slices.Clone(snap.Tape), next)
	s.snap = &newer
	if e := v.entry(s); e.Batch.Seq != 10 {
		t.Errorf("the newest is not followed: %d", e.Batch.Seq)
	}
	v.handle(s, actDown)
	v.handle(s, actDown)
	if e := v.entry(s); e.Batch.Seq != 5 {
		t.Fatalf("batch %d", e.Batch.Seq)
	}
	again := newer
	again.Tape = nil // as after a seek: the same batches, made anew
	for _, e := range newer.Tape {
		twin := *e
		again.Tape = append(again.Tape, &twin)
	}
	s.snap = &again
	if e := v.entry(s); e.Batch.Seq != 5 {
		t.Errorf("the selection moved to %d", e.Batch.Seq)
	}
	v.handle(s, actTop)
	if e := v.entry(s); e.Batch.Seq != 10 || v.picked {
		t.Errorf("the newest is not followed again")
	}
}

func TestStreamsSelectAt(t *testing.T) {
	t.Parallel()
	seq := func(n uint64) *uint64 { return &n }
	for _, c := range []struct {
		e    effect
		want uint64
	}{
		{effect{replica: "r3"}, 9},
		{effect{replica: "r3", seq: seq(4)}, 4},
		{effect{replica: "r3", seq: seq(2)}, 4},  // in a gap: the batch behind it
		{effect{replica: "r3", seq: seq(99)}, 9}, // not there yet
	} {
		s, v := sceneOf(lossy()), newStreams()
		v.selectAt(s, c.e)
		if e := v.entry(s); e == nil || e.Batch.Seq != c.want {
			t.Errorf("%v: got %v, want %d", c.e, e, c.want)
		}
	}
}

// Moving in the bytes moves among the events and the other way round.
func TestStreamsLinked(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "a_fleet", 120, 60, noColour)
	x.m.show("streams")
	v := x.m.view().(*streams)
	s := x.m.scene()
	x.press("enter")
	for range 200 {
		if e := v.entry(s); len(e.Batch.Events) >= 3 {
			break
		}
		x.press("down")
	}
	x.frame()
	x.press("enter", "right", "right")
	if v.event != 2 || v.offset != v.study.bytes[2].from {
		t.Errorf("event %d, byte %d of %v", v.event, v.offset, v.study.bytes)
	}
	// A row of tokens is found in the bytes, and from there.
	x.press("left", "left")
	for from, to := v.lineTokens(v.study); from == 0; from, to = v.lineTokens(v.study) {
		x.press("down")
		if to > from && v.line > len(v.study.lines) {
			t.Fatal("no second row of tokens")
		}
	}
	line, event := v.line, v.event
	from, to := v.lineTokens(v.study)
	at, ok := v.study.tokenBytes(event, from, to)
	if !ok || v.offset != at.from {
		t.Errorf("row %d–%d is at %v, the offset at %d", from, to, at, v.offset)
	}
	x.frame()
	x.press("enter", "down", "up")
	if v.event != event || v.line < line-1 || v.line > line {
		t.Errorf("from the bytes: event %d, line %d; it was %d, %d", v.event, v.line, event, line)
	}
	if got := x.text(); !strings.Contains(got, fmt.Sprintf("of event %d are", event+1)) {
		t.Errorf("shown:\n%s", got)
	}
	x.press("g")
	if v.event != 0 || v.offset != 0 {
		t.Errorf("event %d at byte %d", v.event, v.offset)
	}
	x.press("G")
	if v.event != len(v.study.bytes)-1 {
		t.Errorf("event %d at byte %d of %v", v.event, v.offset, v.study.bytes)
	}
	if got := x.text(); !strings.Contains(got, fmt.Sprintf("event %d is", v.event+1)) {
		t.Errorf("shown:\n%s", got)
	}
	x.press("esc", "esc", "esc")
	if v.focus != paneStrips || x.m.view() != view(v) {
		t.Errorf("focus %d", v.focus)
	}
}

func TestStreamsFilterAndExport(t *testing.T) {
	t.Parallel()
	s, v := sceneOf(lossy()), newStreams()
	filter := func(text string) {
		t.Helper()
		f, err := parseFilter(text, v.filterFields())
		if err != nil {
			t.Fatal(err)
		}
		s.filter = f
	}
	filter("trust:blind")
	if shown, all := v.count(s); shown != 1 || all != 2 {
		t.Errorf("%d of %d replicas", shown, all)
	}
	filter("seq>4")
	if shown, chosen := v.replicas(s); len(shown) != 2 || chosen {
		t.Errorf("%d replicas", len(shown))
	}
	if shown, all := v.count(s); shown != 2 || all != 5 {
		t.Errorf("%d of %d batches", shown, all)
	}
	s.filter = nil
	if got := v.export(s); len(got.rows) != 2 || len(got.rows[0]) != len(got.columns) || got.rows[0][3] != "gap 6–8 not healed" {
		t.Errorf("strips %v", got)
	}
	v.handle(s, actOpen)
	got := v.export(s)
	if len(got.rows) != 7 || got.rows[1][5] != "gap 6–8, 3 batches, replay port closed" {
		t.Errorf("batches %v", got)
	}
	for _, row := range got.rows {
		if len(row) != len(got.columns) {
			t.Errorf("%d cells, %d columns", len(row), len(got.columns))
		}
	}
	var copied map[string]any
	if err := json.Unmarshal([]byte(v.handle(s, actCopyRow).copy), &copied); err != nil || copied["seq"] != 9.0 {
		t.Errorf("copied %v, %v", copied, err)
	}
	for range len(stripOrders) {
		if e := v.handle(s, actSort); e.toast == "" {
			t.Error("the order is not said")
		}
	}
}

// oddNames are what hostile or unlucky publishers call themselves.
var oddNames = []string{"", "r1", "\x1b[31mred\x1b[0m", "a\nb\r\tc", "\u202eevil", "荷物/0", "👩‍👩‍👧", "\xff\xfe", strings.Repeat("long", 500), "\x9b2J", "é\u0301\u0301"}

func oddSnapshot(t *rapid.T) *observe.Snapshot {
	name := rapid.SampledFrom(oddNames)
	moment := rapid.Custom(func(t *rapid.T) wire.Time {
		return wire.Time(rapid.SampledFrom([]int64{0, 1, 1e9, 1796011713e9, 1 << 62}).Draw(t, "base") + rapid.Int64Range(0, 1e11).Draw(t, "more"))
	})
	s := &observe.Snapshot{From: moment.Draw(t, "from"), Until: moment.Draw(t, "until")}
	words := []stream.Word{stream.Exact, stream.Replaying, stream.Degraded, stream.Stale, stream.Blind}
	reasons := []stream.Reason{stream.LinkLost, stream.GapOpen, stream.NeverReached, stream.Undecodable, "new"}
	n := rapid.SampledFrom([]int{0, 1, 2, 7, 1000}).Draw(t, "replicas")
	for i := range n {
		r := diagnose.Replica{State: stream.State{Replica: wire.Replica(fmt.Sprint(oddNames[i%len(oddNames)], i)), Epoch: i % 3, Heard: i%2 == 0, Last: uint64(i) << 50}}
		if i < 8 {
			r.Replica = wire.Replica(name.Draw(t, "name"))
			r.Joined = moment.Draw(t, "joined")
			r.Trust = stream.Trust{Word: rapid.SampledFrom(words).Draw(t, "word")}
			if !r.Trust.Exact() {
				r.Trust.Reasons = []stream.Reason{rapid.SampledFrom(reasons).Draw(t, "reason")}
			}
			for range rapid.IntRange(0, 4).Draw(t, "gaps") {
				r.Gaps = append(r.Gaps, stream.Gap{From: 1, To: rapid.Uint64().Draw(t, "to"), Epoch: r.Epoch, Seen: moment.Draw(t, "seen"), Healed: rapid.Bool().Draw(t, "healed"), Reason: name.Draw(t, "why")})
			}
			for range rapid.IntRange(0, 4).Draw(t, "marks") {
				r.Marks = append(r.Marks, stream.Mark{At: moment.Draw(t, "at"), Kind: rapid.SampledFrom([]stream.MarkKind{
					stream.MarkJoin, stream.MarkRestart, stream.MarkCleared, stream.MarkReplayBegin, stream.MarkReplayEnd, stream.MarkLinkDown, stream.MarkLinkUp, "new",
				}).Draw(t, "kind"), Seq: 3, Text: name.Draw(t, "text")})
			}
		}
		s.Replicas = append(s.Replicas, r)
	}
	for range rapid.IntRange(0, 12).Draw(t, "batches") {
		b := &wire.Batch{Seq: rapid.Uint64().Draw(t, "seq"), Topic: name.Draw(t, "topic"), Rank: -1}
		for range rapid.IntRange(0, 4).Draw(t, "events") {
			e := stored(wire.IntHandle(rapid.Uint64Range(0, 9).Draw(t, "parent")), rapid.SliceOfN(rapid.Uint64Range(0, 9), 0, 40).Draw(t, "hashes")...)
			e.Kind = wire.EventKind(rapid.IntRange(0, 6).Draw(t, "kind"))
			e.Name, e.Salt, e.LoRAName, e.Medium = name.Draw(t, "tag"), name.Draw(t, "salt"), name.Draw(t, "lora"), name.Draw(t, "medium")
			if e.Kind == wire.Bad {
				e.Err = errors.New(name.Draw(t, "error"))
			}
			e.Extra = [][]wire.ExtraKey{{{Text: name.Draw(t, "extra")}}}
			b.Events = append(b.Events, e)
		}
		who := wire.Replica(name.Draw(t, "publisher"))
		if n > 0 {
			who = s.Replicas[0].Replica
		}
		s.Tape = append(s.Tape, &observe.Entry{Replica: who, At: moment.Draw(t, "at"), Batch: b, Payload: rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "payload"), Replayed: rapid.Bool().Draw(t, "replayed")})
	}
	for range rapid.IntRange(0, 5).Draw(t, "findings") {
		f := diagnose.Finding{Code: name.Draw(t, "code"), Severity: diagnose.Severity(rapid.IntRange(0, 5).Draw(t, "severity")), Subject: name.Draw(t, "subject"), Since: moment.Draw(t, "since"), Title: name.Draw(t, "title"), Next: name.Draw(t, "next"), Counterfactual: name.Draw(t, "counter")}
		f.Evidence.Replica = wire.Replica(name.Draw(t, "evidence"))
		span, from := name.Draw(t, "span"), rapid.Uint64().Draw(t, "seq")
		f.Evidence.Span, f.Evidence.SeqFrom, f.Evidence.SeqTo = &span, &from, &b0
		if rapid.Bool().Draw(t, "over") {
			f.Until = &f.Since
		}
		s.Findings = append(s.Findings, f)
	}
	return s
}

var b0 uint64

// Nothing that a publisher sends breaks the screen: at any size, after any keys,
// no view panics, draws more lines or wider ones than it may, or lets an escape
// of the publisher's through.
func TestViewsFit(t *testing.T) {
	t.Parallel()
	acts := []string{
		actUp, actDown, actTop, actBottom, actPageDown, actHalfUp, actLeft, actRight, actOpen, actNextPane, actPrevPane,
		actSort, actReverse, actCopy, actCopyRow, actJump, actShallower, actPaste, actAsk, actPolicy, actLoad, actUndo,
		actText, actTop, actBottom,
	}
	rapid.Check(t, func(t *rapid.T) {
		snap := oddSnapshot(t)
		s := &scene{
			snap: snap, theme: newTheme("none", rapid.Bool().Draw(t, "ascii")), feed: &asking{snap: snap},
			maximised: rapid.Bool().Draw(t, "maximised"), relative: rapid.Bool().Draw(t, "relative"), recording: true,
		}
		if rapid.Bool().Draw(t, "end") {
			s.end = snap
		}
		if rapid.Bool().Draw(t, "tokenizer") {
			s.words = oddWords{}
		}
		whatIf := newWhatIf()
		whatIf.prompt = newScript(oddPrompt(t, 70))
		whatIf.answer = &observe.Answer{Tokens: 70, Parting: &observe.Parting{
			Token: rapid.IntRange(0, 80).Draw(t, "parts at"), Replica: "\x1b[1mr", Known: true, Asked: []wire.Token{1, 2}, Stored: []wire.Token{3, 4},
		}}
		for i := range snap.Replicas {
			whatIf.answer.Rows = append(whatIf.answer.Rows, observe.Row{
				Replica: snap.Replicas[i].Replica, Trust: snap.Replicas[i].Trust, BlockSize: i % 3, Blocks: 70, Device: i % 70, Host: i % 2, Upper: i,
				Cells: []observe.Cell{observe.Hit, observe.Miss, observe.Beyond, 99},
			})
		}
		if rapid.Bool().Draw(t, "explained") {
			whatIf.why = oddAnswer(snap)
			whatIf.edits = []explain.Edit{{Key: "\x1b[2Jr:active_requests", Value: "1\u202e"}}
		}
		for _, v := range []view{newStreams(), whatIf, newFindings()} {
			for range rapid.IntRange(1, 6).Draw(t, "draws") {
				w, h := rapid.IntRange(1, 220).Draw(t, "w"), rapid.IntRange(1, 70).Draw(t, "h")
				lines := v.draw(s, w, h)
				if len(lines) > h {
					t.Fatalf("%s: %d lines at %d×%d", v.name(), len(lines), w, h)
				}
				for i, line := range lines {
					if n := ansi.StringWidth(line); n > w {
						t.Fatalf("%s: line %d has %d cells at %d×%d: %q", v.name(), i, n, w, h, line)
					}
					if rest := sgr.Replace(line); strings.ContainsFunc(rest, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x202e }) {
						t.Fatalf("%s: line %d lets %q through", v.name(), i, rest)
					}
				}
				action := rapid.SampledFrom(acts).Draw(t, "action")
				if e := v.handle(s, action); e.run != nil {
					if r, ok := v.(receiver); ok {
						r.receive(s, e.run(context.Background()))
					}
				}
				v.export(s)
				for _, b := range v.bindings() {
					if b.off != nil {
						b.off(s)
					}
				}
			}
		}
	})
}

// oddAnswer is one about replicas with any names, of which not all are eligible.
func oddAnswer(snap *observe.Snapshot) *explain.Answer {
	a := &explain.Answer{
		Why: "none", Notes: []string{"a\x1b[31m note"}, Deciding: "prompt_blocks", Cancels: []string{"new_decode_blocks"},
		Flips: []route.Flip{{What: "\x1b[1;1Hr:active_requests", From: "1", To: "2", Then: []wire.Replica{"\x1b]0;x"}}},
	}
	for i := range snap.Replicas {
		c := explain.Candidate{Note: "of\x1b hand"}
		c.Replica, c.Load.From = snap.Replicas[i].Replica, "\x1b[5m"
		if i < 2 {
			c.Rank, c.Terms = 1, []route.Term{{Name: "prompt_blocks", Cost: float64(i)}, {Name: "new_decode_blocks", Cost: 1e9}}
			a.Choice = append(a.Choice, c.Replica)
		} else {
			c.Out = "overloaded"
		}
		a.Candidates = append(a.Candidates, c)
	}
	return a
}

// sgr takes out the styles that the colourless theme has.
var sgr = strings.NewReplacer("\x1b[1m", "", "\x1b[7m", "", "\x1b[4m", "", "\x1b[4;4m", "", "\x1b[m", "")

// A thousand replicas at full width stay far below a redraw's 5 ms.
func BenchmarkStreams(b *testing.B) {
	snap := &observe.Snapshot{From: second, Until: 100 * second}
	for i := range 1000 {
		snap.Replicas = append(snap.Replicas, diagnose.Replica{State: stream.State{Replica: wire.Replica(fmt.Sprint("pod-", i)), Epoch: 1, Joined: second, Batches: 50, Trust: stream.Trust{Word: stream.Exact}}})
	}
	for i := range 4096 {
		e := entry(uint64(i/1000), stored(wire.Handle{}, uint64(i)))
		e.Replica, e.At, e.Payload = snap.Replicas[i%1000].Replica, wire.Time(i)*second/41, make([]byte, 300)
		snap.Tape = append(snap.Tape, e)
	}
	s, v := sceneOf(snap), newStreams()
	for b.Loop() {
		v.draw(s, 200, 60)
	}
}
