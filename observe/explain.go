package observe

import (
	"context"

	"github.com/kvscope/kvscope/explain"
)

// Explain says where a prompt would go as of now.
func (o *Observer) Explain(_ context.Context, q explain.Query) (*explain.Answer, error) {
	f := explain.Fleet{Now: o.now, Index: o.idx, Loads: o.loads}
	for _, name := range o.tracker.Names() {
		s, _ := o.tracker.State(name)
		f.Replicas = append(f.Replicas, explain.Replica{
			Name: name, Trust: o.auditTrust(name), Load: s.Load, Capacity: s.Facts.Capacity,
		})
	}
	return explain.Candidates(f, q)
}

// Explain says where a prompt would go as of now.
func (l *Live) Explain(ctx context.Context, q explain.Query) (*explain.Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.obs.Explain(ctx, q)
}

// Explain says where a prompt would go as of the current position.
func (p *Player) Explain(ctx context.Context, q explain.Query) (*explain.Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.obs.Explain(ctx, q)
}
