package route

import (
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// rayTree is the character tree of Ray Serve LLM 2.60.0 (prefix_tree.py): a radix
// tree in which every node knows which workers were sent its text, and when each
// of them last was. A worker is a tenant there.
type rayTree struct {
	root    rayNode
	tenants []*rayTenant // in the order they came, which is that of ties
	byName  map[wire.Replica]*rayTenant
	epoch   int
	bytes   int // about what the tree takes
}

// rayTenant is a worker in the tree.
type rayTenant struct {
	name  wire.Replica
	chars int
	asked int // the epoch in which it was last asked about
	place int // among the tenants, when it was last looked for
	// head is its record of the root, where the list of its nodes begins with the
	// most recently used one; oldest is where that ends.
	head, oldest *rayOwner
}

// rayNode is a piece of text below that of its parents. Each of its runes counts
// weight characters.
type rayNode struct {
	parent   *rayNode
	text     []rune
	weight   int
	children map[rune]*rayNode
	owners   []*rayOwner
}

// rayOwner is a tenant's record of a node, in the list of the tenant's nodes.
type rayOwner struct {
	tenant       *rayTenant
	node         *rayNode
	used         wire.Time
	newer, older *rayOwner
}

// What nodes and records take, about, and what a tree may: the real one grows
// without bound unless do_eviction is on. At the bound every tenant loses a tenth.
const (
	rayNodeBytes  = 160
	rayOwnerBytes = 72
	rayTreeMost   = 128 << 20
)

func (n *rayNode) chars() int { return len(n.text) * n.weight }

func (n *rayNode) owner(t *rayTenant) *rayOwner {
	for _, o := range n.owners {
		if o.tenant == t {
			return o
		}
	}
	return nil
}

// add takes a tenant in, if it is not there yet.
func (t *rayTree) add(name wire.Replica, at wire.Time) *rayTenant {
	if x := t.byName[name]; x != nil {
		return x
	}
	if t.byName == nil {
		t.byName = make(map[wire.Replica]*rayTenant)
	}
	x := &rayTenant{name: name}
	t.byName[name] = x
	x.head = &rayOwner{tenant: x, node: &t.root, used: at}
	x.oldest = x.head
	t.root.owners = append(t.root.owners, x.head)
	t.tenants = append(t.tenants, x)
	return x
}

// remove takes a tenant out, with all it has, and gives the characters of it.
func (t *rayTree) remove(name wire.Replica) (chars int) {
	x := t.byName[name]
	if x == nil {
		return 0
	}
	chars = x.chars
	for x.oldest != x.head {
		t.forget(x.oldest)
	}
	t.root.owners = slices.DeleteFunc(t.root.owners, func(o *rayOwner) bool { return o == x.head })
	delete(t.byName, name)
	t.tenants = slices.DeleteFunc(t.tenants, func(o *rayTenant) bool { return o == x })
	return chars
}

// insert notes that a text went to a tenant.
func (t *rayTree) insert(text []rune, weight int, x *rayTenant, at wire.Time) {
	node := &t.root
	x.head.used = at
	for len(text) > 0 {
		child := node.children[text[0]]
		if child == nil {
			child = &rayNode{parent: node, text: slices.Clone(text), weight: weight}
			node.adopt(child)
			t.bytes += rayNodeBytes + 4*len(text)
		}
		n := wire.CommonPrefix(child.text, text)
		if n < len(child.text) {
			child = t.split(child, n)
		}
		t.touch(child, x, at)
		node, text = child, text[n:]
	}
	for t.bytes > rayTreeMost {
		for _, x := range t.tenants {
			t.evict(x, x.chars/10+1)
		}
	}
}

// adopt makes a node a child, in place of the one that begins alike.
func (n *rayNode) adopt(child *rayNode) {
	if n.children == nil {
		n.children = make(map[rune]*rayNode)
	}
	n.children[child.text[0]] = child
	child.parent = n
}

// split puts a node with the first n runes above one. In the list of each tenant
// it comes right before that one, as newer, with the same time.
func (t *rayTree) split(node *rayNode, n int) *rayNode {
	above := &rayNode{text: slices.Clone(node.text[:n]), weight: node.weight}
	node.parent.adopt(above)
	node.text = slices.Clone(node.text[n:])
	above.adopt(node)
	for _, o := range node.owners {
		added := &rayOwner{tenant: o.tenant, node: above, used: o.used, newer: o.newer, older: o}
		o.newer.older, o.newer = added, added
		above.owners = append(above.owners, added)
	}
	t.bytes += rayNodeBytes + rayOwnerBytes*len(above.owners)
	return above
}

// touch makes a node the most recently used one of a tenant.
func (t *rayTree) touch(node *rayNode, x *rayTenant, at wire.Time) {
	o := node.owner(x)
	if o == nil {
		o = &rayOwner{tenant: x, node: node}
		node.owners = append(node.owners, o)
		x.chars += node.chars()
		t.bytes += rayOwnerBytes
	} else {
		o.unlink()
	}
	o.used = at
	o.newer, o.older = x.head, x.head.older
	x.head.older = o
	if o.older != nil {
		o.older.newer = o
	} else {
		x.oldest = o
	}
}

func (o *rayOwner) unlink() {
	o.newer.older = o.older
	if o.older != nil {
		o.older.newer = o.newer
	} else {
		o.tenant.oldest = o.newer
	}
}

// forget takes a tenant's record off a node, and with the last one the node away.
func (t *rayTree) forget(o *rayOwner) {
	n := o.node
	o.unlink()
	o.tenant.chars -= n.chars()
	n.owners = slices.DeleteFunc(n.owners, func(x *rayOwner) bool { return x == o })
	t.bytes -= rayOwnerBytes
	if len(n.owners) == 0 {
		delete(n.parent.children, n.text[0])
		t.bytes -= rayNodeBytes + 4*len(n.text)
	}
}

// evict forgets a tenant's least recently used nodes until so many characters are
// gone, those of one time together, and gives how many were.
func (t *rayTree) evict(x *rayTenant, chars int) int {
	before := x.chars
	chars = min(chars, before)
	for before-x.chars < chars && x.oldest != x.head {
		for used := x.oldest.used; x.oldest != x.head && x.oldest.used == used; {
			t.forget(x.oldest)
		}
	}
	return before - x.chars
}

// sweep evicts what every tenant has above target, if it has more than threshold.
func (t *rayTree) sweep(threshold, target int) {
	for _, x := range t.tenants {
		if x.chars > threshold {
			t.evict(x, x.chars-target)
		}
	}
}

// match follows a text as far as any of the tenants asked about was sent it, and
// gives the number of runes, and the node where it ends. A nil tenant is one that
// the tree does not know.
func (t *rayTree) match(text []rune, asked []*rayTenant) (n int, end *rayNode) {
	t.epoch++
	for _, x := range asked {
		if x != nil {
			x.asked = t.epoch
		}
	}
	end = &t.root
	for n < len(text) {
		child := end.children[text[n]]
		if child == nil || !slices.ContainsFunc(child.owners, func(o *rayOwner) bool { return o.tenant.asked == t.epoch }) {
			break
		}
		common := wire.CommonPrefix(child.text, text[n:])
		n += common
		end = child
		if common < len(child.text) {
			break
		}
	}
	return n, end
}
