package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/kvscope/kvscope/wire"
)

// registered is a metric that a frontend has for each worker that its KV router
// knows, and only with --router-mode kv. Nothing else tells from outside what a
// frontend does with a query-only request: in its other modes it runs it.
const registered = "dynamo_component_router_worker_registered{"

// maxMetrics is how much of a metrics page is read, in bytes.
const maxMetrics = 16 << 20

// probe is a completion of one token, should it be run in spite of all.
type probe struct {
	Model  string       `json:"model"`
	Prompt []wire.Token `json:"prompt"`
	Salt   string       `json:"cache_salt,omitempty"`
	Most   int          `json:"max_tokens"`
	NVExt  struct {
		Annotations []string `json:"annotations"`
	} `json:"nvext"`
}

type probed struct {
	Choices []struct {
		Finish *string `json:"finish_reason"`
	} `json:"choices"`
	NVExt struct {
		Worker workers      `json:"worker_id"`
		Tokens []wire.Token `json:"token_ids"`
	} `json:"nvext"`
}

// Probe asks a Dynamo frontend where it would send a prompt now. Its router
// chooses and dispatches nothing. An adapter is a model of its own there, so a
// prompt with LoRA is asked about by the adapter's name.
//
// It GETs the frontend's metrics first, and asks nothing unless they show a KV
// router: any other server would run the request.
func (c *Client) Probe(ctx context.Context, frontend string, p Prompt) (*Choice, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if err := c.call(ctx, http.MethodGet, frontend, "metrics", nil, hasRouter); err != nil {
		return nil, err
	}
	q := probe{Model: p.Model, Prompt: p.Tokens, Salt: p.Salt, Most: 1}
	if p.LoRA != "" {
		q.Model = p.LoRA
	}
	q.NVExt.Annotations = []string{"query_instance_id:"}
	var a probed
	if err := c.post(ctx, frontend, "v1/completions", q, &a); err != nil {
		return nil, err
	}
	out := a.NVExt.Worker.choice()
	switch {
	case len(a.Choices) > 0 && a.Choices[0].Finish != nil:
		return nil, errors.New("the frontend ran the request in place of naming a worker, so one now holds the prompt: does it run with --router-mode kv?")
	case out == nil:
		return nil, errors.New("the frontend's answer names no worker: this needs Dynamo 1.6 with --router-mode kv")
	}
	out.Tokens = a.NVExt.Tokens
	return out, nil
}

// hasRouter looks for a KV router that knows a worker in a metrics page.
func hasRouter(page io.Reader) error {
	r := bufio.NewReader(io.LimitReader(page, maxMetrics))
	begins := true
	for {
		line, err := r.ReadSlice('\n')
		if begins && bytes.HasPrefix(line, []byte(registered)) && !bytes.HasSuffix(bytes.TrimSpace(line), []byte(" 0")) {
			return nil
		}
		switch {
		case err == nil:
			begins = true
		case errors.Is(err, bufio.ErrBufferFull):
			begins = false
		case errors.Is(err, io.EOF):
			return fmt.Errorf("no worker is registered with a KV router there (%s…} is not among its metrics), and any other server would run the probe as a request, so it was not sent: give the address of a frontend with --router-mode kv", registered)
		default:
			return err
		}
	}
}
