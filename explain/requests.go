package explain

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/kvscope/kvscope/wire"
)

// Request is one served request of a requests log.
type Request struct {
	Start, End wire.Time
	// Replica is the name that the log uses.
	Replica string
	// Model is what the request asked for: the base model or a LoRA adapter.
	Model  string
	Salt   string
	Tokens []wire.Token
	// Cached is the number of prompt tokens that the engine took from its
	// cache; meaningful only if Known.
	Cached int
	Known  bool
	// Excluded says why the request skips the cache read by design.
	Excluded string
	// Compared says that a Speller made tokens of the request, and Other how they
	// differ from the engine's, nil where they do not. Unrendered is why it could not.
	Compared   bool
	Other      *Mismatch
	Unrendered error
}

// row is a line of a requests log, in the form of a recording's truth log
// (request and response whole) or of the fleet drivers (flat).
type row struct {
	Kind    string   `json:"kind"`
	Replica string   `json:"replica"`
	Status  int      `json:"status"`
	Start   *float64 `json:"t_start"`
	End     *float64 `json:"t_end"`
	Request *struct {
		Model          string `json:"model"`
		Salt           string `json:"cache_salt"`
		PromptLogprobs any    `json:"prompt_logprobs"`
	} `json:"request"`
	Response *struct {
		Tokens  []wire.Token `json:"prompt_token_ids"`
		Choices []struct {
			Tokens []wire.Token `json:"prompt_token_ids"`
		} `json:"choices"`
		Usage *struct {
			Details *struct {
				Cached *int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	} `json:"response"`

	FlatTokens []wire.Token `json:"token_ids"`
	FlatCached *int         `json:"cached_tokens"`
	FlatSalt   string       `json:"cache_salt"`
}

// ReadRequests reads a requests log: JSON Lines, plain or gzip. Rows of kind
// chat or completion with status 200 count, and rows without a kind that have
// token_ids. A response without prompt_tokens_details means 0 cached tokens if
// any response of the log carries them (vLLM leaves the field out then);
// otherwise what was cached is unknown. Requests come in order of their start.
//
// Rows that cannot be read are skipped; the error then says how many, and what
// was read is returned with it.
func ReadRequests(r io.Reader, name string) ([]Request, error) {
	return readRequests(r, name, func([]byte, *Request) {})
}

// readRequests also gives each request with the line that it came in to look.
func readRequests(r io.Reader, name string, look func(line []byte, q *Request)) ([]Request, error) {
	br := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := br.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		zr, err := gzip.NewReader(br)
		if err != nil {
			return nil, fmt.Errorf("requests log %s: %w", name, err)
		}
		defer zr.Close()
		br = bufio.NewReaderSize(zr, 1<<16)
	}
	var (
		out         []Request
		anyDetails  bool
		bad, lineNo int
		firstBad    error
	)
	for {
		line, err := readLine(br)
		if len(line) > 0 {
			lineNo++
			req, details, rowErr := parseRow(line)
			switch {
			case rowErr != nil:
				if bad++; firstBad == nil {
					firstBad = fmt.Errorf("line %d: %w", lineNo, rowErr)
				}
			case req != nil:
				look(line, req)
				out = append(out, *req)
			}
			anyDetails = anyDetails || details
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			firstBad = fmt.Errorf("cut off after line %d: %w", lineNo, err)
			bad++
			break
		}
	}
	for i := range out {
		if anyDetails && len(out[i].Tokens) > 0 {
			out[i].Known = true
		}
	}
	slices.SortStableFunc(out, func(a, b Request) int { return cmp.Compare(a.Start, b.Start) })
	switch {
	case bad > 0:
		return out, fmt.Errorf("requests log %s: %d of %d rows could not be read; first: %w", name, bad, max(lineNo, bad), firstBad)
	case len(out) == 0:
		return nil, fmt.Errorf("requests log %s holds no served request: expected JSON Lines with kind chat or completion and status 200", name)
	}
	return out, nil
}

const maxRow = 64 << 20

// readLine reads a line without its end; a line over maxRow comes back empty
// of content but counted as unreadable.
func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		if len(line)+len(part) <= maxRow {
			line = append(line, part...)
		} else {
			line = append(line[:0], "line too long"...)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		return bytes.TrimSpace(line), err
	}
}

// parseRow gives the request of a row, nil if the row is none, and whether the
// row's response details its usage.
func parseRow(line []byte) (*Request, bool, error) {
	var w row
	if err := json.Unmarshal(line, &w); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			err = fmt.Errorf("a %s is no value for %s", wrong.Value, wrong.Field)
		}
		return nil, false, err
	}
	flat := w.Kind == "" && w.FlatTokens != nil
	if w.Status != 200 || !flat && w.Kind != "chat" && w.Kind != "completion" {
		return nil, false, nil
	}
	if w.Start == nil || w.End == nil {
		return nil, false, errors.New("t_start or t_end is missing")
	}
	q := Request{Replica: w.Replica, Salt: w.FlatSalt, Tokens: w.FlatTokens}
	var ok1, ok2 bool
	if q.Start, ok1 = wire.TimeOf(*w.Start); !ok1 {
		return nil, false, errors.New("t_start is out of range")
	}
	if q.End, ok2 = wire.TimeOf(*w.End); !ok2 {
		return nil, false, errors.New("t_end is out of range")
	}
	if q.End < q.Start {
		return nil, false, errors.New("t_end is before t_start")
	}
	details := w.FlatCached != nil
	if details {
		q.Cached = *w.FlatCached
	}
	if req := w.Request; req != nil {
		q.Model, q.Salt = req.Model, req.Salt
		if req.PromptLogprobs != nil {
			q.Excluded = "prompt_logprobs: the engine recomputes the prompt and does not read its cache"
		}
	}
	if resp := w.Response; resp != nil {
		if q.Tokens = resp.Tokens; q.Tokens == nil && len(resp.Choices) > 0 {
			q.Tokens = resp.Choices[0].Tokens
		}
		if u := resp.Usage; u != nil && u.Details != nil {
			details = true
			if u.Details.Cached != nil {
				q.Cached = *u.Details.Cached
			}
		}
	}
	return &q, details, nil
}
