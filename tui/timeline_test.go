package tui

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

const second = wire.Time(1e9)

func beatsText(line []beat) string {
	var b strings.Builder
	for _, x := range line {
		b.WriteString(beats[x].ascii)
	}
	return b.String()
}

func TestStrip(t *testing.T) {
	t.Parallel()
	batch := func(seconds ...wire.Time) []*observe.Entry {
		var out []*observe.Entry
		for i, s := range seconds {
			out = append(out, &observe.Entry{Replica: "r", At: s * second, Batch: &wire.Batch{Seq: uint64(i)}})
		}
		return out
	}
	for _, c := range []struct {
		name  string
		state stream.State
		tape  []*observe.Entry
		want  string
	}{
		{"never reached", stream.State{}, nil, "                    "},
		{"quiet", stream.State{Epoch: 1, Joined: 1}, nil, "--------------------"},
		{"busy by density", stream.State{Epoch: 1, Joined: 1}, batch(2, 5, 5, 5, 5, 8, 8, 11, 11, 11), "--.--#--:--+--------"},
		{"joined in the middle", stream.State{Epoch: 1, Joined: 5 * second}, nil, "     ---------------"},
		{"a gap from the batch before it", stream.State{Epoch: 1, Joined: 1, Gaps: []stream.Gap{{From: 1, To: 4, Seen: 9 * second}}}, batch(4, 9), "----xxxxxx----------"},
		{"a healed gap", stream.State{Epoch: 1, Joined: 1, Gaps: []stream.Gap{{From: 1, To: 4, Seen: 9 * second, Healed: true}}}, nil, "---------/----------"},
		{"restart", stream.State{Epoch: 2, Joined: 1, Marks: []stream.Mark{{At: 9 * second, Kind: stream.MarkRestart}}}, nil, "---------|----------"},
		{"clear", stream.State{Epoch: 2, Joined: 1, Marks: []stream.Mark{{At: 9 * second, Kind: stream.MarkCleared}}}, nil, "---------o----------"},
		{"replay", stream.State{Epoch: 1, Joined: 1, Marks: []stream.Mark{
			{At: 9 * second, Kind: stream.MarkReplayBegin}, {At: 12 * second, Kind: stream.MarkReplayEnd},
		}}, nil, "---------~~~~-------"},
		{"link lost and back", stream.State{Epoch: 1, Joined: 1, Marks: []stream.Mark{
			{At: 5 * second, Kind: stream.MarkLinkDown}, {At: 9 * second, Kind: stream.MarkLinkUp},
		}}, nil, "-----]   [----------"},
		{"all at one moment", stream.State{Epoch: 2, Joined: 1, Gaps: []stream.Gap{{Seen: 9 * second}}, Marks: []stream.Mark{
			{At: 9 * second, Kind: stream.MarkCleared}, {At: 9 * second, Kind: stream.MarkRestart}, {At: 9 * second, Kind: stream.MarkUndecodable},
		}}, nil, "--------!x|o--------"},
		{"older than the tape", stream.State{Epoch: 1, Joined: 1, Batches: 9}, batch(10, 10), "__________#---------"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.state.Replica = "r"
			if c.state.Batches == 0 {
				c.state.Batches = uint64(len(c.tape))
			}
			snap := &observe.Snapshot{Until: 20 * second, Tape: c.tape, Replicas: []diagnose.Replica{{State: c.state}}}
			p, r := period{0, 20 * second}, &snap.Replicas[0]
			got := strip(r, p, snap.Until, takePulse(snap, []*diagnose.Replica{r}, p, 20), 20)
			if s := beatsText(got); s != c.want {
				t.Errorf("got  %q\nwant %q", s, c.want)
			}
		})
	}
}

// Every kind of thing that happened shows somewhere, near where it happened
// unless the strip is crowded.
func TestStripShowsAll(t *testing.T) {
	t.Parallel()
	kinds := map[stream.MarkKind]beat{stream.MarkRestart: beatRestart, stream.MarkCleared: beatCleared, stream.MarkUndecodable: beatUndecodable, stream.MarkLinkDown: beatDown}
	rapid.Check(t, func(t *rapid.T) {
		from := wire.Time(rapid.Int64Range(0, 1<<61).Draw(t, "from"))
		p := period{from, from + wire.Time(rapid.Int64Range(1, 1<<61).Draw(t, "length"))}
		w := rapid.IntRange(20, 220).Draw(t, "w")
		at := func(what string) wire.Time {
			return wire.Time(rapid.Int64Range(int64(p.from), int64(p.to)).Draw(t, what))
		}
		r := &diagnose.Replica{State: stream.State{Replica: "r", Epoch: 1, Joined: max(p.from, 1)}}
		want := map[beat][]int{}
		for range rapid.IntRange(0, 300).Draw(t, "gaps") {
			g := stream.Gap{Seen: at("gap"), Healed: rapid.Bool().Draw(t, "healed")}
			r.Gaps = append(r.Gaps, g)
			kind := map[bool]beat{false: beatGap, true: beatHealed}[g.Healed]
			want[kind] = append(want[kind], p.bin(g.Seen, w))
		}
		for range rapid.IntRange(0, 300).Draw(t, "marks") {
			m := stream.Mark{At: at("mark"), Kind: rapid.SampledFrom([]stream.MarkKind{
				stream.MarkRestart, stream.MarkCleared, stream.MarkUndecodable, stream.MarkLinkDown,
			}).Draw(t, "kind")}
			r.Marks = append(r.Marks, m)
			want[kinds[m.Kind]] = append(want[kinds[m.Kind]], p.bin(m.At, w))
		}
		snap := &observe.Snapshot{From: p.from, Until: p.to}
		got := strip(r, p, p.to, takePulse(snap, []*diagnose.Replica{r}, p, w), w)
		if len(got) != w {
			t.Fatalf("%d bins, want %d", len(got), w)
		}
		signs := 0
		for kind, bins := range want {
			slices.Sort(bins)
			want[kind] = slices.Compact(bins)
			signs += len(want[kind])
			if !slices.Contains(got, kind) {
				t.Fatalf("%q does not show in %q", beats[kind].words, beatsText(got))
			}
		}
		for kind, bins := range want {
			for _, i := range bins {
				near := got[max(0, i-signs):min(w, i+signs+1)]
				if signs <= 8 && !slices.Contains(near, kind) {
					t.Fatalf("%q of bin %d is far off in %q", beats[kind].words, i, beatsText(got))
				}
			}
		}
	})
}

func TestAxis(t *testing.T) {
	t.Parallel()
	const start = wire.Time(1796011713e9) // 04:08:33
	for _, c := range []struct {
		name     string
		length   wire.Time
		w        int
		relative bool
		want     string
	}{
		{"seconds", 20 * second, 40, false, "              04:08:40"},
		{"minutes", 300 * second, 60, false, "     04:09       04:10       04:11       04:12       04:13"},
		{"days", 3 * 86400 * second, 60, false, "                1 Dec 00:00"},
		{"ages", 100 * second, 40, true, "    -1m30s      -1m         -30s"},
		{"no room", 20 * second, 5, false, ""},
		{"no time at all", 0, 20, false, "04:08:33"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := strings.TrimRight(axis(period{start, start + c.length}, start+c.length, c.w, c.relative), " ")
			if got != c.want && c.name != "days" {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if c.name == "days" && !strings.Contains(got, "02 Dec 00:00") {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestPlight(t *testing.T) {
	t.Parallel()
	trust := func(w stream.Word, r ...stream.Reason) stream.Trust { return stream.Trust{Word: w, Reasons: r} }
	for _, c := range []struct {
		name  string
		state stream.State
		want  string
	}{
		{"exact", stream.State{Trust: trust(stream.Exact)}, ""},
		{"restarted", stream.State{Trust: trust(stream.Exact), Marks: []stream.Mark{{Kind: stream.MarkRestart, At: 1796011713e9}}}, "restarted 04:08:33"},
		{"gaps", stream.State{Trust: trust(stream.Degraded, stream.GapOpen), Gaps: []stream.Gap{
			{From: 1, To: 2}, {From: 40211, To: 40518}, {From: 5, To: 6, Healed: true},
		}}, "gap 40 211–40 518 not healed +1"},
		{"one batch", stream.State{Trust: trust(stream.Degraded, stream.GapOpen), Gaps: []stream.Gap{{From: 7, To: 7}}}, "gap 7 not healed"},
		{"replaying", stream.State{Trust: trust(stream.Replaying, stream.GapOpen), Marks: []stream.Mark{{Kind: stream.MarkReplayBegin, Seq: 12}}}, "replaying from 12"},
		{"blind", stream.State{Trust: trust(stream.Blind, stream.NeverReached)}, "never reached"},
		{"link", stream.State{Trust: trust(stream.Stale, stream.LinkLost, stream.LateJoin), Marks: []stream.Mark{{Kind: stream.MarkLinkDown, At: 1796011713e9}}}, "link lost 04:08:33"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := plight(&diagnose.Replica{State: c.state}); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Every reason there is has its words.
func TestPlightsKnowAllReasons(t *testing.T) {
	t.Parallel()
	for _, reason := range []stream.Reason{
		stream.LateJoin, stream.GapOpen, stream.ReplayClipped, stream.OrphanParents, stream.Undecodable,
		stream.OverCapacity, stream.IndexFull, stream.LinkLost, stream.Reconnected, stream.NoEvents, stream.NeverReached,
	} {
		if plights[string(reason)] == nil {
			t.Errorf("%s has no words", reason)
		}
	}
	for _, kind := range []stream.MarkKind{
		stream.MarkJoin, stream.MarkRestart, stream.MarkCleared, stream.MarkUndecodable, stream.MarkReplayBegin, stream.MarkLinkDown, stream.MarkLinkUp,
	} {
		if _, ok := markBeats[string(kind)]; !ok {
			t.Errorf("%s has no beat", kind)
		}
	}
}
