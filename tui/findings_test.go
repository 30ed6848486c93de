package tui

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

func TestScreenFindings(t *testing.T) {
	t.Parallel()
	for _, fixture := range []string{"a_fleet", "c_reset", "d_restart"} {
		t.Run(fixture, func(t *testing.T) {
			t.Parallel()
			eachSize(t, func(t *testing.T, w, h int, mode string) { screen(t, fixture, "findings", w, h, mode) })
		})
	}
}

func sampleFindings() *observe.Snapshot {
	at := func(t wire.Time) *wire.Time { return &t }
	from, to, blocks, share, span, block := uint64(40211), uint64(40518), 312, 0.25, "Current time", 12
	return &observe.Snapshot{Until: 99 * second, Findings: []diagnose.Finding{
		{Code: "late-join", Severity: diagnose.Info, Subject: "r1", Since: 30 * second, Title: "joined late"},
		{Code: "seq-gap", Severity: diagnose.Error, Subject: "r3", Since: 10 * second, Until: at(20 * second), Title: "an old gap"},
		{
			Code: "seq-gap", Severity: diagnose.Error, Subject: "r3", Since: 5 * second, Title: "308 batches lost",
			Evidence: diagnose.Evidence{Replica: "r3", SeqFrom: &from, SeqTo: &to, Block: &block, Span: &span},
			Effect:   diagnose.Effect{Blocks: &blocks, Share: &share}, Counterfactual: "it would be exact", Next: "open the replay port",
		},
		{Code: "over-capacity", Severity: diagnose.Warning, Subject: "r2", Since: 50 * second, Title: "too many"},
	}}
}

func TestFindingsOrder(t *testing.T) {
	t.Parallel()
	s, v := sceneOf(sampleFindings()), newFindings()
	order := func() string {
		var out []string
		for _, f := range v.rows(s) {
			out = append(out, f[0].Title)
		}
		return strings.Join(out, ", ")
	}
	for _, c := range []struct{ name, want string }{
		{"severity", "308 batches lost, an old gap, too many, joined late"},
		{"time", "too many, joined late, an old gap, 308 batches lost"},
		{"subject", "joined late, too many, 308 batches lost, an old gap"},
	} {
		v.sortBy(c.name)
		if got := order(); got != c.want {
			t.Errorf("by %s: %s", c.name, got)
		}
	}
	v.handle(s, actReverse)
	if got := order(); got != "an old gap, 308 batches lost, too many, joined late" {
		t.Errorf("reversed: %s", got)
	}
	f, err := parseFilter("severity:error state:open", v.filterFields())
	if err != nil {
		t.Fatal(err)
	}
	s.filter = f
	if got := order(); got != "308 batches lost" {
		t.Errorf("filtered: %s", got)
	}
	if shown, all := v.count(s); shown != 1 || all != 4 {
		t.Errorf("%d of %d", shown, all)
	}
	if f, err = parseFilter("nothing", v.filterFields()); err != nil {
		t.Fatal(err)
	}
	s.filter = f
	if got := shown(v, s, 80, 10); !strings.Contains(got, "no finding matches the filter") {
		t.Errorf("shown %q", got)
	}
}

func TestFindingsInFull(t *testing.T) {
	t.Parallel()
	s, v := sceneOf(sampleFindings()), newFindings()
	got := shown(v, s, 100, 30)
	for _, want := range []string{
		"ERROR  open   seq-gap", "evidence   replica r3, batches 40 211–40 518, block 12, “Current time”",
		"effect     312 blocks, 25.0 % of its capacity", "otherwise  it would be exact", "next     open the replay port",
		"open since 00:00:05.000 UTC, for 1 m 34 s",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if e := v.handle(s, actOpen); e.open != "page:seq-gap" {
		t.Errorf("opens %q", e.open)
	}
	e := v.handle(s, actJump)
	if e.goTo != "streams" || e.replica != "r3" || e.seq == nil || *e.seq != 40519 {
		t.Errorf("jumps to %+v", e)
	}
	var copied map[string]any
	if err := json.Unmarshal([]byte(v.handle(s, actCopyRow).copy), &copied); err != nil || copied["code"] != "seq-gap" {
		t.Errorf("copied %v, %v", copied, err)
	}
	if text := v.handle(s, actCopy).copy; !strings.Contains(text, "308 batches lost\n") {
		t.Errorf("copied %q", text)
	}
	// Within the text enter jumps and esc returns.
	v.handle(s, actNextPane)
	if b := find("enter", v.bindings()); b.action != actJump {
		t.Errorf("enter is %s", b.action)
	}
	v.handle(s, actShallower)
	if b := find("enter", v.bindings()); b.action != actOpen || find("esc", v.bindings()) != nil {
		t.Errorf("enter is %s", b.action)
	}
}

// The selection stays on a finding when others come before it.
func TestFindingsSelection(t *testing.T) {
	t.Parallel()
	snap := sampleFindings()
	s, v := sceneOf(snap), newFindings()
	v.draw(s, 80, 20)
	v.handle(s, actDown)
	if f := v.selected(s); f.Title != "an old gap" {
		t.Fatalf("selected %q", f.Title)
	}
	newer := *snap
	newer.Findings = append([]diagnose.Finding{{Code: "seq-gap", Severity: diagnose.Error, Subject: "r9", Since: 90 * second, Title: "new"}}, snap.Findings...)
	s.snap = &newer
	if f := v.selected(s); f.Title != "an old gap" {
		t.Errorf("selected %q", f.Title)
	}
}

func TestNoFindings(t *testing.T) {
	t.Parallel()
	s, v := sceneOf(&observe.Snapshot{Replicas: make([]diagnose.Replica, 2)}), newFindings()
	if got := shown(v, s, 100, 20); !strings.Contains(got, "Nothing is wrong that the checks can see (") || !strings.Contains(got, "checks on 2 replicas).") {
		t.Errorf("shown %q", got)
	}
	for _, b := range v.bindings() {
		if b.action == actOpen && (b.off == nil || b.off(s) == "") {
			t.Error("a page can be opened")
		}
	}
}

// TestFindingsAlike: what several replicas have in common is one line, from which
// the text, the copies and a filter lead to each of them.
func TestFindingsAlike(t *testing.T) {
	t.Parallel()
	snap := &observe.Snapshot{Until: 99 * second}
	for i := range uint64(4) {
		from := 10 * i
		snap.Findings = append(snap.Findings, diagnose.Finding{
			Code: "late-join", Subject: fmt.Sprint("r", i), Since: wire.Time(i) * second, Title: fmt.Sprintf("joined at batch %d", from),
			Evidence: diagnose.Evidence{Replica: wire.Replica(fmt.Sprint("r", i)), SeqFrom: &from, SeqTo: &from}, Next: "wait",
		})
	}
	s, v := sceneOf(snap), newFindings()
	got := shown(v, s, 100, 30)
	for _, want := range []string{"4 replicas", "joined at batch 30", "likewise   replica r2, batch 20; replica r1, batch 10; replica r0, batch 0"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if n := len(v.rows(s)); n != 1 {
		t.Errorf("%d lines", n)
	}
	if shown, all := v.count(s); shown != 4 || all != 4 || len(v.export(s).rows) != 4 {
		t.Errorf("%d of %d", shown, all)
	}
	var copied []map[string]any
	if err := json.Unmarshal([]byte(v.handle(s, actCopyRow).copy), &copied); err != nil || len(copied) != 4 {
		t.Errorf("copied %v, %v", copied, err)
	}
	f, err := parseFilter("subject:r1", v.filterFields())
	if err != nil {
		t.Fatal(err)
	}
	s.filter = f
	if e := v.handle(s, actJump); e.replica != "r1" || e.seq == nil || *e.seq != 11 {
		t.Errorf("jumps to %+v", e)
	}
}
