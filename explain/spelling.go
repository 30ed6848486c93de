package explain

import (
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// Renderer makes tokens of requests as our model does.
type Renderer interface {
	Speech
	// Prompt renders a request and makes tokens of it.
	Prompt(ctx context.Context, r *prompt.Request, o prompt.RenderOptions) (*prompt.Prompt, error)
}

// Of each replica of a log the first requests are compared, and then every so many: a
// prompt of some thousand tokens takes milliseconds.
const (
	compareFirst = 256
	compareEvery = 16
)

// Speller compares the tokens that our model makes of a log's requests with those that
// the engines made. It is for one goroutine.
type Speller struct {
	model Renderer
	opt   prompt.RenderOptions
	seen  map[string]int // requests, by the log's name of the replica
}

// NewSpeller makes one that renders with the options, but for the time, which is that
// of each request.
func NewSpeller(model Renderer, opt prompt.RenderOptions) *Speller {
	return &Speller{model, opt, map[string]int{}}
}

// ReadRequests is the function of that name, and compares the requests on the way. What
// cannot be rendered, or came as ids, is not compared.
func (s *Speller) ReadRequests(ctx context.Context, r io.Reader, name string) ([]Request, error) {
	out, err := readRequests(r, name, func(line []byte, q *Request) { s.compare(ctx, line, q) })
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return out, err
}

// compare sets Compared and Other of a request, whose line holds its body.
func (s *Speller) compare(ctx context.Context, line []byte, q *Request) {
	n := s.seen[q.Replica]
	s.seen[q.Replica]++
	if ctx.Err() != nil || len(q.Tokens) == 0 || n >= compareFirst && n%compareEvery != 0 {
		return
	}
	r, err := prompt.Parse(line)
	if err == nil && r.Text == "" && len(r.Messages) == 0 {
		return
	}
	if err != nil {
		q.Unrendered = err
		return
	}
	r.Tokens, r.TokensFrom = nil, "" // ours is what is wanted
	opt := s.opt
	opt.Now = time.Unix(0, int64(q.Start)).UTC() // as engines in containers have it
	ours, err := s.model.Prompt(ctx, r, opt)
	if err != nil {
		q.Unrendered = err
		return
	}
	q.Compared = true
	if m, differs := Mismatched(r, ours, q.Tokens, s.model); differs {
		q.Other = &m
	}
}

// Spelling are the requests of one replica of a log that were compared.
type Spelling struct {
	Log string
	// Replica is the recording's, "" where several may be meant.
	Replica  wire.Replica
	Compared int
	// Unrendered could not be compared, for Why, the first of the reasons.
	Unrendered int
	Why        error
	// Others are those that differ, in order of start.
	Others []Other
}

// Other is a request of which our model makes other tokens than the engine.
type Other struct {
	Start wire.Time
	Mismatch
}

// spelled sums up the comparisons, in the order of the rows.
func (a *Auditor) spelled(rows []ReplicaAudit) []Spelling {
	var out []Spelling
	at := map[string]int{}
	for i := range rows {
		row := &rows[i]
		s := Spelling{Log: row.Log, Replica: a.claim(row.Log)}
		switch _, known := a.tracks[s.Replica]; {
		case len(row.Replicas) == 1:
			s.Replica = row.Replicas[0]
		case !known:
			s.Replica = ""
		}
		at[row.Log] = len(out)
		out = append(out, s)
	}
	for i := range a.requests {
		q := &a.requests[i]
		s := &out[at[q.Replica]]
		switch {
		case a.outside(q):
		case q.Unrendered != nil:
			s.Unrendered++
			s.Why = cmp.Or(s.Why, q.Unrendered)
		case q.Compared:
			s.Compared++
		}
		if q.Other != nil && !a.outside(q) {
			s.Others = append(s.Others, Other{q.Start, *q.Other})
		}
	}
	return slices.DeleteFunc(out, func(s Spelling) bool { return s.Compared+s.Unrendered == 0 })
}
