package explain

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// TestChatsOfDynamo: what a running frontend (ai-dynamo 1.6.1, the tokenizer and
// template of Qwen3) answered to query-only chats that were made up for it. It renders
// tools and their calls otherwise than vLLM, as whose template ours is fed: a tool without
// a description has an empty one at its end, arguments stay the client's text, and
// tool_choice none leaves tools out.
func TestChatsOfDynamo(t *testing.T) {
	t.Parallel()
	m := realModel(t, "qwen3")
	same, other := 0, 0
	recorded, err := os.ReadFile("testdata/dynamo_chats.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(recorded) {
		var row struct {
			Name    string
			Body    json.RawMessage
			Differs string       // where, "" for nowhere
			Tokens  []wire.Token `json:"token_ids"`
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		r, err := prompt.Parse(row.Body)
		if err != nil {
			t.Fatalf("%s: %v", row.Name, err)
		}
		ours, err := m.Prompt(t.Context(), r, prompt.RenderOptions{})
		if err != nil {
			t.Fatalf("%s: %v", row.Name, err)
		}
		d, differs := Mismatched(r, ours, row.Tokens, m)
		switch {
		case row.Differs == "":
			if same++; differs || !slices.Equal(ours.Tokens, row.Tokens) {
				t.Errorf("%s: %d tokens, theirs are %d: %s", row.Name, len(ours.Tokens), len(row.Tokens), d.Line("there"))
			}
		default:
			if other++; !differs || d.Kind != OtherTemplate || !strings.Contains(d.Line("there"), row.Differs) {
				t.Errorf("%s: %s, want %s", row.Name, d.Line("there"), row.Differs)
			}
		}
	}
	if same == 0 || other == 0 {
		t.Error("nothing was compared")
	}
	t.Logf("%d chats are the same tokens, %d differ as they should", same, other)
}
