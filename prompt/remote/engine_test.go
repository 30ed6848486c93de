package remote_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/prompt/remote"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers POST /tokenize and keeps what it was sent.
type server struct {
	answer func(body string) (status int, page string)

	mu    sync.Mutex
	asked []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/tokenize" || r.Header.Get("Content-Type") != "application/json" {
		http.NotFound(w, r)
		return
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return // the test's client is gone
	}
	s.mu.Lock()
	s.asked = append(s.asked, strings.TrimSpace(string(b)))
	status, page := s.answer(string(b))
	s.mu.Unlock()
	w.WriteHeader(status)
	_, _ = io.WriteString(w, page) // the client may have enough
}

// engine is a server with one answer, as it is asked.
func engine(t testing.TB, opt remote.Options, s *server) *remote.Engine {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	e, err := remote.New(srv.URL, opt)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func always(status int, page string) *server {
	return &server{answer: func(string) (int, string) { return status, page }}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		opt     remote.Options
		text    string
		special bool
		answer  string
		sent    string
		want    tokenizer.Encoding
	}{
		{
			"vLLM with strings",
			remote.Options{},
			"a <b>", true,
			`{"count":3,"max_model_len":2048,"tokens":[1,64,366],"token_strs":["<s>","a","Ġ<b>"]}`,
			`{"prompt":"a <b>","add_special_tokens":true,"return_token_strs":true}`,
			tokenizer.Encoding{IDs: []wire.Token{1, 64, 366}, Spans: []tokenizer.Span{{}, {Start: 0, End: 1}, {Start: 1, End: 5}}},
		},
		{
			"vLLM without",
			remote.Options{Model: "adapter"},
			"a", false,
			`{"count":1,"max_model_len":2048,"tokens":[64],"token_strs":null}`,
			`{"model":"adapter","prompt":"a","add_special_tokens":false,"return_token_strs":true}`,
			tokenizer.Encoding{IDs: []wire.Token{64}},
		},
		{
			"SGLang, with the length of a model that has none",
			remote.Options{},
			"a", false,
			`{"tokens":[64],"count":1,"max_model_len":1000000000000000019884624838656}`,
			`{"prompt":"a","add_special_tokens":false,"return_token_strs":true}`,
			tokenizer.Encoding{IDs: []wire.Token{64}},
		},
		{
			"nothing",
			remote.Options{},
			"", false,
			`{"tokens":[],"count":0}`,
			`{"prompt":"","add_special_tokens":false,"return_token_strs":true}`,
			tokenizer.Encoding{IDs: []wire.Token{}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := always(http.StatusOK, tt.answer)
			got, err := engine(t, tt.opt, s).Encode(t.Context(), tt.text, tt.special)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("encoding (-want +got):\n%s", d)
			}
			if !slices.Equal(s.asked, []string{tt.sent}) {
				t.Errorf("sent %s, want %s", s.asked, tt.sent)
			}
		})
	}
}

func TestChat(t *testing.T) {
	t.Parallel()
	chat := prompt.Conversation{
		Messages:            json.RawMessage(`[{"role":"user","content":"<hi> 1.0"}]`),
		Tools:               json.RawMessage(`[{"type":"function","function":{"name":"z","description":"a"}}]`),
		Kwargs:              json.RawMessage(`{"enable_thinking":false}`),
		AddGenerationPrompt: true,
	}
	const asked = `{"messages":[{"role":"user","content":"<hi> 1.0"}],"tools":[{"type":"function","function":{"name":"z","description":"a"}}],` +
		`"chat_template_kwargs":{"enable_thinking":false},"add_generation_prompt":true,"add_special_tokens":false,"return_token_strs":true}`
	spans := []tokenizer.Span{{Start: 0, End: 3}, {Start: 3, End: 6}}
	for _, tt := range []struct {
		name, rendered string
		again          map[string]string // what texts are, by the text
		want           prompt.Rendered
	}{
		{
			"byte-level",
			`{"count":2,"tokens":[7,8],"token_strs":["<U>","Ġhi"]}`,
			map[string]string{
				"<U>Ġhi": `{"count":3,"tokens":[7,9,8]}`,
				"<U> hi": `{"count":2,"tokens":[7,8],"token_strs":["<U>","Ġhi"]}`,
			},
			prompt.Rendered{Text: "<U> hi", Encoding: tokenizer.Encoding{IDs: []wire.Token{7, 8}, Spans: spans}},
		},
		{
			"SentencePiece, which reads its own mark as a space",
			`{"count":2,"tokens":[7,8],"token_strs":["<U>","▁hi"]}`,
			map[string]string{
				"<U> hi": `{"count":2,"tokens":[7,8],"token_strs":["<U>","▁hi"]}`,
				"<U>▁hi": `{"count":2,"tokens":[7,8],"token_strs":["<U>","▁hi"]}`,
			},
			prompt.Rendered{Text: "<U> hi", Encoding: tokenizer.Encoding{IDs: []wire.Token{7, 8}, Spans: spans}},
		},
		{
			"no text has these tokens",
			`{"count":2,"tokens":[7,8],"token_strs":["<U>","hi"]}`,
			map[string]string{"<U>hi": `{"count":1,"tokens":[5]}`},
			prompt.Rendered{Encoding: tokenizer.Encoding{IDs: []wire.Token{7, 8}}},
		},
		{
			"half a character",
			`{"count":2,"tokens":[7,8],"token_strs":["<U>","ðŁ"]}`,
			map[string]string{"<U>ðŁ": `{"count":1,"tokens":[5]}`},
			prompt.Rendered{Encoding: tokenizer.Encoding{IDs: []wire.Token{7, 8}}},
		},
		{
			"no strings",
			`{"count":2,"tokens":[7,8],"token_strs":null}`,
			nil,
			prompt.Rendered{Encoding: tokenizer.Encoding{IDs: []wire.Token{7, 8}}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &server{}
			s.answer = func(body string) (int, string) {
				if len(s.asked) == 1 {
					return http.StatusOK, tt.rendered
				}
				var q struct {
					Prompt  string
					Special bool `json:"add_special_tokens"`
				}
				page, ok := "", false
				if json.Unmarshal([]byte(body), &q) == nil && !q.Special {
					page, ok = tt.again[q.Prompt]
				}
				if !ok {
					return http.StatusBadRequest, "not expected"
				}
				return http.StatusOK, page
			}
			got, err := engine(t, remote.Options{}, s).Chat(t.Context(), chat)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("rendered (-want +got):\n%s", d)
			}
			if s.asked[0] != asked {
				t.Errorf("sent %s\nwant %s", s.asked[0], asked)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status int
		page   string
		want   string
	}{
		{"vLLM's words", 400, `{"error":{"message":"no such\u001b[2Jmodel","code":400}}`, "400 Bad Request: no such?[2Jmodel"},
		{"SGLang's words", 422, `{"object":"error","message":"Field required"}`, "422 Unprocessable Entity: Field required"},
		{"other words", 500, `<html>`, "500 Internal Server Error"},
		{"another server", 404, `{"detail":"Not Found"}`, "without /v1"},
		{"a redirect", 307, ``, "307 Temporary Redirect"},
		{"no JSON", 200, `hello`, "not the JSON asked for"},
		{"another form", 200, `{"tokens":["a secret"]}`, `at "tokens"`},
		{"another page", 200, `{"ok":true}`, "has no tokens"},
		{"a negative id", 200, `{"tokens":[-1],"count":1}`, `at "tokens"`},
		{"cut", 200, `{"tokens":[1,2],"count":3}`, "counts 3 tokens and has 2"},
		{"several prompts", 200, `{"tokens":[1,2],"count":[1,1]}`, `at "count"`},
		{"other strings", 200, `{"tokens":[1,2],"count":2,"token_strs":["a"]}`, "the strings of 1"},
		{"endless", 200, `{"tokens":[` + strings.Repeat("1,", 1<<20), "more than 10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := engine(t, remote.Options{}, always(tt.status, tt.page)).Encode(t.Context(), "ab", false)
			if err == nil || !strings.HasPrefix(err.Error(), "tokenize http://127.0.0.1:") || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

// What cannot be asked is not sent.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := always(http.StatusOK, `{"tokens":[1]}`)
	e := engine(t, remote.Options{}, s)
	for _, text := range []string{"\xff", strings.Repeat("x", 16<<20)} {
		if _, err := e.Encode(t.Context(), text, false); err == nil {
			t.Errorf("%d bytes were sent", len(text))
		}
	}
	for _, c := range []prompt.Conversation{
		{},
		{Messages: json.RawMessage(`[`)},
		{Messages: json.RawMessage("[\"\xff\"]")},
		{Messages: json.RawMessage(`[]`), Tools: json.RawMessage(`{`)},
		{Messages: json.RawMessage(`[]`), Kwargs: json.RawMessage(`}`)},
	} {
		if _, err := e.Chat(t.Context(), c); err == nil || !strings.Contains(err.Error(), "no JSON") {
			t.Errorf("%s: error %v", c.Messages, err)
		}
	}
	if len(s.asked) != 0 {
		t.Errorf("sent %q", s.asked)
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	if _, err := remote.New("localhost:8000", remote.Options{}); err == nil {
		t.Error("an address without a scheme is taken")
	}
	e, err := remote.New("http://user:word@host:1/base?key=word", remote.Options{Do: func(r *http.Request) (*http.Response, error) {
		if r.URL.Path != "/base/tokenize" || r.URL.RawQuery != "key=word" {
			t.Errorf("asked %s", r.URL)
		}
		return nil, io.ErrUnexpectedEOF
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Encode(t.Context(), "a", false)
	if want := "tokenize http://user:xxxxx@host:1/base/tokenize: unexpected EOF"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if got, want := e.Name(), "the engine at http://user:xxxxx@host:1/base"; got != want {
		t.Errorf("name %s, want %s", got, want)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, err := remote.New("http://host", remote.Options{Do: func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		_, err = e.Encode(t.Context(), "a", false)
		if took := time.Since(begin); err == nil || !strings.Contains(err.Error(), "no answer within 30s") || took != 30*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}
