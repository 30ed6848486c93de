package tui

import (
	"context"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// TestPlain walks through a recording with a restart and a lost link.
func TestPlain(t *testing.T) {
	t.Parallel()
	p := recording(t, "d_restart")
	var b strings.Builder
	plain := NewPlain(&b)
	end := p.End()
	for at := end.From; at <= end.Until; at += wire.Time(1e8) {
		s, err := p.SeekTime(context.Background(), at)
		if err != nil {
			t.Fatal(err)
		}
		if err := plain.Next(s); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "plain_d_restart", b.String())
	n := strings.Count(b.String(), "\n")
	s, err := p.SeekTime(context.Background(), end.Until)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := plain.Next(s); err != nil {
			t.Fatal(err)
		}
	}
	if again := strings.Count(b.String(), "\n"); again > n+1 {
		t.Errorf("the same snapshot again gives %d more lines", again-n)
	}
	if strings.ContainsAny(b.String(), "\x1b\r") {
		t.Error("it moves the cursor")
	}
}

// TestPlainNotes: every note is said, those of one moment too, and again when it
// is made again.
func TestPlainNotes(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	p := NewPlain(&b)
	s := &observe.Snapshot{Until: 5e9, Notes: []observe.Note{
		{At: 5e9, Text: "dns a: no address", Times: 1}, {At: 5e9, Replica: "r", Text: "dropped 3 messages", Times: 1},
	}}
	for _, times := range []int{1, 1, 2} {
		s.Notes[1].Times = times
		if err := p.Next(s); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]int{"note dns a: no address": 1, "note r: dropped 3 messages": 2} {
		if got := strings.Count(b.String(), text); got != want {
			t.Errorf("%q is said %d times, want %d:\n%s", text, got, want, b.String())
		}
	}
}
