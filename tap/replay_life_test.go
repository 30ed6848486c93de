package tap

import (
	"fmt"
	"io"
	"slices"
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
