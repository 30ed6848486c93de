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
	// recipe is what is known of a root's recipe, by the root that stands for
	// its group.
	recipe map[rootID]blockhash.Recipe
}

func newRootTable() rootTable {
	return rootTable{up: []rootID{0}, byName: map[string]rootID{}, recipe: map[rootID]blockhash.Recipe{}}
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
	if a, b = t.find(a), t.find(b); a == b {
		return false
	}
	to, from := min(a, b), max(a, b)
	t.up[from] = to
	if r, ok := t.recipe[from]; ok {
		if t.recipe[to].IsZero() {
			t.recipe[to] = r
		}
		delete(t.recipe, from)
	}
	return true
}

// identity is what is known of a replica's hashes.
type identity struct {
	root  rootID
	tries int
}

// recipe is a replica's hash recipe, zero while it is not known.
func (x *Index) recipe(r *replica) blockhash.Recipe {
	return x.roots.recipe[x.roots.find(r.ident.root)]
}

// identified records a replica's recipe, and joins it with those that have the
// same. What waited for a parent may find it there.
func (x *Index) identified(r *replica, recipe blockhash.Recipe) {
	if id, ok := x.roots.byName[recipe.Name()]; ok {
		x.join(id, r.ident.root)
	} else {
		x.roots.byName[recipe.Name()] = r.ident.root
	}
	x.roots.recipe[x.roots.find(r.ident.root)] = recipe
}
