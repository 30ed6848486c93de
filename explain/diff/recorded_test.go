package diff_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// request is a line of a truth log.
type request struct {
	Tag     string
	Request struct{ Messages []message }
	// Response holds the ids that the engine itself made of the messages.
	Response struct {
		PromptTokenIDs []wire.Token `json:"prompt_token_ids"`
	}
}

type message struct{ Role, Content string }

// vocabulary gives the bytes of the tokens that b_timestamp uses, as the model's
// tokenizer.json has them.
func vocabulary(t testing.TB) map[wire.Token]string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "b_timestamp_tokens.json"))
	if err != nil {
		t.Fatal(err)
	}
	var words map[string]string
	if err := json.Unmarshal(raw, &words); err != nil {
		t.Fatal(err)
	}
	out := map[wire.Token]string{}
	for id, word := range words {
		n, err := strconv.Atoi(id)
		if err != nil {
			t.Fatal(err)
		}
		if digits, is := strings.CutPrefix(word, "hex:"); is {
			b, err := hex.DecodeString(digits)
			if err != nil {
				t.Fatal(err)
			}
			word = string(b)
		}
		out[wire.Token(n)] = word
	}
	return out
}

// chatML renders messages as Qwen's template does without tools.
func chatML(messages []message) *prompt.Prompt {
	p := &prompt.Prompt{}
	add := func(text string, kind prompt.Kind, n int, role string) {
		from := len(p.Text)
		p.Text += text
		p.Parts = append(p.Parts, prompt.Part{Span: prompt.Span{Start: from, End: len(p.Text)}, Kind: kind, Message: n, Role: role})
	}
	for i, m := range messages {
		add("<|im_start|>"+m.Role+"\n", prompt.Markup, i, m.Role)
		add(m.Content, prompt.Content, i, m.Role)
		add("<|im_end|>\n", prompt.Markup, i, m.Role)
	}
	add("<|im_start|>assistant\n", prompt.Opening, -1, "")
	return p
}

// recorded makes the prompts of b_timestamp by tag: the engine's ids, and the text
// that they stand for, which must be that of the messages.
func recorded(t testing.TB, log []byte) map[string][]*prompt.Prompt {
	t.Helper()
	words := vocabulary(t)
	out := map[string][]*prompt.Prompt{}
	for line := range bytes.Lines(log) {
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		p := chatML(r.Request.Messages)
		p.Tokens = r.Response.PromptTokenIDs
		text := ""
		for _, id := range p.Tokens {
			from := len(text)
			text += words[id]
			p.Spans = append(p.Spans, prompt.Span{Start: from, End: len(text)})
		}
		if text != p.Text {
			t.Fatalf("%s: the tokens read %q, the messages %q", r.Tag, text, p.Text)
		}
		out[r.Tag] = append(out[r.Tag], p)
	}
	return out
}

// The figures that the engine itself reported: 0 cached tokens of ts-head and
// uuid-head, 160 of ts-tail, with the same system prompt of 5 blocks; 160 of
// tools-shuffled where tools-stable has 480.
func TestRecorded(t *testing.T) {
	t.Parallel()
	f, err := fixtures.Open("b_timestamp/truth.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if _, err := log.ReadFrom(f); err != nil {
		t.Fatal(err)
	}
	families(t, log.Bytes(), nil)
}

func TestOracleDiffTimestamp(t *testing.T) {
	t.Parallel()
	name := filepath.Join(refdata.Root(t), "vllm", "b_timestamp", "truth.jsonl.gz")
	log := refdata.Unpack(t, name)
	t.Logf("%d pairs compared on tokens", families(t, log, nil))
	raw, err := os.ReadFile(filepath.Join(refdata.Tokenizer(t, "qwen3"), "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	enc := encoder(t, raw)
	for tag, ps := range recorded(t, log) {
		for i, p := range ps {
			if ids, spans, _ := enc(p.Text); !slices.Equal(ids, p.Tokens) || !slices.Equal(spans, p.Spans) {
				t.Errorf("%s %d: the tokenizer gives other tokens than the engine", tag, i)
			}
		}
	}
	t.Logf("%d pairs compared on texts, with the model's tokenizer", families(t, log, enc))
}

// encoder makes a comparison's Encode of a tokenizer.json.
func encoder(t testing.TB, raw []byte) func(string) ([]wire.Token, []prompt.Span, error) {
	t.Helper()
	tok, err := tokenizer.Load(raw)
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) ([]wire.Token, []prompt.Span, error) {
		e, err := tok.Encode(text, false)
		return e.IDs, e.Spans, err
	}
}

// small is the encoder of the fixture's tokenizer.
func small(t testing.TB) func(string) ([]wire.Token, []prompt.Span, error) {
	t.Helper()
	raw, err := fixtures.FS.ReadFile("tokenizer/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	return encoder(t, raw)
}

func families(t *testing.T, log []byte, enc func(string) ([]wire.Token, []prompt.Span, error)) (pairs int) {
	t.Helper()
	const size = 32
	want := map[string]struct {
		class            diff.Class
		detail           string
		now, moved, lost int
		first            int // the first token of the span
	}{
		"ts-head":         {diff.Timestamp, "second", 0, 5, 5, 7},
		"uuid-head":       {diff.ID, "UUID", 0, 5, 5, 6},
		"tools-shuffled":  {diff.ToolOrder, "8 tools", 5, 15, 10, 168},
		"ts-tail":         {diff.Timestamp, "second", 5, 5, 0, 170},
		"whitespace-tail": {diff.WhiteSpace, "", 5, 5, 0, 0},
		"tools-stable":    {diff.Counter, "", 15, 15, 0, 495},
	}
	all := recorded(t, log)
	resized := map[string]int{}
	for tag, w := range want {
		ps := all[tag]
		for i := range ps {
			for j := range ps {
				if i == j {
					continue
				}
				pairs++
				d, err := diff.Compare(ps[i], ps[j], diff.Options{BlockSize: size, Encode: enc})
				if err != nil {
					t.Fatal(err)
				}
				if d.Relation != diff.Parts {
					t.Fatalf("%s %d, %d: %v", tag, i, j, d.Relation)
				}
				if remedied := tag != "tools-stable"; d.Reuse.Retokenized != (enc != nil && remedied) {
					t.Errorf("%s %d, %d: %+v", tag, i, j, d.Reuse)
				}
				s, w := d.Spans[0], w
				if s.Class != w.class || w.detail != "" && s.Detail != w.detail {
					t.Errorf("%s %d, %d: class %v (%s), want %v (%s): %q, %q", tag, i, j, s.Class, s.Detail, w.class, w.detail, s.A.Text, s.B.Text)
				}
				if r := d.Reuse; r.Now != w.now || r.Moved != w.moved || r.Lost != w.lost {
					t.Errorf("%s %d, %d: %+v, want now %d, moved %d, lost %d", tag, i, j, r, w.now, w.moved, w.lost)
				}
				if sameFirst := tag == "tools-shuffled" && i+j == 4 && i*j == 0; sameFirst {
					w.first = 186 // both begin with tool_eta, so the second is the first that differs
				}
				if w.first != 0 && (s.A.Start != w.first || s.B.Start != w.first) {
					t.Errorf("%s %d, %d: the span begins at %d, %d, want %d: %q", tag, i, j, s.A.Start, s.B.Start, w.first, s.A.Text)
				}
				wantMessage(t, d, tag)
				// Nothing else differs but in the families where each question is another.
				grows := len(ps[j].Tokens) - len(ps[i].Tokens)
				if tag == "ts-head" || tag == "ts-tail" {
					grows = 0
				}
				if s.Grows != grows || (s.Kind == diff.Resized) != (grows != 0) {
					t.Errorf("%s %d, %d: %v by %d, want by %d", tag, i, j, s.Kind, s.Grows, grows)
				}
				if grows != 0 {
					resized[tag]++
				}
				if i == 0 && j == 1 {
					t.Log(tag, ":", d.Summary("A", "B"))
				}
			}
		}
	}
	t.Log("resized:", resized)
	return pairs
}

// wantMessage: all families but tools-stable part in the system prompt.
func wantMessage(t *testing.T, d *diff.Diff, tag string) {
	t.Helper()
	want := diff.Where{Message: 0, Role: "system", Part: prompt.Content}
	if tag == "tools-stable" {
		want = diff.Where{Message: 1, Role: "user", Part: prompt.Content}
	}
	if d.A.Where != want && (tag != "whitespace-tail" || d.A.Message != 0) {
		t.Errorf("%s: part in %+v, want %+v", tag, d.A.Where, want)
	}
}
