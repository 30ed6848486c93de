package remote_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/prompt/remote"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// request is a recorded one, with what the engine's /tokenize said of it
// beforehand and the ids that the engine itself then used.
type request struct {
	Request struct {
		Prompt, Messages, Tools json.RawMessage
	}
	Text     json.RawMessage `json:"tokenize"`
	Chat     json.RawMessage `json:"tokenize_chat"`
	Response struct {
		IDs     []wire.Token `json:"prompt_token_ids"`
		Choices []struct {
			IDs []wire.Token `json:"prompt_token_ids"`
		}
	}
}

// ask puts a recorded request to an engine that answers as the recorded one did.
// It reports whether there was an answer to compare.
func ask(t *testing.T, r request) bool {
	t.Helper()
	var answer json.RawMessage
	s := &server{answer: func(string) (int, string) { return http.StatusOK, string(answer) }}
	e := engine(t, remote.Options{}, s)
	var got, want []wire.Token
	var sent bytes.Buffer // what must be in the question as it is
	var text string
	switch {
	case r.Chat != nil && r.Response.IDs != nil:
		answer, want = r.Chat, r.Response.IDs
		rendered, err := e.Chat(t.Context(), prompt.Conversation{Messages: r.Request.Messages, Tools: r.Request.Tools, AddGenerationPrompt: true})
		if err != nil {
			t.Error(err)
		}
		got = rendered.IDs
		if err := json.Compact(&sent, r.Request.Messages); err != nil {
			t.Error(err)
		}
	case r.Text != nil && len(r.Response.Choices) == 1 && json.Unmarshal(r.Request.Prompt, &text) == nil:
		answer, want = r.Text, r.Response.Choices[0].IDs
		encoding, err := e.Encode(t.Context(), text, true)
		if err != nil {
			t.Error(err)
		}
		got = encoding.IDs
		sent.Write(r.Request.Prompt)
	default:
		return false
	}
	if !slices.Equal(got, want) {
		t.Errorf("tokens %v, the engine used %v", got, want)
	}
	if len(s.asked) != 1 || !strings.Contains(s.asked[0], sent.String()) {
		t.Errorf("sent %s", s.asked)
	}
	return true
}

// The recorded answers of real engines are read as the ids that they then used.
func TestRecorded(t *testing.T) {
	t.Parallel()
	for _, recording := range []string{"b_timestamp", "c_reset", "k_v0.22.1_array"} {
		t.Run(recording, func(t *testing.T) {
			t.Parallel()
			f, err := fixtures.Open(recording + "/truth.jsonl.gz")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }() // memory
			n := 0
			for dec := json.NewDecoder(f); dec.More(); {
				var r request
				if err := dec.Decode(&r); err != nil {
					t.Fatal(err)
				}
				if ask(t, r) {
					n++
				}
			}
			if n == 0 {
				t.Error("nothing was compared")
			}
			t.Logf("%d answers compared", n)
		})
	}
}

func TestOracleRecorded(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute under the race detector")
	}
	t.Parallel()
	root := refdata.Root(t)
	n := 0
	for _, file := range refdata.Files(t, root, "vllm/*/truth.jsonl.gz") {
		name, _ := filepath.Rel(root, file) // both are absolute or neither is
		refdata.Each(t, file, func(line int, r request) {
			if ask(t, r) {
				n++
			}
			if t.Failed() {
				t.Fatalf("%s, line %d", name, line)
			}
		})
	}
	t.Logf("%d answers compared", n)
}
