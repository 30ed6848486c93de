package tap

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// router is a replay socket with a script: what it answers to each request.
type router struct {
	mu       sync.Mutex
	requests []uint64
	peers    []*peer
}

// reply is one thing that a router does.
type reply func(p *peer, shape int)

func batch(seq uint64) reply {
	return func(p *peer, shape int) {
		if shape == 3 {
			p.write(message("", string(be(seq)), "x"))
		} else {
			p.write(message("", "kv", string(be(seq)), "x"))
		}
	}
}

func batches(from, to uint64) reply {
	return func(p *peer, shape int) {
		for seq := from; seq <= to; seq++ {
			batch(seq)(p, shape)
		}
	}
}

func marker(p *peer, shape int) {
	if shape == 3 {
		p.write(message("", string(be(1<<64-1)), ""))
	} else {
		p.write(message("", "", string(be(1<<64-1)), ""))
	}
}

func pause(d time.Duration) reply { return func(*peer, int) { time.Sleep(d) } }
func raw(b []byte) reply          { return func(p *peer, _ int) { p.write(b) } }
func hangUp(p *peer, _ int)       { p.conn.Close() }

// serveReplay puts a router at an address. Beyond its script it is silent.
func (w *world) serveReplay(address string, shape int, script ...[]reply) *router {
	r := &router{}
	w.serve(address, func(conn net.Conn) {
		p, err := greet(conn, manners{minor: 1, typ: "ROUTER"})
		if err != nil {
			return
		}
		f, err := p.await(func(f frame) bool { return f.flags == 0 })
		if err != nil {
			return
		}
		r.mu.Lock()
		n := len(r.requests)
		r.requests = append(r.requests, binary.BigEndian.Uint64([]byte(f.body)))
		r.peers = append(r.peers, p)
		r.mu.Unlock()
		if n < len(script) {
			for _, do := range script[n] {
				do(p, shape)
			}
		}
	})
	return r
}

func (r *router) asked() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

var withReplay = Endpoint{Name: "a", Address: "tcp://a:5557", Replay: "tcp://a:5558"}

func TestReplay(t *testing.T) {
	steps := func(r ...reply) []reply { return r }
	const silent = "the replay socket gave no answer within 5s"
	tests := []struct {
		name   string
		from   uint64
		script [][]reply
		asked  []uint64
		want   string
		text   string
	}{
		{
			"complete", 3,
			[][]reply{steps(batches(3, 6), marker)},
			[]uint64{3},
			`begin 3; replayed 3; replayed 4; replayed 5; replayed 6; end marker; end ""; `,
			"4 batches from 3 on",
		},
		{"nothing there", 9, [][]reply{steps(marker)}, []uint64{9}, `begin 9; end marker; end ""; `, "0 batches"},
		{
			"a clipped start", 0,
			[][]reply{steps(batches(81, 83), marker)},
			[]uint64{0},
			`begin 0; replayed 81; replayed 82; replayed 83; end marker; end ""; `,
			"3 batches from 0 on; the first 81 are no longer kept",
		},
		{
			"truncated, then whole", 0,
			[][]reply{steps(batches(0, 1)), steps(batches(2, 3), marker)},
			[]uint64{0, 2},
			`begin 0; replayed 0; replayed 1; replayed 2; replayed 3; end marker; end ""; `,
			"4 batches from 0 on, in 2 requests",
		},
		{
			"only the marker lost", 0,
			[][]reply{steps(batches(0, 1)), steps(marker)},
			[]uint64{0, 2},
			`begin 0; replayed 0; replayed 1; end marker; end ""; `,
			"2 batches",
		},
		{
			"truncated for good", 0,
			[][]reply{steps(batches(0, 1))},
			[]uint64{0, 2},
			`begin 0; replayed 0; replayed 1; end "the answer ends before batch 2 without saying that it is over"; `,
			"2 batches",
		},
		{
			"truncated again and again", 0,
			[][]reply{
				steps(batch(0)), steps(batch(1)), steps(batch(2)), steps(batch(3)),
				steps(batch(4)), steps(batch(5)), steps(batch(6)), steps(batch(7)), steps(batch(8)),
			},
			[]uint64{0, 1, 2, 3, 4, 5, 6, 7},
			`begin 0; replayed 0; replayed 1; replayed 2; replayed 3; replayed 4; replayed 5; replayed 6; replayed 7; ` +
				`end "the answer broke off before batch 8, and again after each of 8 requests"; `,
			"8 batches from 0 on, in 8 requests",
		},
		{
			"a hole that is filled", 0,
			[][]reply{steps(batches(0, 1), batches(4, 6), marker), steps(batches(2, 6), marker)},
			[]uint64{0, 2},
			`begin 0; replayed 0; replayed 1; replayed 2; replayed 3; replayed 4; replayed 5; replayed 6; end marker; end ""; `,
			"7 batches from 0 on, in 2 requests",
		},
		{
			"a hole that cannot be filled", 0,
			[][]reply{steps(batches(0, 1), batches(4, 5), marker), steps(batches(4, 5), marker)},
			[]uint64{0, 2},
			`begin 0; replayed 0; replayed 1; replayed 4; replayed 5; end marker; end ""; `,
			"4 batches from 0 on, in 2 requests; 2 in between cannot be had",
		},
		{
			"holes everywhere", 0,
			[][]reply{
				steps(batch(0), batch(2)), steps(batch(2), batch(4)), steps(batch(4), batch(6)), steps(batch(6), batch(8)),
				steps(batch(8), batch(10)), steps(batch(10), batch(12)), steps(batch(12), batch(14)), steps(batch(14), batch(16), batch(18), marker),
			},
			[]uint64{0, 1, 3, 5, 7, 9, 11, 13},
			`begin 0; replayed 0; replayed 2; replayed 4; replayed 6; replayed 8; replayed 10; replayed 12; replayed 14; ` +
				`replayed 16; replayed 18; end marker; ` +
				`end "the answer leaves out 2 batches, and 8 requests for one want are the limit"; `,
			"7 in between cannot be had",
		},
		{
			"overlap and repetition", 5,
			[][]reply{steps(batches(0, 6), batches(5, 7), marker)},
			[]uint64{5},
			`begin 5; replayed 5; replayed 6; replayed 7; end marker; end ""; `,
			"3 batches",
		},
		{"silent", 4, nil, []uint64{4}, `begin 4; end "` + silent + `"; `, "0 batches from 4 on"},
		{
			"slow, but not too slow", 0,
			[][]reply{steps(pause(4*time.Second), batch(0), pause(4*time.Second), batch(1), pause(4*time.Second), marker)},
			[]uint64{0},
			`begin 0; replayed 0; replayed 1; end marker; end ""; `,
			"2 batches",
		},
		{
			"endless", 0,
			[][]reply{slices.Concat(slices.Repeat([]reply{pause(4 * time.Second), raw(message("", string(be(0)), "x"))}, 20))},
			[]uint64{0},
			`begin 0; replayed 0; end "the replay took longer than 1m0s"; `,
			"1 batch",
		},
		{
			"heartbeats are no answer", 0,
			[][]reply{slices.Concat(steps(batch(0)), slices.Repeat(steps(raw(rawFrame(4, "\x04PING\x00\x00")), pause(time.Second)), 10))},
			[]uint64{0, 1},
			`begin 0; replayed 0; end "the answer ends before batch 1 without saying that it is over"; `,
			"1 batch",
		},
		{
			"the process ends", 0,
			[][]reply{steps(batch(0), hangUp)},
			[]uint64{0},
			`begin 0; replayed 0; end "the connection was lost before batch 1: EOF"; `,
			"1 batch",
		},
		{
			"not a replay", 0,
			[][]reply{steps(raw(message("a", "b")))},
			[]uint64{0},
			`begin 0; end "unexpected frames: a sequence of 1 bytes, want 8"; `,
			"0 batches",
		},
	}
	for _, tt := range tests {
		for _, shape := range []int{3, 4} {
			t.Run(fmt.Sprintf("%s, %d frames", tt.name, shape), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld()
					r := w.serveReplay("a:5558", shape, tt.script...)
					tp := New(w.options())
					add(t, tp, withReplay)
					tp.Want(Want{Replica: "a", From: tt.from})
					var got []wire.Record
					for _, rec := range collect(t, tp, 10*time.Minute, until(wire.ReplayEnd, 1)) {
						if rec.Kind != wire.Link {
							got = append(got, rec)
						}
					}
					if s := said(got); s != tt.want {
						t.Errorf("got  %s\nwant %s", s, tt.want)
					}
					if last := got[len(got)-1]; !strings.Contains(last.Text, tt.text) {
						t.Errorf("says %q, want %q", last.Text, tt.text)
					}
					if asked := r.asked(); !slices.Equal(asked, tt.asked) {
						t.Errorf("asked for %v, want %v", asked, tt.asked)
					}
					synctest.Wait()
					st := statsOf(t, tp, "a").Replay
					if int(st.Requests) != len(tt.asked) || st.Left != 12-len(tt.asked) && tt.name != "endless" || st.Wants != 1 || st.Running {
						t.Errorf("%+v", st)
					}
					tp.Close()
					// Nothing else was sent: one request for each connection, with the delimiter.
					for i, p := range r.peers {
						<-p.ended
						got := slices.DeleteFunc(p.frames(), func(f frame) bool { return f == frame{4, "\x04PONG"} })
						if want := []frame{{1, ""}, {0, string(be(tt.asked[i]))}}; !slices.Equal(got, want) {
							t.Errorf("request %d: %q", i, got)
						}
					}
					time.Sleep(time.Hour) // the scripts end
				})
			})
		}
	}
}

func TestReplayRefused(t *testing.T) {
	tests := []struct {
		name, policy string
		ep           Endpoint
		want         string
	}{
		{"policy", "never", withReplay, "the replay policy is never"},
		{"no socket", "full", engine, "no replay socket of this replica is known"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				opt := w.options()
				opt.Replay.Policy, _ = ParsePolicy(tt.policy)
				tp := New(opt)
				defer tp.Close()
				add(t, tp, tt.ep)
				tp.Want(Want{Replica: "a/3", From: 1}) // a rank of it
				got := collect(t, tp, time.Second, until(wire.ReplayEnd, 1))
				if last := got[len(got)-1]; last.Replica != "a/3" || last.Err != tt.want {
					t.Errorf("got %s", said(got))
				}
				if st := statsOf(t, tp, "a").Replay; st.Refused != 1 || st.Requests != 0 || st.Last != tt.want {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// wants asks and gives how each want ended.
func wants(t *testing.T, tp *Tap, n int) []string {
	t.Helper()
	var out []string
	for range n {
		tp.Want(Want{Replica: "a", From: 0})
		got := collect(t, tp, 10*time.Minute, until(wire.ReplayEnd, 1))
		out = append(out, got[len(got)-1].Err)
	}
	return out
}

func TestReplayBudgetPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.serveReplay("a:5558", 4, slices.Repeat([][]reply{{batch(0), marker}}, 100)...)
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, withReplay)
		for i, failed := range wants(t, tp, 14) {
			want := ""
			if i >= 12 {
				want = "the budget of 12 replay requests a minute is used up"
			}
			if failed != want {
				t.Errorf("want %d: %q", i, failed)
			}
		}
		time.Sleep(time.Minute)
		if failed := wants(t, tp, 1); failed[0] != "" || len(r.asked()) != 13 {
			t.Errorf("a minute later: %q, %d requests", failed, len(r.asked()))
		}
		synctest.Wait()
		st := statsOf(t, tp, "a").Replay
		if st.Requests != 13 || st.Refused != 2 || st.Wants != 15 || st.Left != 11 || st.Batches != 13 || st.Bytes != 13*(2+8+1+8) {
			t.Errorf("%+v", st)
		}
	})
}

func TestReplayBacksOffAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.serveReplay("a:5558", 4, nil, nil, []reply{marker}, []reply{marker})
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, withReplay)
		got := wants(t, tp, 2)
		if want := "the last replay failed (the replay socket gave no answer within 5s), and none is asked for in the 1s after it"; got[1] != want {
			t.Errorf("right after a failure: %q", got[1])
		}
		time.Sleep(time.Second)
		if got := wants(t, tp, 2); !strings.HasSuffix(got[1], "in the 2s after it") {
			t.Errorf("after the second failure: %q", got)
		}
		time.Sleep(2 * time.Second)
		if got := wants(t, tp, 2); got[0] != "" || got[1] != "" || len(r.asked()) != 4 {
			t.Errorf("once it answers: %q after %d requests", got, len(r.asked()))
		}
	})
}

func TestReplayOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.serveReplay("a:5558", 4, []reply{batch(9), pause(time.Second), marker}, []reply{marker}, []reply{marker})
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, withReplay)
		tp.Want(Want{Replica: "a", From: 9})
		synctest.Wait()
		// What waits is answered together, from the first batch wanted.
		for _, from := range []uint64{8, 5, 7} {
			tp.Want(Want{Replica: "a", From: from})
		}
		tp.Want(Want{Replica: "a/1", From: 2})
		if st := statsOf(t, tp, "a").Replay; !st.Running || st.Waiting != 2 {
			t.Errorf("%+v", st)
		}
		collect(t, tp, time.Minute, until(wire.ReplayEnd, 3))
		if got := r.asked(); !slices.Equal(got, []uint64{9, 5, 2}) {
			t.Errorf("asked for %v", got)
		}
	})
}

func TestReplayBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.serveReplay("a:5558", 4, []reply{batches(0, 99), marker})
		opt := w.options()
		opt.Replay.MaxBytes = 190
		tp := New(opt)
		defer tp.Close()
		add(t, tp, withReplay)
		if got := wants(t, tp, 1); got[0] != "the answer is larger than what may be read for one want: 190 bytes" {
			t.Errorf("%q", got)
		}
		if st := statsOf(t, tp, "a").Replay; st.Batches != 17 {
			t.Errorf("%+v", st)
		}
	})
}

// TestReplayWaitsForStart: an engine that restarts opens its event socket
// before its replay socket.
func TestReplayWaitsForStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, withReplay)
		tp.Want(Want{Replica: "a", From: 0})
		time.Sleep(2 * time.Second)
		w.serveReplay("a:5558", 4, []reply{batch(0), marker})
		if got := collect(t, tp, time.Minute, until(wire.ReplayEnd, 1)); got[len(got)-1].Err != "" {
			t.Errorf("got %s", said(got))
		}
		w.serve("a:5558", nil)
		if got := wants(t, tp, 1); got[0] != "cannot ask for a replay: connection refused" {
			t.Errorf("%q", got)
		}
		if st := statsOf(t, tp, "a").Replay; st.Requests != 1 {
			t.Errorf("a request was counted that was not sent: %+v", st)
		}
	})
}
