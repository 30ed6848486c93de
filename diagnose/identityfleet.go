package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// sizes remembers each replica's block size over its lives.
type sizes struct{ of map[wire.Replica]life }

// life is a replica's block size now, and before its last restart.
type life struct {
	now, before int
	restarted   wire.Time
}

const maxRemembered = 4096 // replicas

func newSizes() Memory { return &sizes{map[wire.Replica]life{}} }

func (m *sizes) Clone() Memory { return &sizes{maps.Clone(m.of)} }

func (m *sizes) Step(s *stream.Step, _ *index.Index) {
	l, known := m.of[s.Replica]
	was := l
	switch s.Kind {
	case stream.Drop:
		l = life{before: cmp.Or(l.now, l.before), restarted: s.At}
	case stream.Apply:
		for i := range s.Batch.Events {
			e := &s.Batch.Events[i]
			if e.Kind == wire.Stored && e.Tier == wire.Device && e.Group <= 0 && e.Aligned() {
				l.now = e.BlockSize
			}
		}
	}
	if l != was && (known || len(m.of) < maxRemembered) {
		m.of[s.Replica] = l
	}
}

// changeShown is how long a changed block size is a finding.
const changeShown = 10 * minute

func blockSizeMismatch(v View, mem Memory) []Finding {
	var out []Finding
	models := map[string]map[int][]*Replica{}
	for i := range v.Replicas {
		r := &v.Replicas[i]
		size := r.Index.BlockSize
		if r.Link == wire.LinkGone || size <= 0 || len(r.Index.Groups) > 1 {
			continue // groups can have sizes of their own
		}
		if r.Model != "" {
			if models[r.Model] == nil {
				models[r.Model] = map[int][]*Replica{}
			}
			models[r.Model][size] = append(models[r.Model][size], r)
		}
		if page := r.Facts.BlockSize; page > 0 && page != size && r.Events.Stored > 0 {
			f := about(r, Warning, 0)
			f.about = "page"
			f.Effect.Blocks = p(r.Index.Resident[wire.Device])
			f.Title = fmt.Sprintf("its events have blocks of %d tokens, its metrics page says %d", size, page)
			f.Counterfactual = "a router that takes the size from the engine's configuration would accept these blocks if they were of " + strconv.Itoa(page) + " tokens"
			f.Next = fmt.Sprintf("set the router's block size to %d; context parallelism multiplies the size in events", size)
			out = append(out, f)
		}
		l := mem.(*sizes).of[r.Replica]
		if l.before > 0 && l.now > 0 && l.before != l.now && v.Now-l.restarted <= changeShown {
			f := about(r, Warning, l.restarted)
			f.about = "life"
			f.Title = fmt.Sprintf("since its restart it has blocks of %d tokens, before it had %d", l.now, l.before)
			f.Counterfactual = "with the old size the router would go on matching its blocks"
			f.Next = "tell the router: one that learned the size when the replica registered drops the new blocks or matches none"
			out = append(out, f)
		}
	}
	for _, model := range slices.Sorted(maps.Keys(models)) {
		if by := models[model]; len(by) > 1 {
			out = append(out, sizesDiffer(model, by))
		}
	}
	return out
}

// sizesDiffer tells of the replicas of a model that have other blocks than most.
func sizesDiffer(model string, by map[int][]*Replica) Finding {
	order := slices.SortedFunc(maps.Keys(by), func(a, b int) int {
		return cmp.Or(cmp.Compare(len(by[b]), len(by[a])), cmp.Compare(a, b))
	})
	f := Finding{Severity: Warning, Subject: "fleet", about: model}
	var said []string
	blocks := 0
	for i, size := range order {
		var names []wire.Replica
		for _, r := range by[size] {
			names = append(names, r.Replica)
			if i > 0 {
				blocks += r.Index.Resident[wire.Device]
			}
		}
		if i == 1 {
			f.Evidence.Replica = names[0]
		}
		said = append(said, fmt.Sprintf("%d on %s", size, some(names)))
	}
	f.Effect.Blocks = p(blocks)
	f.Title = "blocks have different sizes, in tokens: " + strings.Join(said, "; ")
	f.Counterfactual = fmt.Sprintf("with %d tokens everywhere a router of that size would see all replicas; now no match on the others is expected, and is no cold cache", order[0])
	f.Next = "start all engines of a model with the same --block-size (--page-size), and the router with it: Dynamo drops blocks of another size"
	return f
}

// formOf gives the form of a dialect's events, "" where it is not known or mixed.
func formOf(dialect string) string {
	switch {
	case strings.Contains(dialect, "+"):
		return ""
	case strings.Contains(dialect, "array"):
		return "arrays"
	case strings.Contains(dialect, "map"):
		return "maps"
	}
	return ""
}

const (
	formsRead = "check that whoever consumes events reads both forms: Dynamo and llm-d's vLLM adapter do; AIBrix and llm-d's SGLang adapter (August 2026) read arrays alone, and AIBrix reconnects for ever over a map"
	oneForm   = "with engines of one version a consumer that reads their form would lose nothing"
)

func dialectMixed(v View, _ Memory) []Finding {
	var out []Finding
	forms := map[string][]wire.Replica{}
	blocks := map[string]int{}
	for i := range v.Replicas {
		r := &v.Replicas[i]
		if r.Link == wire.LinkGone {
			continue
		}
		if form := formOf(r.Dialect); form != "" {
			forms[form] = append(forms[form], r.Replica)
			blocks[form] += r.Index.Copies
		}
		if !r.MixedDialect {
			continue
		}
		f := about(r, Warning, 0)
		f.Title = fmt.Sprintf("its events come in several dialects: %s", strings.ReplaceAll(r.Dialect, "+", ", "))
		f.Counterfactual = "one publisher has one dialect from its start to its end"
		f.Next = "look whether two publishers share its address or name"
		if r.Restarts > 0 {
			f.Severity = Info
			f.Title += fmt.Sprintf("; it restarted %s", count(uint64(r.Restarts), "time"))
			f.Counterfactual = oneForm
			f.Next = formsRead
		}
		out = append(out, f)
	}
	if len(forms) < 2 {
		return out
	}
	few := "arrays"
	if len(forms["maps"]) < len(forms["arrays"]) {
		few = "maps"
	}
	f := Finding{Severity: Warning, Subject: "fleet"}
	f.Evidence.Replica = forms[few][0]
	f.Effect.Blocks = p(blocks[few])
	f.Title = fmt.Sprintf("%s send events as arrays, %s as maps: engines of two versions or makes", some(forms["arrays"]), some(forms["maps"]))
	f.Counterfactual = oneForm
	f.Next = formsRead
	return append(out, f)
}

// podOf reads the pod in the deployers' convention kv@<pod>@<model>.
func podOf(topic string) (pod, model string) {
	parts := strings.SplitN(topic, "@", 3)
	if len(parts) != 3 || parts[0] != "kv" {
		return "", ""
	}
	return parts[1], parts[2]
}

// splitRank splits pod/rank; rank is -1 where a name has none.
func splitRank(name wire.Replica) (base string, rank int) {
	base, text, ok := strings.Cut(string(name), "/")
	if n, err := strconv.Atoi(text); ok && err == nil && n >= 0 {
		return base, n
	}
	return string(name), -1
}

func foreignReplica(v View, _ Memory) []Finding {
	var out []Finding
	names := map[string]bool{}
	type voice struct {
		topic string
		rank  int
	}
	voices := map[voice][]*Replica{}
	for name, r := range here(v) {
		base, _ := splitRank(name)
		names[base] = true
		if pod, _ := podOf(r.Topic); pod != "" {
			k := voice{r.Topic, r.Rank}
			voices[k] = append(voices[k], r)
		}
	}
	for i := range v.Replicas {
		r := &v.Replicas[i]
		if r.Link == wire.LinkGone || r.Batches == 0 {
			continue
		}
		base, rank := splitRank(r.Replica)
		pod, model := podOf(r.Topic)
		foreign := func(on, title, next string) {
			f := about(r, Warning, 0)
			f.about = on
			f.Effect.Blocks = p(r.Index.Copies)
			f.Title = title
			f.Counterfactual = "with names that fit, a router that goes by them would credit these blocks to the replica that has them"
			f.Next = next
			out = append(out, f)
		}
		if rank >= 0 && r.Rank >= 0 && rank != r.Rank {
			foreign("rank", fmt.Sprintf("its batches say data-parallel rank %d", r.Rank),
				fmt.Sprintf("check the port: vLLM publishes rank n on its base port + n, so the address given for rank %d is that of another", rank))
		}
		if pod != "" && pod != base && names[pod] {
			foreign("pod", fmt.Sprintf("its topic names %s, which is another replica", wire.Printable(pod)),
				"check addresses and topics: either this address is that replica's, or the engine was started with its topic")
		}
		if model != "" && r.Facts.Model != "" && model != r.Facts.Model {
			foreign("model", fmt.Sprintf("its topic says model %s, its metrics page %s", wire.Printable(model), wire.Printable(r.Facts.Model)),
				"give the engine the topic kv@<pod>@<model> with the model's name as served; llm-d files its blocks under what the topic says")
		}
		if twins := voices[voice{r.Topic, r.Rank}]; len(twins) > 1 && slices.MinFunc(twins, byName) == r {
			var all []wire.Replica
			for _, t := range twins {
				all = append(all, t.Replica)
			}
			slices.Sort(all)
			foreign("topic", fmt.Sprintf("%s publish under one topic, %s", some(all), wire.Printable(r.Topic)),
				"give each engine its own address and port in the topic: llm-d takes them for one pod, and its blocks for those of both")
		}
	}
	return out
}

func byName(a, b *Replica) int { return cmp.Compare(a.Replica, b.Replica) }
