package route

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestRouterDraws holds what a Router does over many requests against the chances
// that Decide gives, for every policy.
func TestRouterDraws(t *testing.T) {
	t.Parallel()
	const asked = 4000
	req := Request{Tokens: 160, BlockSize: 16, Contents: []string{"You are kind. Hello"}, Session: "s"}
	cands := []Candidate{cand("a", 2, 0, 0, 3), cand("b", 2, 0, 0, 1), cand("c", 0, 0, 0, 1), cand("d", 5, 0, 0, 9)}
	for _, name := range Policies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := NewRouter(*configured(t, name), rand.New(rand.NewPCG(1, 2)))
			// The chances of each request are added up; a router may change its
			// mind by what it remembers.
			var due, got [4]float64
			for range asked {
				d, err := r.Decide(&req, cands)
				if err != nil {
					t.Fatal(err)
				}
				for i := range due {
					due[i] += d.Candidates[i].Probability
				}
				at := r.Route(&req, cands)
				if !slices.Contains(d.Choice, at) {
					t.Fatalf("went to %d, and only %v can be chosen: %q", at, d.Choice, d.Trace)
				}
				got[at]++
			}
			for i := range due {
				// Six standard deviations of a fair coin.
				if diff := got[i] - due[i]; diff*diff > 36*asked/4 {
					t.Errorf("%s got %v requests, and %.0f were due", cands[i].Replica, got[i], due[i])
				}
			}
		})
	}
}

// TestRouterDrawsTwo does so where two are drawn by a condition, and one gives way.
func TestRouterDrawsTwo(t *testing.T) {
	t.Parallel()
	const asked = 6000
	req := Request{Tokens: 160, BlockSize: 16, Symbols: []rune{1, 2, 3}, Cut: true}
	cands := []Candidate{cand("a", 0, 0, 0, 3), cand("b", 0, 0, 0, 1), cand("c", 0, 0, 0, 1), cand("d", 0, 0, 0, 9)}
	cands[1].Load.Waiting, cands[3].Load.Waiting = 2, 2 // these two are full
	// By hand, of the 6 pairs: the lower load, or either. Then: a and c have room, of
	// which c is the less pressed, and takes those of b and d too.
	for name, want := range map[string][4]float64{
		"ray-prefix-affinity": {1. / 6, 5. / 12, 5. / 12, 0},
		"power-of-two":        {1. / 6, 5. / 12, 5. / 12, 0},
		"sglang-candidate-set worker_queue_limit=2": {2. / 6, 0, 4. / 6, 0},
	} {
		policy, set, _ := strings.Cut(name, " ")
		r := routed(t, policy, strings.Fields(set)...)
		d := asks(t, r, &req, cands)
		var got [4]float64
		for range asked {
			got[r.Route(&req, cands)]++
		}
		for i := range want {
			due := want[i] * asked
			if diff := got[i] - due; diff*diff > 36*asked/4 || math.Abs(d.Candidates[i].Probability-want[i]) > 1e-9 {
				t.Errorf("%s: %s got %v requests, and %.0f were due; its chance was %v", name, cands[i].Replica, got[i], due, d.Candidates[i].Probability)
			}
		}
		if at := r.Route(&req, cands[3:]); at != 0 {
			t.Errorf("%s: %d of one", name, at)
		}
	}
}

func TestRouterOfNobody(t *testing.T) {
	t.Parallel()
	for _, name := range Policies() {
		r := NewRouter(*configured(t, name), rand.New(rand.NewPCG(1, 2)))
		if at := r.Route(&Request{Tokens: 32, BlockSize: 16}, nil); at != -1 {
			t.Errorf("%s: %d", name, at)
		}
	}
}

// TestRoundRobinTurns goes on where the setting turn says.
func TestRoundRobinTurns(t *testing.T) {
	t.Parallel()
	r := NewRouter(*configured(t, "round-robin", "turn=5"), rand.New(rand.NewPCG(1, 2)))
	cands := []Candidate{cand("a", 0, 0, 0, 0), cand("b", 0, 0, 0, 0), cand("c", 0, 0, 0, 0)}
	var got []int
	for range 5 {
		got = append(got, r.Route(&Request{Tokens: 32, BlockSize: 16}, cands))
	}
	if want := []int{2, 0, 1, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
