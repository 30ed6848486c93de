package remote

import (
	"context"
	"errors"

	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// Select asks Dynamo's selection service where it would send a prompt, by the
// loads that were reserved with it. It reserves nothing.
func (c *Client) Select(ctx context.Context, service string, p Prompt) (*Choice, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var a struct {
		Worker *uint64 `json:"worker_id"`
		Rank   uint32  `json:"dp_rank"`
	}
	if err := c.post(ctx, service, "select", p.query(), &a); err != nil {
		return nil, err
	}
	if a.Worker == nil {
		return nil, errors.New("the answer names no worker: is this the address of Dynamo's selection service?")
	}
	at := name(*a.Worker, a.Rank)
	return &Choice{Prefill: at, Decode: at}, nil
}

// Overlaps asks it who holds what of a prompt.
func (c *Client) Overlaps(ctx context.Context, service string, p Prompt) (*Matches, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var a struct {
		BlockSize count `json:"block_size"`
		Workers   []struct {
			ID     uint64 `json:"worker_id"`
			Rank   uint32 `json:"dp_rank"`
			Device count  `json:"device_blocks"`
			// Beyond the tiers above; host_pinned_blocks and disk_blocks include
			// them.
			Host count `json:"host_pinned_extension_blocks"`
			Disk count `json:"disk_extension_blocks"`
		} `json:"workers"`
	}
	if err := c.post(ctx, service, "overlap_scores", p.query(), &a); err != nil {
		return nil, err
	}
	if a.BlockSize < 1 || a.BlockSize > 1<<20 {
		return nil, errors.New("the answer has no block size: is this the address of Dynamo's selection service?")
	}
	m := &Matches{BlockSize: int(a.BlockSize)}
	for _, w := range a.Workers {
		h := Held{Replica: name(w.ID, w.Rank)}
		h.Tokens[wire.Device] = int(w.Device * a.BlockSize)
		h.Tokens[wire.Host] = int(w.Host * a.BlockSize)
		h.Tokens[wire.Disk] = int(w.Disk * a.BlockSize)
		m.Rows = append(m.Rows, h)
	}
	m.sort()
	return m, nil
}

// Loads asks it for what is reserved with it against the replicas of a model. A
// frontend beside it reserves nothing with it.
func (c *Client) Loads(ctx context.Context, service, model string) ([]Load, error) {
	var list []struct {
		Model string `json:"model_name"`
		Loads []struct {
			ID       uint64 `json:"worker_id"`
			Rank     uint32 `json:"dp_rank"`
			Prefill  count  `json:"potential_prefill_tokens"`
			Blocks   count  `json:"potential_decode_blocks"`
			Requests count  `json:"active_requests"`
		} `json:"loads"`
	}
	if err := c.get(ctx, service, "loads", &list); err != nil {
		return nil, err
	}
	var out []Load
	for _, g := range list {
		if g.Model != model {
			continue
		}
		for _, l := range g.Loads {
			out = append(out, Load{name(l.ID, l.Rank), route.Load{
				State: route.LoadKnown, PrefillTokens: int(l.Prefill), Blocks: int(l.Blocks), Requests: int(l.Requests),
			}})
		}
	}
	sortLoads(out)
	return out, nil
}
