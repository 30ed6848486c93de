package explain

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// letters is a tokenizer whose tokens are bytes; it fails where broken.
type letters struct{ broken error }

func (letters) Text(t wire.Token) (string, bool) { return string([]byte{byte(t)}), t < 256 }

func (l letters) Encode(_ context.Context, text string) ([]wire.Token, []prompt.Span, error) {
	var tokens []wire.Token
	var spans []prompt.Span
	for i := range len(text) {
		tokens = append(tokens, wire.Token(text[i]))
		spans = append(spans, prompt.Span{Start: i, End: i + 1})
	}
	return tokens, spans, l.broken
}

// asks stores chains of blocks of four letters and asks about a prompt.
func asks(t *testing.T, text string, chains ...string) (*Divergence, *prompt.Prompt) {
	t.Helper()
	f := Fleet{Now: 9e9, Index: index.New(index.Options{}), Loads: NewLoads(), Replicas: []Replica{{Name: "r", Trust: Trust{Exact: true}}}}
	for i, chain := range chains {
		tokens, _, _ := letters{}.Encode(t.Context(), chain[:len(chain)/4*4])
		e := wire.Event{Kind: wire.Stored, BlockSize: 4, Group: -1, Tokens: tokens}
		for k := range len(tokens) / 4 {
			e.Hashes = append(e.Hashes, wire.IntHandle(uint64(1000*i+k+1)))
		}
		f.Index.Apply("r", &e, false)
	}
	tokens, spans, _ := letters{}.Encode(t.Context(), text)
	p := &prompt.Prompt{
		Text: text, Tokens: tokens, Spans: spans,
		Parts: []prompt.Part{{Span: prompt.Span{End: len(text)}, Kind: prompt.Plain, Message: -1}},
	}
	a, err := Candidates(f, Query{Tokens: tokens, BlockSize: 4, Config: policy(t, "dynamo")})
	if err != nil {
		t.Fatal(err)
	}
	return a.Divergence, p
}

// TestCompare: of the stored chains the one from which most was lost names the
// span; a fork that loses nothing does not hide it.
func TestCompare(t *testing.T) {
	t.Parallel()
	const tail = "You are the desk of the harbour office; answer in one line. "
	stored := "It is 14:02:31. " + tail
	d, p := asks(t, "It is 14:07:52. "+tail, "It is 14:0x, and nothing else of it is the same at all.....", stored)
	if err := d.Compare(t.Context(), p, letters{}); err != nil {
		t.Fatal(err)
	}
	s := d.Diff.Spans[0]
	// The clock is 8 of 76 letters. With it at the end the other 68 are shared, and
	// "14:0" of it: 72 letters, 18 blocks.
	if s.Class != diff.Timestamp || s.Kind != diff.Replaced || s.A.Text != "14:02:31" || s.B.Text != "14:07:52" ||
		d.Diff.Reuse.Now != 2 || d.Diff.Reuse.Moved != 18 || !d.Diff.Reuse.Retokenized {
		t.Errorf("%s %s %q %q, %+v", s.Class, s.Kind, s.A.Text, s.B.Text, d.Diff.Reuse)
	}
	ids := &prompt.Prompt{Tokens: p.Tokens}
	if err := d.Compare(t.Context(), ids, letters{}); err != nil || d.Diff.Spans[0].Class != diff.Timestamp {
		t.Errorf("%v: ids are spelled where they can be: %+v", err, d.Diff)
	}
	again, _ := asks(t, p.Text, stored)
	if !again.Resume(d) || again.Diff != d.Diff {
		t.Error("the same place of the same prompt is worked out anew")
	}
	elsewhere, _ := asks(t, "It was 14:07:52. ", stored)
	if elsewhere.Resume(d) || elsewhere.Resume(nil) {
		t.Error("another place is taken for the same")
	}
}

// TestCompareWithoutMuch: no tokenizer, one that fails, no stored chain, an end.
func TestCompareWithoutMuch(t *testing.T) {
	t.Parallel()
	stored, asked := "It is 14:02:31 and all is well.", "It is 14:07:52 and all is well."
	d, p := asks(t, asked, stored)
	if err := d.Compare(t.Context(), &prompt.Prompt{Tokens: p.Tokens}, nil); err != nil || d.Diff == nil || !d.Diff.NeedsText {
		t.Errorf("%v, %+v", err, d.Diff)
	}
	d, p = asks(t, asked, stored)
	if err := d.Compare(t.Context(), p, letters{errors.New("gone")}); err != nil || d.Diff.Reuse.Retokenized ||
		!strings.Contains(strings.Join(d.Diff.Notes, " "), "gone") {
		t.Errorf("%v, %+v", err, d.Diff)
	}
	d, p = asks(t, asked)
	if err := d.Compare(t.Context(), p, letters{}); err != nil || d.Diff != nil {
		t.Errorf("%v, %+v", err, d.Diff)
	}
	d, p = asks(t, asked, stored)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Compare(ctx, p, letters{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
