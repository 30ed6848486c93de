package wire

import (
	"iter"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// field is one known field of an event.
type field uint8

const (
	fieldType field = iota
	fieldHashes
	fieldParent
	fieldTokens
	fieldBlockSize
	fieldLoRAID
	fieldMedium
	fieldLoRAName
	fieldExtra
	fieldGroup
	fieldSpec
	fieldWindow
	fieldLocality
	fieldOwnership
	fieldSession
	fieldLookahead
	fieldSalt
	fieldMMKeys
	numFields
)

// fieldNames are the keys of map events. vLLM names its fields up to
// lookahead_token_ids, SGLang adds cache_salt and TensorRT-LLM mm_keys.
var fieldNames = [numFields]string{
	fieldType:      "type",
	fieldHashes:    "block_hashes",
	fieldParent:    "parent_block_hash",
	fieldTokens:    "token_ids",
	fieldBlockSize: "block_size",
	fieldLoRAID:    "lora_id",
	fieldMedium:    "medium",
	fieldLoRAName:  "lora_name",
	fieldExtra:     "extra_keys",
	fieldGroup:     "group_idx",
	fieldSpec:      "kv_cache_spec_kind",
	fieldWindow:    "kv_cache_spec_sliding_window",
	fieldLocality:  "locality",
	fieldOwnership: "ownership",
	fieldSession:   "session_id",
	fieldLookahead: "lookahead_token_ids",
	fieldSalt:      "cache_salt",
	fieldMMKeys:    "mm_keys",
}

var fieldsByName = func() *wordTable[field] {
	var t wordTable[field]
	for f, name := range fieldNames {
		t.add(name, field(f))
	}
	return &t
}()

// eventTags are the tags of events. All others are Unknown, among them
// "Ignored", which Dynamo accepts.
var eventTags = map[string]EventKind{
	"BlockStored":      Stored,
	"BlockRemoved":     Removed,
	"AllBlocksCleared": Cleared,
}

// layout says what the positions of an array event mean.
type layout struct {
	// head holds the positions behind the tag; each release added at the end,
	// so a shorter array simply ends early.
	head []field
	// tail holds the positions behind head, where Dynamo's 1.2 relays left
	// unused slots out: it is read by position where the types fit, else by
	// type (see Decoder.tail).
	tail []field
}

// attentionTail is the append-only end of stored and removed events.
var attentionTail = []field{fieldGroup, fieldSpec, fieldWindow, fieldLocality, fieldOwnership}

// layouts gives the array form of each kind. By length, tag included, vLLM
// sends stored events of 6 (0.9 to 0.10.1), 7 (to 0.13), 8 (to 0.16), 9 (to
// 0.19), 10 (to 0.21) and 12 elements (to 0.23), removed events of 2, 3 (from
// 0.10.2) and 4 (from 0.20); it sends maps from 0.24 on. SGLang's arrays have
// 7, or 8 with a map of cache_salt where vLLM has lora_name.
var layouts = [...]layout{
	Stored: {
		head: []field{
			fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoRAID,
			fieldMedium, fieldLoRAName, fieldExtra,
		},
		tail: append(attentionTail[:len(attentionTail):len(attentionTail)], fieldSession, fieldLookahead),
	},
	Removed: {head: []field{fieldHashes, fieldMedium}, tail: attentionTail},
	Cleared: {head: []field{fieldOwnership}},
}

// media maps the upper-cased spellings of medium to tiers, as Dynamo does.
// vLLM sends GPU, CPU and STORAGE (its Mooncake connector "cpu"), SGLang GPU,
// CPU_PINNED, DISK and EXTERNAL. None at all means the device.
var media = map[string]Tier{
	"":       Device,
	"GPU":    Device,
	"DEVICE": Device,

	"CPU":        Host,
	"CPU_PINNED": Host,
	"CPU_TIER1":  Host,

	"CPU_TIER2": Disk,
	"DISK":      Disk,
	"NVME":      Disk,
	"STORAGE":   Disk,

	"EXTERNAL": External,
	"NETWORK":  External,
	"REMOTE":   External,
	"SHARED":   External,
}

// TierOf gives the tier that a medium stands for, in any case of letters, and
// false for a spelling that is not known: such a block is taken as External.
func TierOf(medium string) (Tier, bool) {
	t, ok := media[medium]
	if !ok {
		t, ok = media[strings.ToUpper(medium)]
	}
	if !ok {
		t = External
	}
	return t, ok
}

// commonWords are the texts that streams repeat, so that they need not be
// copied from each event.
var commonWords = func() *wordTable[string] {
	var t wordTable[string]
	for _, words := range []iter.Seq[string]{
		maps.Keys(eventTags), maps.Keys(media), maps.Keys(attentionKinds), slices.Values([]string{localWord}),
	} {
		for w := range words {
			t.add(w, w)
		}
	}
	return &t
}()

// attentionKinds are vLLM's values of kv_cache_spec_kind, and whether a group
// of that kind needs every block of a prefix. Dynamo indexes only such groups.
var attentionKinds = map[string]bool{
	"full_attention":      true,
	"mla_attention":       true,
	"sink_full_attention": true,

	"sliding_window":          false,
	"sliding_window_mla":      false,
	"mamba":                   false,
	"chunked_local_attention": false,
	"encoder_only_attention":  false,
	"cross_attention":         false,
}

// Dense reports whether a KV-cache group of that attention kind needs every
// block of a prefix; others need only its tail or its end. A group whose kind
// is not given is taken to.
func Dense(spec string) bool { return spec == "" || attentionKinds[spec] }

// FieldSet is a set of known event fields.
type FieldSet uint32

func (s FieldSet) has(f field) bool { return s&(1<<f) != 0 }

// Has reports whether the field of that name, such as "lora_name", is in s.
func (s FieldSet) Has(name string) bool {
	f, ok := fieldsByName.get([]byte(name))
	return ok && s.has(f)
}

// String lists the names in s, with commas between them.
func (s FieldSet) String() string {
	names := make([]string, 0, bits.OnesCount32(uint32(s)))
	for f, name := range fieldNames {
		if s.has(field(f)) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// DialectSet collects what a stream looks like, event by event, as words:
//
//	vllm-array-N      arrays, where N elements make a stored event
//	vllm-map          maps that always have the key lora_name
//	sglang-map        maps with another trait of SGLang (below), or with
//	                  medium and lora_id but without lora_name
//	sglang-array      arrays with a trait of SGLang
//	trtllm-map        maps with mm_keys, or with digests among the token ids
//	mocker-map        maps without lora_id and medium: Dynamo's mocker
//	dynamo-plane      Dynamo's event plane, whatever the engine behind it
//	array, map        no stored event seen yet, or nothing above fits
//
// The traits of SGLang are negative hashes, the medium CPU_PINNED and a
// cache_salt. TensorRT-LLM without multimodal input cannot be told from vLLM,
// nor an SGLang array from vLLM 0.10.2's before its first trait. The zero value
// is empty.
type DialectSet struct {
	array, mapped shape
	// lengths has a bit for each length of a stored array.
	lengths uint64
	plane   bool
}

// shape is what has been seen of one form of event.
type shape struct {
	events, stores int
	// some and all are the fields that some, and all, stored events had.
	some, all      FieldSet
	sglang, opaque bool
}

// Add takes one event into account. Events that say nothing are ignored.
func (d *DialectSet) Add(e *Event) {
	if e.Len == 0 {
		return
	}
	if e.Plane {
		d.plane = true
		return
	}
	s := &d.mapped
	if e.Array {
		s = &d.array
	}
	s.events++
	s.sglang = s.sglang || e.Medium == "CPU_PINNED" || e.Fields.has(fieldSalt) ||
		// vLLM's own hash() of 0.9, in arrays of 6, can be negative too.
		e.Form&FormSigned != 0 && e.Fields.has(fieldMedium)
	if e.Kind != Stored {
		return
	}
	if s.stores++; s.stores == 1 {
		s.all = e.Fields
	}
	s.some |= e.Fields
	s.all &= e.Fields
	s.opaque = s.opaque || e.OpaqueTokens && !e.Bigram
	if e.Array {
		d.lengths |= 1 << min(e.Len, 63)
	}
}

// Mixed reports whether the stream has had more than one dialect, as after an
// upgrade, or when several publishers share one name.
func (d *DialectSet) Mixed() bool { return len(d.words()) > 1 }

// String joins the words with "+"; it is empty before the first event.
func (d *DialectSet) String() string { return strings.Join(d.words(), "+") }

func (d *DialectSet) words() []string {
	var words []string
	switch s := d.array; {
	case s.events == 0:
	case s.stores == 0:
		words = append(words, "array")
	case s.sglang:
		words = append(words, "sglang-array")
	default:
		for n := d.lengths; n != 0; n &= n - 1 {
			words = append(words, arrayWord(bits.TrailingZeros64(n)))
		}
	}
	switch s := d.mapped; {
	case s.events == 0:
	case s.some.has(fieldMMKeys) || s.opaque:
		words = append(words, "trtllm-map")
	case s.sglang, s.all.has(fieldMedium) && s.all.has(fieldLoRAID) && !s.all.has(fieldLoRAName):
		words = append(words, "sglang-map")
	case s.stores > 0 && !s.some.has(fieldMedium) && !s.some.has(fieldLoRAID):
		words = append(words, "mocker-map")
	case s.all.has(fieldLoRAName):
		words = append(words, "vllm-map")
	default:
		words = append(words, "map")
	}
	if d.plane {
		words = append(words, "dynamo-plane")
	}
	return words
}

// arrayWord names arrays by length where vLLM has ever sent that length.
func arrayWord(n int) string {
	if n < 6 || n > 12 || n == 11 {
		return "array-" + strconv.Itoa(n)
	}
	return "vllm-array-" + strconv.Itoa(n)
}
