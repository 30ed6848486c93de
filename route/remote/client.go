package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/kvscope/kvscope/web"
	"github.com/kvscope/kvscope/wire"
)

const (
	// maxAnswer bounds an answer, in bytes. The longest one repeats the prompt:
	// a million tokens have 7 MB.
	maxAnswer = 16 << 20
	// maxComplaint is how much is read of an answer that is an error.
	maxComplaint = 4 << 10
)

// Options are what a Client reaches the world by. Zero values mean the defaults
// given.
type Options struct {
	// Do carries out a request; web.Client's by default.
	Do func(*http.Request) (*http.Response, error)
	// Timeout bounds one question, its whole answer included: 10 s.
	Timeout time.Duration
}

// Client asks live routers.
type Client struct{ opt Options }

// New makes a Client.
func New(opt Options) *Client {
	if opt.Do == nil {
		opt.Do = web.Client().Do
	}
	if opt.Timeout == 0 {
		opt.Timeout = 10 * time.Second
	}
	return &Client{opt}
}

// Prompt is what routers are asked about.
type Prompt struct {
	Model  string
	Tokens []wire.Token
	// LoRA and Salt are empty without.
	LoRA, Salt string
}

// check refuses what no router can be asked.
func (p *Prompt) check() error {
	if p.Model == "" {
		return errors.New("a router is asked about a prompt of one model: name it")
	}
	if len(p.Tokens) == 0 {
		return errors.New("the prompt has no tokens: give at least one")
	}
	for i, t := range p.Tokens {
		if t > 1<<32-1 {
			return fmt.Errorf("token %d of the prompt is %d: Dynamo's token ids have 32 bits", i, t)
		}
	}
	return nil
}

// post asks a question that has a body, and reads the answer into v.
func (c *Client) post(ctx context.Context, base, path string, body, v any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, base, path, b, whole(v))
}

// get asks for a page, and reads it into v.
func (c *Client) get(ctx context.Context, base, path string, v any) error {
	return c.call(ctx, http.MethodGet, base, path, nil, whole(v))
}

// whole reads an answer that is one JSON value.
func whole(v any) func(io.Reader) error {
	return func(r io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
		switch {
		case err != nil:
			return err
		case len(b) > maxAnswer:
			return fmt.Errorf("the answer has more than %d bytes", maxAnswer)
		}
		return unmarshal(b, v)
	}
}

// unmarshal names the field that is wrong, without the value that was found: it
// can be part of a prompt.
func unmarshal(b []byte, v any) error {
	err := json.Unmarshal(b, v)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return fmt.Errorf("the answer has something else than the form asked for at %q: is this address the right one?", wire.Printable(wrong.Field))
	case err != nil:
		return errors.New("the answer is not the JSON asked for: is this address the right one?")
	}
	return nil
}

func (c *Client) call(ctx context.Context, method, base, path string, body []byte, read func(io.Reader) error) error {
	u, err := web.Parse(base)
	if err != nil {
		return err
	}
	u = u.JoinPath(path)
	what := method + " " + wire.Printable(web.Shown(u))
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	var sent io.Reader
	if body != nil {
		sent = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), sent)
	if err != nil {
		return fmt.Errorf("%s: %w", what, web.Cause(err))
	}
	req.Header.Set("User-Agent", "kvscope")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.opt.Do(req)
	if err == nil {
		if resp.StatusCode == http.StatusOK {
			err = read(resp.Body)
		} else {
			err = complaint(resp)
		}
		_ = resp.Body.Close() // read as far as it is wanted
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: no answer within %s", what, c.opt.Timeout)
	case err != nil:
		return fmt.Errorf("%s: %w", what, web.Cause(err))
	}
	return nil
}

// complaint is an answer other than 200, with what the server says of it.
func complaint(resp *http.Response) error {
	status := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxComplaint)) // as much as there is
	var says struct {
		Error   string `json:"error"`   // the services
		Message string `json:"message"` // the frontend
	}
	if json.Unmarshal(b, &says) == nil && says.Error+says.Message != "" {
		return fmt.Errorf("%s: %s", status, wire.Printable(says.Error+says.Message))
	}
	return errors.New(status)
}

// CheckURL says what is wrong with the address of a router.
func CheckURL(raw string) error {
	_, err := web.Parse(raw)
	return err
}
