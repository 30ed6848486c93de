package observe

import (
	"errors"
	"slices"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// Question asks who holds what of a prompt.
type Question struct {
	Tokens []wire.Token
	// Model limits the answer to its replicas; "" asks all.
	Model, LoRA, Salt string
}

// Answer says what every replica holds of a prompt.
type Answer struct {
	// Now is the receive time of the newest record it takes into account.
	Now    wire.Time
	Tokens int
	// Rows holds a row for each replica, longest match first.
	Rows []Row
	// Parting is nil where the prompt's full blocks are all stored as one chain.
	Parting *Parting
}

// Row is one replica's part of an Answer.
type Row struct {
	Replica           wire.Replica
	Trust             stream.Trust
	BlockSize, Blocks int
	// Device, Host, Disk and External count matched blocks: the prefix on the
	// device, then its continuation on the lower tiers.
	Device, Host, Disk, External int
	// Certain counts the leading blocks that are sure; Upper is above Device
	// where a group of a hybrid model lacks its part.
	Certain, Upper int
	// CachedTokens is what the engine would report as cached.
	CachedTokens int
	// Cells says for each block what the replica has of it.
	Cells []Cell
}

// Cell says what a replica has of one block of a prompt.
type Cell = index.Cell

// The cells; see package index.
const (
	Miss     = index.Miss
	Hit      = index.Hit
	Doubtful = index.Doubtful
	Lower    = index.Lower
	Beyond   = index.Beyond
)

// Parting is where a prompt leaves every stored chain; see package index.
type Parting = index.Parting

// Depth is the number of matched blocks on all tiers.
func (r *Row) Depth() int { return r.Device + r.Host + r.Disk + r.External }

// Ask answers a question as of now.
func (o *Observer) Ask(q Question) (*Answer, error) {
	switch {
	case len(q.Tokens) == 0:
		return nil, errors.New("the prompt has no tokens")
	case len(q.Tokens) > explain.MaxPrompt:
		return nil, errors.New("the prompt is too long")
	}
	prompt := index.NewPrompt(index.Query{Model: q.Model, Tokens: q.Tokens, LoRA: q.LoRA, Salt: q.Salt})
	a := &Answer{Now: o.now, Tokens: len(q.Tokens)}
	for _, m := range o.idx.Match(prompt) {
		s, _ := o.tracker.State(m.Replica)
		a.Rows = append(a.Rows, Row{
			Replica: m.Replica, Trust: o.trust(&s, o.idx.Stats(m.Replica)),
			BlockSize: m.BlockSize, Blocks: m.Blocks,
			Device: m.Tiers[wire.Device], Host: m.Tiers[wire.Host], Disk: m.Tiers[wire.Disk], External: m.Tiers[wire.External],
			Certain: m.Certain, Upper: m.Upper,
			CachedTokens: index.CachedTokens(m.Depth(), m.BlockSize, len(q.Tokens)),
			Cells:        o.idx.Strip(m.Replica, prompt),
		})
	}
	slices.SortStableFunc(a.Rows, func(a, b Row) int { return b.Depth() - a.Depth() })
	if len(a.Rows) > 0 {
		if part, ok := o.idx.Part(a.Rows[0].Replica, prompt); ok {
			a.Parting = &part
		}
	}
	return a, nil
}
