package tokenizer_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/refdata"
)

// parts are a tokenizer.json, or a model, by key.
type parts map[string]json.RawMessage

// patched is the fixtures' tokenizer with other parts; of the model, only what
// the patch has is replaced.
func patched(t testing.TB, patch parts) []byte {
	t.Helper()
	var all, model parts
	for _, step := range []struct {
		from json.RawMessage
		into *parts
	}{{fixture(t, "tokenizer.json"), &all}, {all["model"], &model}} {
		from := step.from
		if from == nil {
			from = all["model"]
		}
		if err := json.Unmarshal(from, step.into); err != nil {
			t.Fatal(err)
		}
	}
	maps.Copy(all, patch)
	if patch["model"] != nil {
		if err := json.Unmarshal(patch["model"], &model); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(model)
		if err != nil {
			t.Fatal(err)
		}
		all["model"] = text
	}
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// testdata/variants.py says what these are.
func TestVariants(t *testing.T) {
	t.Parallel()
	cases := 0
	refdata.Each(t, filepath.Join("testdata", "variants.json.gz"), func(_ int, v struct {
		Name  string
		Patch parts
		Cases []struct {
			encoded
			Decoded string
		}
	},
	) {
		tok, err := tokenizer.Load(patched(t, v.Patch))
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			return
		}
		for _, want := range v.Cases {
			cases++
			got, err := tok.Encode(want.Text, true)
			if err != nil {
				t.Errorf("%s %q: %v", v.Name, want.Text, err)
				continue
			}
			if !slices.Equal(got.IDs, want.IDs) {
				t.Errorf("%s %q: %s", v.Name, want.Text, firstDifference(got.IDs, want.IDs))
			} else if spans := want.spans(); !slices.Equal(got.Spans, spans) {
				t.Errorf("%s %q: spans: %s", v.Name, want.Text, firstDifference(got.Spans, spans))
			}
			// The reference decodes what is no UTF-8 to marks of its own number.
			if text := tok.Decode(want.IDs); text != want.Decoded && !strings.Contains(want.Decoded, "\ufffd") {
				t.Errorf("%s: decoded %q, want %q", v.Name, text, want.Decoded)
			}
		}
	})
	t.Logf("%d cases", cases)
}
