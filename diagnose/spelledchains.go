package diagnose

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// spellings look at how the beginnings of stored chains are spelled. It needs what
// turns tokens into text, and looks at few chains.
type spellings struct {
	speech explain.Speech
	of     map[wire.Replica]*glances
	// second is the one in which left more chains may be looked at.
	second wire.Time
	left   int
	// specials are the vocabulary's tokens in brackets, nil until they are needed.
	specials map[string]bool
}

// Bounds of what is looked at.
const (
	glancesEach  = 8    // chains in a second, of all replicas
	glancesKept  = 32   // chains of a replica
	glancesDeep  = 1024 // tokens of a chain
	glancesStart = 4    // tokens that no picture stands among
	vocabMost    = 1 << 20
	vocabHoles   = 1 << 12 // ids without a token after which none is expected
)

// glances are the chains of one replica that were looked at last.
type glances struct {
	next wire.Time
	kept []glance
}

// glance is what was found about one chain.
type glance struct {
	at     wire.Time
	seq    uint64
	kind   explain.MismatchKind // Unexplained where nothing is wrong
	detail string
	token  int
	blocks int         // from there on
	tail   wire.Handle // its last block
}

func newSpellings() Memory { return &spellings{of: map[wire.Replica]*glances{}} }

// Clone implements Memory.
func (m *spellings) Clone() Memory {
	c := *m
	c.of = make(map[wire.Replica]*glances, len(m.of))
	for name, l := range m.of {
		c.of[name] = &glances{l.next, slices.Clone(l.kept)}
	}
	return &c
}

// Speak gives what turns tokens into text.
func (m *spellings) Speak(s explain.Speech) { m.speech = s }

// Step implements Memory.
func (m *spellings) Step(s *stream.Step, idx *index.Index) {
	switch {
	case m.speech == nil:
	case s.Kind == stream.Drop || s.Kind == stream.Forget:
		delete(m.of, s.Replica)
	case s.Kind == stream.Apply:
		for i := range s.Batch.Events {
			if e := &s.Batch.Events[i]; e.Kind == wire.Stored && e.Tier == wire.Device && !e.Plane && !e.Bigram && len(e.Tokens) > 0 && e.Aligned() {
				m.stored(s, e, idx)
			}
		}
	}
}

// stored looks at a chain, unless it goes on one that was looked at.
func (m *spellings) stored(s *stream.Step, e *wire.Event, idx *index.Index) {
	l := m.of[s.Replica]
	if l == nil {
		if len(m.of) >= maxRemembered {
			return
		}
		l = &glances{}
		m.of[s.Replica] = l
	}
	tail := e.Hashes[len(e.Hashes)-1]
	if e.Parent.Set {
		if i := slices.IndexFunc(l.kept, func(k glance) bool { return k.tail == e.Parent }); i >= 0 {
			l.kept[i].tail = tail
			return
		}
	}
	if s.At < l.next || !m.may(s.At) {
		return
	}
	head, ok := chainHead(s.Replica, e, idx)
	if !ok {
		return
	}
	m.left--
	l.next = s.At + max(TickEvery, wire.Time(len(m.of))*TickEvery/glancesEach)
	k, ok := m.glance(head)
	if !ok {
		return
	}
	k.at, k.seq, k.tail = s.At, s.Batch.Seq, tail
	k.blocks = max(len(head)/e.BlockSize-k.token/e.BlockSize, 0)
	if l.kept = append(l.kept, k); len(l.kept) > glancesKept {
		l.kept = slices.Clone(l.kept[1:])
	}
}

// may reports whether one more chain may be looked at.
func (m *spellings) may(at wire.Time) bool {
	if second := at / TickEvery; second != m.second {
		m.second, m.left = second, glancesEach
	}
	return m.left > 0
}

// chainHead gives the first tokens of the chain that a store ends.
func chainHead(name wire.Replica, e *wire.Event, idx *index.Index) ([]wire.Token, bool) {
	var before []wire.Token
	if e.Parent.Set {
		k, ok := idx.Resolve(name, e.Parent)
		if !ok {
			return nil, false
		}
		if before, _, ok = idx.Lineage(k.Seq, e.BlockSize, max(1, glancesDeep/e.BlockSize)); !ok {
			return nil, false
		}
		if k.Depth*e.BlockSize > len(before) {
			return before, true
		}
	}
	return slices.Concat(before, e.Tokens[:min(len(e.Tokens), glancesDeep)]), true
}

// firstBracket is a special token's text at the beginning of another.
var firstBracket = regexp.MustCompile(`^<[^\s<>]{1,62}>`)

// listOpening is a message that begins with a content list as JSON or as Python prints
// it. Results of tools may be such lists, so their roles are left out.
var listOpening = regexp.MustCompile(`>(?:user|system|assistant|model)(?:<[^\s<>]{1,62}>)?\s*\[\s*\{\s*["']type["']\s*:\s*["'](?:text|input_text|image_url)["']`)

// glance says what is wrong with a chain, and reports false where nothing can be told of
// it.
func (m *spellings) glance(head []wire.Token) (k glance, ok bool) {
	known := 0
	for known < len(head) {
		if _, is := m.speech.Text(head[known]); !is {
			break
		}
		known++
	}
	if known < min(len(head), glancesStart) {
		n := 0
		for _, t := range head {
			if _, is := m.speech.Text(t); is {
				n++
			}
		}
		// Without any there is no vocabulary.
		return glance{kind: explain.OtherVocabulary, detail: fmt.Sprintf("%s of the first %s ids of one are unknown here", wire.Grouped(len(head)-n), wire.Grouped(len(head)))}, n > 0
	}
	s := explain.Spelled(&prompt.Prompt{Tokens: head[:known]}, m.speech)
	text := func(i int) string { return s.Text[s.Spans[i].Start:s.Spans[i].End] }
	isBracket := func(s string) bool { return s != "" && firstBracket.FindString(s) == s }
	if known > 1 && head[0] == head[1] && isBracket(text(0)) {
		return glance{kind: explain.DoubledBOS}, true
	}
	for i := range min(2, known) { // a BOS may come first
		special := firstBracket.FindString(s.Text[s.Spans[i].Start:])
		if len(special) > len(text(i)) && m.isSpecial(special) {
			end := s.Spans[i].Start + len(special)
			pieces := 0
			for pieces+i < known && s.Spans[i+pieces].Start < end {
				pieces++
			}
			return glance{kind: explain.SpecialAsText, token: i, detail: fmt.Sprintf("1 token becomes %d", pieces)}, true
		}
		if !isBracket(text(i)) {
			break
		}
	}
	if at := listOpening.FindStringIndex(s.Text); at != nil {
		from := at[0] + strings.IndexByte(s.Text[at[0]:at[1]], '[')
		token, _ := slices.BinarySearchFunc(s.Spans, from, func(s prompt.Span, at int) int {
			if s.End <= at {
				return -1
			}
			return 1
		})
		return glance{kind: explain.ListAsJSON, token: token}, true
	}
	return glance{}, true
}

// isSpecial reports whether the vocabulary has a text in brackets as one token.
func (m *spellings) isSpecial(text string) bool {
	if m.specials == nil {
		m.specials = map[string]bool{}
		for t, holes := wire.Token(0), 0; t < vocabMost && holes < vocabHoles; t++ {
			word, ok := m.speech.Text(t)
			if holes++; !ok {
				continue
			}
			holes = 0
			if firstBracket.FindString(word) == word && word != "" {
				m.specials[word] = true
			}
		}
	}
	return m.specials[text]
}

// spelledChains tells of stored chains that are spelled as no chat template and
// tokenizer would have it.
func spelledChains(v View, mem Memory) []Finding {
	m := mem.(*spellings)
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		l := m.of[r.Replica]
		if l == nil || r.Link == wire.LinkGone {
			continue
		}
		of := map[explain.MismatchKind][]glance{}
		all := 0
		for _, k := range l.kept {
			if v.Now-k.at <= quiet {
				all++
				of[k.kind] = append(of[k.kind], k)
			}
		}
		for _, kind := range slices.Sorted(maps.Keys(of)) {
			bad := of[kind]
			// A beginning that only some chains have is template-drift's.
			if kind == explain.Unexplained || len(bad) < least || kind != explain.ListAsJSON && 2*len(bad) <= all {
				continue
			}
			out = append(out, misspelledChains(r, bad, all))
		}
	}
	return out
}

func misspelledChains(r *Replica, bad []glance, all int) Finding {
	last := bad[len(bad)-1]
	line := explain.Mismatch{Kind: last.kind, Detail: last.detail}
	f := about(r, Warning, bad[0].at)
	f.about = last.kind.String()
	token, blocks := last.token, 0
	for _, k := range bad {
		token, blocks = min(token, k.token), blocks+k.blocks
	}
	f.Evidence.SeqFrom, f.Evidence.SeqTo = p(bad[0].seq), p(last.seq)
	f.Evidence.Token, f.Evidence.Block, f.Evidence.Span = p(token), p(token/max(1, r.Index.BlockSize)), p(last.kind.String())
	f.Effect.Blocks = p(blocks)
	f.Title = fmt.Sprintf("%s of the last %s stored prompts that were looked at have this at token %s: %s", wire.Grouped(len(bad)), wire.Grouped(all), wire.Grouped(token), line.Line("in the engine"))
	f.Counterfactual = fmt.Sprintf("whoever renders and tokenizes such a chat as the model's maker has it finds none of their %s from there on", count(uint64(blocks), "block"))
	f.Next = spellingSteps[last.kind]
	return f
}
