package route

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// This file is the tree of SGLang router 0.3.2's cache_aware: which worker it
// sent which text to.

// sglangTree is a radix tree over characters, each of whose nodes several workers
// can own. A node's owners own its parent too.
type sglangTree struct {
	nodes []sglangNode // the first is the root
	free  []int32      // nodes that can be used again
	below map[sglangEdge]int32
	names []wire.Replica
	ids   map[wire.Replica]int32 // by name, into names
	chars []int                  // by worker: characters of the nodes it owns
	size  int                    // characters of all nodes
	clock uint64
}

type sglangEdge struct {
	parent int32
	first  rune
}

type sglangNode struct {
	text   []rune
	parent int32
	kids   int32
	// first is who made it, and so who a match goes to; -1 is nobody. A later
	// owner takes its place only when it is gone.
	first  int32
	owners []sglangOwner
}

// sglangOwner is a worker at a node: how many children of the node it owns, and
// when it came last.
type sglangOwner struct {
	id, kids int32
	stamp    uint64
}

func newSGLangTree() *sglangTree {
	return &sglangTree{
		nodes: []sglangNode{{first: -1}},
		below: make(map[sglangEdge]int32),
		ids:   make(map[wire.Replica]int32),
	}
}

// id numbers a worker.
func (t *sglangTree) id(name wire.Replica) int32 {
	id, ok := t.ids[name]
	if !ok {
		id = int32(len(t.names))
		t.ids[name] = id
		t.names, t.chars = append(t.names, name), append(t.chars, 0)
	}
	return id
}

func (t *sglangTree) tick() uint64 {
	t.clock++
	return t.clock - 1
}

// owner finds a worker at a node, nil if it has no part in it.
func (n *sglangNode) owner(id int32) *sglangOwner {
	for i := range n.owners {
		if n.owners[i].id == id {
			return &n.owners[i]
		}
	}
	return nil
}

// match walks down a text as far as it goes, into a node of which a part alone is
// shared too. It changes nothing.
func (t *sglangTree) match(text []rune) (node int32, chars int) {
	for len(text) > chars {
		child, ok := t.below[sglangEdge{node, text[chars]}]
		if !ok {
			break
		}
		node = child
		n := wire.CommonPrefix(text[chars:], t.nodes[child].text)
		if chars += n; n < len(t.nodes[child].text) {
			break
		}
	}
	return node, chars
}

// holder is the worker that a match of a node goes to, -1 for nobody. Of those
// that remain when the first is gone the router takes any.
func (t *sglangTree) holder(node int32) int32 {
	n := &t.nodes[node]
	switch {
	case n.first >= 0 && n.owner(n.first) != nil:
		return n.first
	case len(n.owners) > 0:
		return n.owners[0].id
	}
	return -1
}

// touch remembers a match: each eighth tick of the clock makes its holder young.
func (t *sglangTree) touch(node int32) {
	n, id := &t.nodes[node], t.holder(node)
	n.first = id
	now := t.tick()
	if o := n.owner(id); o != nil && now%8 == 0 {
		o.stamp = now
	}
}

// insert makes a worker an owner of a text. Only where the text ends it is young.
func (t *sglangTree) insert(text []rune, id int32) {
	at := int32(0)
	t.own(at, id)
	for len(text) > 0 {
		child, ok := t.below[sglangEdge{at, text[0]}]
		if !ok {
			child = t.add(sglangNode{text: slices.Clone(text), parent: at, first: id})
			t.own(child, id)
			at = child
			break
		}
		n := wire.CommonPrefix(text, t.nodes[child].text)
		if n < len(t.nodes[child].text) {
			child = t.split(child, n)
		}
		t.own(child, id)
		at, text = child, text[n:]
	}
	t.nodes[at].owner(id).stamp = t.tick()
}

// own adds an owner to a node whose parent it owns.
func (t *sglangTree) own(node, id int32) {
	n := &t.nodes[node]
	if n.owner(id) != nil {
		return
	}
	n.owners = append(n.owners, sglangOwner{id: id})
	t.chars[id] += len(n.text)
	if node != 0 {
		t.nodes[n.parent].owner(id).kids++
	}
}

// add hangs a node below its parent.
func (t *sglangTree) add(n sglangNode) int32 {
	at := int32(len(t.nodes))
	if last := len(t.free) - 1; last >= 0 {
		at, t.free = t.free[last], t.free[:last]
		t.nodes[at] = n
	} else {
		t.nodes = append(t.nodes, n)
	}
	t.below[sglangEdge{n.parent, n.text[0]}] = at
	t.nodes[n.parent].kids++
	t.size += len(n.text)
	return at
}

// split cuts a node after n characters, and gives the new upper one, which has
// its owners as they are.
func (t *sglangTree) split(node int32, n int) int32 {
	low := t.nodes[node]
	up := sglangNode{
		text: slices.Clone(low.text[:n]), parent: low.parent, first: low.first,
		owners: slices.Clone(low.owners),
	}
	for i := range up.owners {
		up.owners[i].kids = 1
	}
	at := t.add(up) // in the place of the lower one
	t.nodes[low.parent].kids--
	t.size -= n
	t.nodes[at].kids = 1
	t.below[sglangEdge{at, low.text[n]}] = node
	t.nodes[node].text, t.nodes[node].parent = low.text[n:], at
	return at
}

// disown takes an owner off a node no child of which it owns, and the node away
// if nobody is left. It gives the parent.
func (t *sglangTree) disown(node, id int32) (parent int32) {
	n := &t.nodes[node]
	at := slices.IndexFunc(n.owners, func(o sglangOwner) bool { return o.id == id })
	n.owners = slices.Delete(n.owners, at, at+1)
	t.chars[id] -= len(n.text)
	if node == 0 {
		return 0
	}
	parent = n.parent
	t.nodes[parent].owner(id).kids--
	if n.kids == 0 && len(n.owners) == 0 {
		delete(t.below, sglangEdge{parent, n.text[0]})
		t.nodes[parent].kids--
		t.size -= len(n.text)
		*n = sglangNode{}
		t.free = append(t.free, node)
	}
	return parent
}

// drop deletes the whole share of a worker.
func (t *sglangTree) drop(id int32) {
	for at := range t.nodes {
		node := int32(at)
		for t.leaf(node, id) {
			top := node == 0
			if node = t.disown(node, id); top {
				break
			}
		}
	}
}

// leaf reports whether a worker owns a node, and no child of it.
func (t *sglangTree) leaf(node, id int32) bool {
	o := t.nodes[node].owner(id)
	return o != nil && o.kids == 0
}

// evict cuts every worker's share down to a number of characters, the oldest
// leaves first.
func (t *sglangTree) evict(chars int) {
	old := make([]sglangLeaves, len(t.chars))
	for at := range t.nodes {
		for _, o := range t.nodes[at].owners {
			if at != 0 && o.kids == 0 && t.chars[o.id] > chars {
				old[o.id] = append(old[o.id], sglangLeaf{o.stamp, int32(at)})
			}
		}
	}
	for at := range old {
		id, leaves := int32(at), &old[at]
		heap.Init(leaves)
		for t.chars[id] > chars && len(*leaves) > 0 {
			up := t.disown(heap.Pop(leaves).(sglangLeaf).node, id)
			if up != 0 && t.leaf(up, id) {
				heap.Push(leaves, sglangLeaf{t.nodes[up].owner(id).stamp, up})
			}
		}
	}
}

// sglangLeaves is a heap, the oldest on top; the router leaves the order of equals
// open.
type sglangLeaves []sglangLeaf

type sglangLeaf struct {
	stamp uint64
	node  int32
}

func (l sglangLeaves) Len() int      { return len(l) }
func (l sglangLeaves) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l sglangLeaves) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(l[i].stamp, l[j].stamp), cmp.Compare(l[i].node, l[j].node)) < 0
}
func (l *sglangLeaves) Push(x any) { *l = append(*l, x.(sglangLeaf)) }
func (l *sglangLeaves) Pop() any {
	last := len(*l) - 1
	leaf := (*l)[last]
	*l = (*l)[:last]
	return leaf
}
