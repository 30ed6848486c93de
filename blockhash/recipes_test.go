package blockhash

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustNamed(t *testing.T, name string, form Form) Recipe {
	t.Helper()
	r, ok := Named(name)
	if !ok {
		t.Fatalf("no recipe %q", name)
	}
	r.Form = form
	return r
}

func storeOf(t *testing.T, r Recipe, run Run[uint64]) Store[uint64] {
	t.Helper()
	links, err := Chain(r, Digest{}, run)
	if err != nil {
		t.Fatalf("%s: %v", r.Name(), err)
	}
	s := Store[uint64]{Run: run}
	for _, l := range links {
		s.Handles = append(s.Handles, l.Handle)
	}
	return s
}

func TestNamed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"vllm/sha256 seed=vllm-none-hash", "vllm/xxhash_cbor seed=", "vllm/sha256_cbor seed=a seed=b",
		"sglang/page", "dynamo/sequence",
	} {
		if r := mustNamed(t, name, AnyForm); r.Name() != name || r.IsZero() {
			t.Errorf("%q comes back as %q", name, r.Name())
		}
	}
	for _, name := range []string{"", "vllm/sha256", "sglang/page seed=0", "vllm/md5 seed=0"} {
		if r, ok := Named(name); ok || !r.IsZero() || r.Name() != "" {
			t.Errorf("%q is the recipe %q", name, r.Name())
		}
	}
}

func TestIdentify(t *testing.T) {
	t.Parallel()
	id := int64(3)
	salted := [][]Value{{Text("tenant")}}
	for _, c := range []struct {
		name string
		form Form
		run  Run[uint64]
		more []string
		want Form
	}{
		{name: "vllm/sha256 seed=vllm-none-hash"},
		{name: "vllm/xxhash seed=12345"},
		{name: "vllm/sha256_cbor seed=7", more: []string{"8", "7"}},
		{name: "vllm/sha256 seed=0", form: Tagged, run: Run[uint64]{Extra: salted}, want: Tagged},
		{name: "vllm/sha256 seed=0", form: Bare, run: Run[uint64]{Extra: salted}, want: Bare},
		{name: "vllm/sha256 seed=0", form: BareID, run: Run[uint64]{Context: Context{LoRAID: &id, LoRA: "a"}}, want: BareID},
		{name: "vllm/xxhash_cbor seed=0", form: Tagged, run: Run[uint64]{Context: Context{LoRA: "a", LoRAPath: "/a"}}, want: Tagged},
		{name: "vllm/sha256 seed=0", run: Run[uint64]{Lookahead: [][]uint64{{5, 6}, {6, 7}}}},
		// Extra keys that begin behind the first block tell the form, too.
		{name: "vllm/sha256 seed=0", form: Tagged, run: Run[uint64]{Extra: [][]Value{nil, {Tuple(Text("h"), Int(-3))}}}, want: Tagged},
		{name: "sglang/page"},
		{name: "sglang/page", run: Run[uint64]{Bigram: true}},
		{name: "sglang/page", form: SGLangDefault, run: Run[uint64]{Context: Context{Salt: "s"}}, want: SGLangDefault},
		{name: "sglang/page", form: SGLangDynamo, run: Run[uint64]{Context: Context{Salt: "s"}}, want: SGLangDynamo},
		{name: "dynamo/sequence", run: Run[uint64]{Extra: salted}},
		{name: "dynamo/sequence", run: Run[uint64]{Context: Context{LoRA: "a", Salt: "s"}}},
	} {
		c.run.BlockSize, c.run.Tokens = 4, numbered(9)
		s := storeOf(t, mustNamed(t, c.name, c.form), c.run)
		got, ok := Identify(s, c.more...)
		if !ok || got.Name() != c.name || got.Form != c.want {
			t.Errorf("%s form %v: identified as %q form %v", c.name, c.form, got.Name(), got.Form)
		}
	}
}

func TestIdentifyRefuses(t *testing.T) {
	t.Parallel()
	run := Run[uint64]{BlockSize: 4, Tokens: numbered(8)}
	good := storeOf(t, mustNamed(t, "vllm/sha256 seed=0", AnyForm), run)
	for name, change := range map[string]func(*Store[uint64]){
		"unknown root": func(s *Store[uint64]) {
			*s = storeOf(t, mustNamed(t, "vllm/sha256 seed=not tried", AnyForm), run)
		},
		"LoRA without its path": func(s *Store[uint64]) {
			lora := run
			lora.LoRA, lora.LoRAPath = "a", "/a"
			*s = storeOf(t, mustNamed(t, "vllm/sha256 seed=0", Tagged), lora)
			s.LoRAPath = ""
		},
		"second hash wrong": func(s *Store[uint64]) { s.Handles = []uint64{s.Handles[0], 1} },
		"a hash too few":    func(s *Store[uint64]) { s.Handles = s.Handles[:1] },
		"no tokens":         func(s *Store[uint64]) { s.Tokens = nil },
		"block size 0":      func(s *Store[uint64]) { s.BlockSize = 0 },
		"pairs":             func(s *Store[uint64]) { s.Bigram, s.Handles = true, s.Handles[:1] },
		"other bytes":       func(s *Store[uint64]) { s.Bytes = []string{strings.Repeat("x", 32)} },
	} {
		s := good
		change(&s)
		if r, ok := Identify(s); ok {
			t.Errorf("%s: identified as %q", name, r.Name())
		}
	}
}

func TestChainSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	const vllm = "vllm/sha256 seed=0"
	id := int64(1)
	for _, c := range []struct {
		what, name string
		form       Form
		run        Run[uint64]
		links      int
		want       error
	}{
		{"path", vllm, Tagged, Run[uint64]{Context: Context{LoRA: "a"}}, 0, ErrUnpublished},
		{"name", vllm, Bare, Run[uint64]{Context: Context{LoRAID: &id}}, 0, ErrUnpublished},
		{"id", vllm, BareID, Run[uint64]{Context: Context{LoRA: "a"}}, 0, ErrUnpublished},
		{"cache key", "sglang/page", SGLangDefault, Run[uint64]{Context: Context{LoRA: "a"}}, 0, ErrUnpublished},
		{"form", vllm, AnyForm, Run[uint64]{Context: Context{Salt: "s"}}, 0, ErrForm},
		{"form later", vllm, AnyForm, Run[uint64]{Extra: [][]Value{nil, {Text("h")}}}, 1, ErrForm},
		{"form of another engine", vllm, SGLangDynamo, Run[uint64]{Context: Context{LoRA: "a"}}, 0, ErrForm},
		{"SGLang form", "sglang/page", Tagged, Run[uint64]{Context: Context{Salt: "s"}}, 0, ErrForm},
		{"odd key", vllm, Tagged, Run[uint64]{Extra: [][]Value{{Tuple()}}}, 0, ErrInput},
		{"pairs", vllm, AnyForm, Run[uint64]{Bigram: true}, 0, ErrInput},
	} {
		c.run.BlockSize, c.run.Tokens = 4, numbered(9)
		links, err := Chain(mustNamed(t, c.name, c.form), Digest{}, c.run)
		if !errors.Is(err, c.want) || len(links) != c.links {
			t.Errorf("%s: %d links, error %v, want %d and %v", c.what, len(links), err, c.links, c.want)
		}
	}
	if _, err := Chain(Recipe{}, Digest{}, Run[uint64]{}); !errors.Is(err, ErrInput) {
		t.Errorf("zero recipe: %v", err)
	}
}

// TestChainFillsIn checks that LoRA and salt count alike in the context, as a
// prompt has them, and among the published extra keys, as an event does.
func TestChainFillsIn(t *testing.T) {
	t.Parallel()
	mm, embeds := Tuple(Text("h"), Int(2)), Bytes([]byte("digest"))
	both := Context{LoRA: "a", LoRAPath: "/a", Salt: "s"}
	event := Context{LoRA: "a", LoRAPath: "/a"}
	for _, form := range []Form{Tagged, Bare} {
		for _, c := range [][2][]Value{
			{nil, {Text("a"), Text("s")}},
			{{mm}, {Text("a"), mm, Text("s")}},
			{{mm, embeds}, {Text("a"), mm, Text("s"), embeds}},
		} {
			r := mustNamed(t, "vllm/sha256 seed=0", form)
			run := Run[uint64]{BlockSize: 4, Tokens: numbered(9)}
			run.Context, run.Extra = both, [][]Value{c[0], nil}
			prompt := storeOf(t, r, run)
			run.Context, run.Extra = event, [][]Value{c[1], {Text("a")}}
			if s := storeOf(t, r, run); !slices.Equal(s.Handles, prompt.Handles) {
				t.Errorf("%v %v: handles differ", form, c)
			}
		}
	}
	r := mustNamed(t, "vllm/sha256 seed=0", Tagged)
	run := Run[uint64]{BlockSize: 4, Tokens: numbered(4), Context: event}
	run.Extra = [][]Value{{Text("a"), Text("a")}}
	if a, b := storeOf(t, r, run), storeOf(t, r, Run[uint64]{
		BlockSize: 4, Tokens: numbered(4), Context: Context{LoRA: "a", LoRAPath: "/a", Salt: "a"},
	}); !slices.Equal(a.Handles, b.Handles) {
		t.Error("a salt that equals the LoRA name is lost")
	}
}

func TestContent(t *testing.T) {
	t.Parallel()
	mm := Tuple(Text("h"), Int(-5))
	for _, c := range []struct {
		name    string
		keys    []Value
		first   bool
		salt    string
		objects int
	}{
		{"LoRA only", []Value{Text("a")}, true, "", 0},
		{"all", []Value{Text("a"), mm, Text("s"), Bytes(nil)}, true, "s", 2},
		{"salt like the LoRA", []Value{Text("a"), Text("a")}, true, "a", 0},
		{"bare hash", []Value{Text("h")}, false, "", 1},
		{"empty id", []Value{Tuple(Text(""), Int(0))}, false, "", 0},
		{"unknown", []Value{Tuple(mm, mm, mm), Int(4), {}}, false, "", 3},
	} {
		salt, objects := Content(c.keys, "a", c.first)
		if salt != c.salt || len(objects) != c.objects {
			t.Errorf("%s: salt %q, objects %v", c.name, salt, objects)
		}
	}
	_, here := Content([]Value{mm}, "", false)
	_, there := Content([]Value{Tuple(Text("h"), Int(11))}, "", false)
	if !slices.Equal(here, there) || here[0] != MMHash("h") {
		t.Error("a multimodal item does not count by its id alone")
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 33} {
		if d, ok := DigestOf(make([]byte, n)); ok || !d.IsZero() || d.Bytes() != nil {
			t.Errorf("%d bytes make a digest", n)
		}
	}
	d, ok := DigestOf([]byte{1, 2, 3})
	if !ok || d.String() != "010203" || d.last() != 0x010203 {
		t.Errorf("digest %s", d)
	}
}

// TestChainContinues splits chains of every recipe at any block: the digest is
// all that the rest needs. No input makes Chain or Identify panic.
func TestChainContinues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(algorithms[:]).Draw(t, "algorithm").name
		if strings.HasPrefix(name, "vllm/") {
			name += seedWord + "0"
		}
		r, _ := Named(name)
		r.Form = Form(rapid.IntRange(0, numForms+1).Draw(t, "form"))
		run := Run[uint64]{
			Tokens:    rapid.SliceOfN(rapid.Uint64(), 0, 40).Draw(t, "tokens"),
			BlockSize: rapid.IntRange(-1, 9).Draw(t, "size"),
			Bigram:    rapid.Bool().Draw(t, "bigram"),
			Extra:     rapid.SliceOfN(rapid.SliceOfN(anyValue(), 0, 3), 0, 4).Draw(t, "extra"),
		}
		run.LoRA = rapid.SampledFrom([]string{"", "a"}).Draw(t, "lora")
		all, err := Chain(r, Digest{}, run)
		Identify(Store[uint64]{Run: run, Handles: make([]uint64, len(all))})
		if err != nil || len(all) == 0 {
			return
		}
		at := rapid.IntRange(1, len(all)).Draw(t, "split")
		if strings.HasPrefix(name, "dynamo") {
			salt, _ := Content(slices.Concat(run.Extra[:min(1, len(run.Extra))]...), run.LoRA, true)
			run.Salt = salt // an event behind the root does not repeat it
		}
		run.Tokens = run.Tokens[at*run.BlockSize:]
		run.Extra = run.Extra[min(at, len(run.Extra)):]
		rest, err := Chain(r, all[at-1].Digest, run)
		if err != nil || !slices.Equal(rest, all[at:]) {
			t.Fatalf("rest %v, want %v: %v", rest, all[at:], err)
		}
	})
}
