package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// TestExplainAskChat: a router is sent the chat as it is, and the tokens that it makes
// are held against ours.
func TestExplainAskChat(t *testing.T) {
	t.Parallel()
	const body = `{"model": "small", "stream": true, "n": 2, "seed": 12345678901234567890, "messages": [{"role": "user", "content": [{"type": "text", "text": "Which replica should take this request?"}]}]}`
	file := filepath.Join(t.TempDir(), "chat.json")
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := prompt.Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	m := small(t)
	ours, err := m.Prompt(t.Context(), r, prompt.RenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	listed, err := m.View(t.Context(), r, "content-as-json", prompt.RenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(theirs []wire.Token, code int, more ...string) (*routers, string, askedJSON) {
		tokens, err := json.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		s := newRouters(t, map[string]string{
			"GET /metrics": registered,
			"POST /v1/chat/completions": fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":null},"finish_reason":null}],`+
				`"nvext":{"worker_id":{"prefill_worker_id":7,"prefill_dp_rank":0,"decode_worker_id":7,"decode_dp_rank":0},"token_ids":%s}}`, tokens),
		})
		args := append([]string{
			"explain", "@" + file, "--from", textRecording, "--tokenizer", "../../fixtures/tokenizer", "--json",
			"--ask-router", s.URL, "--ask-chat", "--map", "7/0=a",
		}, more...)
		var out, errs bytes.Buffer
		if got := run(t.Context(), args, nil, &out, &errs); got != code {
			t.Fatalf("exit code %d: %s", got, errs.String())
		}
		var a askedJSON
		if code == exitUsage {
			return s, errs.String(), a
		}
		if err := json.Unmarshal(out.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		return s, out.String(), a
	}
	for _, c := range []struct {
		theirs []wire.Token
		said   string
	}{
		{ours.Tokens, ", and none differs"},
		{ours.Tokens[:5], ", and none differs up to where the shorter one ends"},
		{append(slices.Clone(ours.Tokens), 7), ", and none differs up to where the shorter one ends"},
		{append([]wire.Token{1000}, ours.Tokens...), "differ from token 0 on (missing-bos): token 0, the beginning of text, is missing here"},
		{listed.Tokens, "differ from token 3 on (list-as-json): the content list is rendered as JSON text in the router"},
	} {
		s, _, a := ask(c.theirs, exitFine)
		if len(a.Asked) != 1 || !strings.HasSuffix(a.Asked[0].Said, c.said) && !strings.Contains(a.Asked[0].Said, c.said) || a.Asked[0].Choice != "a" {
			t.Fatalf("%+v, want %q", a.Asked, c.said)
		}
		if same := len(c.theirs) == len(ours.Tokens); same != (len(a.Asked[0].Differences) == 0) {
			t.Errorf("%+v", a.Asked[0])
		}
		s.mu.Lock()
		var sent struct {
			Model    string
			Messages json.RawMessage
			Stream   *bool
			N        *int
			Seed     json.Number
			Most     int `json:"max_tokens"`
			NVExt    struct{ Annotations []string }
		}
		if err := json.Unmarshal([]byte(s.sent["POST /v1/chat/completions"]), &sent); err != nil {
			t.Fatal(err)
		}
		if sent.Model != "small" || !strings.Contains(string(sent.Messages), `"Which replica`) || sent.Stream != nil || sent.N != nil || sent.Seed != "12345678901234567890" ||
			sent.Most != 1 || len(sent.NVExt.Annotations) != 1 || sent.NVExt.Annotations[0] != "query_instance_id:" || len(s.sent) != 2 {
			t.Errorf("sent %v", s.sent)
		}
		s.mu.Unlock()
	}
	for want, more := range map[string][]string{
		"give the salt as its cache_salt": {"--salt", "x"},
	} {
		if s, text, _ := ask(ours.Tokens, exitUsage, more...); !strings.Contains(text, want) || len(s.sent) > 0 {
			t.Errorf("%v: %s", more, text)
		}
	}
	for want, args := range map[string][]string{
		"give --ask-router too":                            {"explain", "@" + file, "--from", textRecording, "--ask-chat"},
		"give the request's body, with messages and model": {"explain", "[1, 2, 3]", "--from", textRecording, "--ask-chat", "--ask-router", "http://127.0.0.1:1"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, nil, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: exit code %d, %s", args, code, errs.String())
		}
	}
}
