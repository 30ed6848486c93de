package route

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// indexLine is a row of llm-d/index_score: an operation on keys from..to, or what
// the first n keys gave.
type indexLine struct {
	Case        int                      `json:"case"`
	Op          string                   `json:"op"`
	Size        int                      `json:"size"`
	PodCache    int                      `json:"pod_cache_size"`
	From        int                      `json:"from"`
	To          int                      `json:"to"`
	KeyType     string                   `json:"key_type"`
	Pod         wire.Replica             `json:"pod"`
	Tier        string                   `json:"tier"`
	Speculative bool                     `json:"speculative"`
	N           int                      `json:"n"`
	PodsPerKey  [][]string               `json:"pods_per_key"`
	Scores      map[wire.Replica]float64 `json:"scores"`
}

func TestLLMDIndex(t *testing.T)       { t.Parallel(); checkLLMDIndex(t, testRoot) }
func TestOracleLLMDIndex(t *testing.T) { t.Parallel(); checkLLMDIndex(t, refdata.Root(t)) }

// checkLLMDIndex repeats what was done to an index, and compares the entries of
// each key in their order, and the scores. Of the keys a row gives positions alone:
// any that differ do. Stores gave engine keys, guesses none.
func checkLLMDIndex(t *testing.T, root string) {
	t.Helper()
	const engine = 1 << 32
	keys := func(base, from, to int) (out []uint64) {
		for i := from; i < to; i++ {
			out = append(out, uint64(base+i))
		}
		return out
	}
	rows, lists, scores := map[string]int{}, 0, 0
	for _, file := range refdata.Files(t, root, "llm-d/index_score*.jsonl.gz") {
		var x *LLMDIndex
		refdata.Each(t, file, func(n int, l indexLine) {
			e := LLMDEntry{Pod: l.Pod, Tier: l.Tier, Speculative: l.Speculative || l.KeyType == "request"}
			rows[l.Op]++
			switch l.Op {
			case "new":
				x = NewLLMDIndex(l.Size, l.PodCache)
			case "add":
				stored := keys(engine, l.From, l.To)
				if l.Speculative {
					stored = nil
				}
				if err := x.Add(stored, keys(0, l.From, l.To), e); err != nil {
					t.Fatal(err)
				}
			case "evict":
				for i := l.From; i < l.To; i++ {
					switch l.KeyType {
					case "engine":
						x.EvictEngine(uint64(engine+i), e)
					case "request":
						x.Evict(uint64(i), e)
					default:
						t.Fatalf("row %d: the key type %q", n, l.KeyType)
					}
				}
			case "score":
				found := x.Lookup(keys(0, 0, l.N))
				got := make([][]string, l.N)
				for i := range found {
					got[i] = []string{}
					for _, e := range found[i] {
						tier := e.Tier
						if e.Speculative {
							tier += "[speculative]"
						}
						got[i] = append(got[i], fmt.Sprintf("%s@%s", e.Pod, tier))
					}
				}
				if !slices.EqualFunc(got, l.PodsPerKey, slices.Equal) {
					t.Fatalf("row %d: entries\n%v, want\n%v", n, got, l.PodsPerKey)
				}
				if got := LLMDScores(found); !maps.Equal(got, l.Scores) {
					t.Fatalf("row %d: scores %v, want %v", n, got, l.Scores)
				}
				lists += l.N
				scores += len(l.Scores)
			default:
				t.Fatalf("row %d: the operation %q", n, l.Op)
			}
		})
	}
	t.Logf("rows %v: %d lists of entries and %d scores equal", rows, lists, scores)
}

// TestLLMDBlockSizes: one hash of the engine for several keys, and the other way.
func TestLLMDBlockSizes(t *testing.T) {
	t.Parallel()
	e := LLMDEntry{Pod: "a", Tier: "gpu"}
	left := func(x *LLMDIndex, keys ...uint64) string {
		var out []string
		for i, found := range x.Lookup(keys) {
			if len(found) > 0 {
				out = append(out, fmt.Sprint(keys[i]))
			}
		}
		return strings.Join(out, " ")
	}
	for name, tt := range map[string]struct {
		engine, request []uint64
		evict           uint64
		want            string
		parent          uint64 // of the last engine key
	}{
		"as many":        {[]uint64{91, 92, 93, 94}, []uint64{1, 2, 3, 4}, 92, "1 3 4", 4},
		"a larger block": {[]uint64{91, 92}, []uint64{1, 2, 3, 4}, 92, "1 2", 4},
		"smaller blocks": {[]uint64{91, 92, 93, 94}, []uint64{1, 2}, 92, "2", 2},
	} {
		x := NewLLMDIndex(0, 0)
		if err := x.Add(tt.engine, tt.request, e); err != nil {
			t.Fatal(err)
		}
		if key, ok := x.Parent(tt.engine[len(tt.engine)-1]); !ok || key != tt.parent {
			t.Errorf("%s: the parent key %d", name, key)
		}
		x.EvictEngine(tt.evict, e)
		if got := left(x, 1, 2, 3, 4); got != tt.want {
			t.Errorf("%s: left %s, want %s", name, got, tt.want)
		}
		x.EvictEngine(90, e) // unknown
		if _, ok := x.Parent(90); ok {
			t.Errorf("%s: an unknown parent", name)
		}
	}
	x := NewLLMDIndex(0, 0)
	if err := x.Add([]uint64{1, 2, 3}, []uint64{1, 2}, e); err == nil || x.Add(nil, nil, e) != nil {
		t.Error(err)
	}
}

// TestLLMDTenEntries: of 12 pods with the same block the first two are forgotten,
// and a pod with two tiers takes two places.
func TestLLMDTenEntries(t *testing.T) {
	t.Parallel()
	x := NewLLMDIndex(0, 0)
	for i := range 12 {
		_ = x.Add(nil, []uint64{1, 2}, LLMDEntry{Pod: wire.Replica(fmt.Sprint(i)), Tier: "gpu"})
	}
	scores := LLMDScores(x.Lookup([]uint64{1, 2}))
	if len(scores) != 10 || scores["1"] != 0 || scores["2"] != 2 {
		t.Errorf("%v", scores)
	}
	_ = x.Add(nil, []uint64{1}, LLMDEntry{Pod: "11", Tier: "cpu_pinned"})
	if scores = LLMDScores(x.Lookup([]uint64{1, 2})); len(scores) != 9 || scores["11"] != 2 {
		t.Errorf("%v", scores)
	}
	x.Clear("11")
	if scores = LLMDScores(x.Lookup([]uint64{1, 2})); len(scores) != 8 || scores["11"] != 0 {
		t.Errorf("cleared: %v", scores)
	}
	// A third key pushes the one out that was used longest ago.
	x = NewLLMDIndex(2, 1)
	_ = x.Add(nil, []uint64{1, 2}, LLMDEntry{Pod: "a"})
	x.Lookup([]uint64{1})
	_ = x.Add(nil, []uint64{3}, LLMDEntry{Pod: "a"})
	if found := x.Lookup([]uint64{1, 2, 3}); len(found[0]) != 1 || len(found[1]) != 0 || len(found[2]) != 1 {
		t.Errorf("%v", found)
	}
}

func TestLLMDScores(t *testing.T) {
	t.Parallel()
	on := func(pod wire.Replica, tier string) LLMDEntry { return LLMDEntry{Pod: pod, Tier: tier} }
	found := [][]LLMDEntry{
		{on("a", "gpu"), on("b", "cpu"), on("c", "cpu_pinned"), on("d", "cpu"), on("d", "gpu")},
		{on("b", "cpu"), on("c", "disk"), on("d", "cpu")},
		{on("a", "gpu"), on("b", "cpu"), on("c", ""), on("e", "gpu")},
	}
	// a has a hole, e no beginning; 0.8 three times, unknown tiers like the device.
	cpu := 0.8
	want := map[wire.Replica]float64{"a": 1, "b": cpu + cpu + cpu, "c": 3, "d": 1 + cpu}
	if got := LLMDScores(found); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := LLMDScores(nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// TestRecent holds the map against a list in the order of use.
func TestRecent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "size")
		r, list := newRecent[int, int](size), []int(nil)
		for i := range rapid.IntRange(0, 60).Draw(t, "steps") {
			k := rapid.IntRange(0, 8).Draw(t, "key")
			at := slices.Index(list, k)
			used := func() { list = append(slices.DeleteFunc(list, func(n int) bool { return n == k }), k) }
			switch rapid.SampledFrom([]string{"put", "get", "remove"}).Draw(t, "op") {
			case "put":
				used()
				if len(list) > size {
					list = list[1:]
				}
				r.put(k, 100*i+k)
			case "get":
				v, ok := r.get(k)
				if ok != (at >= 0) || ok && v%100 != k {
					t.Fatalf("%d %v", v, ok)
				}
				if ok {
					used()
				}
			case "remove":
				list = slices.DeleteFunc(list, func(n int) bool { return n == k })
				r.remove(k)
			}
			if !slices.Equal(r.keys(), list) || len(r.items) > size+1 {
				t.Fatalf("%v, want %v", r.keys(), list)
			}
		}
	})
}
