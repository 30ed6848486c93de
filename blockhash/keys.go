package blockhash

import "github.com/zeebo/xxh3"

// Form is how an engine works what is not a token into its hashes. Events of
// vLLM publish extra keys in the bare form whatever the engine hashes.
type Form uint8

// The forms.
const (
	// AnyForm is not known, which matters only to blocks with extra keys, LoRA
	// or salt.
	AnyForm Form = iota
	// Tagged is vLLM 0.31.0 and later: ("lora", name, path), ("mm", hash,
	// offset), ("cache_salt", salt), ("prompt_embeds", sha256).
	Tagged
	// Bare is vLLM 0.11.2 to 0.30: name, (hash, offset) or hash (to 0.18),
	// salt, sha256 of the embeddings: as published.
	Bare
	// BareID is vLLM up to 0.11.0: like Bare, with the adapter's integer id
	// in place of its name.
	BareID
	// SGLangDefault is SGLang's default event format: LoRA adapters have
	// hashes of their own, other cache keys do not.
	SGLangDefault
	// SGLangDynamo is SGLang's dynamo event format: every cache key and salt
	// has hashes of its own.
	SGLangDynamo
	numForms = iota
)

var formNames = [numForms]string{"any", "tagged", "bare", "bare-id", "sglang-default", "sglang-dynamo"}

func (f Form) String() string { return at(formNames[:], int(f)) }

// formRule makes the hashed form of extra keys, one function for each kind.
type formRule struct {
	lora func(*Context) (Value, error)
	key  [numKeyKinds]func(Value) (Value, error)
}

// formRules are those of vLLM's forms.
var formRules = [...]formRule{
	AnyForm: {lora: unknownLoRA, key: [numKeyKinds]func(Value) (Value, error){
		mmKey: unknownForm, saltKey: unknownForm, embedsKey: unknownForm, otherKey: unknownForm,
	}},
	Tagged: {lora: taggedLoRA, key: [numKeyKinds]func(Value) (Value, error){
		mmKey: taggedMM, saltKey: tagged("cache_salt"), embedsKey: tagged("prompt_embeds"), otherKey: notInForm,
	}},
	Bare:   {lora: bareLoRA, key: bareKeys},
	BareID: {lora: idLoRA, key: bareKeys},
}

var bareKeys = [numKeyKinds]func(Value) (Value, error){mmKey: asIs, saltKey: asIs, embedsKey: asIs, otherKey: asIs}

func unknownLoRA(*Context) (Value, error) { return Value{}, ErrForm }
func unknownForm(Value) (Value, error)    { return Value{}, ErrForm }
func notInForm(Value) (Value, error)      { return Value{}, errOddKey }
func asIs(v Value) (Value, error)         { return v, nil }

func tagged(name string) func(Value) (Value, error) {
	return func(v Value) (Value, error) { return Tuple(tag(name), v), nil }
}

func taggedMM(v Value) (Value, error) {
	if v.kind != tupleValue {
		return Value{}, errOddKey // a bare hash lacks the offset
	}
	return Tuple(tag("mm"), v.list[0], v.list[1]), nil
}

func taggedLoRA(c *Context) (Value, error) {
	switch {
	case c.LoRA == "":
		return Value{}, errLoRAName
	case c.LoRAPath == "":
		return Value{}, errLoRAPath
	}
	return Tuple(tag("lora"), Text(c.LoRA), Text(c.LoRAPath)), nil
}

func bareLoRA(c *Context) (Value, error) {
	if c.LoRA == "" {
		return Value{}, errLoRAName
	}
	return Text(c.LoRA), nil
}

func idLoRA(c *Context) (Value, error) {
	if c.LoRAID == nil {
		return Value{}, errLoRAID
	}
	return Int(*c.LoRAID), nil
}

type keyKind uint8

const (
	loraKey keyKind = iota
	mmKey
	saltKey
	embedsKey
	otherKey
	numKeyKinds = iota
)

// kindOf says what element i of a block's published extra keys is. The wire
// does not: vLLM writes LoRA name, multimodal items, salt (first block of a
// chain only) and embeddings in this order and without tags.
func kindOf(v *Value, i int, lora string, first bool) keyKind {
	switch v.kind {
	case textValue, tagValue:
		switch {
		case i == 0 && lora != "" && v.text == lora:
			return loraKey
		case first:
			return saltKey
		}
		return mmKey // vLLM 0.17 and 0.18 publish the hash alone
	case bytesValue:
		return embedsKey
	case tupleValue:
		if len(v.list) == 2 && v.list[0].kind == textValue && v.list[1].kind == intValue {
			return mmKey
		}
	}
	return otherKey
}

// vllmKeys turns the published extra keys of w's block into w.keys, the form
// that the engine hashed. LoRA and salt of the context are filled in where the
// list lacks them: events before 0.17 have no list, and a prompt never has.
func (w *work) vllmKeys() error {
	w.keys = w.keys[:0]
	c, rule := &w.ctx, &formRules[w.form]
	var salt string // not seen in the list yet
	if w.first {
		salt = c.Salt
	}
	add := func(v Value, err error) error {
		w.keys = append(w.keys, v)
		return err
	}
	if c.hasLoRA() {
		if err := add(rule.lora(c)); err != nil {
			return err
		}
	}
	for i := range w.published {
		kind := kindOf(&w.published[i], i, c.LoRA, w.first)
		switch kind {
		case loraKey:
			continue
		case saltKey:
			salt = ""
		case embedsKey:
			if salt != "" {
				if err := add(rule.key[saltKey](Text(salt))); err != nil {
					return err
				}
				salt = ""
			}
		}
		if err := add(rule.key[kind](w.published[i])); err != nil {
			return err
		}
	}
	if salt != "" {
		return add(rule.key[saltKey](Text(salt)))
	}
	return nil
}

// Content reads the published extra keys of a vLLM block for a content hash:
// the salt, which goes into the [Namespace] of the whole chain, and a hash for
// each further object that makes the block's content, for [Local]. Multimodal
// items count by [MMHash] of their id, as in Dynamo, and not by their offset.
// Embedding digests (XXH3-64, seed 0) and elements of no known kind (XXH3-64 of
// their CBOR) are kvscope's own extension: Dynamo ignores them.
func Content(published []Value, lora string, first bool) (salt string, objects []uint64) {
	for i := range published {
		v := &published[i]
		switch kindOf(v, i, lora, first) {
		case loraKey:
		case saltKey:
			salt = v.text
		case mmKey:
			id := v.text
			if v.kind == tupleValue {
				id = v.list[0].text
			}
			if id != "" {
				objects = append(objects, MMHash(id))
			}
		case embedsKey:
			objects = append(objects, xxh3.HashString(v.text))
		case otherKey:
			var w cborWriter
			writeValue(&w, v)
			objects = append(objects, xxh3.Hash(w.out))
		}
	}
	return salt, objects
}
