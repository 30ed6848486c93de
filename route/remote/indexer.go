package remote

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/kvscope/kvscope/wire"
)

// query is a question to the indexer or the selection service.
type query struct {
	Tokens []wire.Token `json:"token_ids"`
	Model  string       `json:"model_name"`
	LoRA   string       `json:"lora_name,omitempty"`
	Salt   string       `json:"cache_salt,omitempty"`
}

func (p *Prompt) query() query {
	return query{Tokens: p.Tokens, Model: p.Model, LoRA: p.LoRA, Salt: p.Salt}
}

// scores is the indexer's answer. All counts are in tokens. Those of a worker
// are the most of all its ranks, and those of lower tiers include the tiers
// above.
type scores struct {
	Instances map[string]overlap `json:"instances"`
}

type overlap struct {
	Ranks map[string]count `json:"dp"` // on the device
	CPU   count            `json:"cpu"`
	Disk  count            `json:"disk"`
}

func (s *scores) matches() (*Matches, error) {
	if s.Instances == nil {
		return nil, errors.New("the answer has no instances: is this the address of Dynamo's standalone indexer?")
	}
	m := &Matches{}
	for worker, o := range s.Instances {
		for rank, device := range o.Ranks {
			replica, err := named(worker, rank)
			if err != nil {
				return nil, err
			}
			h := Held{Replica: replica, DeviceOnly: len(o.Ranks) > 1}
			h.Tokens[wire.Device] = int(device)
			if !h.DeviceOnly {
				h.Tokens[wire.Host] = int(max(0, o.CPU-device))
				h.Tokens[wire.Disk] = int(max(0, o.Disk-max(o.CPU, device)))
			}
			m.Rows = append(m.Rows, h)
		}
	}
	m.sort()
	return m, nil
}

// Query asks Dynamo's standalone indexer who holds what of a prompt.
func (c *Client) Query(ctx context.Context, indexer string, p Prompt) (*Matches, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var s scores
	if err := c.post(ctx, indexer, "query", p.query(), &s); err != nil {
		return nil, err
	}
	return s.matches()
}

// QueryByHash asks it the same by the local hashes of the prompt's complete
// blocks (see blockhash.Rolling), which hold LoRA and salt: no token is sent.
func (c *Client) QueryByHash(ctx context.Context, indexer, model string, locals []uint64) (*Matches, error) {
	if model == "" {
		return nil, errors.New("the indexer is asked about one model: name it")
	}
	body := struct {
		Hashes []int64 `json:"block_hashes"`
		Model  string  `json:"model_name"`
	}{make([]int64, len(locals)), model}
	for i, h := range locals {
		body.Hashes[i] = int64(h)
	}
	var s scores
	if err := c.post(ctx, indexer, "query_by_hash", body, &s); err != nil {
		return nil, err
	}
	return s.matches()
}

// Listener is a socket that an indexer listens to.
type Listener struct {
	Replica      wire.Replica
	Model, Group string
	BlockSize    int
	// Endpoint is the engine's event socket, which tells replicas apart where
	// names do not.
	Endpoint string
	// Status is its own word for it; an active listener can still have missed
	// all that its chains begin with.
	Status, LastError string
}

// Workers asks the standalone indexer whom it listens to.
func (c *Client) Workers(ctx context.Context, indexer string) ([]Listener, error) {
	var list []struct {
		ID        uint64 `json:"instance_id"`
		Model     string `json:"model_name"`
		Group     string `json:"routing_group"`
		BlockSize count  `json:"block_size"`
		Listeners map[string]struct {
			Endpoint  string `json:"endpoint"`
			Status    string `json:"status"`
			LastError string `json:"last_error"`
		} `json:"listeners"`
	}
	if err := c.get(ctx, indexer, "workers", &list); err != nil {
		return nil, err
	}
	var out []Listener
	for _, w := range list {
		for rank, l := range w.Listeners {
			replica, err := named(strconv.FormatUint(w.ID, 10), rank)
			if err != nil {
				return nil, err
			}
			out = append(out, Listener{
				Replica: replica, Model: w.Model, Group: w.Group, BlockSize: int(w.BlockSize),
				Endpoint: l.Endpoint, Status: l.Status, LastError: l.LastError,
			})
		}
	}
	slices.SortFunc(out, func(a, b Listener) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Replica, b.Replica))
	})
	return out, nil
}
