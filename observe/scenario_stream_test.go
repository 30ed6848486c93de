package observe

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

const r1 = wire.Replica("r1")

// titled wants a severity and words of the title.
func titled(severity diagnose.Severity, parts ...string) func(*testing.T, *diagnose.Finding) {
	return func(t *testing.T, f *diagnose.Finding) {
		t.Helper()
		if f.Severity != severity {
			t.Errorf("%s, want %s: %s", f.Severity, severity, f.Title)
		}
		for _, part := range parts {
			if !strings.Contains(f.Title, part) {
				t.Errorf("%q is not in %q", part, f.Title)
			}
		}
	}
}

// loadPage is a metrics page that says other numbers than the scenario's load.
func loadPage(at float64, name wire.Replica, requests, queried, hit, running float64) wire.Record {
	return wire.Record{
		At: wire.Time(at * 1e9), Replica: name, Kind: wire.Scrape,
		Text: fmt.Sprintf("%g %g %g %g", requests, queried, hit, running),
	}
}

// read gives what a page says, as loadPage writes it.
func (s *scenario) read(text string, _ int) (wire.Facts, wire.Load, error) {
	load := s.load
	if text != "" {
		load.Known = true
		if _, err := fmt.Sscanf(text, "%g %g %g %g", &load.Requests, &load.QueriedTokens, &load.HitTokens, &load.Running); err != nil {
			return wire.Facts{}, wire.Load{}, err
		}
	}
	return s.facts, load, nil
}

// seconds gives a record, or several, for each second of a time.
func seconds(from, to int, each func(at float64) []wire.Record) (out []wire.Record) {
	for i := from; i <= to; i++ {
		out = append(out, each(float64(i))...)
	}
	return out
}

// serves has a replica finish a request of so many computed tokens every second, the
// first at the time given.
func serves(from, to int, name wire.Replica, tokens float64) []wire.Record {
	return seconds(from, to, func(at float64) []wire.Record {
		n := at - float64(from)
		return []wire.Record{loadPage(at, name, n, 500+n*tokens, 100, 0)}
	})
}

// answered is a replay of batches that came within a second.
func answered(t *testing.T, at float64, name wire.Replica, asked uint64, failed string, seqs ...uint64) []wire.Record {
	out := []wire.Record{{At: wire.Time(at * 1e9), Replica: name, Kind: wire.ReplayBegin, From: asked}}
	for _, seq := range seqs {
		rec := frame(t, at, name, seq)
		rec.Kind = wire.ReplayFrames
		out = append(out, rec)
	}
	return append(out, wire.Record{At: wire.Time(at * 1e9), Replica: name, Kind: wire.ReplayEnd, Err: failed})
}

// run gives numbers, bounds inclusive.
func run(from, to uint64) (out []uint64) {
	for ; from <= to; from++ {
		out = append(out, from)
	}
	return out
}

// missed is a replica whose batches 0 to 2 came, and then 100, while a replay from 3
// on gives an answer.
func missed(t *testing.T, failed string, seqs ...uint64) []wire.Record {
	replay := answered(t, 3, r1, 3, failed, seqs...)
	out := []wire.Record{frame(t, 1, r1, 0), frame(t, 1, r1, 1), frame(t, 1, r1, 2), replay[0], frame(t, 3, r1, 100)}
	return append(out, replay[1:]...)
}

func link(at float64, name wire.Replica, state wire.LinkState, why string) wire.Record {
	return wire.Record{At: wire.Time(at * 1e9), Replica: name, Kind: wire.Link, Link: state, Text: state.String(), Err: why}
}

// skewed is a batch a second whose engine's clock differs from ours.
func skewed(t *testing.T, name wire.Replica, ahead func(at float64) float64) []wire.Record {
	return seconds(1, 60, func(at float64) []wire.Record {
		rec := frame(t, at+ahead(at), name, uint64(at)-1)
		rec.At = wire.Time(at * 1e9)
		return []wire.Record{rec}
	})
}

// busy is a replica that sends so many batches in each of 60 seconds.
func busy(t *testing.T, each int) []wire.Record {
	seq := uint64(0)
	return seconds(1, 60, func(at float64) (out []wire.Record) {
		for range each {
			out = append(out, frame(t, at, r1, seq))
			seq++
		}
		return append(out, loadPage(at, r1, 0, 0, 0, 0))
	})
}

// relayed is an engine that stores a block a second, and Dynamo's plane beside it,
// which passes all on but the batches named.
func relayed(t *testing.T, lost ...uint64) []wire.Record {
	out := []wire.Record{onPlane(t, 1, "9/0", 0, nil, 999)}
	passed := uint64(1)
	return append(out, seconds(1, 10, func(at float64) []wire.Record {
		seq := uint64(at) - 1
		records := []wire.Record{frame(t, at, r1, seq, stored(nil, seq+1, 1))}
		if !slices.Contains(lost, seq) {
			records = append(records, onPlane(t, at+0.2, "9/0", passed, nil, seq+1))
			passed++
		}
		return records
	})...)
}

// onPlane is a store as Dynamo's relay passes it on.
func onPlane(t *testing.T, at float64, name wire.Replica, seq uint64, parent any, hashes ...uint64) wire.Record {
	t.Helper()
	type dict = map[string]any
	blocks := []any{}
	for _, h := range hashes {
		blocks = append(blocks, dict{"block_hash": h, "tokens_hash": h, "mm_extra_info": nil})
	}
	pack := func(v any) []byte {
		b, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	events := pack([]any{dict{
		"worker_id": uint64(9), "storage_tier": "device", "residency_domain": "worker",
		"event": dict{"event_id": seq + 1, "dp_rank": 0, "data": dict{"stored": dict{"parent_hash": parent, "start_position": nil, "blocks": blocks}}},
	}})
	body := pack(dict{"publisher_id": uint64(9), "sequence": seq, "published_at": uint64(at * 1000), "topic": wire.PlaneEvents, "payload": events})
	return wire.Record{At: wire.Time(at * 1e9), Replica: name, Frames: [][]byte{[]byte("namespace.n.component.c.endpoint.e." + wire.PlaneEvents), body}}
}

var on, off = true, false

var streamScenarios = []scenario{
	{
		code: "seq-gap", name: "three batches",
		fault: func(t *testing.T) []wire.Record { return []wire.Record{frame(t, 1, r1, 0), frame(t, 2, r1, 4)} },
		twin:  func(t *testing.T) []wire.Record { return []wire.Record{frame(t, 1, r1, 0), frame(t, 2, r1, 1)} },
		want:  titled(diagnose.Error, "3 batches lost (1–3)"),
	},
	{
		code: "late-join", name: "at batch nine",
		fault: func(t *testing.T) []wire.Record { return []wire.Record{frame(t, 1, r1, 9)} },
		twin:  func(t *testing.T) []wire.Record { return []wire.Record{frame(t, 1, r1, 0)} },
		want:  titled(diagnose.Info, "joined at batch 9"),
	},
	{
		code: "replica-restart", name: "the sequence falls",
		fault: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 1)), frame(t, 2, r1, 1), frame(t, 3, r1, 0)}
		},
		twin: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 1)), frame(t, 2, r1, 1), frame(t, 3, r1, 2)}
		},
		want: titled(diagnose.Warning, "began again at 0 after 1"),
	},
	{
		code: "cache-cleared", name: "in batch one",
		fault: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 1)), frame(t, 2, r1, 1, cleared())}
		},
		twin: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 1)), frame(t, 2, r1, 1, removed(1))}
		},
		want: titled(diagnose.Info, "batch 1"),
	},
	{
		code: "undecodable-events", name: "an event of two words",
		fault: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 1), []any{"BlockStored", "what"}, removed(1))}
		},
		twin: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 1), []any{"BlockAdmired", "what"}, removed(1))}
		},
		want: titled(diagnose.Error, "1 event could not be read"),
	},
	{
		code: "over-capacity", name: "announced twice", facts: wire.Facts{Capacity: 4},
		fault: func(t *testing.T) []wire.Record {
			rec, _ := page(9, r1, wire.Facts{})
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 3), stored(nil, 1, 3)), rec}
		},
		twin: func(t *testing.T) []wire.Record {
			rec, _ := page(9, r1, wire.Facts{})
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 3)), rec}
		},
		want: titled(diagnose.Warning, "2 more than the engine has (4)"),
	},
	{
		code: "seq-gap", name: "P39 joined at 812, and 901–904 came back",
		fault: func(t *testing.T) []wire.Record {
			var out []wire.Record
			for seq := uint64(812); seq <= 900; seq++ {
				out = append(out, frame(t, float64(seq), r1, seq))
			}
			replay := answered(t, 905, r1, 901, "", run(901, 905)...)
			return append(append(out, replay[0], frame(t, 905, r1, 905)), replay[1:]...)
		},
		twin: func(t *testing.T) []wire.Record { return []wire.Record{frame(t, 812, r1, 812), frame(t, 905, r1, 813)} },
		want: titled(diagnose.Info, "4 batches missed live (901–904) and recovered by replay"),
	},
	{
		code: "late-join", name: "P39 joined at 812",
		fault: func(t *testing.T) []wire.Record { return []wire.Record{frame(t, 1, r1, 812)} },
		twin: func(t *testing.T) []wire.Record { // the replay that was clipped tells it
			replay := answered(t, 2, r1, 0, "", run(700, 812)...)
			return append([]wire.Record{replay[0], frame(t, 2, r1, 812)}, replay[1:]...)
		},
		want: func(t *testing.T, f *diagnose.Finding) {
			t.Helper()
			if *f.Evidence.SeqFrom != 0 || *f.Evidence.SeqTo != 811 {
				t.Errorf("%d–%d", *f.Evidence.SeqFrom, *f.Evidence.SeqTo)
			}
		},
	},
	{
		code: "replica-restart", name: "P43 484 blocks of the old process", facts: wire.Facts{Capacity: 2200},
		fault: func(t *testing.T) []wire.Record {
			out := []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 484))}
			for seq := uint64(1); seq <= 9120; seq++ {
				out = append(out, frame(t, 1, r1, seq))
			}
			rec, _ := page(2, r1, wire.Facts{})
			return append(out, rec, frame(t, 3, r1, 0, stored(nil, 1, 1)))
		},
		twin: func(t *testing.T) []wire.Record {
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 484)), frame(t, 3, r1, 1, stored(uint64(484), 900, 1))}
		},
		want: func(t *testing.T, f *diagnose.Finding) {
			t.Helper()
			titled(diagnose.Warning, "began again at 0 after 9 120")(t, f)
			if *f.Effect.Blocks != 484 || *f.Effect.Tokens != 4*484 || *f.Effect.Share != 0.22 {
				t.Errorf("effect %+v", f.Effect)
			}
		},
	},
	{
		code: "replay-clipped", name: "a buffer of 64 batches",
		fault: func(t *testing.T) []wire.Record { return missed(t, "", run(37, 100)...) },
		twin:  func(t *testing.T) []wire.Record { return missed(t, "", run(3, 100)...) },
		want: func(t *testing.T, f *diagnose.Finding) {
			t.Helper()
			titled(diagnose.Error, "34 batches lost (3–36)", "begins only at batch 37", "no more than 64 batches")(t, f)
			if !strings.Contains(f.Counterfactual, "buffer_steps of 98 ") {
				t.Error(f.Counterfactual)
			}
		},
	},
	{
		code: "replay-clipped", name: "on joining late",
		fault: func(t *testing.T) []wire.Record {
			replay := answered(t, 2, r1, 0, "", run(81, 144)...)
			return append([]wire.Record{replay[0], frame(t, 2, r1, 144)}, replay[1:]...)
		},
		twin: func(t *testing.T) []wire.Record { // as many as were asked for
			replay := answered(t, 2, r1, 81, "", run(81, 144)...)
			return append([]wire.Record{replay[0], frame(t, 2, r1, 144)}, replay[1:]...)
		},
		want: titled(diagnose.Warning, "from batch 0 on was asked for, and begins at 81", "0–80"),
	},
	{
		code: "replay-truncated", name: "after batch 52",
		fault: func(t *testing.T) []wire.Record { return missed(t, "no answer for 2 s", run(3, 52)...) },
		twin:  func(t *testing.T) []wire.Record { return missed(t, "the socket takes requests and answers none") },
		want:  titled(diagnose.Error, "47 batches lost (53–99)", "broke off before them, no answer for 2 s"),
	},
	{
		code: "unfillable-hole", name: "batch 7 was never sent",
		fault: func(t *testing.T) []wire.Record {
			return missed(t, "", append(run(3, 6), run(8, 100)...)...)
		},
		twin: func(t *testing.T) []wire.Record { return missed(t, "", run(3, 100)...) },
		want: titled(diagnose.Error, "1 batch (7–7) in no replay"),
	},
	{
		code: "unfillable-hole", name: "at the head of an answer, from a buffer that holds more",
		fault: func(t *testing.T) []wire.Record {
			replay := answered(t, 4, r1, 101, "", 102)
			out := append(missed(t, "", run(3, 100)...), replay[0], frame(t, 4, r1, 102))
			return append(out, replay[1:]...)
		},
		twin: func(t *testing.T) []wire.Record { // of this one it is not known that it holds more
			replay := answered(t, 4, r1, 3, "", 4)
			out := []wire.Record{frame(t, 1, r1, 0), frame(t, 1, r1, 1), frame(t, 1, r1, 2), replay[0], frame(t, 4, r1, 4)}
			return append(out, replay[1:]...)
		},
		want: titled(diagnose.Error, "1 batch (101–101) in no replay"),
	},
	{
		code: "clear-held-back", name: "for 30 s", facts: wire.Facts{Capacity: 10},
		fault: func(t *testing.T) []wire.Record {
			rec, _ := page(2, r1, wire.Facts{})
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 5)), rec, frame(t, 31, r1, 1, cleared(), stored(nil, 1, 2))}
		},
		twin: func(t *testing.T) []wire.Record { // told at once: cache-cleared
			return []wire.Record{frame(t, 1, r1, 0, stored(nil, 1, 5)), frame(t, 31, r1, 1, cleared()), frame(t, 32, r1, 2, stored(nil, 1, 2))}
		},
		want: func(t *testing.T, f *diagnose.Finding) {
			t.Helper()
			titled(diagnose.Info, "up to 30 s later", "batch 1")(t, f)
			if f.Since != 1e9 || *f.Until != 31e9 || *f.Effect.Blocks != 5 || *f.Effect.Share != 0.5 {
				t.Errorf("%d to %d, %+v", f.Since, *f.Until, f.Effect)
			}
		},
	},
	{
		code: "prefix-caching-off", name: "as its page says", facts: wire.Facts{PrefixCaching: &off, BlockSize: 4},
		fault: func(*testing.T) []wire.Record { return serves(1, 30, r1, 40) },
		twin:  func(*testing.T) []wire.Record { return []wire.Record{link(1, r1, wire.LinkUp, "")} },
		want:  titled(diagnose.Warning, "without prefix caching"),
	},
	{
		// What is due is looked at once a second, before the second's own page.
		code: "events-off", name: "P37 served for 10 s", facts: wire.Facts{PrefixCaching: &on, BlockSize: 16},
		fault: func(*testing.T) []wire.Record {
			return append([]wire.Record{link(1, r1, wire.LinkUp, "")}, serves(1, 13, r1, 40)...)
		},
		twin: func(*testing.T) []wire.Record { // all of each prompt but 10 tokens was cached
			return append([]wire.Record{link(1, r1, wire.LinkUp, "")}, serves(1, 60, r1, 10)...)
		},
		want: func(t *testing.T, f *diagnose.Finding) {
			t.Helper()
			titled(diagnose.Error, "never published an event: 11 requests finished in 11 s")(t, f)
			if *f.Effect.Tokens != 440 || *f.Effect.Blocks != 27 {
				t.Errorf("effect %+v", f.Effect)
			}
		},
	},
	{
		code: "events-off", name: "P35 none of four",
		fault: func(*testing.T) (out []wire.Record) {
			for i := range 13 {
				for _, name := range []wire.Replica{"a", "b", "c", "d"} {
					out = append(out, serves(i+1, i+1, name, 0)[0])
					out[len(out)-1].Text = fmt.Sprintf("%d 0 0 0", 20*i)
				}
			}
			return out
		},
		twin: func(t *testing.T) []wire.Record {
			return append([]wire.Record{frame(t, 1, r1, 0)}, serves(1, 13, r1, 400)...)
		},
		want: titled(diagnose.Error, "220 requests finished in 11 s"),
	},
	{
		code: "events-off", name: "P38 nobody listens at the port", facts: wire.Facts{BlockSize: 16},
		fault: func(*testing.T) []wire.Record {
			return append([]wire.Record{link(1, r1, wire.LinkDown, "connection refused")}, serves(1, 30, r1, 40)...)
		},
		twin: func(*testing.T) []wire.Record { // it serves nothing
			return append([]wire.Record{link(1, r1, wire.LinkDown, "connection refused")},
				seconds(1, 30, func(at float64) []wire.Record { return []wire.Record{loadPage(at, r1, 9, 900, 0, 0)} })...)
		},
		want: titled(diagnose.Error, "its link is down (connection refused)"),
	},
	{
		code: "stream-silent", name: "after batch 0", facts: wire.Facts{BlockSize: 16},
		fault: func(t *testing.T) []wire.Record {
			return append([]wire.Record{frame(t, 1, r1, 0)}, serves(2, 40, r1, 40)...)
		},
		twin: func(t *testing.T) []wire.Record {
			return append([]wire.Record{frame(t, 1, r1, 0)}, seconds(2, 40, func(at float64) []wire.Record {
				return []wire.Record{loadPage(at, r1, at, 40*at, 0, 0), frame(t, at+0.5, r1, uint64(at)-1)}
			})...)
		},
		want: titled(diagnose.Error, "after batch 0: no event for 38 s, while 37 requests finished"),
	},
	{
		code: "publisher-stalled", name: "P58 for 10 s while requests run", facts: wire.Facts{BlockSize: 16},
		fault: func(t *testing.T) []wire.Record {
			return append([]wire.Record{frame(t, 1, r1, 0)}, seconds(2, 13, func(at float64) []wire.Record {
				return []wire.Record{loadPage(at, r1, 90, 9000, 0, 8)}
			})...)
		},
		twin: func(t *testing.T) []wire.Record { // it decodes
			return append([]wire.Record{frame(t, 1, r1, 0)}, seconds(2, 60, func(at float64) []wire.Record {
				out := []wire.Record{loadPage(at, r1, 90, 9000, 0, 8)}
				if int(at)%9 == 0 {
					out = append(out, frame(t, at, r1, uint64(at)/9))
				}
				return out
			})...)
		},
		want: func(t *testing.T, f *diagnose.Finding) {
			t.Helper()
			titled(diagnose.Error, "no event and no finished request for 10 s, while 8 requests run")(t, f)
			if !strings.Contains(f.Counterfactual, "kvscope is not the cause") {
				t.Error(f.Counterfactual)
			}
		},
	},
	{
		code: "orphan-chains", name: "P57 1,204 blocks", facts: wire.Facts{Capacity: 2408},
		fault: func(t *testing.T) []wire.Record {
			return append([]wire.Record{frame(t, 1, r1, 0, stored(uint64(9), 10, 1204))}, serves(2, 10, r1, 0)...)
		},
		twin: func(t *testing.T) []wire.Record {
			return append([]wire.Record{frame(t, 1, r1, 0, stored(nil, 9, 1), stored(uint64(9), 10, 1204))}, serves(2, 10, r1, 0)...)
		},
		want: func(t *testing.T, f *diagnose.Finding) {
			t.Helper()
			titled(diagnose.Warning, "1 204 blocks behind a parent that was never announced")(t, f)
			if *f.Effect.Blocks != 1204 || *f.Effect.Share != 0.5 {
				t.Errorf("effect %+v", f.Effect)
			}
		},
	},
	{
		code: "orphan-chains", name: "P57 after a late join",
		fault: func(t *testing.T) []wire.Record {
			return append([]wire.Record{frame(t, 1, r1, 8, stored(uint64(9), 10, 3))}, serves(2, 10, r1, 0)...)
		},
		twin: func(t *testing.T) []wire.Record {
			return append([]wire.Record{frame(t, 1, r1, 8, stored(nil, 10, 3))}, serves(2, 10, r1, 0)...)
		},
		want: titled(diagnose.Info, "3 blocks behind a parent"),
	},
	{
		code: "clock-skew", name: "30 s ahead",
		fault: func(t *testing.T) []wire.Record { return skewed(t, r1, func(float64) float64 { return 30 }) },
		twin:  func(t *testing.T) []wire.Record { return skewed(t, r1, func(float64) float64 { return 0.2 }) },
		want:  titled(diagnose.Warning, "30 s ahead of ours"),
	},
	{
		code: "clock-skew", name: "12 s behind",
		fault: func(t *testing.T) []wire.Record { return skewed(t, r1, func(float64) float64 { return -12 }) },
		twin: func(t *testing.T) []wire.Record { // the network is slow, and not always
			return skewed(t, r1, func(at float64) float64 { return -12 * (1 + float64(int(at)/10%2)) })
		},
		want: titled(diagnose.Warning, "12 s behind ours"),
	},
	{
		code: "clock-skew", name: "all the same: our own",
		fault: func(t *testing.T) []wire.Record {
			var out []wire.Record
			a, b := skewed(t, "a", func(float64) float64 { return 30 }), skewed(t, "b", func(float64) float64 { return 30.4 })
			for i := range a {
				out = append(out, a[i], b[i])
			}
			return out
		},
		twin: func(t *testing.T) []wire.Record { return skewed(t, "a", func(float64) float64 { return -1 }) },
		want: titled(diagnose.Warning, "all 2 engines' clocks are 30 s ahead of ours: kvscope's own clock is off"),
	},
	{
		code: "buffer-too-short", name: "64 steps at 4 a second", facts: wire.Facts{Buffer: 64, HWM: 100000},
		fault: func(t *testing.T) []wire.Record { return busy(t, 4) },
		twin:  func(t *testing.T) []wire.Record { return busy(t, 1) },
		want:  titled(diagnose.Warning, "buffer_steps of 64 holds 16 s at 4.0 batches a second"),
	},
	{
		code: "tap-too-slow", name: "812 messages in two bursts",
		fault: func(t *testing.T) []wire.Record {
			return []wire.Record{
				frame(t, 1, r1, 0),
				{At: 2e9, Replica: r1, Kind: wire.Note, Text: wire.Dropped(800, time.Second)},
				frame(t, 2, r1, 801),
				{At: 3e9, Replica: r1, Kind: wire.Note, Text: wire.Dropped(12, time.Second)},
				frame(t, 3, r1, 814),
			}
		},
		twin: func(t *testing.T) []wire.Record { // lost elsewhere
			return []wire.Record{frame(t, 1, r1, 0), frame(t, 2, r1, 801), frame(t, 3, r1, 814)}
		},
		want: titled(diagnose.Warning, "dropped 812 messages of this replica, in 2 bursts"),
	},
	{
		code: "dead-replica-blocks", name: "P43 killed with 5 blocks", facts: wire.Facts{Capacity: 10},
		fault: func(t *testing.T) []wire.Record {
			rec := loadPage(1, r1, 0, 0, 0, 0)
			out := []wire.Record{rec, frame(t, 2, r1, 0, stored(nil, 1, 5)), link(3, r1, wire.LinkUp, ""), link(4, r1, wire.LinkDown, "connection reset")}
			return append(out, seconds(5, 40, func(at float64) []wire.Record {
				return []wire.Record{{At: wire.Time(at * 1e9), Replica: r1, Kind: wire.Scrape, Err: "connection refused"}}
			})...)
		},
		twin: func(t *testing.T) []wire.Record { // it still answers: its link alone is lost
			out := []wire.Record{frame(t, 2, r1, 0, stored(nil, 1, 5)), link(3, r1, wire.LinkUp, ""), link(4, r1, wire.LinkDown, "connection reset")}
			return append(out, serves(5, 60, r1, 0)...)
		},
		want: func(t *testing.T, f *diagnose.Finding) {
			t.Helper()
			titled(diagnose.Warning, "gone since batch 0, and 5 blocks of it were never removed", "metrics page does not answer")(t, f)
			if f.Since != 4e9 || *f.Effect.Blocks != 5 || *f.Effect.Share != 0.5 {
				t.Errorf("since %d, %+v", f.Since, f.Effect)
			}
		},
	},
	{
		code: "relay-loss", name: "a batch that the relay cannot read",
		fault: func(t *testing.T) []wire.Record { return relayed(t, 3, 4) },
		twin:  func(t *testing.T) []wire.Record { return relayed(t) },
		want: func(t *testing.T, f *diagnose.Finding) {
			t.Helper()
			titled(diagnose.Error, "lost 2 blocks of batches 3–4")(t, f)
			if f.Subject != "r1" {
				t.Errorf("about %s", f.Subject)
			}
		},
	},
}
