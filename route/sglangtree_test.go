package route

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/wire"
)

// naiveTree is the tree as a plain set of texts: where nodes end. It knows no
// edges; who is below whom shows from the texts. Where the router takes any, it
// follows what the tree did, if that was allowed.
type naiveTree struct {
	nodes map[string]*naiveNode
	clock uint64
}

type naiveNode struct {
	first  string
	stamps map[string]uint64 // by owner
}

func newNaiveTree() *naiveTree {
	return &naiveTree{nodes: map[string]*naiveNode{"": {stamps: map[string]uint64{}}}}
}

func (m *naiveTree) tick() uint64 { m.clock++; return m.clock - 1 }

// match is the longest text that any node begins with, and the first node that
// reaches so far.
func (m *naiveTree) match(text string) (node string, chars int) {
	for path := range m.nodes {
		n := 0
		for n < min(len(path), len(text)) && path[n] == text[n] {
			n++
		}
		chars = max(chars, n)
	}
	node = text + strings.Repeat("?", 99)
	for path := range m.nodes {
		if len(path) >= chars && strings.HasPrefix(path, text[:chars]) && len(path) < len(node) {
			node = path
		}
	}
	return node, chars
}

func (m *naiveTree) insert(text, owner string) {
	node, chars := m.match(text)
	if chars < len(node) {
		old := m.nodes[node]
		m.nodes[text[:chars]] = &naiveNode{first: old.first, stamps: maps.Clone(old.stamps)}
	}
	if chars < len(text) {
		m.nodes[text] = &naiveNode{first: owner, stamps: map[string]uint64{}}
	}
	for path, n := range m.nodes {
		if _, owns := n.stamps[owner]; !owns && strings.HasPrefix(text, path) {
			n.stamps[owner] = 0
		}
	}
	m.nodes[text].stamps[owner] = m.tick()
}

// touch takes the tree's word for who holds a node whose first owner is gone.
func (m *naiveTree) touch(t *rapid.T, node, holder string) {
	n := m.nodes[node]
	if _, owns := n.stamps[n.first]; owns && holder != n.first {
		t.Fatalf("%q goes to %s, and %s was first", node, holder, n.first)
	}
	if _, owns := n.stamps[holder]; !owns && len(n.stamps) > 0 {
		t.Fatalf("%q goes to %s, who is none of %v", node, holder, n.stamps)
	}
	n.first = holder
	if now := m.tick(); now%8 == 0 && len(n.stamps) > 0 {
		n.stamps[holder] = now
	}
}

// length is that of a node's own text.
func (m *naiveTree) length(path string) int {
	parent := 0
	for p := range m.nodes {
		if len(p) < len(path) && strings.HasPrefix(path, p) {
			parent = max(parent, len(p))
		}
	}
	return len(path) - parent
}

func (m *naiveTree) chars(owner string) (sum int) {
	for path, n := range m.nodes {
		if _, owns := n.stamps[owner]; owns {
			sum += m.length(path)
		}
	}
	return sum
}

// below reports whether a node has another one beneath it, of an owner if one is
// named.
func (m *naiveTree) below(path, owner string) bool {
	for p, n := range m.nodes {
		if _, owns := n.stamps[owner]; len(p) > len(path) && strings.HasPrefix(p, path) && (owns || owner == "") {
			return true
		}
	}
	return false
}

func (m *naiveTree) disown(path, owner string) {
	n := m.nodes[path]
	delete(n.stamps, owner)
	if path != "" && len(n.stamps) == 0 && !m.below(path, "") {
		delete(m.nodes, path)
	}
}

// evict takes the oldest leaf; of equals, one that the tree took too.
func (m *naiveTree) evict(t *rapid.T, owner string, limit int, kept func(path string) bool) {
	for m.chars(owner) > limit {
		var oldest []string
		var stamp uint64
		for path, n := range m.nodes {
			s, owns := n.stamps[owner]
			if path == "" || !owns || m.below(path, owner) || len(oldest) > 0 && s > stamp {
				continue
			}
			if len(oldest) > 0 && s < stamp {
				oldest = nil
			}
			oldest, stamp = append(oldest, path), s
		}
		at := slices.IndexFunc(oldest, func(path string) bool { return !kept(path) })
		if at < 0 {
			t.Fatalf("%s kept all of its oldest leaves %q", owner, oldest)
		}
		m.disown(oldest[at], owner)
	}
}

// paths gives every node of the tree by its whole text.
func (t *sglangTree) paths() map[string]int32 {
	free := make(map[int32]bool)
	for _, at := range t.free {
		free[at] = true
	}
	out := make(map[string]int32)
	for at := range t.nodes {
		path := ""
		for n := int32(at); n != 0; n = t.nodes[n].parent {
			path = string(t.nodes[n].text) + path
		}
		if !free[int32(at)] {
			out[path] = int32(at)
		}
	}
	return out
}

func (t *sglangTree) owns(path, owner string) bool {
	at, ok := t.paths()[path]
	return ok && t.nodes[at].owner(t.ids[wire.Replica(owner)]) != nil
}

// TestSGLangTree holds the tree against the naive one over random histories.
func TestSGLangTree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tree, naive := newSGLangTree(), newNaiveTree()
		owners := []string{"a", "b", "c"}
		for _, o := range owners {
			tree.insert(nil, tree.id(wire.Replica(o)))
			naive.insert("", o)
		}
		text := rapid.StringMatching(`[xyz]{0,9}`)
		who := rapid.SampledFrom(owners)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			s, o := text.Draw(t, "text"), who.Draw(t, "owner")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				limit := rapid.IntRange(0, 20).Draw(t, "limit")
				tree.evict(limit)
				for _, o := range owners {
					naive.evict(t, o, limit, func(path string) bool { return tree.owns(path, o) })
				}
			case 1:
				tree.drop(tree.id(wire.Replica(o)))
				for path := range maps.Clone(naive.nodes) {
					if n := naive.nodes[path]; n != nil {
						delete(n.stamps, o)
					}
				}
				maps.DeleteFunc(naive.nodes, func(path string, n *naiveNode) bool { return path != "" && len(n.stamps) == 0 })
			case 2, 3, 4:
				node, chars := tree.match([]rune(s))
				path, n := naive.match(s)
				if at := tree.paths()[path]; n != chars || at != node {
					t.Fatalf("%q: matched %d characters and node %d, want %d and %q (%d)", s, chars, node, n, path, at)
				}
				holder := ""
				if id := tree.holder(node); id >= 0 {
					holder = string(tree.names[id])
				}
				tree.touch(node)
				naive.touch(t, path, holder)
			default:
				tree.insert([]rune(s), tree.id(wire.Replica(o)))
				naive.insert(s, o)
			}
			same(t, tree, naive, owners)
		}
	})
}

// same compares all nodes, owners, times and sizes.
func same(t *rapid.T, tree *sglangTree, naive *naiveTree, owners []string) {
	t.Helper()
	paths, size := tree.paths(), 0
	if len(paths) != len(naive.nodes) || len(tree.below) != len(naive.nodes)-1 {
		t.Fatalf("nodes %v and %d edges, want %v", paths, len(tree.below), slices.Collect(maps.Keys(naive.nodes)))
	}
	for path, want := range naive.nodes {
		at, ok := paths[path]
		if !ok {
			t.Fatalf("no node %q", path)
		}
		size += naive.length(path)
		got := map[string]uint64{}
		for _, o := range tree.nodes[at].owners {
			got[string(tree.names[o.id])] = o.stamp
		}
		if !maps.Equal(got, want.stamps) {
			t.Fatalf("%q is owned by %v, want %v", path, got, want.stamps)
		}
	}
	for _, o := range owners {
		if got, want := tree.chars[tree.id(wire.Replica(o))], naive.chars(o); got != want {
			t.Fatalf("%s has %d characters, want %d", o, got, want)
		}
	}
	if tree.size != size {
		t.Fatalf("%d characters in all, want %d", tree.size, size)
	}
}

// TestSGLangTreeFirst has the cases that the recorded decisions turn on.
func TestSGLangTreeFirst(t *testing.T) {
	t.Parallel()
	tree := newSGLangTree()
	a, b := tree.id("a"), tree.id("b")
	tree.insert([]rune("hello world"), a)
	tree.insert([]rune("hello there"), b)
	for text, want := range map[string]struct {
		chars int
		who   int32
	}{
		"hello":         {5, a}, // the split copies who was first
		"hello w":       {7, a},
		"hello they":    {9, b}, // into a part of a node
		"hello world!?": {11, a},
		"":              {0, a},
		"x":             {0, a},
	} {
		node, chars := tree.match([]rune(text))
		if chars != want.chars || tree.holder(node) != want.who {
			t.Errorf("%q: %d characters, to %d, want %+v", text, chars, tree.holder(node), want)
		}
	}
	tree.insert([]rune("hello world"), b) // a later owner changes nothing
	if node, _ := tree.match([]rune("hello world")); tree.holder(node) != a {
		t.Error("the later owner won")
	}
	tree.drop(a)
	if node, _ := tree.match([]rune("hello world")); tree.holder(node) != b {
		t.Error("the one that is gone won")
	}
	if got := fmt.Sprint(tree.chars); got != "[0 16]" {
		t.Errorf("characters %s", got)
	}
}
