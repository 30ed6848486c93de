package tui

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func TestClipSequence(t *testing.T) {
	t.Parallel()
	plain := "\x1b]52;c;" + base64.StdEncoding.EncodeToString([]byte("r3")) + "\a"
	if got := clipSequence("r3", ""); got != plain {
		t.Errorf("plain: %q", got)
	}
	if got, want := clipSequence("r3", "tmux"), plain+"\x1bPtmux;"+strings.ReplaceAll(plain, "\x1b", "\x1b\x1b")+"\x1b\\"; got != want {
		t.Errorf("tmux: %q, want %q", got, want)
	}
	// GNU screen takes only so much at once: what comes out of all pieces is
	// the plain sequence again.
	text := strings.Repeat("prompt ", 500)
	long := clipSequence(text, "screen")
	var joined strings.Builder
	for i, piece := range strings.Split(long, "\x1bP") {
		if i == 0 {
			if piece != "" {
				t.Errorf("before the first piece: %q", piece)
			}
			continue
		}
		body, ok := strings.CutSuffix(piece, "\x1b\\")
		if !ok || len(body) > screenChunk {
			t.Fatalf("piece %d has %d bytes: %q", i, len(body), piece)
		}
		joined.WriteString(body)
	}
	if joined.String() != clipSequence(text, "") {
		t.Error("the pieces are not the whole")
	}
}

func TestCopy(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "c_reset", 100, 24, noColour)
	x.press("y")
	if len(x.raw) != 1 || x.raw[0] != clipSequence("a", "") {
		t.Errorf("wrote %q", x.raw)
	}
	if s := x.text(); !strings.Contains(s, "copied 1 byte through the terminal (OSC 52)") {
		t.Error(s)
	}
	x.press("Y")
	if s := x.text(); len(x.raw) != 2 || !strings.Contains(s, "copied") {
		t.Error(s)
	}

	x.raw = nil
	tooLong := func() {
		x.run(x.m.copy(strings.Repeat("x", maxClip+1)))
		x.m.dirty = true
	}
	tooLong()
	if s := x.text(); x.raw != nil || !strings.Contains(s, "too many for the terminal's clipboard") {
		t.Errorf("wrote %d bytes\n%s", len(x.raw), s)
	}
	x.m.opt.CopyNative = func(string) (string, error) { return "wl-copy", nil }
	tooLong()
	if s := x.text(); x.raw != nil || !strings.Contains(s, "with wl-copy") {
		t.Error(s)
	}
	x.m.opt.CopyNative = func(string) (string, error) { return "", errors.New("no display") }
	tooLong()
	if s := x.text(); !strings.Contains(s, "nothing was copied") {
		t.Error(s)
	}
}
