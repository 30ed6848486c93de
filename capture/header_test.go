package capture

import (
	"bytes"
	"io"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/kvscope/kvscope/wire"
)

// headerOf forms a header by hand, with elements behind the facts.
func headerOf(behind ...int64) []byte {
	b := msgp.AppendArrayHeader(nil, uint32(6+len(behind)))
	b = msgp.AppendInt(b, 32)
	b = msgp.AppendString(b, "kvscope capture")
	b = msgp.AppendInt(b, 1)
	b = msgp.AppendString(b, "t")
	b = msgp.AppendInt(b, 5)
	b = msgp.AppendArrayHeader(b, 0)
	for _, v := range behind {
		b = msgp.AppendInt64(b, v)
	}
	return b
}

// TestHold reads the headers of older and of newer writers, and what no writer
// of ours has written.
func TestHold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		b    []byte
		want int
	}{
		{"of the first files", headerOf(), 0},
		{"ours", headerOf(4096), 4096},
		{"a newer one", headerOf(7, 1, 2), 7},
		{"below 0", headerOf(-1), 0},
		{"more than is allowed", headerOf(1 << 40), MaxHold},
	} {
		h, rest, err := parseHeader(tt.b)
		if err != nil || len(rest) > 0 || h.Hold != tt.want || h.Created != 5 {
			t.Errorf("%s: %+v, %d bytes left, %v", tt.name, h, len(rest), err)
		}
	}
	for _, hold := range []int{-1, MaxHold + 1} {
		if _, err := NewWriter(io.Discard, Header{Hold: hold}); err == nil {
			t.Errorf("a header with a hold of %d was written", hold)
		}
	}
	r := newRedactor(t, RedactOptions{})
	if got := r.Header(Header{Hold: 9}).Hold; got != 9 {
		t.Errorf("the redacted copy has a hold of %d", got)
	}
}

// TestPeekTime looks ahead and takes nothing.
func TestPeekTime(t *testing.T) {
	t.Parallel()
	want := small()
	r, err := NewStream(bytes.NewReader(write(t, Header{}, want, true)), "test")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if at, err := r.PeekTime(t.Context()); err != nil || at != want[0].At {
			t.Fatalf("%d, %v, want %d", at, err, want[0].At)
		}
	}
	got, err := readAll(r)
	if err != nil || len(got) != len(want) || differ(want[0], got[0], compare) != "" {
		t.Errorf("%d records of %d, %v", len(got), len(want), err)
	}
	if _, err := r.PeekTime(t.Context()); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// TestCount agrees with what the capture says of itself.
func TestCount(t *testing.T) {
	t.Parallel()
	r, err := openBytes(write(t, Header{}, small(), true))
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Count(t.Context(), wire.Source(r))
	want.Header, want.Chunks, want.Compressed, want.Uncompressed, want.Complete = Header{}, 0, 0, 0, false
	if diff := differ(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}
