package route

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// This file holds Ray's rules against what its own classes did.

func TestRayTree(t *testing.T)            { t.Parallel(); checkRayTree(t, testRoot) }
func TestOracleRayTree(t *testing.T)      { t.Parallel(); checkRayTree(t, refdata.Root(t)) }
func TestRayDecisions(t *testing.T)       { t.Parallel(); checkRayDecisions(t, testRoot) }
func TestOracleRayDecisions(t *testing.T) { t.Parallel(); checkRayDecisions(t, refdata.Root(t)) }
func TestRayRing(t *testing.T)            { t.Parallel(); checkRayRing(t, testRoot) }
func TestOracleRayRing(t *testing.T)      { t.Parallel(); checkRayRing(t, refdata.Root(t)) }
func TestRayWorkerIDs(t *testing.T)       { t.Parallel(); checkRayWorkerIDs(t, testRoot) }
func TestOracleRayWorkerIDs(t *testing.T) { t.Parallel(); checkRayWorkerIDs(t, refdata.Root(t)) }

// rayTreeRow is an operation on a tree, and how the tree was after it.
type rayTreeRow struct {
	Case      string         `json:"case"`
	Step      int            `json:"i"`
	Op        string         `json:"op"`
	Text      string         `json:"text"`
	Tenant    wire.Replica   `json:"tenant"`
	Tenants   []wire.Replica `json:"tenants"`
	Available []wire.Replica `json:"available"`
	Time      float64        `json:"time"`
	MinRemove int            `json:"min_remove"`
	Threshold int            `json:"threshold"`
	Target    int            `json:"target"`

	Matched string         `json:"matched_text"`
	Owners  []wire.Replica `json:"matched_tenants"`
	Result  []wire.Replica `json:"result"`
	Removed any            `json:"removed"`
	Evicted map[string]int `json:"evicted"`

	Chars  map[wire.Replica]int `json:"chars"`
	Dump   any                  `json:"dump"`
	Digest string               `json:"digest"`
}

func checkRayTree(t *testing.T, root string) {
	ops, dumps := map[string]int{}, 0
	refdata.Each(t, refdata.Files(t, root, "ray/prefix_tree_ops.jsonl.gz")[0], func() func(int, rayTreeRow) {
		tree, name := &rayTree{}, ""
		return func(_ int, r rayTreeRow) {
			if r.Case != name {
				tree, name = &rayTree{}, r.Case
			}
			ops[r.Op]++
			where := fmt.Sprintf("%s %d %s", r.Case, r.Step, r.Op)
			tree.play(t, where, &r)
			got := map[wire.Replica]int{}
			for _, x := range tree.tenants {
				got[x.name] = x.chars
			}
			if !maps.Equal(got, r.Chars) {
				t.Fatalf("%s: characters %v, want %v", where, got, r.Chars)
			}
			json := pythonTree(&tree.root)
			if sum := sha256.Sum256([]byte(json)); hex.EncodeToString(sum[:8]) != r.Digest {
				t.Fatalf("%s: digest %x, want %s\n%s", where, sum[:8], r.Digest, json)
			}
			if r.Dump != nil {
				dumps++
			}
			if bytes := tree.measure(); tree.bytes != bytes {
				t.Fatalf("%s: %d bytes are counted, and it has %d", where, tree.bytes, bytes)
			}
		}
	}())
	total := 0
	for _, n := range ops {
		total += n
	}
	t.Logf("%d operations: %v; every tree's digest is equal, %d of them come with the tree itself", total, ops, dumps)
	if len(ops) < 7 {
		t.Errorf("operations %v, and there are 7 kinds", ops)
	}
}

// play carries out an operation and compares its answer.
func (t *rayTree) play(tb testing.TB, where string, r *rayTreeRow) {
	tb.Helper()
	fail := func(got, want any) { tb.Fatalf("%s: %v, want %v", where, got, want) }
	at := wire.Time(r.Time) // whole seconds, which the dump shows
	switch r.Op {
	case "add_tenants":
		for _, name := range r.Tenants {
			t.add(name, at)
		}
	case "remove_tenants":
		got, want := map[string]any{}, r.Removed.(map[string]any)
		for _, name := range r.Tenants {
			got[string(name)] = t.remove(name)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			fail(got, want)
		}
	case "insert":
		if x := t.byName[r.Tenant]; x != nil {
			t.insert([]rune(r.Text), 1, x, at)
		}
	case "evict_tenant_by_lru":
		got := 0
		if x := t.byName[r.Tenant]; x != nil {
			got = t.evict(x, r.MinRemove)
		}
		if fmt.Sprint(got) != fmt.Sprint(r.Removed) {
			fail(got, r.Removed)
		}
	case "eviction_pass":
		before, got := map[string]int{}, map[string]int{}
		for _, x := range t.tenants {
			before[string(x.name)] = x.chars
		}
		t.sweep(r.Threshold, r.Target)
		for _, x := range t.tenants {
			if gone := before[string(x.name)] - x.chars; gone > 0 {
				got[string(x.name)] = gone
			}
		}
		if !maps.Equal(got, r.Evicted) {
			fail(got, r.Evicted)
		}
	case "prefix_match":
		names, asked := r.Available, []*rayTenant(nil)
		if len(names) == 0 {
			for _, x := range t.tenants {
				names = append(names, x.name)
			}
		}
		for _, name := range names {
			asked = append(asked, t.byName[name])
		}
		text := []rune(r.Text)
		n, end := t.match(text, asked)
		var owners []wire.Replica
		for i, x := range asked {
			if x != nil && end.owner(x) != nil {
				owners = append(owners, names[i])
			}
		}
		if got := string(text[:n]); got != r.Matched || !slices.Equal(owners, r.Owners) {
			fail(fmt.Sprintf("%q %v", got, owners), fmt.Sprintf("%q %v", r.Matched, r.Owners))
		}
	case "get_smallest_tenants":
		if got := t.smallest(); !slices.Equal(got, r.Result) {
			fail(got, r.Result)
		}
	default:
		tb.Fatalf("%s is no operation that this test knows", where)
	}
}

// smallest names the tenants with the fewest characters.
func (t *rayTree) smallest() (out []wire.Replica) {
	for _, x := range t.tenants {
		if !slices.ContainsFunc(t.tenants, func(o *rayTenant) bool { return o.chars < x.chars }) {
			out = append(out, x.name)
		}
	}
	return out
}

// measure counts anew what the tree counts as it goes.
func (t *rayTree) measure() (bytes int) {
	var walk func(n *rayNode)
	walk = func(n *rayNode) {
		if n != &t.root {
			bytes += rayNodeBytes + 4*len(n.text) + rayOwnerBytes*len(n.owners)
		}
		for _, c := range n.children {
			walk(c)
		}
	}
	walk(&t.root)
	return bytes
}

// pythonTree writes a tree as Python's json.dumps does with sorted keys, of which
// the digests are.
func pythonTree(n *rayNode) string {
	var b strings.Builder
	b.WriteString(`{"c": [`)
	children := slices.SortedFunc(maps.Values(n.children), func(a, b *rayNode) int { return slices.Compare(a.text, b.text) })
	for i, c := range children {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(pythonTree(c))
	}
	b.WriteString(`], "t": {`)
	owners := slices.SortedFunc(slices.Values(n.owners), func(a, b *rayOwner) int { return strings.Compare(string(a.tenant.name), string(b.tenant.name)) })
	for i, o := range owners {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `"%s": %d.0`, o.tenant.name, o.used)
	}
	b.WriteString(`}, "text": "`)
	for _, r := range n.text {
		if r > 0xFFFF || r == '"' || r == '\\' || r < ' ' {
			panic(fmt.Sprintf("a character that this test does not write: %q", r))
		}
		if r > '~' {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	b.WriteString(`"}`)
	return b.String()
}

// rayDecisionRow is a choice of the router. Its case's threshold is null for
// infinity.
type rayDecisionRow struct {
	Case      string               `json:"case"`
	Imbalance *float64             `json:"imbalanced_threshold"`
	MatchRate float64              `json:"match_rate_threshold"`
	Step      int                  `json:"i"`
	Text      string               `json:"text"`
	Queue     map[wire.Replica]int `json:"queue"`
	Branch    string               `json:"branch"`
	Group     []wire.Replica       `json:"router_group"`
	Drawn     []wire.Replica       `json:"pow2_fallback"`
	Matched   string               `json:"matched_text"`
	Rate      float64              `json:"match_rate"`
	Chosen    wire.Replica         `json:"chosen"`
}

var rayBranchWords = map[string]rayBranch{"matched": rayMatched, "smallest": raySmallest, "imbalanced_pow2": rayImbalanced}

func checkRayDecisions(t *testing.T, root string) {
	branches := map[string]int{}
	var router *Router
	name := ""
	refdata.Each(t, refdata.Files(t, root, "ray/router_decisions.jsonl.gz")[0], func(_ int, r rayDecisionRow) {
		var cands []Candidate
		for _, name := range slices.Sorted(maps.Keys(r.Queue)) {
			cands = append(cands, Candidate{Replica: name, Load: Load{State: LoadKnown, Requests: r.Queue[name]}})
		}
		if r.Case != name {
			set := []string{fmt.Sprintf("match_rate_threshold=%v", r.MatchRate)}
			if r.Imbalance != nil {
				set = append(set, fmt.Sprintf("imbalanced_threshold=%v", *r.Imbalance))
			}
			router, name = NewRouter(*configured(t, "ray-prefix-affinity", set...), rand.New(rand.NewPCG(1, 2))), r.Case
			for _, c := range cands {
				router.Joined(c.Replica)
			}
		}
		branches[r.Branch]++
		where := fmt.Sprintf("%s %d", r.Case, r.Step)
		text := []rune(r.Text)
		req := Request{Tokens: len(text), BlockSize: 16, Contents: []string{r.Text}, At: wire.Time(r.Step)}
		d, err := router.Decide(&req, cands)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}

		in := &router.in
		in.begin(&req, cands)
		v := readRayPrefix(in)
		if v.branch != rayBranchWords[r.Branch] {
			t.Fatalf("%s: branch %d, want %s", where, v.branch, r.Branch)
		}
		m := router.mem.(*rayPrefixes)
		all := m.tree.tenants
		if n, _ := m.tree.match(text, all); string(text[:n]) != r.Matched || math.Abs(float64(n)/float64(len(text))-r.Rate) > 1e-12 {
			t.Fatalf("%s: %q, want %q of rate %v", where, string(text[:n]), r.Matched, r.Rate)
		}
		at := slices.IndexFunc(cands, func(c Candidate) bool { return c.Replica == r.Chosen })
		if v.drawn() {
			// The pair is drawn: of it the shorter queue is taken, the first on a tie.
			best := slices.MinFunc(r.Drawn, func(a, b wire.Replica) int { return r.Queue[a] - r.Queue[b] })
			if best != r.Chosen || !slices.Contains(d.Choice, at) {
				t.Fatalf("%s: %v can be chosen, of %v %s was", where, d.Names(d.Choice), r.Drawn, r.Chosen)
			}
		} else {
			if math.Abs(v.rate-r.Rate) > 1e-12 {
				t.Fatalf("%s: rate %v, want %v", where, v.rate, r.Rate)
			}
			var group []int
			for n, place := range v.place {
				if place >= 0 {
					group = append(group, n)
				}
			}
			slices.SortFunc(group, func(a, b int) int { return int(v.place[a] - v.place[b]) })
			if got := d.Names(group); !slices.Equal(got, r.Group) {
				t.Fatalf("%s: group %v, want %v", where, got, r.Group)
			}
			if got := d.Names(d.Choice); !slices.Equal(got, []wire.Replica{r.Chosen}) {
				t.Fatalf("%s: %v, want %s", where, got, r.Chosen)
			}
		}
		m.took(in, at)
	})
	t.Logf("decisions by branch: %v", branches)
	if len(branches) < 3 {
		t.Errorf("branches %v, and the data has 3", branches)
	}
}

func checkRayRing(t *testing.T, root string) {
	// The first row is the ring, the others are keys.
	type row struct {
		Seed     uint64            `json:"seed"`
		Vnodes   int               `json:"vnodes"`
		Fallback int               `json:"fallback"`
		Replicas []wire.Replica    `json:"replicas"`
		Samples  map[string]uint64 `json:"vnode_hash_samples"`
		Key      string            `json:"key"`
		Hash     uint64            `json:"hash"`
		Ranked   []wire.Replica    `json:"ranked"`
	}
	var cands []Candidate
	var cfg *Config
	keys, points := 0, 0
	refdata.Each(t, refdata.Files(t, root, "ray/consistent_hash.jsonl.gz")[0], func(_ int, r row) {
		if r.Vnodes > 0 {
			if r.Seed != rayHashSeed {
				t.Fatalf("seed %x", r.Seed)
			}
			cfg = configured(t, "ray-consistent-hashing", fmt.Sprint("num_virtual_nodes=", r.Vnodes), fmt.Sprint("num_fallback_replicas=", r.Fallback))
			for _, name := range r.Replicas {
				cands = append(cands, Candidate{Replica: name})
			}
			for name, want := range r.Samples {
				points++
				if got, _ := rayRing.hash(name); got != want {
					t.Errorf("%s: %d, want %d", name, got, want)
				}
			}
			return
		}
		keys++
		if got, _ := rayRing.hash(r.Key); got != r.Hash {
			t.Fatalf("%s: %d, want %d", r.Key, got, r.Hash)
		}
		d := decide(t, cfg, &Request{BlockSize: 16, Session: r.Key}, cands)
		// One after the other drops out, and the next of the rank takes over.
		left := slices.Clone(cands)
		for n, want := range r.Ranked {
			if got := d.Names(d.Choice); !slices.Equal(got, []wire.Replica{want}) {
				t.Fatalf("%s: %v at rank %d, want %s", r.Key, got, n, want)
			}
			for i := range left {
				left[i].Overloaded = left[i].Overloaded || left[i].Replica == want
			}
			d = decide(t, cfg, &Request{BlockSize: 16, Session: r.Key}, left)
		}
	})
	t.Logf("%d points and %d keys", points, keys)
	if keys == 0 || points == 0 {
		t.Error("nothing was compared")
	}
}

func checkRayWorkerIDs(t *testing.T, root string) {
	n := 0
	refdata.Each(t, refdata.Files(t, root, "ray/worker_id.jsonl.gz")[0], func(_ int, r struct {
		Unique string `json:"replica_unique_id"`
		Worker uint64 `json:"worker_id"`
	},
	) {
		n++
		if got := RayWorkerID(r.Unique); got != r.Worker {
			t.Errorf("%s: %d, want %d", r.Unique, got, r.Worker)
		}
	})
	t.Logf("%d ids", n)
	if n == 0 {
		t.Error("nothing was compared")
	}
}
