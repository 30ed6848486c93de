package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
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
	NVExt  nvext        `json:"nvext"`
}

type nvext struct {
	Annotations []string `json:"annotations"`
}

// queryOnly asks for a choice and nothing else.
var queryOnly = nvext{[]string{"query_instance_id:"}}

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
	q := probe{Model: p.Model, Prompt: p.Tokens, Salt: p.Salt, Most: 1}
	if p.LoRA != "" {
		q.Model = p.LoRA
	}
	q.NVExt = queryOnly
	return c.probe(ctx, frontend, "v1/completions", q)
}

// ProbeChat is Probe with a chat in place of its token ids, so that the frontend renders
// and tokenizes it: the choice's Tokens are what it makes of it. body is that of a chat
// completions request, which is sent whole but for what asks for its answer.
func (c *Client) ProbeChat(ctx context.Context, frontend string, body []byte) (*Choice, error) {
	// The order within fields is the client's, and shows in the prompt.
	var q map[string]json.RawMessage
	if json.Unmarshal(body, &q) != nil || len(q["messages"]) == 0 { // its error can hold what was found
		return nil, errors.New("the chat is no JSON object with messages")
	}
	var model string
	if json.Unmarshal(q["model"], &model) != nil || model == "" {
		return nil, errors.New("a router is asked about a chat of one model: give the request with its field model")
	}
	for _, field := range []string{"stream", "stream_options", "n", "max_completion_tokens"} {
		delete(q, field)
	}
	only, err := json.Marshal(queryOnly)
	if err != nil {
		return nil, err
	}
	q["max_tokens"], q["nvext"] = json.RawMessage("1"), only
	out, err := c.probe(ctx, frontend, "v1/chat/completions", q)
	if err == nil && len(out.Tokens) == 0 {
		err = errors.New("the frontend's answer holds no token ids: this needs Dynamo 1.6")
	}
	return out, err
}

// probe sends a question to a frontend that has a KV router.
func (c *Client) probe(ctx context.Context, frontend, path string, q any) (*Choice, error) {
	if err := c.call(ctx, http.MethodGet, frontend, "metrics", nil, hasRouter); err != nil {
		return nil, err
	}
	var a probed
	if err := c.post(ctx, frontend, path, q, &a); err != nil {
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
