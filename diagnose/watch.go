package diagnose

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// Memory is what one check remembers of a fleet's past beyond what a View shows.
// It is bounded, whatever it is fed.
type Memory interface {
	// Step is told of a step of the streams before the index takes it.
	Step(s *stream.Step, idx *index.Index)
	// Clone copies it, so that a recording can be followed from a moment more
	// than once.
	Clone() Memory
}

// Watch is what all checks remember: memories, and conditions that hold or have
// held. It goes by the time of records alone, so a recording gives the same findings
// whenever and however often it is asked. It belongs to one goroutine.
type Watch struct {
	memories []remembered // in the order of Checks
	episodes map[key]*episode
	// over are those that have ended, oldest first.
	over []Finding
}

// remembered is the Memory of the check that has it.
type remembered struct {
	code string
	Memory
}

// key tells the conditions of one check apart.
type key struct{ code, subject, about string }

// episode is a time during which a condition holds, short breaks included.
type episode struct {
	Finding
	// since is when it began to hold, last when it last did.
	since, last wire.Time
	open        bool
}

// Bounds of what a Watch keeps.
const (
	maxEpisodes = 4096
	maxOver     = 512
)

// TickEvery is how often conditions are looked at.
const TickEvery = wire.Time(1e9)

// NewWatch makes one that has seen nothing.
func NewWatch() *Watch {
	w := &Watch{episodes: map[key]*episode{}}
	for i := range Checks {
		if c := &Checks[i]; c.Memory != nil {
			w.memories = append(w.memories, remembered{c.Code, c.Memory()})
		}
	}
	return w
}

// Speak gives what turns tokens into text to the checks that read it.
func (w *Watch) Speak(s explain.Speech) {
	for _, m := range w.memories {
		if m, reads := m.Memory.(interface{ Speak(explain.Speech) }); reads {
			m.Speak(s)
		}
	}
}

// Clone copies a Watch.
func (w *Watch) Clone() *Watch {
	c := &Watch{memories: slices.Clone(w.memories), episodes: maps.Clone(w.episodes), over: slices.Clone(w.over)}
	for i := range c.memories {
		c.memories[i].Memory = c.memories[i].Clone()
	}
	for k, e := range c.episodes {
		one := *e
		c.episodes[k] = &one
	}
	return c
}

// Size is about how many bytes the memories that hold much take, as long as they tell.
func (w *Watch) Size() (n int) {
	for _, m := range w.memories {
		if m, tells := m.Memory.(interface{ Size() int }); tells {
			n += m.Size()
		}
	}
	return n
}

// Step tells all memories of a step, before the index takes it.
func (w *Watch) Step(s *stream.Step, idx *index.Index) {
	for i := range w.memories {
		w.memories[i].Step(s, idx)
	}
}

// memory gives the Memory that a check goes by, nil if it goes by none.
func (w *Watch) memory(c *Check) Memory {
	code := cmp.Or(c.With, c.Code)
	for i := range w.memories {
		if w.memories[i].code == code {
			return w.memories[i].Memory
		}
	}
	return nil
}

// Pass tells the memories that look back at the index, of which steps are not all of
// time, how late it is. It comes before a Tick.
func (w *Watch) Pass(at wire.Time, idx *index.Index) {
	for i := range w.memories {
		if m, looks := w.memories[i].Memory.(interface {
			Pass(wire.Time, *index.Index)
		}); looks {
			m.Pass(at, idx)
		}
	}
}

// Tick looks at what holds now. A condition opens a finding once it has held for its
// check's Open, and the finding ends once it has not held for its Close: what comes
// and goes faster is one finding, or none.
func (w *Watch) Tick(v View) {
	for i := range Checks {
		c := &Checks[i]
		if c.Now == nil {
			continue
		}
		for _, f := range c.Now(v, w.memory(c)) {
			w.hold(c, v.Now, f)
		}
	}
	for _, k := range w.keys() {
		e := w.episodes[k]
		c := checkOf(k.code)
		if v.Now-e.last <= c.Close {
			continue
		}
		if e.open {
			e.Until = p(e.last)
			drop := max(0, len(w.over)+1-maxOver)
			w.over = append(w.over[drop:len(w.over):len(w.over)], e.Finding)
		}
		delete(w.episodes, k)
	}
}

// hold notes that a condition holds.
func (w *Watch) hold(c *Check, now wire.Time, f Finding) {
	f.Code, f.Kind = c.Code, c.Kind
	k := key{c.Code, f.Subject, f.about}
	e := w.episodes[k]
	if e == nil {
		if len(w.episodes) >= maxEpisodes {
			return
		}
		e = &episode{since: now}
		if f.Since > 0 {
			e.since = min(now, f.Since) // the check knows better
		}
		w.episodes[k] = e
	}
	f.Since, f.Until = e.since, nil
	e.Finding, e.last = f, now
	e.open = e.open || now-e.since >= c.Open
}

// Open reports whether a condition of a check is a finding now.
func (w *Watch) Open(code string) bool {
	for k, e := range w.episodes {
		if k.code == code && e.open {
			return true
		}
	}
	return false
}

// keys are those of all episodes, in an order that is always the same.
func (w *Watch) keys() []key {
	return slices.SortedFunc(maps.Keys(w.episodes), func(a, b key) int {
		return compare(a.code, b.code, a.subject, b.subject, a.about, b.about)
	})
}

// findings gives what is open and what is over.
func (w *Watch) findings() []Finding {
	out := slices.Clone(w.over)
	for _, k := range w.keys() {
		if e := w.episodes[k]; e.open {
			out = append(out, e.Finding)
		}
	}
	return out
}

// compare compares pairs of texts, the first that differ decide.
func compare(pairs ...string) int {
	for i := 0; i < len(pairs); i += 2 {
		switch {
		case pairs[i] < pairs[i+1]:
			return -1
		case pairs[i] > pairs[i+1]:
			return 1
		}
	}
	return 0
}

func checkOf(code string) *Check {
	for i := range Checks {
		if Checks[i].Code == code {
			return &Checks[i]
		}
	}
	return nil
}
