package tap

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func newFrames(r io.Reader, command func([]byte) error) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, readAhead), maxMessage: 1 << 20, maxFrames: 4, command: command}
}

func TestFrames(t *testing.T) {
	big := strings.Repeat("b", 1<<20)
	tests := []struct {
		name string
		in   []byte
		want string // the frames' sizes, or the error
	}{
		{"one", message("abc"), "3"},
		{"empty frames", message("", "", ""), "0 0 0"},
		{"three", message("kv", "12345678", strings.Repeat("x", 300)), "2 8 300"},
		{"the largest", message(big), "1048576"},
		{"a long form of a short frame", slices.Concat([]byte{2, 0, 0, 0, 0, 0, 0, 0, 2}, []byte("ab")), "2"},
		{"one byte too many", message("x", big), "a message of 1048577 bytes or more, and the limit is 1048576"},
		{"frames too many", message("", "", "", "", ""), "more than 4 frames"},
		{"nothing", nil, "EOF"},
		{"half a header", []byte{0}, "unexpected EOF"},
		{"half a long header", []byte{2, 0, 0}, "unexpected EOF"},
		{"half a frame", []byte{0, 3, 'a'}, "unexpected EOF"},
		{"no frame after more", rawFrame(1, "a"), "unexpected EOF"},
		{"a command with more", rawFrame(5, "\x04PING\x00\x00"), "a command of 7 bytes with flags 0x05"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// One byte at a time too: sizes must not depend on how bytes come.
			for _, r := range []io.Reader{bytes.NewReader(tt.in), &oneByOne{tt.in}} {
				frames, err := newFrames(r, func([]byte) error { return nil }).message()
				got := sizes(frames)
				if err != nil {
					got = err.Error()
				}
				if got != tt.want && !(err != nil && strings.HasSuffix(got, tt.want)) {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			}
		})
	}
}

type oneByOne struct{ rest []byte }

func (o *oneByOne) Read(p []byte) (int, error) {
	if len(o.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:1], o.rest)
	o.rest = o.rest[n:]
	return n, nil
}

func sizes(frames [][]byte) string {
	var out []string
	for _, f := range frames {
		out = append(out, strconv.Itoa(len(f)))
	}
	return strings.Join(out, " ")
}

func TestFramesAreWrittenAsRead(t *testing.T) {
	for _, frames := range [][]string{{""}, {"a", "", "b"}, {strings.Repeat("x", 255)}, {strings.Repeat("x", 256), "y"}} {
		var in [][]byte
		for _, f := range frames {
			in = append(in, []byte(f))
		}
		if got, want := appendMessage(nil, in...), message(frames...); !bytes.Equal(got, want) {
			t.Errorf("%d frames: %x, want %x", len(frames), got, want)
		}
	}
	if got, want := appendCommand(nil, "PONG", []byte("ctx")), rawFrame(4, "\x04PONGctx"); !bytes.Equal(got, want) {
		t.Errorf("a command: %x", got)
	}
}

// FuzzFrames: whatever comes, the reader neither panics nor takes memory that
// was not sent, and what it reads is what an independent reader finds.
func FuzzFrames(f *testing.F) {
	f.Add(message("kv", "12345678", "payload"))
	f.Add(slices.Concat(rawFrame(4, "\x04PING\x00\x00x"), message("a", "b")))
	f.Add([]byte{2, 0x40, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0xf, 0xff, 0xff, 1, 2, 3})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := newFrames(bytes.NewReader(in), func(body []byte) error {
			if len(body) > maxCommand {
				t.Errorf("a command of %d bytes", len(body))
			}
			return nil
		})
		again := bufio.NewReader(bytes.NewReader(in))
		for {
			frames, err := r.message()
			if err != nil {
				if !errors.Is(err, errFrame) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("an error of another kind: %v", err)
				}
				return
			}
			for _, got := range frames {
				want := frame{flags: 4}
				for want.flags&4 != 0 {
					if want, err = readRaw(again); err != nil {
						t.Fatalf("read what is not there: %v", err)
					}
				}
				if string(got) != want.body {
					t.Errorf("got %q, want %q", got, want.body)
				}
				if cap(got) > 2*len(in)+readAhead {
					t.Errorf("%d bytes of memory for an input of %d", cap(got), len(in))
				}
			}
		}
	})
}

// FuzzHandshake: whatever a peer says before it is up, the guard keeps the
// library from panicking out of it and from large allocations.
func FuzzHandshake(f *testing.F) {
	f.Add(slices.Concat(greetingOf(manners{minor: 1}), ready("PUB"), message("a")))
	f.Add(slices.Concat(greetingOf(manners{}), rawFrame(4, "\x05READY\x20ab")))
	f.Add(append(greetingOf(manners{}), 6, 0x40, 0, 0, 0, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, in []byte) {
		s := &scripted{in: bytes.NewReader(in)}
		opt := Options{}.withDefaults()
		sess, err := open(t.Context(), &opt, s, Endpoint{}.security(), "SUB", len(in)%2 == 0)
		if err == nil {
			_, _ = sess.read()
			sess.close()
		}
	})
}

func BenchmarkFrames(b *testing.B) {
	one := message("kv@pod@model", string(be(1)), strings.Repeat("x", 2000))
	in := bytes.Repeat(one, 1000)
	b.SetBytes(int64(len(one)))
	b.ReportAllocs()
	var r *frameReader
	for i := range b.N {
		if i%1000 == 0 {
			b.StopTimer()
			r = newFrames(bytes.NewReader(in), nil)
			b.StartTimer()
		}
		if _, err := r.message(); err != nil {
			b.Fatal(err)
		}
	}
}
