package blockhash

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func numbered(n int) []uint64 {
	tokens := make([]uint64, n)
	for i := range tokens {
		tokens[i] = 70000 + uint64(i)
	}
	return tokens
}

// TestPickleEdges covers what no recorded block has: frames that end inside a
// block, payloads too large for one, wide integers, a long memo. The digests are
// SHA-256 of what CPython 3.11.7 wrote for the same objects, behind a parent of
// 32 bytes of 01.
func TestPickleEdges(t *testing.T) {
	t.Parallel()
	long := func(n int) []Value { return []Value{Text(strings.Repeat("s", n))} }
	var items []Value
	for i := range 200 {
		items = append(items, Tuple(Text(fmt.Sprintf("h%d", i)), Int(int64(i))))
	}
	for _, c := range []struct {
		name   string
		tokens []uint64
		keys   []Value
		ahead  []uint64
		want   string
	}{
		{"wide ids", []uint64{1<<31 - 1, 1 << 31, 1 << 32, 1<<40 - 1, 1 << 63, 1<<64 - 1}, nil, nil, "b9ff347c453eddc46b8e067a0190cf3622efb3051e758023cb0f60c61601a324"},
		{"negative", nil, []Value{Int(-1), Int(-128), Int(-1 << 31), Int(-1<<31 - 1), Int(-1 << 39), Int(-1<<39 - 1), Int(-1 << 63)}, nil, "f01edeb9f0169c1e201dc13d01833af8141b624428c0a728cb25dcc8378b73ce"},
		{"frame filled by the last id", numbered(13100), nil, nil, "ebcd8f518ef1658a7b5e8e5aeac4995860d055091eaa2e261957732de9d18460"},
		{"one id in the second frame", numbered(13101), nil, nil, "9a91609490e029be79785b2020373ba611b5f6c350fe2696f252938382c99521"},
		{"three frames", numbered(30000), nil, nil, "3497538f1e66e0617713153d793de9c26e578c2e96a946f83be1a77a0385e0ff"},
		{"shared one-character strings", []uint64{1}, []Value{Text("x"), Text("x"), Text("ж"), Text("ж"), Text("ab"), Text("ab"), Text(""), Text("")}, nil, "3d0b55fc9c8883bb5ae3d20a6fb55ecc06e7dd315aaf77c78419ced740e0d260"},
		{"text just inside a frame", []uint64{1}, long(65535), nil, "907e8684ab65ef6c809e625604dfbeb4bd24ec8c6681de728567a908714fe384"},
		{"text outside of frames", []uint64{1}, long(65536), nil, "eb035c2a0057d45344af8d9dfb70549f43cb11d6c3bddaa8fa3fe62d12a3c00d"},
		{"bytes outside of frames", []uint64{1}, []Value{Bytes([]byte(strings.Repeat("b", 70000))), Text("t")}, nil, "9f1ddc22f48eb4d27983baee5447b8c97e4f668107f835300ee378a5d3502435"},
		{"large payload after a full frame", numbered(13200), long(65536), nil, "6e33aed4ed99d33656447bb19c80b52cbfabeac482da1c353765bfecde399d27"},
		{"tag met late", []uint64{1}, append(items, Tuple(tag("mm"), Text("q"), Int(0)), Tuple(tag("mm"), Text("r"), Int(1))), nil, "b6e9238e2fe3ab590a6a288676dcef5eec699d00823dd00ae9b6e6a0b893ee09"},
		{"look-ahead", []uint64{1, 2}, nil, []uint64{7, 8, 70000}, "3fe15e3da1276604d18df5b3e215bba12b42eb36b5ce71a95f49f9b83a3c8a15"},
		{"look-ahead and salt", []uint64{1, 2}, []Value{Tuple(tag("cache_salt"), Text("t"))}, []uint64{7}, "3944087f82a362e2f16882ee2b341d00930de55ffd438700bfe52df4c3235ed4"},
	} {
		w := work{tokens: c.tokens, keys: c.keys, ahead: c.ahead}
		w.parent, _ = DigestOf([]byte(strings.Repeat("\x01", 32)))
		if got := sumSHA256(vllmEncode(&w.pickler, nil, &w)); got.String() != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func anyValue() *rapid.Generator[Value] {
	return rapid.Custom(func(t *rapid.T) Value {
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return Text(rapid.String().Draw(t, "text"))
		case 1:
			return Bytes(rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes"))
		case 2:
			return Int(rapid.Int64().Draw(t, "int"))
		case 3:
			return tag("mm")
		case 4:
			return Tuple(rapid.SliceOfN(rapid.Deferred(anyValue), 0, 5).Draw(t, "tuple")...)
		}
		return Value{}
	})
}

func plain(v Value) any {
	switch v.kind {
	case textValue, tagValue:
		return v.text
	case bytesValue:
		return []byte(v.text)
	case intValue:
		return v.n
	case tupleValue:
		list := make([]any, 0, len(v.list))
		for _, e := range v.list {
			list = append(list, plain(e))
		}
		return list
	}
	return nil
}

// TestCBORAgrees holds the writer against an independent canonical encoder.
func TestCBORAgrees(t *testing.T) {
	t.Parallel()
	canonical, err := cbor.CanonicalEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		v := anyValue().Draw(t, "value")
		want, err := canonical.Marshal(plain(v))
		if err != nil {
			t.Fatal(err)
		}
		var w cborWriter
		writeValue(&w, &v)
		if diff := cmp.Diff(want, w.out); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestTupleDepth(t *testing.T) {
	t.Parallel()
	v := Int(1)
	for range 1_000_000 {
		v = Tuple(v)
	}
	if v.depth > maxDepth {
		t.Errorf("nested %d deep", v.depth)
	}
}
