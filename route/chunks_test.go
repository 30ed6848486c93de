package route

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// TestCut holds hashes against the chunks that they are of: two prompts have as many
// equal ones as they have whole chunks in common.
func TestCut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := cutter{sep: "|", size: rapid.IntRange(1, 5).Draw(t, "size"), bytes: rapid.Bool().Draw(t, "bytes"), rest: rapid.Bool().Draw(t, "rest")}
		contents := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("aé")), 0, 9, -1), 1, 3)
		naive := func(contents []string) (out []string) {
			s := strings.Join(contents, c.sep)
			var units []string
			if c.bytes {
				for i := range len(s) {
					units = append(units, s[i:i+1])
				}
			} else {
				units = strings.Split(s, "")
			}
			for len(units) >= c.size {
				out, units = append(out, strings.Join(units[:c.size], "")), units[c.size:]
			}
			if len(units) > 0 && c.rest {
				out = append(out, strings.Join(units, ""))
			}
			return out
		}
		a, b := contents.Draw(t, "a"), contents.Draw(t, "b")
		ha, weight := c.cut(nil, &Request{Contents: a}, 7)
		hb, _ := c.cut(nil, &Request{Contents: b}, 7)
		na, nb := naive(a), naive(b)
		if len(ha) != len(na) || weight != 1 {
			t.Fatalf("%q: %d hashes of weight %d, want %d", a, len(ha), weight, len(na))
		}
		same := 0
		for same < min(len(na), len(nb)) && na[same] == nb[same] {
			same++
		}
		for i := range min(len(ha), len(hb)) {
			if (ha[i] == hb[i]) != (i < same) {
				t.Fatalf("%q and %q have %d chunks in common, and hash %d is equal: %v", a, b, same, i, ha[i] == hb[i])
			}
		}
	})
}

func TestCutSymbols(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		size, width int
		rest        bool
		n, weight   int
	}{
		"a symbol is many chunks":        {4, 512, false, 7, 512},
		"a chunk is many symbols":        {128, 16, false, 3, 1},
		"and what is left of them":       {128, 16, true, 4, 1},
		"one of each":                    {64, 16, false, 7, 1},
		"a width that was not said is 1": {4, 0, false, 7, 1},
	} {
		req := Request{Symbols: []rune{1, 2, 3, 4, 5, 6, 7}, Width: tt.width}
		if got, weight := (cutter{size: tt.size, rest: tt.rest}).cut(nil, &req, 0); len(got) != tt.n || weight != tt.weight {
			t.Errorf("%s: %d of weight %d, want %d of %d", name, len(got), weight, tt.n, tt.weight)
		}
	}
	// Tokens stand in where there are no symbols: 4 characters each.
	if got, _ := (cutter{size: 8}).cut(nil, &Request{IDs: []wire.Token{1, 2, 3, 4, 5}}, 0); len(got) != 2 {
		t.Errorf("%d", len(got))
	}
}

// TestHolders holds the table against plain lists.
func TestHolders(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "least-loaded")
	rapid.Check(t, func(t *rapid.T) {
		most, ttl := rapid.IntRange(2, 9).Draw(t, "most"), wire.Time(rapid.Int64Range(-1, 9).Draw(t, "ttl"))
		weight := rapid.IntRange(1, 2).Draw(t, "weight")
		h := newHolders(most, ttl)
		cands := busy(0, 0, 0, 0, 0, 0)
		now := wire.Time(0)
		type chunk struct {
			key    uint64
			at     wire.Time
			owners []wire.Replica
		}
		var chunks []chunk // the least recently sent one first
		owners := func(key uint64) []wire.Replica {
			for _, c := range chunks {
				if c.key == key {
					return c.owners
				}
			}
			return nil
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += wire.Time(rapid.IntRange(0, 3).Draw(t, "later"))
			to := rapid.SampledFrom(cands).Draw(t, "to").Replica
			keys := make([]uint64, rapid.IntRange(1, 4).Draw(t, "length"))
			for i := range keys {
				keys[i] = uint64(rapid.IntRange(0, 2).Draw(t, "key") + 10*i)
			}
			h.put(keys, weight, to, now)

			chunks = slices.DeleteFunc(chunks, func(c chunk) bool { return ttl >= 0 && now-c.at > ttl })
			for _, key := range keys {
				c := chunk{key, now, slices.Clone(owners(key))}
				if !slices.Contains(c.owners, to) {
					c.owners = append(c.owners, to)
				}
				chunks = append(slices.DeleteFunc(chunks, func(c chunk) bool { return c.key == key }), c)
				for len(chunks)*weight > most && len(chunks) > 1 {
					chunks = chunks[1:]
				}
			}

			for key := range uint64(40) {
				var got []wire.Replica
				if c := h.get(key, now); c != 0 {
					for n := range int(h.chunks[c].owners) {
						for name, id := range h.ids {
							if id == h.owner(c, n) {
								got = append(got, name)
							}
						}
					}
				}
				if !slices.Equal(got, owners(key)) {
					t.Fatalf("key %d: owners %v, want %v", key, got, owners(key))
				}
			}
			for n, got := range h.depths(newInput(cfg, &Request{At: now}, cands), keys) {
				want := 0
				for want < len(keys) && slices.Contains(owners(keys[want]), cands[n].Replica) {
					want++
				}
				if got != want {
					t.Fatalf("%s holds %d of %v, want %d", cands[n].Replica, got, keys, want)
				}
			}
		}
	})
}

// TestHoldersBound: the list does not grow beyond its bound.
func TestHoldersBound(t *testing.T) {
	t.Parallel()
	h := newHolders(math.MaxInt, -1)
	h.places = 400
	keys := make([]uint64, h.places/4)
	for round := range uint64(6) {
		for i := range keys {
			keys[i] = round<<32 | uint64(i)
		}
		h.put(keys, 1, "a", 0)
	}
	if len(h.at) != h.places || len(h.chunks) > h.places+2 || h.get(keys[0], 0) == 0 || h.get(0, 0) != 0 {
		t.Errorf("%d chunks in %d places", len(h.at), len(h.chunks))
	}
}

// TestStackRing holds the ring against the library that the router has it from.
func TestStackRing(t *testing.T) {
	t.Parallel()
	n := 0
	refdata.Each(t, refdata.Files(t, testRoot, "production-stack/session_ring.jsonl.gz")[0], func(_ int, r struct {
		Nodes, Order []wire.Replica
		Key          string
		Node         wire.Replica
	},
	) {
		n++
		var cands []Candidate
		for _, name := range r.Nodes {
			cands = append(cands, Candidate{Replica: name})
		}
		steps := newRing(&stackRing, stackVnodes, cands).steps(r.Key)
		order := make([]wire.Replica, len(steps))
		for i, s := range steps {
			order[s] = r.Nodes[i]
		}
		if !slices.Equal(order, r.Order) || order[0] != r.Node {
			t.Errorf("%q: %v, want %v", r.Key, order, r.Order)
		}
		if r.Key == "" {
			return // no session to a Request
		}
		d := decide(t, configured(t, "production-stack-session"), &Request{BlockSize: 16, Session: r.Key}, cands)
		if got := d.Names(d.Choice); !slices.Equal(got, []wire.Replica{r.Node}) {
			t.Errorf("%q: %v, want %s", r.Key, got, r.Node)
		}
	})
	t.Logf("%d keys", n)
}

func TestStackSession(t *testing.T) {
	t.Parallel()
	r := routed(t, "production-stack-session")
	cands := busy(5, 0, 0)
	route := func(second int) int {
		return r.Route(&Request{BlockSize: 16, At: wire.Time(second) * 1e9}, cands)
	}
	// Engines without any request come first, in the list's order, however busy.
	for second, want := range []int{0, 1, 2, 0} {
		if got := route(second); got != want {
			t.Errorf("at %d s: %d, want %d", second, got, want)
		}
	}
	// a had two, b and c one: b. At 61.5 s a's first and b's first are out of the
	// window: a 1, b 1, c 1, so a, and then b.
	for _, tt := range []struct{ second, want int }{{4, 1}, {5, 2}, {62, 0}} {
		if got := route(tt.second); got != tt.want {
			t.Errorf("at %d s: %d, want %d", tt.second, got, tt.want)
		}
	}
	d := asks(t, r, &Request{BlockSize: 16, At: 62e9}, cands)
	if !says(&d, "no session: the lowest QPS") {
		t.Errorf("%q", d.Trace)
	}
	// From outside, active requests stand in, and the order of the list is not known.
	d = decide(t, configured(t, "production-stack-session"), &Request{BlockSize: 16}, cands)
	if len(d.Choice) != 2 || !says(&d, "cannot be read from outside") {
		t.Errorf("%v %q", d.Choice, d.Trace)
	}
}

// TestStackPrefix holds the router against prompts that were sent: any of those with
// the most whole chunks in common, however busy.
func TestStackPrefix(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := routed(t, "production-stack-prefix")
		cands := busy(9, 0, 3)
		sent := map[int][]string{}
		chunk := strings.Repeat("x", stackChunk)
		for range rapid.IntRange(1, 12).Draw(rt, "requests") {
			var b strings.Builder
			for range rapid.IntRange(0, 3).Draw(rt, "chunks") {
				b.WriteString(rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "begin") + chunk[1:])
			}
			b.WriteString(rapid.SampledFrom([]string{"", "end"}).Draw(rt, "end"))
			text := b.String()
			cut := func(s string) (out []string) {
				for len(s) > 0 {
					n := min(len(s), stackChunk)
					out, s = append(out, s[:n]), s[n:]
				}
				return out
			}
			depth, longest := make([]int, len(cands)), 0
			for at, texts := range sent {
				for _, other := range texts {
					same, a, b := 0, cut(text), cut(other)
					for same < min(len(a), len(b)) && a[same] == b[same] {
						same++
					}
					depth[at] = max(depth[at], same)
				}
				longest = max(longest, depth[at])
			}
			var want []int
			for at, d := range depth {
				if d == longest {
					want = append(want, at)
				}
			}
			req := Request{Tokens: 100, BlockSize: 16, Contents: []string{text}}
			d := asks(t, r, &req, cands)
			if got := slices.Sorted(slices.Values(d.Choice)); !slices.Equal(got, want) {
				rt.Fatalf("%v, want %v\n%q", got, want, d.Trace)
			}
			at := r.Route(&req, cands)
			sent[at] = append(sent[at], text)
		}
	})
}

func TestStackPrefixMinimum(t *testing.T) {
	t.Parallel()
	r := routed(t, "production-stack-prefix", "prefix_min_match_length=256")
	cands := busy(0, 0)
	long := Request{Tokens: 100, BlockSize: 16, Contents: []string{strings.Repeat("a", 300)}}
	// The first is short of everything: the lowest QPS, which is a, and the trie has it.
	if at := r.Route(&long, cands); at != 0 {
		t.Fatal(at)
	}
	d := asks(t, r, &long, cands)
	if got := d.Choice; !slices.Equal(got, []int{0}) || !says(&d, "any of the 1 ") {
		t.Errorf("a long match: %v %q", got, d.Trace)
	}
	short := Request{Tokens: 100, BlockSize: 16, Contents: []string{strings.Repeat("a", 200)}}
	d = asks(t, r, &short, cands)
	if got := d.Choice; !slices.Equal(got, []int{1}) || !says(&d, "shorter: no session: the lowest QPS") {
		t.Errorf("a short match: %v %q", got, d.Trace)
	}
	// Messages are joined by a line's end.
	a, _ := stackCut.cut(nil, &Request{Contents: []string{"x", "y"}}, 0)
	b, _ := stackCut.cut(nil, &Request{Contents: []string{"x\ny"}}, 0)
	if !slices.Equal(a, b) {
		t.Error("messages are not joined by a line's end")
	}
	// From outside a match of 5 blocks of 16 tokens is 320 characters.
	d = decide(t, configured(t, "production-stack-prefix", "prefix_min_match_length=320"), &Request{Tokens: 100, BlockSize: 16}, []Candidate{cand("a", 5, 0, 0, 9), cand("b", 4, 0, 0, 0)})
	if got := d.Choice; !slices.Equal(got, []int{0}) || !says(&d, "cannot be read from outside") {
		t.Errorf("from outside: %v %q", got, d.Trace)
	}
}

func TestStackKV(t *testing.T) {
	t.Parallel()
	// 6400 tokens, of which all but 2000 must match: 4400, so 18 chunks of 256.
	req := Request{Tokens: 6400, BlockSize: 16}
	enough, little := 288, 272
	for name, tt := range map[string]struct {
		set    []string
		match  [3]int
		chance [3]float64
		says   string
	}{
		"one holds enough":        {nil, [3]int{0, enough, 0}, [3]float64{0, 1, 0}, "however long its match"},
		"one holds too little":    {nil, [3]int{0, little, 0}, [3]float64{0, 0, 1}, "none of them holds enough"},
		"less than a chunk":       {nil, [3]int{15, 15, 15}, [3]float64{0, 0, 1}, "0 candidates hold"},
		"either can be the first": {nil, [3]int{enough, 400, 0}, [3]float64{0.5, 0.5, 0}, "each can be"},
		"the first can be short":  {nil, [3]int{enough, little, little}, [3]float64{1. / 3, 0, 2. / 3}, "1 of them hold enough"},
		"a larger allowance":      {[]string{"kv_aware_threshold=3000"}, [3]int{0, little, 0}, [3]float64{0, 1, 0}, "must hold 3400 tokens"},
		"a chat":                  {[]string{"api=chat"}, [3]int{0, 400, 0}, [3]float64{0, 0, 1}, "no field prompt"},
	} {
		cands := busy(2, 9, 1)
		for i, n := range tt.match {
			cands[i].Match[wire.Host] = n
		}
		d := decide(t, configured(t, "production-stack-kvaware", tt.set...), &req, cands)
		for i, want := range tt.chance {
			if got := d.Candidates[i].Probability; math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: chance of %d is %v, want %v", name, i, got, want)
			}
		}
		if !says(&d, tt.says) {
			t.Errorf("%s: %q lacks %q", name, d.Trace, tt.says)
		}
	}
}

// TestStackKVFirst: a router that saw who came first knows whom the answer names.
func TestStackKVFirst(t *testing.T) {
	t.Parallel()
	r := routed(t, "production-stack-kvaware")
	cands := busy(0, 0, 0)
	req := Request{Tokens: 2048, BlockSize: 16, Symbols: []rune{1, 2, 3, 4}, Width: 512}
	// Nobody holds it: engines without requests, in turn. The first was a.
	for _, want := range []int{0, 1} {
		if at := r.Route(&req, cands); at != want {
			t.Fatalf("%d, want %d", at, want)
		}
	}
	// a holds enough, so it stays there although b holds more.
	cands[0].Match[wire.Host], cands[1].Match[wire.Host] = 16, 128
	d := asks(t, r, &req, cands)
	if got := d.Choice; !slices.Equal(got, []int{0}) {
		t.Errorf("%v %q", got, d.Trace)
	}
	// a holds too little: the fallback, though b has all of it.
	req.Tokens, req.Symbols = 6400, append(req.Symbols, 5, 6, 7, 8, 9, 10, 11, 12, 13)
	cands[1].Match[wire.Host] = 400
	d = asks(t, r, &req, cands)
	if got := d.Choice; !slices.Equal(got, []int{2}) {
		t.Errorf("%v %q", got, d.Trace)
	}
	// a lost it, so b is the first.
	cands[0].Match[wire.Host] = 0
	d = asks(t, r, &req, cands)
	if got := d.Choice; !slices.Equal(got, []int{1}) {
		t.Errorf("%v %q", got, d.Trace)
	}
}

func TestStackSettings(t *testing.T) {
	t.Parallel()
	p, err := Named("production-stack-kvaware")
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.FromFlags([]string{"--routing-logic", "kvaware", "--kv-aware-threshold=500", "--session-key", "x-user-id"})
	if want := "[{kv_aware_threshold 500 --kv-aware-threshold} {session_key x-user-id --session-key}]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v %v", got, err)
	}
	if cfg := configured(t, "production-stack-kvaware", "chunk_size=0"); cfg.num(stackKVChunk) != 256 {
		t.Errorf("%v", cfg.values[stackKVChunk])
	}
}
