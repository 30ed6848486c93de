package tui

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

func TestScreenFleet(t *testing.T) {
	t.Parallel()
	for _, fixture := range []string{"a_fleet", "d_restart", "c_reset"} {
		t.Run(fixture, func(t *testing.T) {
			t.Parallel()
			eachSize(t, func(t *testing.T, w, h int, mode string) { screen(t, fixture, "fleet", w, h, mode) })
		})
	}
}

// still is a fleet that does not change.
type still struct{ snap *observe.Snapshot }

func (s still) Snapshot() *observe.Snapshot { return s.snap }

func (s still) Ask(context.Context, observe.Question) (*observe.Answer, error) {
	return &observe.Answer{}, nil
}

func (s still) Explain(context.Context, explain.Query) (*explain.Answer, error) {
	return nil, explain.ErrNobody
}

// bigFleet makes a fleet by pushing real batches of a recording under many
// names.
func bigFleet(t testing.TB, replicas int) *observe.Snapshot {
	t.Helper()
	s := *recording(t, "d_restart").End()
	three := s.Replicas
	s.Replicas = nil
	for i := range replicas {
		r := three[i%len(three)]
		r.Replica = wire.Replica(fmt.Sprintf("pool-%d/replica-%04d", i%7, i))
		r.Index.Resident[wire.Device] += i
		s.Replicas = append(s.Replicas, r)
	}
	s.Findings = diagnose.Run(diagnose.View{Now: s.Until, Replicas: s.Replicas}, nil)
	return &s
}

func TestFleetKeepsSelection(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "d_restart", 120, 40, noColour)
	x.press("j")
	f := x.m.views[0].(*fleetView)
	if f.list.selected != "a" {
		t.Fatalf("selected %q, want a", f.list.selected)
	}
	for _, keys := range [][]string{{"s"}, {"S"}, {"["}, {"["}, {"/", "a", "enter"}, {"esc"}, {"4"}, {"esc"}} {
		x.press(keys...)
		x.frame()
		if r := f.chosenReplica(x.m.scene()); r == nil || r.Replica != "a" {
			t.Errorf("after %v the selection is %v", keys, r)
		}
	}
}

func TestFleetSortsAndFilters(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "d_restart", 160, 40, noColour)
	f := x.m.views[0].(*fleetView)
	rows := func() string {
		var out []string
		for _, row := range f.export(x.m.scene()).rows {
			out = append(out, row[0])
		}
		return strings.Join(out, "")
	}
	for _, tt := range []struct{ command, want string }{
		{"sort trust", "bac"},
		{"sort replica", "abc"},
		{"sort -replica", "cba"},
		{"sort device", "abc"},
		{"sort -device", "cba"},
		{"sort seq", "bac"},
		{"filter trust:stale", "b"},
		{"filter !EXACT", "ba"},
		{"filter seq>300", "ba"},
		{"filter seq<300", "c"},
		{"filter replica:/^[ac]$/", "ac"},
		{"filter nothing-like-it", ""},
	} {
		x.press(":").write(tt.command).press("enter")
		if got := rows(); got != tt.want {
			t.Errorf("%s: rows %q, want %q\n%s", tt.command, got, tt.want, x.text())
		}
	}
}

func TestFleetColumns(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "d_restart", 200, 40, noColour)
	has := func() bool { return strings.Contains(x.text(), "silent") }
	if !has() {
		t.Fatal("no column silent\n" + x.text())
	}
	x.press("o")
	for range fleetColumns {
		d := x.m.overlay.(*dialog)
		if d.items[d.list.cursor].label == "silent" {
			break
		}
		x.press("down")
		x.frame()
	}
	x.press("space", "esc")
	if has() {
		t.Error("column silent is still there\n" + x.text())
	}
}

// BenchmarkRedraw draws a fleet of 1,000 replicas with another snapshot each
// time. ms/redraw is to stay under 5, and so is idle under 3 % of a core at
// ten looks per second, nothing having changed.
func BenchmarkRedraw(b *testing.B) {
	one := bigFleet(b, 1000)
	two := *one
	x := newHarnessOn(b, Options{Feed: still{one}, Look: lookOf(inColour)}, 200, 60)
	b.Run("changed", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			snap := one
			if i%2 == 0 {
				snap = &two
			}
			x.m.Update(tickMsg{snap})
			x.m.View()
		}
		b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms/redraw")
	})
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			x.m.Update(tickMsg{x.m.newest})
			x.m.View()
		}
		perSecond := b.Elapsed() / time.Duration(b.N) * time.Duration(time.Second/refresh)
		b.ReportMetric(100*perSecond.Seconds(), "%core")
	})
}

// TestRealOverPredicted: the column is there only with a requests log, and a
// replica that the log does not judge shows none.
func TestRealOverPredicted(t *testing.T) {
	t.Parallel()
	s := &scene{snap: &observe.Snapshot{Replicas: []diagnose.Replica{{}, {}}}, theme: newTheme("none", false)}
	s.snap.Replicas[0].Replica, s.snap.Replicas[1].Replica = "a", "b"
	v := newFleet()
	c := columnNamed("real")
	if v.shown(s, c) {
		t.Error("shown without a log")
	}
	s.audit = &explain.Audit{PerReplica: []explain.ReplicaAudit{{Log: "x", Replicas: []wire.Replica{"a"}, Predicted: 400, Cached: 300}}}
	if !v.shown(s, c) {
		t.Error("not shown with a log")
	}
	if a, b := c.text(s, &s.snap.Replicas[0]), c.text(s, &s.snap.Replicas[1]); a != "~0.75" || b != glyphNone {
		t.Errorf("a %q, b %q", a, b)
	}
}
