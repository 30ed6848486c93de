package route

import (
	"fmt"

	"github.com/kvscope/kvscope/wire"
)

// This file is the routing logic session of the vLLM production stack.

const (
	stackSessionKey = iota
	stackSessionWindow
)

var stackSessionSettings = []setting{
	stackSessionKey:    {name: "session_key", flag: "--session-key", kind: free},
	stackSessionWindow: {name: "request_stats_window", flag: "--request-stats-window", def: "60"},
}

// stackSession remembers no prompt.
type stackSession struct{ *stack }

func newStackSession(c *Config) memory { return stackSession{newStack(c.num(stackSessionWindow))} }

func (m stackSession) took(in *input, at int) { m.book(in, at) }

func stackSessionOf(in *input) *stack {
	m, _ := in.mem.(stackSession)
	return m.stack
}

func rankStackSession(in *input) { copy(in.keys, stackFallback(in, stackSessionOf(in))) }

func tellStackSession(in *input, at int, s *Scored) {
	term := stackTerm(in, in.keys[at])
	s.Terms = []Term{term}
	s.Rule = fmt.Sprintf("%s: %s %s", wire.Printable(string(s.Replica)), term.Name, number(term.Value))
}

func stackSessionSteps(in *input) []string { return []string{stackSteps(in)} }
