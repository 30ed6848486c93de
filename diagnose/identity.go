package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

const minute = wire.Time(60e9)

// Bounds of what is remembered of first blocks.
const (
	maxContents  = 4096
	maxSightings = 8
	maxPairs     = 1024
)

// roots remembers who gave a first block which hash, and which replicas were seen
// to differ.
type roots struct {
	blockReader
	seen  map[uint64][]sighting // by content; a list is never changed, only replaced
	order []uint64              // contents, oldest first
	pairs map[pair]difference
}

// sighting is the first replica that gave a content a hash.
type sighting struct {
	replica wire.Replica
	handle  uint64
	width   int
}

// pair is two replicas that differ, a before b by name, and on what blocks.
type pair struct {
	a, b wire.Replica
	on   blockKind
}

// difference is what two replicas gave the same block.
type difference struct {
	at      wire.Time
	handles [2]uint64
	widths  [2]int
}

func newRoots() Memory {
	return &roots{seen: map[uint64][]sighting{}, pairs: map[pair]difference{}}
}

func (m *roots) Clone() Memory {
	return &roots{seen: maps.Clone(m.seen), order: slices.Clone(m.order), pairs: maps.Clone(m.pairs)}
}

func (m *roots) Step(s *stream.Step, _ *index.Index) {
	switch s.Kind {
	case stream.Drop, stream.Forget:
		m.forget(s.Replica) // a new process can hash otherwise
	case stream.Apply:
		for i := range s.Batch.Events {
			if b, ok := m.first(&s.Batch.Events[i]); ok && b.published && b.handle>>32 != 0 {
				m.saw(s.Replica, s.At, &b)
			}
		}
	}
}

func (m *roots) forget(name wire.Replica) {
	for k, all := range m.seen {
		if slices.ContainsFunc(all, func(s sighting) bool { return s.replica == name }) {
			m.seen[k] = slices.DeleteFunc(slices.Clone(all), func(s sighting) bool { return s.replica == name })
		}
	}
	maps.DeleteFunc(m.pairs, func(p pair, _ difference) bool { return p.a == name || p.b == name })
}

func (m *roots) saw(name wire.Replica, at wire.Time, b *firstBlock) {
	all, known := m.seen[b.content]
	here := sighting{name, b.handle, b.width}
	for _, s := range all {
		if s.handle == here.handle && s.width == here.width {
			return // who differs from it was noted when it was first seen
		}
	}
	if slices.ContainsFunc(all, func(s sighting) bool { return s.replica == name || s.replica == "" }) {
		m.seen[b.content] = []sighting{{}} // for good: its hash covers what is not published
		return
	}
	for _, s := range all {
		m.differ(at, b.kind, s, here)
	}
	if !known {
		if len(m.order) == maxContents {
			delete(m.seen, m.order[0])
			m.order = m.order[1:]
		}
		m.order = append(m.order, b.content)
	}
	if len(all) < maxSightings {
		m.seen[b.content] = append(slices.Clip(all), here)
	}
}

func (m *roots) differ(at wire.Time, on blockKind, a, b sighting) {
	if a.handle == b.handle {
		on = otherWidth
	}
	if a.replica > b.replica {
		a, b = b, a
	}
	k := pair{a.replica, b.replica, on}
	if _, known := m.pairs[k]; known || len(m.pairs) < maxPairs {
		m.pairs[k] = difference{at, [2]uint64{a.handle, b.handle}, [2]int{a.width, b.width}}
	}
}

// here are the replicas of a fleet by name, without those that left.
func here(v View) map[wire.Replica]*Replica {
	out := make(map[wire.Replica]*Replica, len(v.Replicas))
	for i := range v.Replicas {
		if r := &v.Replicas[i]; r.Link != wire.LinkGone {
			out[r.Replica] = r
		}
	}
	return out
}

func hashMismatch(v View, mem Memory) []Finding {
	m := mem.(*roots)
	if len(m.pairs) == 0 {
		return nil
	}
	by := here(v)
	// parted are, for each model and kind, the replicas of which that was seen.
	type key struct {
		model string
		on    blockKind
	}
	parted := map[key]map[wire.Replica]*Replica{}
	first := map[key]wire.Time{}
	for p, d := range m.pairs {
		a, b := by[p.a], by[p.b]
		if a == nil || b == nil || a.Model == "" || a.Model != b.Model {
			continue
		}
		// Of different roots, blocks with keys differ because plain ones do.
		if same := a.Root == b.Root; p.on == plainBlock && same || p.on.keyed() && !same {
			continue
		}
		k := key{a.Model, p.on}
		if parted[k] == nil {
			parted[k] = map[wire.Replica]*Replica{}
			first[k] = d.at
		}
		parted[k][p.a], parted[k][p.b] = a, b
		first[k] = min(first[k], d.at)
	}
	var out []Finding
	for _, k := range slices.SortedFunc(maps.Keys(parted), func(a, b key) int {
		return cmp.Or(strings.Compare(a.model, b.model), cmp.Compare(a.on, b.on))
	}) {
		f := Finding{Severity: Warning, Subject: "fleet", Since: first[k], about: k.model + "/" + string(k.on)}
		f.Evidence.Block, f.Evidence.Token = p(0), p(0)
		switch k.on {
		case plainBlock:
			rootsDiffer(&f, by, parted[k])
		case otherWidth:
			names := slices.Sorted(maps.Keys(parted[k]))
			f.Title = fmt.Sprintf("%s publish the same hashes in different widths, some as integers and some as byte strings", some(names))
			f.Counterfactual = "in one form a consumer that goes by hash would see one block where it now sees two"
			f.Next = "give all engines of a model the same version and hash options; a router that recomputes hashes from tokens is not hurt"
		default:
			names := slices.Sorted(maps.Keys(parted[k]))
			f.Title = fmt.Sprintf("%s hash plain blocks alike and blocks with %s differently", some(names), k.on)
			f.Counterfactual = "with the same inputs such blocks would have one hash, as those without have"
			f.Next = k.on.next()
		}
		out = append(out, f)
	}
	return out
}

// rootsDiffer tells which groups of replicas have a root of their own.
func rootsDiffer(f *Finding, by, parted map[wire.Replica]*Replica) {
	groups := map[int][]wire.Replica{}
	for _, r := range parted {
		groups[r.Root] = nil
	}
	for name, r := range by {
		if members, ok := groups[r.Root]; ok {
			groups[r.Root] = append(members, name)
		}
	}
	recipes := map[string]bool{}
	list := make([][]wire.Replica, 0, len(groups))
	for _, g := range groups {
		slices.Sort(g)
		list = append(list, g)
		recipes[by[g[0]].Index.Recipe] = true
	}
	slices.SortFunc(list, func(a, b []wire.Replica) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0], b[0]))
	})
	total, apart := 0, 0
	var said []string
	for i, g := range list {
		total += len(g)
		if i > 0 {
			for _, name := range g {
				apart += by[name].Index.Resident[wire.Device]
			}
		}
		if recipe := by[g[0]].Index.Recipe; i < 4 {
			said = append(said, fmt.Sprintf("%s (%s)", some(g), cmp.Or(recipe, "root not known")))
		}
	}
	if more := len(list) - len(said); more > 0 {
		said = append(said, fmt.Sprintf("%d more", more))
	}
	odd := list[len(list)-1]
	f.Evidence.Replica = odd[0]
	f.Effect.Blocks = p(apart)
	f.Title = fmt.Sprintf("%d replicas give the same tokens %d different hashes: %s", total, len(list), strings.Join(said, " | "))
	f.Counterfactual = "with one seed and algorithm all would be one group, and could share blocks of a common tier by hash"
	algorithms := map[string]bool{}
	for r := range recipes {
		name, _, _ := strings.Cut(r, " ")
		algorithms[name] = true
	}
	switch {
	case recipes[""]:
		f.Next = "start all engines with the same PYTHONHASHSEED and hash algorithm: unset, vLLM before 0.29 draws a random root at each start"
	case len(algorithms) > 1:
		f.Next = "start all engines with the same --prefix-caching-hash-algo; engines of different make never share hashes"
	default:
		f.Next = "start all engines with the same PYTHONHASHSEED"
	}
}

// some names a few of many replicas.
func some(names []wire.Replica) string {
	const most = 4
	var b strings.Builder
	for i, n := range names {
		switch {
		case i == most && len(names) > most+1:
			fmt.Fprintf(&b, " and %d more", len(names)-most)
			return b.String()
		case i > 0 && i == len(names)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(wire.Printable(string(n)))
	}
	return b.String()
}
