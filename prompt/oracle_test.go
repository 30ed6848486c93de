package prompt

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

var realModels struct {
	sync.Mutex
	byName map[string]*Model
}

// realModel gives a real model's tokenizer and template, which take a second to
// load, so tests share them.
func realModel(t *testing.T, name string) *Model {
	t.Helper()
	dir := refdata.Tokenizer(t, name)
	realModels.Lock()
	defer realModels.Unlock()
	if m := realModels.byName[name]; m != nil {
		return m
	}
	m, err := Load(context.Background(), os.DirFS(dir), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if realModels.byName == nil {
		realModels.byName = map[string]*Model{}
	}
	realModels.byName[name] = m
	return m
}

// record is a line of a truth log: a request beside the ids that an engine made of
// it.
type record struct {
	Kind, Tag      string
	Request        json.RawMessage
	Messages       json.RawMessage
	RenderedPrompt string       `json:"rendered_prompt"`
	TokenIDs       []wire.Token `json:"token_ids"`
	Response       json.RawMessage
	Tokenize       struct{ Tokens []wire.Token }
	TokenizeChat   struct{ Tokens []wire.Token } `json:"tokenize_chat"`
}

// ids are those that the engine tells, wherever it does.
func (r record) ids() []wire.Token {
	var response struct {
		PromptTokenIDs []wire.Token `json:"prompt_token_ids"`
		Choices        []struct {
			PromptTokenIDs []wire.Token `json:"prompt_token_ids"`
		}
	}
	_ = json.Unmarshal(r.Response, &response) // some are lists of chunks
	ids := response.PromptTokenIDs
	if ids == nil && len(response.Choices) > 0 {
		ids = response.Choices[0].PromptTokenIDs
	}
	return ids
}

// compare holds the prompt of a request alone against the engine's ids. Clients of
// a_fleet that ran one document's chat twice shared its list of messages, so some
// lines were written with turns in them that came after the request: turns are left
// out until it fits, and counted.
func compare(t *testing.T, m *Model, n int, body json.RawMessage, want []wire.Token) (p *Prompt, later int) {
	t.Helper()
	req, err := Parse(body)
	if err != nil {
		t.Fatalf("record %d: %v", n, err)
	}
	req.Tokens = nil
	for ; ; later++ {
		p, err = m.Prompt(context.Background(), req, RenderOptions{Now: time.Unix(0, 0)})
		if err != nil {
			t.Fatalf("record %d: %v", n, err)
		}
		if slices.Equal(p.Tokens, want) {
			whole(t, p)
			return p, later
		}
		if len(req.Messages) < 4 || wire.CommonPrefix(p.Tokens, want) < len(want) {
			t.Fatalf("record %d: %d tokens, want %d; equal up to %d", n, len(p.Tokens), len(want), wire.CommonPrefix(p.Tokens, want))
		}
		req.Messages = req.Messages[:len(req.Messages)-2] // an answer and a question
	}
}

// whole checks what holds for every prompt with a text.
func whole(t *testing.T, p *Prompt) {
	t.Helper()
	at := 0
	for _, part := range p.Parts {
		if part.Start != at || part.End <= at {
			t.Fatalf("part %+v begins not at %d", part, at)
		}
		at = part.End
	}
	if at != len(p.Text) {
		t.Fatalf("parts cover %d of %d bytes", at, len(p.Text))
	}
	if len(p.Spans) != len(p.Tokens) {
		t.Fatalf("%d spans of %d tokens", len(p.Spans), len(p.Tokens))
	}
	for i, s := range p.Spans {
		if s.Start > s.End || s.End > len(p.Text) {
			t.Fatalf("token %d spans %v of %d bytes", i, s, len(p.Text))
		}
	}
}

// Every conversation renders to the text that Dynamo's frontend rendered, and to
// its ids. Its queries have no text.
func TestOracleDynamoConversations(t *testing.T) {
	t.Parallel()
	file := filepath.Join(refdata.Root(t), "dynamo", "live", "truth_joined.jsonl.gz")
	m := realModel(t, "qwen3")
	texts, all := 0, 0
	refdata.Each(t, file, func(n int, r record) {
		if r.Messages == nil || r.TokenIDs == nil {
			return
		}
		p, later := compare(t, m, n, r.Messages, r.TokenIDs)
		if later > 0 {
			t.Fatalf("record %d has turns that came later", n)
		}
		all++
		if r.RenderedPrompt != "" {
			texts++
			if p.Text != r.RenderedPrompt {
				t.Fatalf("record %d renders to another text", n)
			}
		}
	})
	if texts != 46 {
		t.Errorf("%d rendered prompts", texts)
	}
	t.Logf("%d conversations to their ids, %d of them to their rendered text too", all, texts)
}

// Chats and text completions make the ids that the engine told it had made.
func TestOracleEngineTokens(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	for _, c := range []struct{ folder, model string }{
		{"a_fleet", "qwen3"},
		{"b_timestamp", "qwen3"},
		{"c_reset", "qwen3"},
		{"d_restart", "qwen3"},
		{"k_v0.22.1_array", "qwen3"},
		{"g1_lora_cbor_bytes", "llama3_1"},
	} {
		t.Run(c.folder, func(t *testing.T) {
			t.Parallel()
			m := realModel(t, c.model)
			kinds := map[string]int{}
			refdata.Each(t, filepath.Join(root, "vllm", c.folder, "truth.jsonl.gz"), func(n int, r record) {
				if r.Request == nil {
					return
				}
				want := r.ids()
				req, err := Parse(r.Request)
				if err != nil {
					t.Fatalf("record %d: %v", n, err)
				}
				if want == nil || req.Text == "" && req.Messages == nil {
					return // a failed request, or one of ids
				}
				if _, later := compare(t, m, n, r.Request, want); later > 0 {
					kinds["with turns that came later"]++
				}
				kinds[string(req.Form)]++
			})
			if kinds["with turns that came later"] > 0 && c.folder != "a_fleet" {
				t.Errorf("%v", kinds)
			}
			if len(kinds) == 0 {
				t.Error("nothing was compared")
			}
			t.Logf("%s: %v", c.folder, kinds)
		})
	}
}
