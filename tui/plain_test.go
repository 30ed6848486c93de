package tui

import (
	"context"
	"strings"
	"testing"

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
