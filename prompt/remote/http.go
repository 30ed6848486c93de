package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/kvscope/kvscope/web"
	"github.com/kvscope/kvscope/wire"
)

const (
	// maxAnswer bounds an answer, in bytes. One with many times the bytes that were
	// sent is none to the question; a template adds its own to a short one.
	maxAnswer, maxGrowth, maxTemplate = 256 << 20, 32, 1 << 20
	// maxComplaint is how much is read of an answer that is an error.
	maxComplaint = 4 << 10
)

// post sends a question and reads the answer into v.
func (e *Engine) post(ctx context.Context, u *url.URL, body []byte, v any) error {
	ctx, cancel := context.WithTimeout(ctx, e.opt.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return web.Cause(err)
	}
	req.Header.Set("User-Agent", "kvscope")
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.opt.Do(req)
	if err == nil {
		if resp.StatusCode == http.StatusOK {
			err = read(resp.Body, min(maxAnswer, int64(len(body))*maxGrowth+maxTemplate), v)
		} else {
			err = complaint(resp)
		}
		_ = resp.Body.Close() // read as far as it is wanted
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %s", e.opt.Timeout)
	case err != nil:
		return web.Cause(err)
	}
	return nil
}

// read reads an answer that is one JSON value. Its errors name the field that is
// wrong, without the value that was found: it can be part of a prompt.
func read(r io.Reader, most int64, v any) error {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	switch {
	case err != nil:
		return err
	case int64(len(b)) > most:
		return fmt.Errorf("the answer has more than %d bytes", most)
	}
	err = json.Unmarshal(b, v)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return fmt.Errorf("the answer has something else than the form asked for at %q: is this the address of an engine?", wire.Printable(wrong.Field))
	case err != nil:
		return errors.New("the answer is not the JSON asked for: is this the address of an engine?")
	}
	return nil
}

// complaint is an answer other than 200, with what the server says of it.
func complaint(resp *http.Response) error {
	status := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxComplaint)) // as much as there is
	var says struct {
		Error   struct{ Message string }
		Message string // older releases, SGLang
	}
	words := ""
	if json.Unmarshal(b, &says) == nil {
		words = says.Error.Message + says.Message
	}
	switch {
	case words != "":
		return fmt.Errorf("%s: %s", status, wire.Printable(words))
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s: give the engine's own address, without /v1", status)
	}
	return errors.New(status)
}
