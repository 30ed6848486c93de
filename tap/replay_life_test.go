package tap

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvscope/kvscope/wire"
)

func TestReplayForLateJoin(t *testing.T) {
	tests := []struct {
		policy string
		first  uint64
		want   string
	}{
		{"never", 500, "[]"},
		{"gaps", 500, "[]"},
		{"recent:100", 500, "[400]"},
		{"recent:100", 50, "[0]"},
		{"recent:100", 0, "[]"},
		{"full", 500, "[0]"},
		{"full", 0, "[0]"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s at %d", tt.policy, tt.first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				up := w.publisher("a:5557", manners{minor: 1})
				r := w.serveReplay("a:5558", 4, []reply{marker}, []reply{marker})
				opt := w.options()
				opt.Replay.Policy, _ = ParsePolicy(tt.policy)
				tp := New(opt)
				defer tp.Close()
				add(t, tp, withReplay)
				for seq := tt.first; seq < tt.first+3; seq++ { // once, also over connections
					p := <-up
					p.publish("", seq, "x")
					synctest.Wait()
					p.conn.Close()
				}
				time.Sleep(time.Second)
				if got := fmt.Sprint(r.asked()); got != tt.want {
					t.Errorf("asked for %s, want %s", got, tt.want)
				}
			})
		})
	}
}

func TestReplayEndsWithItsReplica(t *testing.T) {
	for name, end := range map[string]func(*Tap){
		"remove": func(tp *Tap) { tp.Remove("a") },
		"close":  func(tp *Tap) { tp.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.serveReplay("a:5558", 4, []reply{batch(0)})
				tp := New(w.options())
				defer tp.Close()
				add(t, tp, withReplay)
				tp.Want(Want{Replica: "a", From: 0})
				synctest.Wait()
				tp.Want(Want{Replica: "a", From: 0})
				began := time.Now()
				end(tp)
				if took := time.Since(began); took > 0 {
					t.Errorf("took %s", took)
				}
				tp.Close()
				var ends []string
				for {
					rec, err := tp.Next(t.Context())
					if err == io.EOF {
						break
					}
					if rec.Kind == wire.ReplayEnd {
						ends = append(ends, rec.Err)
					}
				}
				if !slices.Equal(ends, []string{removed, removed}) {
					t.Errorf("ends: %q", ends)
				}
			})
		})
	}
}

// TestReplayGoesOn: a connection that is lost midway is no reason to lose the
// rest, as long as the live one shows that the process is the same.
func TestReplayGoesOn(t *testing.T) {
	cut := func(b []byte, n int) reply {
		return func(p *peer, _ int) { p.write(b[:n]); p.conn.Close() }
	}
	half := cut(message("", string(be(2)), "x"), 9)
	restarts := func(live *peer) reply { return func(*peer, int) { live.conn.Close() } }
	tests := []struct {
		name   string
		script func(live *peer) [][]reply
		asked  []uint64
		want   string
	}{
		{
			"once", func(*peer) [][]reply { return [][]reply{{batches(0, 1), half}, {batches(2, 3), marker}} },
			[]uint64{0, 2},
			`begin 0; replayed 0; replayed 1; replayed 2; replayed 3; end marker; end ""; `,
		},
		{
			"before anything came", func(*peer) [][]reply { return [][]reply{{hangUp}, {batch(0), marker}} },
			[]uint64{0, 0},
			`begin 0; replayed 0; end marker; end ""; `,
		},
		{
			"without an end", func(*peer) [][]reply {
				var script [][]reply
				for seq := range uint64(20) {
					script = append(script, []reply{batch(seq), hangUp})
				}
				return script
			},
			[]uint64{0, 1, 2, 3, 4, 5, 6, 7},
			`begin 0; replayed 0; replayed 1; replayed 2; replayed 3; replayed 4; replayed 5; replayed 6; replayed 7; ` +
				`end "the answer broke off before batch 8, and again after each of 8 requests"; `,
		},
		{
			"without progress", func(*peer) [][]reply { return [][]reply{{batch(0), hangUp}, {batch(0), hangUp}, {batch(1), marker}} },
			[]uint64{0, 1},
			`begin 0; replayed 0; end "the connection was lost before batch 1: EOF"; `,
		},
		{
			"the process restarts", func(live *peer) [][]reply {
				return [][]reply{{batch(0), pause(time.Millisecond), restarts(live), hangUp}, {batch(1), marker}}
			},
			[]uint64{0},
			`begin 0; replayed 0; end "the connection was lost before batch 1: EOF"; `,
		},
		{
			"the process restarts later", func(live *peer) [][]reply {
				return [][]reply{{batch(0), hangUp}, {batch(1), pause(time.Millisecond), restarts(live), pause(time.Second), batch(2), marker}}
			},
			[]uint64{0, 1},
			`begin 0; replayed 0; replayed 1; end "the connection was lost before batch 2, and the live one meanwhile"; `,
		},
		{
			"what is no ZMTP", func(*peer) [][]reply { return [][]reply{{batch(0), raw([]byte{0xff, 0xff})}, {batch(1), marker}} },
			[]uint64{0},
			`begin 0; replayed 0; end "the connection was lost before batch 1: malformed frame: flags 0xff"; `,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				up := w.publisher("a:5557", manners{minor: 1})
				tp := New(w.options())
				defer tp.Close()
				add(t, tp, withReplay)
				live := <-up
				r := w.serveReplay("a:5558", 3, tt.script(live)...)
				synctest.Wait()
				tp.Want(Want{Replica: "a", From: 0})
				var got []wire.Record
				for _, rec := range collect(t, tp, time.Minute, until(wire.ReplayEnd, 1)) {
					if rec.Kind != wire.Link {
						got = append(got, rec)
					}
				}
				if s := said(got); s != tt.want {
					t.Errorf("got  %s\nwant %s", s, tt.want)
				}
				if asked := r.asked(); !slices.Equal(asked, tt.asked) {
					t.Errorf("asked for %v, want %v", asked, tt.asked)
				}
				tp.Close()
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestWordsWithoutOurPort: old trouble must not look new because a port of ours
// is another.
func TestWordsWithoutOurPort(t *testing.T) {
	ours, theirs := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 48634}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7003}
	reset := &net.OpError{Op: "read", Net: "tcp", Source: ours, Addr: theirs, Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{reset, "read: connection reset by peer"},
		{fmt.Errorf("the connection was lost before batch 3: %w", reset), "the connection was lost before batch 3: read: connection reset by peer"},
		{&net.DNSError{Err: "read udp 10.0.0.1:33333->10.96.0.10:53: i/o timeout", Name: "a", Server: "10.96.0.10:53"}, "lookup a on 10.96.0.10:53: i/o timeout"},
		{&net.OpError{Op: "dial", Net: "tcp", Addr: theirs, Err: syscall.ECONNREFUSED}, "dial tcp 127.0.0.1:7003: connection refused"},
	} {
		if got := words(tt.err); got != tt.want {
			t.Errorf("%q becomes %q, want %q", tt.err, got, tt.want)
		}
	}
}

// TestAccountOutlivesRemove: an endpoint that is taken away and added again is
// asked no more than one that stayed.
func TestAccountOutlivesRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		up := w.publisher("a:5557", manners{minor: 1})
		r := w.serveReplay("a:5558", 4, slices.Repeat([][]reply{{marker}}, 100)...)
		opt := w.options()
		opt.Replay.Policy, _ = ParsePolicy("full")
		tp := New(opt)
		defer tp.Close()
		for range 3 { // the late join is asked for once
			add(t, tp, withReplay)
			<-up
			synctest.Wait()
			tp.Remove("a")
		}
		if n := len(r.asked()); n != 1 {
			t.Errorf("asked %d times for one late join", n)
		}
		add(t, tp, withReplay)
		collect(t, tp, time.Minute, until(wire.ReplayEnd, 1))
		for i, failed := range append(wants(t, tp, 6), func() []string {
			tp.Remove("a")
			add(t, tp, withReplay)
			return wants(t, tp, 6)
		}()...) {
			want := ""
			if i == 11 {
				want = "the budget of 12 replay requests a minute is used up"
			}
			if failed != want {
				t.Errorf("want %d: %q", i, failed)
			}
		}
		// At another address it is another engine, within the same budget.
		tp.Remove("a")
		time.Sleep(time.Minute)
		w.publisher("b:5557", manners{minor: 1})
		moved := w.serveReplay("b:5558", 4, []reply{marker}, []reply{marker})
		add(t, tp, Endpoint{Name: "a", Address: "tcp://b:5557", Replay: "tcp://b:5558"})
		time.Sleep(time.Second)
		if n, st := len(moved.asked()), statsOf(t, tp, "a").Replay; n != 1 || st.Left != 11 {
			t.Errorf("asked %d times after a move, %+v", n, st)
		}
	})
}

func TestFailureOutlivesRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.serveReplay("a:5558", 4, nil, []reply{marker})
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, withReplay)
		wants(t, tp, 1)
		tp.Remove("a")
		add(t, tp, withReplay)
		if got := wants(t, tp, 1)[0]; got != "the last replay before the replica was removed failed, and none is asked for in the 1s after it" {
			t.Errorf("%q", got)
		}
		time.Sleep(time.Second)
		if got := wants(t, tp, 1)[0]; got != "" || len(r.asked()) != 2 {
			t.Errorf("%q, %d requests", got, len(r.asked()))
		}
	})
}

func TestAccountsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := New(Options{})
		defer tp.Close()
		for i := range maxAccounts + 10 {
			ep := Endpoint{Name: wire.Replica(fmt.Sprint(i)), Replay: "tcp://a:1"}
			acc := tp.account(ep)
			acc.spend(time.Now(), 12)
			acc.once()
		}
		if n := len(tp.accounts); n > maxAccounts {
			t.Errorf("%d accounts", n)
		}
		if tp.account(Endpoint{Name: "x"}); tp.accounts["x"] != nil {
			t.Error("an account without a replay socket is kept")
		}
	})
}
