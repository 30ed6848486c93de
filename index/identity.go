package index

import (
	"github.com/kvscope/kvscope/blockhash"
)

// rootID names a hash recipe with its root; replicas with the same one give
// equal blocks equal handles. 0 is none.
type rootID int32

// rootTable groups root ids that turned out to be the same.
type rootTable struct {
	up     []rootID
	byName map[string]rootID
}

func newRootTable() rootTable {
	return rootTable{up: []rootID{0}, byName: map[string]rootID{}}
}

// fresh gives a root that is equal to no other so far.
func (t *rootTable) fresh() rootID {
	id := rootID(len(t.up))
	t.up = append(t.up, id)
	return id
}

func (t *rootTable) find(id rootID) rootID {
	for t.up[id] != id {
		t.up[id] = t.up[t.up[id]]
		id = t.up[id]
	}
	return id
}

func (t *rootTable) same(a, b rootID) bool { return a == b || t.find(a) == t.find(b) }

// join makes two roots one and reports whether they were not.
func (t *rootTable) join(a, b rootID) bool {
	a, b = t.find(a), t.find(b)
	t.up[max(a, b)] = min(a, b)
	return a != b
}

// identity is what is known of a replica's hashes.
type identity struct {
	root   rootID
	recipe blockhash.Recipe
	tries  int
}

func (i *identity) name() string { return i.recipe.Name() }

// identified records a replica's recipe, and joins it with those that have the
// same. What waited for a parent may find it there.
func (x *Index) identified(r *replica, recipe blockhash.Recipe) {
	r.ident.recipe = recipe
	if id, ok := x.roots.byName[recipe.Name()]; ok {
		x.joined = x.roots.join(id, r.ident.root) || x.joined
	} else {
		x.roots.byName[recipe.Name()] = r.ident.root
	}
}
