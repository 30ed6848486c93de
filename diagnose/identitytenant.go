package diagnose

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// Bounds of what is remembered of tenants' blocks.
const (
	maxFirst = 8192
	maxLoRA  = 1 << 15
)

// tenants remembers for whom blocks were stored, as far as events say, and where one
// hash stood for two tenants' blocks.
type tenants struct {
	blockReader
	// first are first blocks with salt, adapter or other keys, and lora the blocks of
	// adapters. The lists hold their keys, oldest first.
	first     map[handleOf]tenant
	lora      map[handleOf]string
	firstList []handleOf
	loraList  []handleOf
	found     map[clash]sharing
}

// handleOf is a block of one replica.
type handleOf struct {
	replica wire.Replica
	handle  uint64
}

// tenant is whom a first block was stored for.
type tenant struct {
	tokens     uint64
	lora, salt string
	seq        uint64
}

func (t *tenant) words() string {
	switch {
	case t.lora != "" && t.salt != "":
		return fmt.Sprintf("adapter %s with a cache salt", wire.Printable(t.lora))
	case t.lora != "":
		return "adapter " + wire.Printable(t.lora)
	case t.salt != "":
		return "a cache salt"
	}
	return "neither salt nor adapter"
}

// clash is a replica and how tenants' blocks came together there.
type clash struct {
	replica wire.Replica
	// collision says that one's adapter is called as the other's salt.
	collision bool
}

// sharing is how often that was seen, and an example.
type sharing struct {
	since, last wire.Time
	times       uint64
	block       int
	from, to    uint64 // batches of the example
	one, other  string
}

func newTenants() Memory {
	return &tenants{first: map[handleOf]tenant{}, lora: map[handleOf]string{}, found: map[clash]sharing{}}
}

func (m *tenants) Clone() Memory {
	return &tenants{
		first: maps.Clone(m.first), lora: maps.Clone(m.lora), found: maps.Clone(m.found),
		firstList: slices.Clone(m.firstList), loraList: slices.Clone(m.loraList),
	}
}

func (m *tenants) Step(s *stream.Step, _ *index.Index) {
	switch s.Kind {
	case stream.Drop, stream.Forget:
		m.forget(s.Replica)
	case stream.Apply:
		for i := range s.Batch.Events {
			e := &s.Batch.Events[i]
			if e.Kind == wire.Stored && !e.Plane {
				m.root(s, e)
				m.chain(s, e)
			}
		}
	}
}

// forget drops what a former process said; its handles mean nothing any more.
func (m *tenants) forget(name wire.Replica) {
	other := func(k handleOf) bool { return k.replica == name }
	m.firstList = slices.DeleteFunc(m.firstList, other)
	m.loraList = slices.DeleteFunc(m.loraList, other)
	maps.DeleteFunc(m.first, func(k handleOf, _ tenant) bool { return k.replica == name })
	maps.DeleteFunc(m.lora, func(k handleOf, _ string) bool { return k.replica == name })
}

// root looks at the first block of a chain.
func (m *tenants) root(s *stream.Step, e *wire.Event) {
	if len(m.first) == 0 && e.LoRAName+e.Salt == "" && len(e.Extra) == 0 {
		return
	}
	b, ok := m.blockReader.first(e)
	if !ok {
		return
	}
	k := handleOf{s.Replica, b.handle}
	now := tenant{b.tokens, b.lora, b.salt, s.Batch.Seq}
	was, known := m.first[k]
	if known && was.tokens == now.tokens && (was.lora != now.lora || was.salt != now.salt) {
		one, other := was.words(), now.words()
		if one == other {
			other = "another one"
		}
		collision := was.lora != now.lora && (was.lora == now.salt || now.lora == was.salt)
		m.note(clash{s.Replica, collision}, sharing{since: s.At, from: was.seq, to: now.seq, one: one, other: other})
	}
	if b.kind == plainBlock {
		return // there are many, and a clash with one shows from the other's side
	}
	if !known {
		m.firstList = dropOldest(m.firstList, m.first, maxFirst)
		m.firstList = append(m.firstList, k)
	}
	m.first[k] = now
}

// chain holds an adapter's blocks against the one that they go on from.
func (m *tenants) chain(s *stream.Step, e *wire.Event) {
	if !e.Fields.Has("lora_name") {
		return
	}
	if was := m.lora[handleOf{s.Replica, e.Parent.N}]; e.Parent.Set && was != "" && was != e.LoRAName {
		one, other := tenant{lora: was}, tenant{lora: e.LoRAName}
		m.note(clash{s.Replica, false}, sharing{since: s.At, from: s.Batch.Seq, to: s.Batch.Seq, block: -1, one: one.words(), other: other.words()})
	}
	if e.LoRAName == "" {
		return
	}
	for _, h := range e.Hashes {
		k := handleOf{s.Replica, h.N}
		if _, known := m.lora[k]; !known {
			m.loraList = dropOldest(m.loraList, m.lora, maxLoRA)
			m.loraList = append(m.loraList, k)
		}
		m.lora[k] = e.LoRAName
	}
}

// dropOldest makes room for one more.
func dropOldest[V any](list []handleOf, of map[handleOf]V, most int) []handleOf {
	if len(list) >= most {
		delete(of, list[0])
		list = list[1:]
	}
	return list
}

func (m *tenants) note(k clash, s sharing) {
	old, known := m.found[k]
	if !known && len(m.found) >= maxRemembered {
		return
	}
	s.times, s.last = old.times+1, s.since
	if known {
		s.since = old.since
	}
	m.found[k] = s
}

// tenantsShown is how long after it was last seen such a sharing is a finding.
const tenantsShown = 10 * minute

func (m *tenants) findings(v View, collision bool, tell func(*Finding, *sharing)) []Finding {
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		s, ok := m.found[clash{r.Replica, collision}]
		if !ok || v.Now-s.last > tenantsShown {
			continue
		}
		f := about(r, Error, s.since)
		f.Evidence.SeqFrom, f.Evidence.SeqTo = p(s.from), p(s.to)
		if s.block >= 0 {
			f.Evidence.Block, f.Evidence.Token = p(s.block), p(0)
		}
		tell(&f, &s)
		out = append(out, f)
	}
	return out
}

func namespaceCollision(v View, mem Memory) []Finding {
	return mem.(*tenants).findings(v, true, func(f *Finding, s *sharing) {
		f.Title = fmt.Sprintf("block 0 has one hash for two namespaces, %s and %s of the same name (seen %s)", s.one, s.other, count(s.times, "time"))
		f.Counterfactual = "with different names the two would have blocks of their own"
		f.Next = "rename the adapter or the salt, then clear the replica's prefix cache; vLLM from 0.31 on keeps the two apart"
	})
}

func crossTenant(v View, mem Memory) []Finding {
	return mem.(*tenants).findings(v, false, func(f *Finding, s *sharing) {
		where := "the same first block has one hash"
		if s.block < 0 {
			where = "one chain was stored"
		}
		f.Title = fmt.Sprintf("%s under %s and under %s (seen %s): tenants share cached blocks", where, s.one, s.other, count(s.times, "time"))
		f.Counterfactual = "an engine that hashes salt and adapter never gives two tenants one block"
		f.Next = "take the replica out of traffic of several tenants, look at engine version and patches for how salt and adapter enter the hash, and clear its prefix cache"
	})
}
