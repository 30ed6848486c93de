package wire

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
)

// testRoot is the folder of the samples that every clone has.
const testRoot = "testdata"

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func frames64(t testing.TB, frames []string) [][]byte {
	t.Helper()
	out := make([][]byte, len(frames))
	for i, s := range frames {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = b
	}
	return out
}

// wantEvent builds the Event that the engine's own fields, as JSON with
// json.Number, must decode to. It shares no code with the decoder but the
// tables of names and tiers.
func wantEvent(t testing.TB, tag string, fields map[string]any) Event {
	t.Helper()
	e := Event{Name: tag, Group: -1, Kind: map[string]EventKind{
		"BlockStored": Stored, "BlockRemoved": Removed, "AllBlocksCleared": Cleared,
	}[tag]}
	text := func(v any) string { s, _ := v.(string); return s }
	for name, v := range fields {
		f, ok := fieldsByName.get([]byte(name))
		if !ok { // of a release that we do not know
			e.UnknownFields++
			continue
		}
		e.Fields |= 1 << f
		if v == nil {
			continue
		}
		switch name {
		case "block_hashes":
			e.Hashes = []Handle{}
			for _, h := range v.([]any) {
				e.Hashes = append(e.Hashes, wantHandle(t, &e, h))
			}
		case "parent_block_hash":
			e.Parent = wantHandle(t, &e, v)
		case "token_ids":
			e.Tokens, e.Bigram = wantTokens(t, v.([]any))
		case "block_size":
			e.BlockSize = int(wantInt(t, v))
		case "lora_id":
			id := wantInt(t, v)
			e.LoRAID = &id
		case "medium":
			e.Medium = text(v)
		case "lora_name":
			e.LoRAName = text(v)
		case "cache_salt":
			e.Salt = text(v)
		case "extra_keys":
			for _, keys := range v.([]any) {
				e.Extra = append(e.Extra, wantKeys(t, keys))
			}
		case "group_idx":
			e.Group = int(wantInt(t, v))
		case "kv_cache_spec_kind":
			e.Spec = text(v)
		case "kv_cache_spec_sliding_window":
			e.Window = int(wantInt(t, v))
		case "locality":
			e.Locality = text(v)
		case "ownership":
			e.Ownership = text(v)
		case "session_id":
			e.Session = text(v)
		case "lookahead_token_ids":
			for _, l := range v.([]any) {
				list, _ := l.([]any)
				ids, _ := wantTokens(t, list)
				e.Lookahead = append(e.Lookahead, ids)
			}
		default:
			t.Fatalf("no expectation for field %s", name)
		}
	}
	var known bool
	e.Tier, known = TierOf(e.Medium)
	e.UnknownMedium = !known
	return e
}

func wantInt(t testing.TB, v any) int64 {
	t.Helper()
	n, err := v.(json.Number).Int64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func wantHandle(t testing.TB, e *Event, v any) Handle {
	t.Helper()
	if m, ok := v.(map[string]any); ok {
		e.Form |= FormBytes
		return BytesHandle(unhex(t, m["bytes_hex"].(string)))
	}
	s := string(v.(json.Number))
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		e.Form |= FormUnsigned
		return IntHandle(n)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	e.Form |= FormSigned
	return IntHandle(uint64(n))
}

func wantTokens(t testing.TB, list []any) (ids []Token, pairs bool) {
	t.Helper()
	for i, v := range list {
		if pair, ok := v.([]any); ok {
			if pairs = true; i == 0 {
				ids = append(ids, Token(wantInt(t, pair[0])))
			}
			v = pair[1]
		}
		ids = append(ids, Token(wantInt(t, v)))
	}
	return ids, pairs
}

func wantKeys(t testing.TB, v any) []ExtraKey {
	t.Helper()
	if v == nil {
		return nil
	}
	keys := []ExtraKey{}
	for _, k := range v.([]any) {
		switch k := k.(type) {
		case string:
			keys = append(keys, ExtraKey{Text: k})
		case json.Number:
			keys = append(keys, ExtraKey{Int: wantInt(t, k), IsInt: true})
		case []any:
			keys = append(keys, ExtraKey{List: wantKeys(t, k)})
		case map[string]any:
			keys = append(keys, ExtraKey{Bytes: unhex(t, k["bytes_hex"].(string))})
		default:
			t.Fatal(fmt.Errorf("no expectation for an extra key of type %T", k))
		}
	}
	return keys
}
