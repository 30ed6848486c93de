package diagnose

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/wire"
)

// spellingSteps are what to do about each kind of mismatch.
var spellingSteps = map[explain.MismatchKind]string{
	explain.NoTemplate:      "have the router render chats with the engine's chat template, or ask the engine's /tokenize with the messages: joined contents are another prompt",
	explain.OtherTemplate:   "give engine, router and kvscope one chat template and the same arguments (--chat-template, --default-chat-template-kwargs, the model's revision); for models that vLLM renders by code of its own, such as gpt-oss, have the router ask /tokenize",
	explain.DoubledBOS:      "add the beginning of text once: add_special_tokens false for a text that a template rendered",
	explain.MissingBOS:      "tokenize plain prompts with add_special_tokens as the engine does, and rendered chats without",
	explain.SpecialAsText:   "have whoever tokenizes the rendered chat parse special tokens (split_special_tokens off)",
	explain.ListAsJSON:      "hand the text of the list's parts to the template, not the list as JSON; on vLLM look at --chat-template-content-format",
	explain.ListDropped:     "hand the text of the list's parts to the template; one that takes texts alone writes nothing for a list",
	explain.OtherWhiteSpace: "compare both chat templates, their line ends and trim settings, and look for a client or gateway that trims contents; kvscope diff shows the place",
	explain.OtherVocabulary: "give --tokenizer the folder of the model that is served, in its revision, and the router the same",
	explain.Unexplained:     "compare the request with the engine's token ids: kvscope diff shows the place",
}

// misspelled are the requests of one replica that differ in one way.
type misspelled struct {
	explain.Mismatch
	since                   wire.Time
	requests, blocks, first int
}

// tokenizerMismatch tells of requests of a log of which our model makes other tokens
// than the engine did.
func tokenizerMismatch(v View) []Finding {
	if v.Audit == nil {
		return nil
	}
	var out []Finding
	for i := range v.Audit.Spelled {
		s := &v.Audit.Spelled[i]
		f, size := spelledBy(v, s)
		for _, m := range waysOf(s, v.Now, size) {
			if m.requests >= auditRequests {
				out = append(out, m.finding(f, s.Compared, size))
			}
		}
		if s.Unrendered >= auditRequests && s.Unrendered > s.Compared {
			f.Severity, f.Since = Info, v.Now
			f.Title = fmt.Sprintf("%s of %s requests cannot be rendered here, so that their tokens are not compared: %s",
				wire.Grouped(s.Unrendered), wire.Grouped(s.Unrendered+s.Compared), wire.Printable(s.Why.Error()))
			f.Counterfactual = "with the template that the engine has they would be"
			f.Next = "give the chat template that the engine uses (--chat-template), and the folder of its model (--tokenizer)"
			out = append(out, f)
		}
	}
	return out
}

// spelledBy begins a finding about a log's replica, and gives its block size, 0 if it is
// not known.
func spelledBy(v View, s *explain.Spelling) (Finding, int) {
	for i := range v.Replicas {
		if r := &v.Replicas[i]; r.Replica == s.Replica {
			return about(r, Warning, 0), r.Index.BlockSize
		}
	}
	size := 0
	for i := range v.Replicas { // of a fleet as of one
		size = max(size, v.Replicas[i].Index.BlockSize)
	}
	return Finding{Severity: Warning, Subject: "fleet"}, size
}

// waysOf sums up in which ways requests differ, the most frequent first.
func waysOf(s *explain.Spelling, now wire.Time, size int) []*misspelled {
	type way struct {
		kind explain.MismatchKind
		here bool
	}
	var out []*misspelled
	at := map[way]*misspelled{}
	for i := range s.Others {
		o := &s.Others[i]
		if o.Start > now {
			break
		}
		k := way{o.Kind, o.Here}
		m := at[k]
		if m == nil {
			m = &misspelled{Mismatch: o.Mismatch, since: o.Start, first: o.Token}
			at[k] = m
			out = append(out, m)
		}
		if o.Lost(size) > m.Lost(size) {
			m.Mismatch = o.Mismatch // the worst stands for all
		}
		m.requests++
		m.blocks += o.Lost(size)
		m.first = min(m.first, o.Token)
	}
	slices.SortStableFunc(out, func(a, b *misspelled) int { return cmp.Compare(b.requests, a.requests) })
	return out
}

func (m *misspelled) finding(f Finding, compared, size int) Finding {
	f.Since, f.about = m.since, m.Kind.String()
	where := fmt.Sprintf("token %s", wire.Grouped(m.first))
	f.Evidence.Token, f.Evidence.Span = p(m.first), p(m.Kind.String())
	cost, gain := "", "the router would look for the blocks that the engine stores"
	if size > 0 {
		where += fmt.Sprintf(" (block %s)", wire.Grouped(m.first/size))
		cost = fmt.Sprintf("; %s of theirs match nothing", count(uint64(m.blocks), "block"))
		gain = fmt.Sprintf("%s of such prompts, now unknown to whoever renders as here, would be found where they are cached", count(uint64(m.blocks), "block"))
		f.Evidence.Block = p(m.first / size)
		f.Effect = Effect{Blocks: p(m.blocks), Tokens: p(m.blocks * size)}
		if m.blocks == 0 { // in the block begun, which no cache has
			f.Severity, cost, gain = Info, "; no full block of theirs is lost by it", "nothing more would be found"
		}
	}
	f.Title = fmt.Sprintf("%s of %s requests are other tokens here than in the engine, from %s on: %s%s", wire.Grouped(m.requests), wire.Grouped(compared), where, m.Line("in the engine"), cost)
	f.Counterfactual = "with the engine's tokens " + gain
	f.Next = spellingSteps[m.Kind]
	return f
}
