package blockhash

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvscope/kvscope/refdata"
)

type dynamoVector struct {
	BlockSize int        `json:"block_size"`
	Tokens    []uint32   `json:"tokens"`
	LoRA      string     `json:"lora_name"`
	Salt      string     `json:"cache_salt"`
	Eagle     bool       `json:"is_eagle"`
	MM        [][]uint64 `json:"mm_hashes_per_block"`
	Local     []uint64   `json:"local"`
	Sequence  []uint64   `json:"sequence"`
}

func testDynamo(t *testing.T, dir string) {
	var vectors, blocks int
	eachLine(t, filepath.Join(dir, "dynamo", "hash*.jsonl.gz"), func(file string, v dynamoVector) {
		vectors++
		blocks += len(v.Local)
		ns := NamespaceOf(v.LoRA, v.Salt)
		local, sequence := Rolling(v.Tokens, v.BlockSize, v.Eagle, ns, v.MM)
		got := dynamoVector{Local: local, Sequence: sequence}
		want := dynamoVector{Local: v.Local, Sequence: v.Sequence}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: vector %d (-want +got):\n%s", file, vectors, diff)
		}
		wide := appendWords(nil, v.Tokens)
		if l, _ := Rolling(wide, v.BlockSize, v.Eagle, ns, v.MM); !slices.Equal(l, v.Local) {
			t.Errorf("%s: vector %d differs as 64-bit tokens", file, vectors)
		}
		if len(v.Local) == 0 || v.MM != nil {
			return
		}
		// The same through the recipe that engines with Dynamo's hashes follow.
		s := Store[uint32]{
			Run: Run[uint32]{
				Context: Context{LoRA: v.LoRA, Salt: v.Salt},
				Tokens:  v.Tokens, BlockSize: v.BlockSize, Bigram: v.Eagle,
			},
			Handles: v.Sequence,
		}
		if r, ok := Identify(s); !ok || r.Name() != "dynamo/sequence" {
			t.Errorf("%s: vector %d identified as %q", file, vectors, r.Name())
		}
	})
	t.Logf("compared %d vectors, %d blocks", vectors, blocks)
}

func TestDynamo(t *testing.T) {
	t.Parallel()
	testDynamo(t, "testdata")
}

func TestOracleDynamo(t *testing.T) {
	t.Parallel()
	testDynamo(t, refdata.Root(t))
}

func TestLocalWideTokens(t *testing.T) {
	t.Parallel()
	narrow := []uint64{1, 2, 3, math.MaxUint32}
	wide := []uint64{1, 2, 3, math.MaxUint32 + 1}
	for _, mm := range [][]uint64{nil, {9, 4, 7}} {
		if Local(narrow, 0, mm) == Local(wide, 0, mm) {
			t.Error("an id above 2^32-1 hashes like one below")
		}
		if Local(wide, 0, mm) == Local([]uint64{1, 2, 3, 0}, 0, mm) {
			t.Error("the upper half of a wide id is lost")
		}
	}
}

func TestLocalKeepsItsInput(t *testing.T) {
	t.Parallel()
	mm := []uint64{9, 4, 7}
	a := Local([]uint32{1, 2}, 0, mm)
	if !slices.Equal(mm, []uint64{9, 4, 7}) {
		t.Errorf("mm is now %v", mm)
	}
	if b := Local([]uint32{1, 2}, 0, []uint64{4, 7, 9}); a != b {
		t.Error("the order of multimodal hashes counts")
	}
}

func TestLocalDoesNotAllocate(t *testing.T) {
	for _, n := range []int{1, 16, 64, 65, 1024} {
		tokens := make([]uint64, n)
		if a := testing.AllocsPerRun(10, func() { Local(tokens, 0, nil) }); a != 0 {
			t.Errorf("%d tokens: %v allocations", n, a)
		}
	}
}

func TestMMHash(t *testing.T) {
	t.Parallel()
	const tail = "000000000000000000000000000000000000000000000000"
	if got := MMHash("00000000DeadBeef" + tail); got != 0xdeadbeef {
		t.Errorf("hexadecimal id gives %#x", got)
	}
	if MMHash("0000000+deadbeef"+tail) == MMHash("0000000-deadbeef"+tail) {
		t.Error("ids with other characters are not hashed whole")
	}
}

func TestBlocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n, size int
		bigram  bool
		want    int
	}{
		{0, 16, false, 0},
		{15, 16, false, 0},
		{33, 16, false, 2},
		{16, 16, true, 0},
		{17, 16, true, 1},
		{0, 1, true, 0},
		{5, 0, false, 0},
		{5, -3, true, 0},
		{5, math.MaxInt, true, 0},
		{-1, 1, false, 0},
	} {
		if got := Blocks(c.n, c.size, c.bigram); got != c.want {
			t.Errorf("Blocks(%d, %d, %v) = %d, want %d", c.n, c.size, c.bigram, got, c.want)
		}
	}
	tokens := []uint32{0, 1, 2, 3, 4}
	if got := Window(tokens, 2, 1, true); !slices.Equal(got, []uint32{2, 3, 4}) {
		t.Errorf("bigram window %v", got)
	}
	for _, i := range []int{-1, 2, math.MaxInt} {
		if got := Window(tokens, 2, i, false); got != nil {
			t.Errorf("window %d of 2 is %v", i, got)
		}
	}
}

func BenchmarkLocal16(b *testing.B) {
	tokens := make([]uint64, 16)
	for i := range tokens {
		tokens[i] = uint64(i * 7919)
	}
	b.ReportAllocs()
	for b.Loop() {
		tokens[0] = Local(tokens, 1, nil) & math.MaxUint32
	}
}
