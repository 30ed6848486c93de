package index

import (
	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// text is what the blocks of one store are made of.
type text struct {
	tokens []wire.Token
	size   int
	bigram bool
	extra  [][]blockhash.Value
	lora   string
	kept   []uint32 // tokens, for the text log; made when first asked for
}

// window is block i's tokens for the text log; nil if they do not fit it.
func (t *text) window(i int) []uint32 {
	if t.kept == nil {
		t.kept = narrow(t.tokens)
	}
	return blockhash.Window(t.kept, t.size, i, t.bigram)
}

// local is block i's local content hash. root tells the first block of a
// chain, whose extra keys may hold the salt.
func (t *text) local(i int, root bool, ns blockhash.Namespace) uint64 {
	var objects []uint64
	if i < len(t.extra) {
		_, objects = blockhash.Content(t.extra[i], t.lora, root)
	}
	return blockhash.Local(blockhash.Window(t.tokens, t.size, i, t.bigram), ns, objects)
}

// maxTries is how many root stores of an epoch are tried for a known recipe.
const maxTries = 16

// Apply applies one decoded event. clearAll says that this replica's clear
// empties every tier (SGLang) and not the device alone (vLLM).
func (x *Index) Apply(name wire.Replica, e *wire.Event, clearAll bool) {
	switch e.Kind {
	case wire.Stored:
		x.applyStore(name, e)
	case wire.Removed:
		x.Remove(name, placeOf(e), e.Hashes)
	case wire.Cleared:
		x.Clear(name, clearAll)
	case wire.Bad:
		x.Doubt(name)
	}
}

func placeOf(e *wire.Event) Place { return Place{Group: e.Group, Tier: e.Tier}.inBounds() }

func (x *Index) applyStore(name wire.Replica, e *wire.Event) {
	r := x.replica(name)
	x.clock++
	at := placeOf(e)
	if !r.noteGroup(at.Group, e) {
		r.stats.Stored += uint64(len(e.Hashes))
		r.stats.Unindexed += uint64(len(e.Hashes))
		return
	}
	if n := len(e.Locals); n > 0 && n == len(e.Hashes) {
		x.storeLocals(r, at, e)
		x.settle()
		return
	}
	if !e.Aligned() {
		if len(e.Hashes) > 0 || len(e.Tokens) > 0 {
			r.stats.Misaligned++
		}
		x.storeHandles(r, at, e.Hashes)
		x.settle()
		return
	}
	if at.Tier == wire.Device {
		r.blockSize, r.bigram, r.sized = e.BlockSize, e.Bigram, true
	}
	t := &text{tokens: e.Tokens, size: e.BlockSize, bigram: e.Bigram, extra: values(e.Extra), lora: e.LoRAName}
	r.bytes = e.Form&wire.FormBytes != 0
	items := make([]item, len(e.Hashes))
	for i, h := range e.Hashes {
		items[i] = item{key: key(h), text: t, at: i}
	}
	var ns blockhash.Namespace
	if !e.Parent.Set {
		salt := e.Salt
		if salt == "" && len(t.extra) > 0 {
			salt, _ = blockhash.Content(t.extra[0], t.lora, true)
		}
		ns = blockhash.NamespaceOf(e.LoRAName, salt)
		x.identify(r, e, t)
	}
	x.store(r, at, e.Parent, items, ns)
	x.settle()
}

// storeLocals places blocks that came with their content hashes, which cover
// adapter and salt: a namespace is needed for none of them.
func (x *Index) storeLocals(r *replica, at Place, e *wire.Event) {
	r.single = true
	items := make([]item, len(e.Hashes))
	for i, h := range e.Hashes {
		items[i] = item{key: key(h), local: e.Locals[i]}
	}
	x.store(r, at, e.Parent, items, 0)
}

// storeHandles places blocks that came without their content: they count for
// their handle alone.
func (x *Index) storeHandles(r *replica, at Place, hashes []wire.Handle) {
	r.stats.Stored += uint64(len(hashes))
	group := int16(at.Group)
	for _, h := range hashes {
		k := key(h)
		id := r.table.Get(k)
		if id == none {
			id = x.elsewhere(r, k)
		}
		if id != none {
			x.place(r, id, group, at.Tier, k, false)
		} else if o := x.orphan(r, k); o != nil {
			x.stopWaiting(r, k)
			x.placeOrphan(r, o, group, at.Tier)
		} else {
			r.stats.Unindexed++
		}
	}
}

// identify tries to tell a replica's recipe from a store at the root.
func (x *Index) identify(r *replica, e *wire.Event, t *text) {
	hasKeys := e.LoRAName != "" || len(t.extra) > 0 && len(t.extra[0]) > 0
	have := x.recipe(r)
	if r.ident.tries >= maxTries || !have.IsZero() && (!hasKeys || have.Form != blockhash.AnyForm) {
		return
	}
	r.ident.tries++
	if recipe, ok := blockhash.Identify(storeOf(e, t)); ok {
		x.identified(r, recipe)
	}
}

func storeOf(e *wire.Event, t *text) blockhash.Store[wire.Token] {
	s := blockhash.Store[wire.Token]{
		Run: blockhash.Run[wire.Token]{
			Context: blockhash.Context{LoRA: e.LoRAName, LoRAID: e.LoRAID, Salt: e.Salt},
			Tokens:  t.tokens, BlockSize: t.size, Bigram: t.bigram, Extra: t.extra, Lookahead: e.Lookahead,
		},
		Handles: make([]uint64, len(e.Hashes)),
	}
	for i, h := range e.Hashes {
		s.Handles[i] = h.N
		if h.S != "" {
			s.Bytes = append(s.Bytes, h.S)
		}
	}
	return s
}

// values turns the wire's extra keys into those that hash recipes take.
func values(keys [][]wire.ExtraKey) [][]blockhash.Value {
	if keys == nil {
		return nil
	}
	out := make([][]blockhash.Value, len(keys))
	for i, block := range keys {
		for _, k := range block {
			out[i] = append(out[i], value(k))
		}
	}
	return out
}

func value(k wire.ExtraKey) blockhash.Value {
	switch {
	case k.List != nil:
		list := make([]blockhash.Value, len(k.List))
		for i, e := range k.List {
			list[i] = value(e)
		}
		return blockhash.Tuple(list...)
	case k.IsInt:
		return blockhash.Int(k.Int)
	case k.Bytes != nil:
		return blockhash.Bytes(k.Bytes)
	}
	return blockhash.Text(k.Text)
}

// group is what is known of a KV-cache group.
type group struct {
	id     int16
	window int
	spec   string
}

func (r *replica) group(id int16) *group {
	for i := range r.groups {
		if r.groups[i].id == id {
			return &r.groups[i]
		}
	}
	return nil
}

// isDense reports whether a group needs every block of a prefix. A group of
// unknown kind is taken to.
func (r *replica) isDense(id int16) bool {
	g := r.group(id)
	return g == nil || wire.Dense(g.spec)
}

const maxGroups = 64

// noteGroup keeps what a store tells of its group; false if there are too many
// groups to keep another.
func (r *replica) noteGroup(id int, e *wire.Event) bool {
	g := r.group(int16(id))
	if g == nil {
		if len(r.groups) == maxGroups {
			return false
		}
		r.groups = append(r.groups, group{id: int16(id)})
		g = &r.groups[len(r.groups)-1]
	}
	if e.Spec != "" {
		g.spec = e.Spec
	}
	if e.Window > 0 {
		g.window = e.Window
	}
	return true
}
