package hf

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a library that makes a token of each byte, but of those of "bad", as
// the real one where it fails.
type fake struct{ closed atomic.Int32 }

func (f *fake) encode(text string, special bool) (ids []uint32, spans []tokenizer.Span) {
	if f.closed.Load() != 0 {
		panic("used after it was closed")
	}
	switch {
	case text == "bad":
		return nil, nil
	case text == "odd":
		return []uint32{1}, nil
	case special:
		ids, spans = append(ids, 1000), append(spans, tokenizer.Span{})
	}
	for i := range len(text) {
		ids, spans = append(ids, uint32(text[i])), append(spans, tokenizer.Span{Start: i, End: i + 1})
	}
	return ids, spans
}

func (f *fake) close() { f.closed.Add(1) }

func TestEncode(t *testing.T) {
	t.Parallel()
	e := &Encoder{rust: &fake{}}
	got, err := e.Encode(t.Context(), "ab", true)
	want := tokenizer.Encoding{IDs: []wire.Token{1000, 'a', 'b'}, Spans: []tokenizer.Span{{}, {Start: 0, End: 1}, {Start: 1, End: 2}}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("encoding (-want +got):\n%s, error %v", d, err)
	}
	if got, err := e.Encode(t.Context(), "", false); err != nil || len(got.IDs) != 0 {
		t.Errorf("an empty text gives %v, %v", got, err)
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	closed := &Encoder{rust: &fake{}}
	closed.Close()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		e    *Encoder
		text string
		want string
	}{
		{"what follows a NUL is lost in C", t.Context(), nil, "a\x00b", "a NUL at byte 1"},
		{"no UTF-8", t.Context(), nil, "a\xff", "not UTF-8"},
		{"half a character", t.Context(), nil, "\xf0\x9f\x98", "not UTF-8"},
		{"a surrogate", t.Context(), nil, "\xed\xa0\x80", "not UTF-8"},
		{"the library fails", t.Context(), nil, "bad", "gave no tokens"},
		{"the library is at odds with itself", t.Context(), nil, "odd", "1 tokens and 0 offsets"},
		{"too long", t.Context(), nil, strings.Repeat("x", maxText+1), "the limit is 64"},
		{"nobody waits", done, nil, "a", "canceled"},
		{"closed", t.Context(), closed, "a", "closed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := tt.e
			if e == nil {
				e = &Encoder{rust: &fake{}}
			}
			_, err := e.Encode(tt.ctx, tt.text, false)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

// Close waits for whoever encodes, and frees the library once.
func TestClose(t *testing.T) {
	t.Parallel()
	f := &fake{}
	e := &Encoder{rust: f}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if _, err := e.Encode(context.Background(), "abc", true); err != nil {
					return // closed
				}
			}
		})
		wg.Go(e.Close)
	}
	wg.Wait()
	if n := f.closed.Load(); n != 1 {
		t.Errorf("closed %d times", n)
	}
}

// Engines cut and pad nothing, whatever a file says.
func TestWhole(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ file, want string }{
		{`{"model":{"a":1}, "truncation":null}`, `{"model":{"a":1}, "truncation":null}`},
		{`{"truncation":{"max_length":4},"padding":null,"model":{"b": 1.0}}`, `{"model":{"b":1.0}}`},
		{`{"model":1,"padding":{"pad_id":0}}`, `{"model":1}`},
	} {
		got, err := whole([]byte(tt.file))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s becomes %s, %v", tt.file, got, err)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	var syntax *json.SyntaxError
	if _, err := Load([]byte(`{"model":`)); !errors.As(err, &syntax) || !strings.HasPrefix(err.Error(), "tokenizer.json: ") {
		t.Errorf("error %v", err)
	}
	if _, err := Load(make([]byte, maxFile+1)); err == nil || !strings.Contains(err.Error(), "the limit is 256") {
		t.Errorf("error %v", err)
	}
	want := "make hftok"
	if Available {
		want = "refuses it"
	}
	if _, err := Load([]byte(`{"model":{}}`)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q in it", err, want)
	}
}
