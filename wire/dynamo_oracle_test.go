package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/zeebo/xxh3"

	"github.com/kvscope/kvscope/refdata"
)

// dynamoCase is one payload and what Dynamo's own decoder made of it.
type dynamoCase struct {
	Case      string `json:"case"`
	BlockSize int    `json:"router_block_size"`
	Payload   string `json:"payload_hex"`
	// Keep says that the payload continues the stream of the case before.
	Keep   bool `json:"keep"`
	Result struct {
		DecodeError string `json:"decode_error"`
		Events      []struct {
			Raw      dynamoRaw   `json:"raw"`
			Filtered string      `json:"filtered"`
			Router   *dynamoSent `json:"router_event"`
		} `json:"events"`
	} `json:"result"`
}

// dynamoRaw is the event as Dynamo read it.
type dynamoRaw struct {
	Type      string   `json:"type"`
	Hashes    []number `json:"block_hashes"`
	Parent    *number  `json:"parent_block_hash"`
	Tokens    []Token  `json:"token_ids"`
	BlockSize uint64   `json:"block_size"`
	Eagle     bool     `json:"is_eagle"`
	Medium    string   `json:"medium"`
	LoRAName  string   `json:"lora_name"`
	Salt      string   `json:"cache_salt"`
	Group     *int     `json:"group_idx"`
	Spec      string   `json:"kv_cache_spec_kind"`
	Window    int      `json:"kv_cache_spec_sliding_window"`
	Locality  string   `json:"locality"`
	Ownership string   `json:"ownership"`
	Session   string   `json:"session_id"`
}

// number is a 64-bit integer of either sign.
type number uint64

func (n *number) UnmarshalJSON(b []byte) error {
	var u uint64
	if json.Unmarshal(b, &u) == nil {
		*n = number(u)
		return nil
	}
	var i int64
	err := json.Unmarshal(b, &i)
	*n = number(i)
	return err
}

// dynamoSent is what Dynamo published.
type dynamoSent struct {
	Tier  string `json:"storage_tier"`
	Event struct {
		Data json.RawMessage `json:"data"`
	} `json:"event"`
}

type dynamoData struct {
	Stored *struct {
		Parent *uint64 `json:"parent_hash"`
		Blocks []struct {
			Hash   uint64 `json:"block_hash"`
			Tokens uint64 `json:"tokens_hash"`
		} `json:"blocks"`
	} `json:"stored"`
	Removed *struct {
		Hashes []uint64 `json:"block_hashes"`
	} `json:"removed"`
}

// published is what a DynamoEvent and a dynamoSent are compared as.
type published struct {
	Kind   string
	Tier   string
	Parent *uint64
	Hashes []uint64
	Local  []uint64
}

func (s *dynamoSent) published(t *testing.T) published {
	if string(s.Event.Data) == `"cleared"` {
		return published{Kind: "cleared", Tier: s.Tier}
	}
	var d dynamoData
	if err := json.Unmarshal(s.Event.Data, &d); err != nil {
		t.Fatal(err)
	}
	if d.Removed != nil {
		return published{Kind: "removed", Tier: s.Tier, Hashes: d.Removed.Hashes}
	}
	p := published{Kind: "stored", Tier: s.Tier, Parent: d.Stored.Parent}
	for _, b := range d.Stored.Blocks {
		p.Hashes = append(p.Hashes, b.Hash)
		p.Local = append(p.Local, b.Tokens)
	}
	return p
}

var dynamoTiers = [NumTiers]string{"device", "host_pinned", "disk", "external"}

// published gives the same for a verdict. Dynamo's hashes of token content
// come from what we decoded, with the verdict's salt and media, by the formula
// in the facts: so they agree only if all of that does.
func (d *DynamoEvent) published(e *Event, size int) published {
	p := published{Kind: d.Kind.String(), Tier: dynamoTiers[d.Tier], Hashes: d.Hashes}
	switch {
	case d.Kind == Stored && d.Why == DroppedRepeat:
		p.Kind = "removed"
	case d.Kind == Stored:
		if d.HasParent {
			p.Parent = &d.Parent
		}
		for i := range d.Hashes {
			if !e.OpaqueTokens {
				p.Local = append(p.Local, dynamoLocal(d, e, i, size))
			}
		}
	}
	return p
}

func dynamoLocal(d *DynamoEvent, e *Event, block, size int) uint64 {
	seed := uint64(1337)
	if e.LoRAName != "" {
		seed += xxh3.HashStringSeed(e.LoRAName, 0)
	}
	if d.Salt != "" {
		seed += xxh3.HashStringSeed(d.Salt, 1)
	}
	end := (block + 1) * size
	if e.Bigram {
		end++
	}
	var b []byte
	for _, id := range e.Tokens[block*size : end] {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	if d.Media != nil {
		for _, h := range slices.Sorted(slices.Values(d.Media[block])) {
			b = binary.LittleEndian.AppendUint64(b, h)
		}
	}
	return xxh3.HashSeed(b, seed)
}

// sameRaw compares an event as Dynamo read it with what we decoded. Salts are
// left to the verdict.
func sameRaw(t *testing.T, where string, raw *dynamoRaw, e *Event) {
	t.Helper()
	kind := map[string]EventKind{"BlockStored": Stored, "BlockRemoved": Removed, "AllBlocksCleared": Cleared}[raw.Type]
	if kind == Unknown || kind == Cleared {
		if e.Kind != kind || e.Ownership != raw.Ownership {
			t.Errorf("%s: %v, Dynamo read %s", where, e.Kind, raw.Type)
		}
		return
	}
	got := dynamoRaw{Type: e.Name, Medium: e.Medium, Window: e.Window, Ownership: e.Ownership, Salt: raw.Salt}
	for _, h := range e.Hashes {
		got.Hashes = append(got.Hashes, number(h.N))
	}
	if kind == Stored {
		got.Eagle, got.Tokens, got.LoRAName, got.Session = e.Bigram, e.Tokens, e.LoRAName, e.Session
		if e.OpaqueTokens {
			got.Tokens = raw.Tokens
		}
		if e.Array {
			got.Session = "" // Dynamo does not look for it in arrays
		}
		got.BlockSize, raw.BlockSize = uint64(e.BlockSize), min(raw.BlockSize, math.MaxInt)
		if e.Parent.Set {
			n := number(e.Parent.N)
			got.Parent = &n
		}
	}
	if e.Group >= 0 {
		got.Group = &e.Group
	}
	if e.Array && e.Group < 0 && raw.Group != nil && *raw.Group == e.Window {
		// vLLM's [nil, kind, window], which Dynamo reads by type: we read it
		// by position, and leave its mistake to the verdict.
		got.Group, got.Window = raw.Group, raw.Window
	}
	if got.Spec = e.Spec; raw.Spec != "" {
		if _, known := attentionKinds[e.Spec]; !known {
			got.Spec = "unknown"
		}
	}
	switch got.Locality = e.Locality; {
	case e.Locality == "" && e.UnknownFields > 0:
		got.Locality = raw.Locality // Dynamo also takes the number of a word
	case e.Locality != "LOCAL" && e.Locality != "REMOTE" && raw.Locality != "":
		got.Locality = "UNKNOWN"
	}
	if diff := cmp.Diff(*raw, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: (-Dynamo +ours)\n%s", where, diff)
	}
}

// sameAsDynamo compares one payload's verdict and events with the real ones.
func sameAsDynamo(t *testing.T, c *dynamoCase, relay *DynamoRelay) (batch Batch, v DynamoVerdict) {
	t.Helper()
	payload := unhex(t, c.Payload)
	v = relay.Judge(payload)
	batch, err := Decode("", 0, payload)
	if lost := c.Result.DecodeError != ""; lost != (v.Lost != "") {
		t.Errorf("%s: lost %q, Dynamo says %q", c.Case, v.Lost, c.Result.DecodeError)
		return batch, v
	} else if lost {
		return batch, v
	}
	if len(v.Events) != len(c.Result.Events) {
		t.Errorf("%s: %d events, Dynamo read %d", c.Case, len(v.Events), len(c.Result.Events))
		return batch, v
	}
	if len(v.Events) == 0 {
		return batch, v
	}
	if err != nil || len(batch.Events) != len(v.Events) {
		t.Errorf("%s: Dynamo reads it, we do not: %v", c.Case, err)
		return batch, v
	}
	for i := range v.Events {
		real, d, e := &c.Result.Events[i], &v.Events[i], &batch.Events[i]
		where := fmt.Sprintf("%s: event %d", c.Case, i)
		if e.Kind == Bad {
			t.Errorf("%s: %v", where, e.Err)
			continue
		}
		sameRaw(t, where, &real.Raw, e)
		if d.Filtered != real.Filtered {
			t.Errorf("%s: filtered %q, Dynamo says %q", where, d.Filtered, real.Filtered)
		}
		if real.Router == nil || d.Filtered != "" {
			continue
		}
		want := real.Router.published(t)
		if e.OpaqueTokens { // Dynamo hashes what is no sequence of ids
			want.Local = nil
		}
		if diff := cmp.Diff(want, d.published(e, relay.BlockSize), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: (-Dynamo +ours)\n%s", where, diff)
		}
	}
	return batch, v
}

func TestDynamoWire(t *testing.T)       { t.Parallel(); checkDynamoWire(t, testRoot) }
func TestOracleDynamoWire(t *testing.T) { t.Parallel(); checkDynamoWire(t, refdata.Root(t)) }

func checkDynamoWire(t *testing.T, root string) {
	t.Helper()
	var cases, lost, rescued, filtered, sent int
	for _, file := range refdata.Files(t, root, "dynamo/wire*.jsonl.gz") {
		var relay *DynamoRelay
		refdata.Each(t, file, func(_ int, c dynamoCase) {
			if !c.Keep || relay == nil {
				relay = &DynamoRelay{BlockSize: c.BlockSize}
			}
			cases++
			batch, v := sameAsDynamo(t, &c, relay)
			if v.Lost != "" {
				t.Logf("lost: %s: %s", c.Case, v.Lost)
				lost++
				for _, e := range batch.Events {
					if e.Kind != Bad {
						rescued++
					}
				}
			}
			for _, e := range v.Events {
				if e.Filtered != "" {
					filtered++
				} else {
					sent++
				}
			}
		})
	}
	t.Logf("%d payloads: %d lost (we keep %d events of those), %d events filtered, %d published", cases, lost, rescued, filtered, sent)
}
