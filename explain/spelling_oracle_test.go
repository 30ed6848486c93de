package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// spokenModel is a model as commands hand it in.
type spokenModel struct{ *prompt.Model }

func (m spokenModel) Text(t wire.Token) (string, bool) {
	text, _, ok := m.Tokenizer.Token(t)
	return text, ok
}

func (m spokenModel) Encode(ctx context.Context, text string) ([]wire.Token, []prompt.Span, error) {
	e, err := m.Model.Encode(ctx, text, false)
	return e.IDs, e.Spans, err
}

var realModels sync.Map

// realModel gives a real model's tokenizer and template.
func realModel(t *testing.T, name string) spokenModel {
	t.Helper()
	dir := refdata.Tokenizer(t, name)
	load, _ := realModels.LoadOrStore(name, sync.OnceValues(func() (*prompt.Model, error) {
		return prompt.Load(context.Background(), os.DirFS(dir), prompt.Options{})
	}))
	m, err := load.(func() (*prompt.Model, error))()
	if err != nil {
		t.Fatal(err)
	}
	return spokenModel{m}
}

// mismatches counts what a model makes of a log otherwise than its engines.
func mismatches(t *testing.T, m Renderer, log []byte) (compared int, kinds map[MismatchKind]int) {
	t.Helper()
	requests, err := NewSpeller(m, prompt.RenderOptions{}).ReadRequests(t.Context(), bytes.NewReader(log), "log")
	if err != nil {
		t.Fatal(err)
	}
	kinds = map[MismatchKind]int{}
	for i := range requests {
		if requests[i].Compared {
			compared++
		}
		if requests[i].Other != nil {
			kinds[requests[i].Other.Kind]++
		}
	}
	return compared, kinds
}

// TestOracleTokensOfEngines: the model that an engine served makes the engine's tokens
// of all that is compared, and any other makes others, of another vocabulary.
func TestOracleTokensOfEngines(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it renders some thousand chats")
	}
	for _, file := range refdata.Files(t, refdata.Root(t), "vllm/*/truth.jsonl.gz") {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			t.Parallel()
			log := refdata.Unpack(t, file)
			fits := 0
			for _, name := range []string{"qwen3", "llama3_1", "gemma3"} {
				compared, kinds := mismatches(t, realModel(t, name), log)
				t.Logf("%s: %d compared, others %v", name, compared, kinds)
				switch {
				case compared == 0:
					t.Error("nothing was compared")
				case len(kinds) == 0:
					fits++
				case kinds[OtherVocabulary] != compared:
					t.Errorf("%s: %v of %d", name, kinds, compared)
				}
			}
			if fits != 1 {
				t.Errorf("%d models fit", fits)
			}
		})
	}
}

// wrongly renders as somebody does who makes one mistake.
type wrongly struct {
	spokenModel
	prompt func(ctx context.Context, m spokenModel, r *prompt.Request, o prompt.RenderOptions) (*prompt.Prompt, error)
}

func (w wrongly) Prompt(ctx context.Context, r *prompt.Request, o prompt.RenderOptions) (*prompt.Prompt, error) {
	return w.prompt(ctx, w.spokenModel, r, o)
}

// seenBy is how somebody else sees chats.
func seenBy(view string) func(context.Context, spokenModel, *prompt.Request, prompt.RenderOptions) (*prompt.Prompt, error) {
	return func(ctx context.Context, m spokenModel, r *prompt.Request, o prompt.RenderOptions) (*prompt.Prompt, error) {
		return m.View(ctx, r, view, o)
	}
}

// rewritten changes the rendered text, and encodes the pieces that cut makes of it.
func rewritten(change func(string) string, cut string) func(context.Context, spokenModel, *prompt.Request, prompt.RenderOptions) (*prompt.Prompt, error) {
	return func(ctx context.Context, m spokenModel, r *prompt.Request, o prompt.RenderOptions) (*prompt.Prompt, error) {
		p, err := m.Prompt(ctx, r, o)
		if err != nil {
			return nil, err
		}
		special := len(r.Messages) == 0
		p.Text, p.Tokens, p.Spans, p.Parts = change(p.Text), nil, nil, nil
		for i, piece := range strings.SplitAfter(p.Text, cut) {
			if cut == "" {
				piece = p.Text
			}
			e, err := m.Model.Encode(ctx, piece, special && i == 0)
			if err != nil {
				return nil, err
			}
			if p.Tokens = append(p.Tokens, e.IDs...); cut == "" {
				break
			}
		}
		return p, nil
	}
}

// TestOracleMistakes: what engines made of their requests, held against renderings
// that have one known mistake each.
func TestOracleMistakes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it renders some thousand chats")
	}
	same := func(s string) string { return s }
	markup := strings.NewReplacer("<|im_start|>", "[", "<|im_end|>", "]", "<|start_header_id|>", "[", "<|end_header_id|>", "]", "<|eot_id|>", "/")
	space := strings.NewReplacer("<|im_end|>\n", "<|im_end|>\n\n", "<|end_header_id|>\n\n", "<|end_header_id|>\n")
	mistakes := []struct {
		kind  MismatchKind
		here  bool
		lists bool // of requests whose contents are lists
		make  func(context.Context, spokenModel, *prompt.Request, prompt.RenderOptions) (*prompt.Prompt, error)
	}{
		{NoTemplate, true, false, seenBy("ray")},
		{NoTemplate, true, false, seenBy("sglang-router")},
		{OtherTemplate, false, false, rewritten(markup.Replace, "")},
		{NoTemplate, true, false, seenBy("llm-d-approximate")},
		{DoubledBOS, true, false, seenBy("bos-twice")},
		{SpecialAsText, true, false, rewritten(same, "<|")},
		{OtherWhiteSpace, false, false, rewritten(space.Replace, "")},
		{ListAsJSON, true, true, seenBy("content-as-json")},
		{ListDropped, true, true, seenBy("list-dropped")},
	}
	counts := make([]int, len(mistakes))
	var mu sync.Mutex
	t.Cleanup(func() {
		for i, m := range mistakes {
			t.Logf("%s: %d found", m.kind, counts[i])
			if counts[i] == 0 {
				t.Errorf("%s was never found", m.kind)
			}
		}
	})
	for _, file := range refdata.Files(t, refdata.Root(t), "vllm/*/truth.jsonl.gz") {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			t.Parallel()
			log := refdata.Unpack(t, file)
			model := realModel(t, "qwen3")
			if _, kinds := mismatches(t, model, log); len(kinds) > 0 {
				model = realModel(t, "llama3_1")
			}
			for i, m := range mistakes {
				log := log
				if m.lists {
					log = userText.ReplaceAll(log, []byte(`"role": "user", "content": [{"type": "text", "text": $1}]`))
				}
				compared, kinds := mismatches(t, wrongly{model, m.make}, log)
				for kind, n := range kinds {
					if kind != m.kind {
						t.Errorf("%s: %d of %d are called %s", m.kind, n, compared, kind)
					}
				}
				mu.Lock()
				counts[i] += kinds[m.kind]
				mu.Unlock()
			}
		})
	}
}

// userText is a user's text in a log. An engine makes the same of it as a list of one part.
var userText = regexp.MustCompile(`"role": "user", "content": ("(?:[^"\\]|\\.)*")`)

// TestOracleTokensOfRouter: Dynamo's frontend, whose block hashes were those of the ids
// beside its chats, makes the tokens that we make; a rendering without a template differs
// from all of them in that.
func TestOracleTokensOfRouter(t *testing.T) {
	t.Parallel()
	m := realModel(t, "qwen3")
	chats := 0
	refdata.Each(t, filepath.Join(refdata.Root(t), "dynamo", "live", "truth_joined.jsonl.gz"), func(n int, row struct {
		Messages json.RawMessage
		Tokens   []wire.Token `json:"token_ids"`
		Log      struct {
			Equal bool `json:"local_hashes_equal"`
		} `json:"router_log"`
	},
	) {
		if row.Messages == nil || !row.Log.Equal {
			return
		}
		r, err := prompt.Parse(row.Messages)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := m.Prompt(t.Context(), r, prompt.RenderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d, differs := Mismatched(r, ours, row.Tokens, m); differs {
			t.Errorf("record %d: %+v", n, d)
		}
		bare, err := m.View(t.Context(), r, "ray", prompt.RenderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d, differs := Mismatched(r, bare, row.Tokens, m); !differs || d.Kind != NoTemplate || !d.Here {
			t.Errorf("record %d without a template: %+v", n, d)
		}
		chats++
	})
	if chats == 0 {
		t.Error("nothing was compared")
	}
	t.Logf("%d chats", chats)
}
