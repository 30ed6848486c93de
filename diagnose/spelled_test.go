package diagnose

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// counted spells every token and counts how often it is asked.
type counted struct{ asked int }

func (c *counted) Text(t wire.Token) (string, bool) {
	c.asked++
	return fmt.Sprint(" w", t), true
}

func (c *counted) Encode(context.Context, string) ([]wire.Token, []prompt.Span, error) {
	panic("nothing is encoded while records come in")
}

// stores are prompts of so many blocks of 16 tokens, in turn of some replicas, of which
// every second one goes on the prompt before it.
func stores(replicas, n, blocks int, do func(s *stream.Step)) {
	r := rand.New(rand.NewPCG(3, 4))
	tails := make([]wire.Handle, replicas)
	next := uint64(1)
	for i := range n {
		who := i % replicas
		e := wire.Event{Kind: wire.Stored, Group: -1, BlockSize: 16, Tokens: random(r, 16*blocks)}
		if i/replicas%2 == 1 {
			e.Parent = tails[who]
		}
		for range blocks {
			e.Hashes = append(e.Hashes, wire.IntHandle(next))
			next++
		}
		tails[who] = e.Hashes[blocks-1]
		do(&stream.Step{
			Kind: stream.Apply, Replica: wire.Replica(fmt.Sprint("r", who)), At: 1e9 + wire.Time(i)*1e9/5000,
			Batch: &wire.Batch{Seq: uint64(i), Events: []wire.Event{e}},
		})
	}
}

// TestMismatchOfNoBlock: tokens that differ in the block begun alone cost nothing.
func TestMismatchOfNoBlock(t *testing.T) {
	t.Parallel()
	for theirs, want := range map[int]Severity{47: Info, 48: Warning} {
		m := explain.Mismatch{Kind: explain.OtherTemplate, Token: 40, Tokens: [2]int{44, theirs}}
		s := explain.Spelling{Log: "r", Replica: "r", Compared: 3, Others: slices.Repeat([]explain.Other{{Start: 1, Mismatch: m}}, 3)}
		v := View{Now: 2, Audit: &explain.Audit{Spelled: []explain.Spelling{s}}, Replicas: make([]Replica, 1)}
		v.Replicas[0].Replica, v.Replicas[0].Index.BlockSize = "r", 16
		found := tokenizerMismatch(v)
		if len(found) != 1 || found[0].Severity != want || strings.HasSuffix(found[0].Title, "no full block of theirs is lost by it") != (want == Info) {
			t.Errorf("%d tokens: %+v", theirs, found)
		}
	}
}

// TestFewChainsAreSpelled: however much is stored, a few chains a second are looked at,
// of all replicas in turn.
func TestFewChainsAreSpelled(t *testing.T) {
	t.Parallel()
	const replicas, seconds = 40, 10
	speech := &counted{}
	m := newSpellings().(*spellings)
	m.Speak(speech)
	idx := index.New(index.Options{MaxBlocks: 1 << 20})
	stores(replicas, 5000*seconds, 4, func(s *stream.Step) {
		m.Step(s, idx)
		idx.Apply(s.Replica, &s.Batch.Events[0], false)
	})
	all, least := 0, 1<<30
	for _, l := range m.of {
		all, least = all+len(l.kept), min(least, len(l.kept))
	}
	if all > (seconds+1)*glancesEach || all < seconds*glancesEach/2 || least == 0 || len(m.of) != replicas {
		t.Errorf("%d chains looked at in %d s, of one replica %d", all, seconds, least)
	}
	// Each chain is spelled twice: to see that it can be, and for what it says.
	if most := 2 * all * glancesDeep; speech.asked > most {
		t.Errorf("%d tokens spelled, want at most %d", speech.asked, most)
	}
	c := m.Clone().(*spellings)
	c.of["r0"].kept[0].kind = explain.DoubledBOS
	if m.of["r0"].kept[0].kind == explain.DoubledBOS {
		t.Error("a copy shares what it remembers")
	}
}

// TestSpelledBounds: a replica's chains are bounded, and go with it.
func TestSpelledBounds(t *testing.T) {
	t.Parallel()
	m := newSpellings().(*spellings)
	idx := index.New(index.Options{MaxBlocks: 1 << 16})
	stores(1, 100, 1, func(s *stream.Step) { m.Step(s, idx) })
	if len(m.of) != 0 {
		t.Error("without a tokenizer something is remembered")
	}
	m.Speak(&counted{})
	stores(1, 300_000, 1, func(s *stream.Step) {
		s.Batch.Events[0].Parent = wire.Handle{} // each a prompt of its own
		m.Step(s, idx)
	})
	if got := len(m.of["r0"].kept); got != glancesKept {
		t.Errorf("%d chains kept, want %d", got, glancesKept)
	}
	m.Step(&stream.Step{Kind: stream.Forget, Replica: "r0"}, idx)
	if len(m.of) != 0 {
		t.Error("one that left is still remembered")
	}
}

// TestFirstTokensTell: chains of the words of a small vocabulary, good and bad.
func TestFirstTokensTell(t *testing.T) {
	t.Parallel()
	words := []string{"<bos>", "<|u|>", "<", "|", "u", ">", "user", "\n", `[{"type":`, ` "text"`, "Hello", "<b", "<tool_response>", "[{'type': 'text'"}
	m := &spellings{speech: listed(words)}
	at := func(say ...string) (out []wire.Token) {
		for _, w := range say {
			i := slices.Index(words, w)
			if i < 0 {
				i = 1 << 40
			}
			out = append(out, wire.Token(i))
		}
		return out
	}
	for _, c := range []struct {
		chain []wire.Token
		kind  explain.MismatchKind
		token int
		ok    bool
	}{
		{at("<bos>", "<|u|>", "Hello"), explain.Unexplained, 0, true},
		{at("<bos>", "<bos>", "<|u|>"), explain.DoubledBOS, 0, true},
		{at("Hello", "Hello", "Hello"), explain.Unexplained, 0, true},
		{at("<", "|", "u", "|", ">", "Hello"), explain.SpecialAsText, 0, true},
		{at("<bos>", "<", "|", "u", "|", ">"), explain.SpecialAsText, 1, true},
		{at("<b", "|", ">", "Hello"), explain.Unexplained, 0, true}, // no token has that text
		{at("Hello", "<", "|", "u", "|", ">"), explain.Unexplained, 0, true},
		{at("<|u|>", "user", "\n", `[{"type":`, ` "text"`), explain.ListAsJSON, 3, true},
		{at("<|u|>", "user", "\n", `[{"type":`, "Hello"), explain.Unexplained, 0, true},
		{at("<|u|>", "user", "\n", "[{'type': 'text'", "Hello"), explain.ListAsJSON, 3, true},
		{at("<|u|>", "user", "\n", "<tool_response>", "\n", "[{'type': 'text'"), explain.Unexplained, 0, true},
		{at("<|u|>", "Hello", "[{'type': 'text'"), explain.Unexplained, 0, true},
		{at("?", "?", "user", "Hello"), explain.OtherVocabulary, 0, true},
		{at("<|u|>", "user", "\n", "Hello", "?", "?"), explain.Unexplained, 0, true}, // a picture's
		{at("?", "?", "?"), explain.OtherVocabulary, 0, false},
		{at("<|u|>"), explain.Unexplained, 0, true},
	} {
		k, ok := m.glance(c.chain)
		if ok != c.ok || k.kind != c.kind || k.token != c.token {
			t.Errorf("%v: %s at %d, %t, want %s at %d", c.chain, k.kind, k.token, ok, c.kind, c.token)
		}
	}
}

// listed is a vocabulary by id.
type listed []string

func (l listed) Text(t wire.Token) (string, bool) {
	if t >= wire.Token(len(l)) {
		return "", false
	}
	return l[t], true
}

func (l listed) Encode(context.Context, string) ([]wire.Token, []prompt.Span, error) {
	return nil, nil, nil
}

// BenchmarkSpellings is a second of 5,000 batches of 40 replicas, each four blocks of a
// prompt. It prints the share of one core that a second takes, without the index.
func BenchmarkSpellings(b *testing.B) {
	m := newSpellings().(*spellings)
	m.Speak(&counted{})
	idx := index.New(index.Options{MaxBlocks: 1 << 20})
	var spent time.Duration
	n := 0
	for b.Loop() {
		n++
		stores(40, 5000, 4, func(s *stream.Step) {
			s.At += wire.Time(n) * 1e9
			start := time.Now()
			m.Step(s, idx)
			spent += time.Since(start)
			idx.Apply(s.Replica, &s.Batch.Events[0], false)
		})
	}
	b.ReportMetric(100*spent.Seconds()/float64(n), "%core/s")
}
