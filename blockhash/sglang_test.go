package blockhash

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kvscope/kvscope/refdata"
)

type sglangLine struct {
	Kind    string   `json:"kind"`
	Step    int      `json:"step"`
	Format  string   `json:"format"`
	Tokens  []uint64 `json:"tokens"`
	Key     key      `json:"key"`
	Decoded struct {
		Events []sglangEvent `json:"events"`
	} `json:"decoded"`
}

type key struct {
	ExtraKey string `json:"extra_key"`
	Salt     string `json:"cache_salt"`
}

type sglangEvent struct {
	Type   string       `json:"type"`
	Hashes []int64      `json:"block_hashes"`
	Parent *int64       `json:"parent_block_hash"`
	Tokens sglangTokens `json:"token_ids"`
	Size   int          `json:"block_size"`
	Salt   string       `json:"cache_salt"`
	LoRA   string       `json:"lora_name"`
}

// sglangTokens is a list of ids, or of overlapping pairs of them.
type sglangTokens struct {
	ids    []uint64
	bigram bool
}

func (s *sglangTokens) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &s.ids) == nil {
		return nil
	}
	var pairs [][2]uint64
	err := json.Unmarshal(b, &pairs)
	s.bigram, s.ids = true, nil
	for i, p := range pairs {
		if i == 0 {
			s.ids = append(s.ids, p[0])
		}
		s.ids = append(s.ids, p[1])
	}
	return err
}

func unsigned(hashes []int64) []uint64 {
	var u []uint64
	for _, h := range hashes {
		u = append(u, uint64(h))
	}
	return u
}

var sglangForms = map[string]Form{"default": SGLangDefault, "dynamo": SGLangDynamo}

func testSGLang(t *testing.T, dir string) {
	var stores, inserts, blocks int
	var form Form
	eachLine(t, filepath.Join(dir, "sglang", "*.jsonl.gz"), func(file string, l sglangLine) {
		if l.Kind == "meta" {
			form = sglangForms[l.Format]
			return
		}
		r, ok := Named("sglang/page")
		if !ok {
			t.Fatal("no recipe")
		}
		r.Form = form
		for _, e := range l.Decoded.Events {
			if e.Type != "BlockStored" {
				continue
			}
			// An event does not repeat what was cached before it; a recorded
			// insert says it.
			run := Run[uint64]{
				Context: Context{LoRA: e.LoRA, Salt: e.Salt, ExtraKey: l.Key.ExtraKey},
				Tokens:  e.Tokens.ids, BlockSize: e.Size, Bigram: e.Tokens.bigram,
			}
			switch {
			case l.Tokens != nil:
				inserts++
				run.Tokens = l.Tokens
			case e.Parent != nil:
				continue
			}
			stores++
			blocks += len(e.Hashes)
			checkStore(t, file, l.Step, r, run, e)
		}
	})
	t.Logf("compared %d stores, %d of them recorded inserts, %d published hashes", stores, inserts, blocks)
}

func checkStore(t *testing.T, file string, step int, r Recipe, run Run[uint64], e sglangEvent) {
	links, err := Chain(r, Digest{}, run)
	if err != nil {
		t.Errorf("%s step %d: %v", file, step, err)
	}
	var got []uint64
	for _, l := range links {
		got = append(got, l.Handle)
	}
	from := 0
	if e.Parent != nil {
		from = 1 + slices.Index(got, uint64(*e.Parent))
	}
	want := unsigned(e.Hashes)
	if to := from + len(want); to > len(got) || !slices.Equal(got[from:to], want) || e.Parent != nil && from == 0 {
		t.Errorf("%s step %d: chain %x does not hold %x behind its parent", file, step, got, want)
		return
	}
	if from > 0 { // the chain goes on from a kept digest alone
		rest := run
		rest.Tokens = run.Tokens[from*run.BlockSize:]
		if tail, err := Chain(r, links[from-1].Digest, rest); err != nil || !slices.Equal(tail, links[from:]) {
			t.Errorf("%s step %d: continued chain differs: %v", file, step, err)
		}
	}
	found, ok := Identify(Store[uint64]{Run: run, Handles: got})
	if !ok || found.Name() != r.Name() || found.Form != AnyForm && found.Form != r.Form {
		t.Errorf("%s step %d: identified as %q form %v", file, step, found.Name(), found.Form)
	}
}

func TestSGLang(t *testing.T) {
	t.Parallel()
	testSGLang(t, "testdata")
}

func TestOracleSGLang(t *testing.T) {
	t.Parallel()
	testSGLang(t, refdata.Root(t))
}
