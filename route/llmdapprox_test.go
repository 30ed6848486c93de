package route

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// approxLine is a row of llm-d/approx_prefix: a prompt, what it matched, and the
// pod that it was then sent to.
type approxLine struct {
	I       int                  `json:"i"`
	AddedTo wire.Replica         `json:"added_to"`
	Size    int                  `json:"block_size"`
	Most    int                  `json:"max_blocks"`
	LRU     int                  `json:"lru_size"`
	Model   string               `json:"model"`
	Salt    string               `json:"salt"`
	Tokens  []wire.Token         `json:"tokens"`
	Hashes  []string             `json:"hashes_u64"`
	Match   map[wire.Replica]int `json:"match_before"`
}

func TestLLMDApproximate(t *testing.T)       { t.Parallel(); checkLLMDApproximate(t, testRoot) }
func TestOracleLLMDApproximate(t *testing.T) { t.Parallel(); checkLLMDApproximate(t, refdata.Root(t)) }

func checkLLMDApproximate(t *testing.T, root string) {
	t.Helper()
	rows, hashes, matches := 0, 0, 0
	for _, file := range refdata.Files(t, root, "llm-d/approx_prefix*.jsonl.gz") {
		var sent *llmdSent
		refdata.Each(t, file, func(n int, l approxLine) {
			if sent == nil || l.I == 0 {
				sent = newLLMDSent(l.LRU)
			}
			if sent.size != l.LRU {
				t.Fatalf("row %d: the cache's size changes", n)
			}
			got := llmdHashes(nil, &Request{Model: l.Model + l.Salt, IDs: l.Tokens}, l.Size, l.Most)
			var texts []string
			for _, h := range got {
				texts = append(texts, strconv.FormatUint(h, 10))
			}
			if !slices.Equal(texts, l.Hashes) {
				t.Fatalf("row %d: hashes %v, want %v", n, texts, l.Hashes)
			}
			if match := matchesOf(sent, got); !maps.Equal(match, l.Match) {
				t.Fatalf("row %d: matches %v, want %v", n, match, l.Match)
			}
			sent.add(l.AddedTo, got)
			rows, hashes, matches = rows+1, hashes+len(got), matches+len(l.Match)
		})
	}
	t.Logf("%d rows: %d hashes and %d matches equal", rows, hashes, matches)
}

func matchesOf(s *llmdSent, hashes []uint64) map[wire.Replica]int {
	out := map[wire.Replica]int{}
	counts := s.match(nil, hashes)
	for pod, n := range s.pods {
		if counts[n] > 0 {
			out[pod] = counts[n]
		}
	}
	return out
}

// naiveSent is the index as upstream has it: pods by block, and a list for each
// pod's cache.
type naiveSent struct {
	size int
	pods map[uint64]map[wire.Replica]bool
	kept map[wire.Replica][]uint64
}

func (s *naiveSent) drop(pod wire.Replica) {
	h := s.kept[pod][0]
	s.kept[pod] = s.kept[pod][1:]
	delete(s.pods[h], pod)
	if len(s.pods[h]) == 0 {
		delete(s.pods, h)
	}
}

func (s *naiveSent) add(pod wire.Replica, hashes []uint64) {
	for _, h := range hashes {
		s.kept[pod] = append(slices.DeleteFunc(s.kept[pod], func(k uint64) bool { return k == h }), h)
		if len(s.kept[pod]) > s.size {
			s.drop(pod)
		}
	}
	for _, h := range hashes {
		if s.pods[h] == nil {
			s.pods[h] = map[wire.Replica]bool{}
		}
		s.pods[h][pod] = true
	}
}

func (s *naiveSent) match(hashes []uint64) map[wire.Replica]int {
	out := map[wire.Replica]int{}
	for _, h := range hashes {
		if len(s.pods[h]) == 0 {
			break
		}
		for pod := range s.pods[h] {
			out[pod]++
		}
	}
	return out
}

// TestLLMDSent holds the index against the naive one, with prompts longer than the
// caches and pods that leave and come back.
func TestLLMDSent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "size")
		s := newLLMDSent(size)
		naive := &naiveSent{size, map[uint64]map[wire.Replica]bool{}, map[wire.Replica][]uint64{}}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			pod := wire.Replica(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pod"))
			from, n := rapid.IntRange(0, 6).Draw(t, "from"), rapid.IntRange(1, 14).Draw(t, "n")
			var hashes []uint64
			for i := range n {
				hashes = append(hashes, uint64(from+i))
			}
			if got, want := matchesOf(s, hashes), naive.match(hashes); !maps.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
			if rapid.IntRange(0, 9).Draw(t, "what") == 0 {
				s.left(pod)
				for len(naive.kept[pod]) > 0 {
					naive.drop(pod)
				}
				continue
			}
			s.add(pod, hashes)
			naive.add(pod, hashes)
			listed, kept, loose := 0, 0, 0
			for h := range naive.pods {
				listed += len(naive.pods[h])
			}
			for pod, hashes := range naive.kept {
				kept += len(hashes)
				if n := s.kept[s.pods[pod]].n; int(n) != len(hashes) {
					t.Fatalf("%s keeps %d, want %d", pod, n, len(hashes))
				}
			}
			loose = listed - kept
			if s.loose != loose || s.first.Len() != len(naive.pods) || len(s.entries)-1-len(s.free) != listed {
				t.Fatalf("%d loose of %d, %d blocks, want %d of %d, %d", s.loose, len(s.entries)-1-len(s.free), s.first.Len(), loose, listed, len(naive.pods))
			}
		}
	})
}

// TestLLMDOwnEviction: a prompt of 5 blocks in a cache of 3 stays listed whole,
// and its first two are gone for good only once they are kept and pushed out.
func TestLLMDOwnEviction(t *testing.T) {
	t.Parallel()
	s := newLLMDSent(3)
	long := []uint64{1, 2, 3, 4, 5}
	s.add("a", long)
	if got := matchesOf(s, long)["a"]; got != 5 {
		t.Errorf("%d of 5 blocks", got)
	}
	s.add("a", []uint64{11, 12, 13})
	if got := matchesOf(s, long)["a"]; got != 2 {
		t.Errorf("%d blocks after others, want the 2 that nothing pushes out", got)
	}
	s.add("a", []uint64{1, 2})
	s.add("a", []uint64{11, 12, 13})
	if got := matchesOf(s, long)["a"]; got != 0 {
		t.Errorf("%d blocks after their next use", got)
	}
}

// TestLLMDHashes: the same block is hashed from the parts that it comes in, and
// the formula holds for text.
func TestLLMDHashes(t *testing.T) {
	t.Parallel()
	text := ""
	for i := range 100 {
		text += fmt.Sprintf("%06d", i)
	}
	sum := func(block string, prev uint64) uint64 {
		var b []byte
		for _, v := range []uint64{xxhash.Sum64String(block), prev} {
			for i := range 8 {
				b = append(b, byte(v>>(8*i)))
			}
		}
		return xxhash.Sum64(b)
	}
	h1 := sum(text[:256], xxhash.Sum64String("m"))
	h2 := sum(text[256:512], h1)
	want := []uint64{h1, h2, sum(text[512:], h2)}
	for name, parts := range map[string][]string{
		"whole": {text}, "in parts": {text[:100], "", text[100:256], text[256:300], text[300:]},
	} {
		got := llmdHashes(nil, &Request{Model: "m", Contents: parts}, 64, 99)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if got := llmdHashes(nil, &Request{Model: "m", Contents: parts}, 64, 2); !slices.Equal(got, want[:2]) {
			t.Errorf("%s, two at most: %v", name, got)
		}
	}
	if got := llmdHashes(nil, &Request{Tokens: 9}, 64, 9); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}

// TestLLMDSymbols: how many blocks of 64 two prompts share, by the pieces that
// they share and their lengths.
func TestLLMDSymbols(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		width, a, b int // tokens
		x, y        string
		blocks, eq  int
	}{
		"wide pieces":           {512, 1024, 1024, "ab", "ac", 16, 8},
		"a shorter last piece":  {512, 1000, 1000, "ab", "ab", 16, 16},
		"cut within a block":    {512, 1000, 1024, "ab", "ab", 16, 15},
		"narrow pieces":         {16, 128, 128, "abcdefgh", "abcdeFgh", 2, 1},
		"pieces across a block": {100, 300, 300, "abc", "abd", 5, 3}, // 200 tokens: three blocks and a bit
		"no width":              {0, 3, 3, "abc", "abc", 1, 1},
		"more tokens than said": {64, 9999, 128, "ab", "ab", 2, 2},
	} {
		hash := func(symbols string, tokens int) []uint64 {
			return llmdHashes(nil, &Request{Tokens: tokens, Symbols: []rune(symbols), Width: tt.width}, 64, 99)
		}
		a, b := hash(tt.x, tt.a), hash(tt.y, tt.b)
		eq := 0
		for eq < min(len(a), len(b)) && a[eq] == b[eq] {
			eq++
		}
		if len(a) != tt.blocks || eq != tt.eq {
			t.Errorf("%s: %d blocks, %d equal, want %d and %d", name, len(a), eq, tt.blocks, tt.eq)
		}
	}
}
