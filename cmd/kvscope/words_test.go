package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// A chat, and its tokens as Python's tokenizers and Jinja2 make them: "user only"
// of fixtures/tokenizer/golden.json.
const orderChat = `{"messages": [{"role": "user", "content": "Where is my order?"}]}`

var orderTokens = []wire.Token{1001, 395, 198, 684, 260, 288, 777, 479, 30, 1002, 198, 1001, 309, 483, 198}

// loading starts words whose model comes once the test sends it.
func loading(t *testing.T, args string) (*words, chan<- error, func(stage string, done, size int64)) {
	t.Helper()
	m := small(t)
	result := make(chan error)
	told := make(chan func(string, int64, int64), 1)
	w := startWords(t.Context(), rawArgs(args), func(ctx context.Context, progress func(string, int64, int64)) (*prompt.Model, error) {
		told <- progress
		select {
		case err := <-result:
			if err != nil {
				return nil, err
			}
			return m, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	return w, result, <-told
}

// over is a context that has ended.
func over(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func wantState(t *testing.T, w *words, text string, busy bool) {
	t.Helper()
	if got, is := w.State(); got != text || is != busy {
		t.Errorf("state %q, %t; want %q, %t", got, is, text, busy)
	}
}

func TestWordsLoad(t *testing.T) {
	t.Parallel()
	w, result, progress := loading(t, `{"enable_thinking": false}`)
	wantState(t, w, "loading the tokenizer", true)
	progress("reading tokenizer.json", 0, 0)
	wantState(t, w, "loading the tokenizer: reading tokenizer.json", true)
	progress("reading tokenizer.json", 3, 12)
	wantState(t, w, "loading the tokenizer: reading tokenizer.json, 25 %", true)
	if text, ok := w.Text(395); ok {
		t.Errorf("a token is spelled %q before there is a tokenizer", text)
	}
	if _, err := w.Read(over(t), orderChat); !errors.Is(err, context.Canceled) {
		t.Errorf("reading while it loads and nobody waits: %v", err)
	}
	if _, _, err := w.Encode(over(t), "order"); !errors.Is(err, context.Canceled) {
		t.Errorf("encoding while it loads and nobody waits: %v", err)
	}
	if _, err := w.Read(over(t), `{"messages": [`); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("what cannot be read needs no tokenizer to say so: %v", err)
	}
	type read struct {
		p   *prompt.Prompt
		err error
	}
	chat, ids := make(chan read, 1), make(chan read, 1)
	for text, to := range map[string]chan read{orderChat: chat, "[1001, 395, 198]": ids} {
		go func() {
			p, err := w.Read(t.Context(), text)
			to <- read{p, err}
		}()
	}
	result <- nil
	got := <-chat
	if got.err != nil {
		t.Fatal(got.err)
	}
	thought := "<think>\n\n</think>\n\n"
	if !slices.Equal(got.p.Tokens[:len(orderTokens)], orderTokens) || !strings.HasSuffix(got.p.Text, thought) {
		t.Errorf("tokens %v of %q, want %v and no thoughts", got.p.Tokens, got.p.Text, orderTokens)
	}
	if got := <-ids; got.err != nil || !slices.Equal(got.p.Tokens, orderTokens[:3]) {
		t.Errorf("token ids: %+v", got)
	}
	wantState(t, w, "", false)
	if text, ok := w.Text(395); !ok || text != "user" {
		t.Errorf("token 395 is %q, %t", text, ok)
	}
	if text, ok := w.Text(1001); !ok || text != "<|im_start|>" {
		t.Errorf("token 1001 is %q, %t", text, ok)
	}
	if text, ok := w.Text(5000); ok {
		t.Errorf("a token that there is not is %q", text)
	}
	tokens, spans, err := w.Encode(t.Context(), "<|im_start|>user\n")
	if err != nil || !slices.Equal(tokens, orderTokens[:3]) || !slices.Equal(spans, []prompt.Span{{Start: 0, End: 12}, {Start: 12, End: 16}, {Start: 16, End: 17}}) {
		t.Errorf("%v, %v, %v", tokens, spans, err)
	}
}

// TestWordsFail: without a tokenizer token ids are read all the same, and text
// says what is missing.
func TestWordsFail(t *testing.T) {
	t.Parallel()
	failed, result, _ := loading(t, "")
	result <- errors.New("it is broken")
	<-failed.loaded
	none := (&wordFlags{with: "go"}).start(t.Context())
	for name, tt := range map[string]struct {
		w           *words
		state, want string
	}{
		"failed": {failed, "no tokenizer: it is broken", "it is broken"},
		"none":   {none, "no tokenizer, so only token ids are read: --tokenizer DIR", "text needs the model's tokenizer"},
	} {
		wantState(t, tt.w, tt.state, false)
		p, err := tt.w.Read(t.Context(), `{"prompt": [3, 4, 5], "cache_salt": "s", "lora_path": "l"}`)
		if err != nil || !slices.Equal(p.Tokens, []wire.Token{3, 4, 5}) || p.Salt != "s" || p.LoRA != "l" {
			t.Errorf("%s: token ids: %+v, %v", name, p, err)
		}
		if _, err := tt.w.Read(t.Context(), orderChat); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: a chat: %v", name, err)
		}
		if _, _, err := tt.w.Encode(t.Context(), "order"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: encoding: %v", name, err)
		}
		if text, ok := tt.w.Text(395); ok {
			t.Errorf("%s: a token is spelled %q", name, text)
		}
	}
}

// TestWordsEnd: nothing loads on once nobody waits any more. It is not parallel,
// so that only its own goroutines are counted.
func TestWordsEnd(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithCancel(t.Context())
	w := startWords(ctx, nil, func(ctx context.Context, _ func(string, int64, int64)) (*prompt.Model, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	own := (&wordFlags{dir: filepath.Join("..", "..", "fixtures", "tokenizer"), with: "go"}).start(ctx)
	cancel()
	<-w.loaded
	<-own.loaded // loaded or not, but it ends
	wantState(t, w, "no tokenizer: context canceled", false)
}

func TestModelFolder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put := func(text string, path ...string) string {
		name := filepath.Join(append([]string{root}, path...)...)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	file := put("{}", "own", "tokenizer.json")
	other := put("{}", "own", "model.safetensors")
	model := []string{"hf", "hub", "models--org--small"}
	snapshot := filepath.Dir(put("{}", append(model, "snapshots", "c0ffee", "tokenizer.json")...))
	put("c0ffee\n", append(model, "refs", "main")...)
	bare := filepath.Dir(put("{}", "hf", "hub", "models--small", "snapshots", "1", "tokenizer.json"))
	put("1", "hf", "hub", "models--small", "refs", "main")
	put("gone", "hf", "hub", "models--org--half", "refs", "main")
	put(strings.Repeat("c", 2000), "hf", "hub", "models--org--long", "refs", "main")
	put("../../../../../own", "hf", "hub", "models--org--out", "refs", "main")
	home := map[string]string{"HF_HOME": filepath.Join(root, "hf")}
	for _, tt := range []struct {
		what, name string
		env        map[string]string
		want, err  string
	}{
		{"a folder", filepath.Dir(file), nil, filepath.Dir(file), ""},
		{"its tokenizer.json", file, nil, filepath.Dir(file), ""},
		{"another file", other, nil, "", "is no folder: give the model's, which holds tokenizer.json"},
		{"no such folder", filepath.Join(root, "none"), home, "", "there is no folder"},
		{"no such folder here", "./none", home, "", "there is no folder"},
		{"of HF_HOME", "org/small", home, snapshot, ""},
		{"without an organisation", "small", home, bare, ""},
		{"of HF_HUB_CACHE", "org/small", map[string]string{"HF_HUB_CACHE": filepath.Join(root, "hf", "hub"), "HF_HOME": "nowhere"}, snapshot, ""},
		{"of XDG_CACHE_HOME", "org/small", map[string]string{"XDG_CACHE_HOME": root}, "", filepath.Join(root, "huggingface", "hub")},
		{"of HOME", "org/small", map[string]string{"HOME": root}, "", filepath.Join(root, ".cache", "huggingface", "hub")},
		{"a snapshot that is gone", "org/half", home, "", "there is neither a folder org/half nor that model"},
		{"a commit that is too long", "org/long", home, "", "neither a folder"},
		{"a commit that leads out", "org/out", home, "", "neither a folder"},
		{"a model that is not there", "org/none", home, "", "give the folder with its tokenizer.json"},
		{"no name", "org/small/extra", home, "", "there is no folder"},
	} {
		got, err := modelFolder(tt.name, func(key string) string { return tt.env[key] })
		switch {
		case tt.err == "" && (err != nil || got != tt.want):
			t.Errorf("%s: %q, %v, want %q", tt.what, got, err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: %q, %v, want %q", tt.what, got, err, tt.err)
		}
	}
}

// TestSettle: a flag wins over the environment, and that over the configuration.
func TestSettle(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("tokenizer: c\nchat_template: c.jinja\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"KVSCOPE_TOKENIZER": "e", "KVSCOPE_CHAT_TEMPLATE": "e.jinja"}
	named := map[string]string{"KVSCOPE_CONFIG": config}
	both := map[string]string{"KVSCOPE_TOKENIZER": "e", "KVSCOPE_CONFIG": config}
	for _, tt := range []struct {
		what string
		args []string
		env  map[string]string
		want wordFlags
		err  string
	}{
		{"nothing", nil, nil, wordFlags{with: "go"}, ""},
		{"flags", []string{"--tokenizer=f", "--chat-template=f.jinja", "--config", config}, env, wordFlags{dir: "f", template: "f.jinja", with: "go"}, ""},
		{"environment", []string{"--config", config}, env, wordFlags{dir: "e", template: "e.jinja", with: "go"}, ""},
		{"configuration", []string{"--config", config}, nil, wordFlags{dir: "c", template: "c.jinja", with: "go"}, ""},
		{"named by the environment", nil, named, wordFlags{dir: "c", template: "c.jinja", with: "go"}, ""},
		{"of each one", []string{"--chat-template=f.jinja"}, both, wordFlags{dir: "e", template: "f.jinja", with: "go"}, ""},
		{"no configuration", []string{"--config", config + "x"}, nil, wordFlags{}, "the configuration cannot be read"},
		{"arguments", []string{`--template-args={"a": 1}`}, nil, wordFlags{args: `{"a": 1}`, with: "go"}, ""},
		{"no object", []string{"--template-args=[1]"}, nil, wordFlags{}, "give a JSON object"},
		{"null", []string{"--template-args=null"}, nil, wordFlags{}, "give a JSON object"},
		{"no JSON", []string{"--template-args={a: 1}"}, nil, wordFlags{}, "give a JSON object"},
		{"an engine", []string{"--tokenize-with=http://10.0.0.5:8000"}, nil, wordFlags{with: "http://10.0.0.5:8000"}, ""},
		{"nobody", []string{"--tokenize-with=python"}, nil, wordFlags{}, "give go, rust or the URL of an engine"},
	} {
		var w wordFlags
		cmd := &cobra.Command{}
		w.add(cmd)
		cmd.Flags().String("config", "", "")
		if err := cmd.ParseFlags(tt.args); err != nil {
			t.Fatal(err)
		}
		err := w.settle(cmd, func(key string) string { return tt.env[key] })
		switch {
		case tt.err == "" && (err != nil || w != tt.want):
			t.Errorf("%s: %+v, %v, want %+v", tt.what, w, err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: %v, want %q", tt.what, err, tt.err)
		}
	}
	// A command without --config reads the file that the environment names too.
	var w wordFlags
	cmd := &cobra.Command{}
	w.add(cmd)
	if err := w.settle(cmd, func(key string) string { return named[key] }); err != nil || w.dir != "c" {
		t.Errorf("without the flag: %+v, %v", w, err)
	}
}

// TestLoadModel: what can be wrong with a model's files is said with its name.
func TestLoadModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := put("plain.jinja", "{{ messages[0].content }}")
	long := put("long.jinja", strings.Repeat("x", maxTemplateFile+1))
	tokenizer := filepath.Join("..", "..", "fixtures", "tokenizer")
	for _, tt := range []struct {
		what  string
		flags wordFlags
		err   string
	}{
		{"a model", wordFlags{dir: tokenizer, with: "go"}, ""},
		{"another template", wordFlags{dir: tokenizer, template: plain, with: "go"}, ""},
		{"a template alone", wordFlags{template: plain, with: "go"}, ""},
		{"no template there", wordFlags{dir: tokenizer, template: dir + "/none", with: "go"}, "the chat template: "},
		{"a template too long", wordFlags{dir: tokenizer, template: long, with: "go"}, "has more than 1048576 bytes: is it the right file?"},
		{"an empty folder", wordFlags{dir: t.TempDir(), with: "go"}, "the tokenizer of "},
		{"no folder", wordFlags{dir: filepath.Join(dir, "none"), with: "go"}, "there is no folder"},
		{"no tokenizer for rust", wordFlags{dir: dir, with: "rust"}, "--tokenize-with rust needs a tokenizer.json"},
		{"no engine", wordFlags{dir: tokenizer, with: "ftp://a"}, "ftp"},
	} {
		m, err := tt.flags.load(t.Context(), nil)
		switch {
		case tt.err == "" && err != nil:
			t.Errorf("%s: %v", tt.what, err)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: %v, %v, want %q", tt.what, m, err, tt.err)
		}
	}
}

// TestPromptFlags: what is asked for reaches the prompt.
func TestPromptFlags(t *testing.T) {
	t.Parallel()
	m := small(t)
	body := filepath.Join(t.TempDir(), "body.json")
	if err := os.WriteFile(body, []byte(orderChat), 0o600); err != nil {
		t.Fatal(err)
	}
	ids := `{"prompt": [3, 4, 5], "cache_salt": "own", "lora_path": "l"}`
	for _, tt := range []struct {
		what, text string
		flags      promptFlags
		m          *prompt.Model
		want       prompt.Prompt // Tokens, Text, Salt and LoRA count
		err        string
	}{
		{"a chat", orderChat, promptFlags{}, m, prompt.Prompt{Tokens: orderTokens}, ""},
		{"a command with a file", "curl http://h/v1/chat/completions -d @" + body, promptFlags{}, m, prompt.Prompt{Tokens: orderTokens}, ""},
		{"a command without its file", "curl http://h -d @" + body + "x", promptFlags{}, m, prompt.Prompt{}, "the body of the command: "},
		{"salt and adapter", orderChat, promptFlags{salt: "s", lora: "a"}, m, prompt.Prompt{Tokens: orderTokens, Salt: "s", LoRA: "a"}, ""},
		{"a chat without a tokenizer", orderChat, promptFlags{}, nil, prompt.Prompt{}, "text needs the model's tokenizer"},
		{"ids", ids, promptFlags{}, nil, prompt.Prompt{Tokens: []wire.Token{3, 4, 5}, Salt: "own", LoRA: "l"}, ""},
		{"ids, with flags", ids, promptFlags{salt: "s", lora: "a"}, nil, prompt.Prompt{Tokens: []wire.Token{3, 4, 5}, Salt: "s", LoRA: "a"}, ""},
		{"text", `{"prompt": "order", "cache_salt": "own", "lora_path": "l"}`, promptFlags{}, nil, prompt.Prompt{Text: "order", Salt: "own", LoRA: "l"}, ""},
		{"text, with flags", `{"prompt": "order", "cache_salt": "own"}`, promptFlags{salt: "s", lora: "a"}, nil, prompt.Prompt{Text: "order", Salt: "s", LoRA: "a"}, ""},
		{"a body as text", "[3, 4, 5]", promptFlags{plain: true}, nil, prompt.Prompt{Text: "[3, 4, 5]"}, ""},
		{"a view without a tokenizer", ids, promptFlags{view: "ray"}, nil, prompt.Prompt{}, "text needs the model's tokenizer"},
		{"a view of ids", ids, promptFlags{view: "ray"}, m, prompt.Prompt{}, "only token ids"},
	} {
		got, _, err := tt.flags.prompt(t.Context(), tt.m, []byte(tt.text), "it")
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), "it: ") || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %+v, %v, want %q", tt.what, got, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.what, err)
			continue
		}
		sameText := tt.want.Text == "" || got.Text == tt.want.Text
		if !slices.Equal(got.Tokens, tt.want.Tokens) || got.Salt != tt.want.Salt || got.LoRA != tt.want.LoRA || !sameText {
			t.Errorf("%s: %+v", tt.what, got)
		}
	}
	seen, _, err := (&promptFlags{view: "ray"}).prompt(t.Context(), m, []byte(orderChat), "it")
	if err != nil || seen.Text != "Where is my order?" || !slices.Equal(seen.Tokens, orderTokens[3:9]) {
		t.Errorf("as a router sees it: %+v, %v", seen, err)
	}
}

// TestRequestReachesTheQuery: explain looks for blocks of that salt and adapter,
// among replicas of the model that the request names.
func TestRequestReachesTheQuery(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "fixtures", "tokenizer")
	for _, arg := range []string{`{"model": "small", ` + orderChat[1:], `{"model": "small", "prompt": [3, 4, 5]}`} {
		f := explainFlags{prompt: promptFlags{salt: "s", lora: "a", words: wordFlags{with: "go", dir: dir}}}
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.Flags().String("config", os.DevNull, "")
		var q explain.Query
		about, err := f.read(cmd, []string{arg}, false, &q)
		if err != nil {
			t.Fatal(err)
		}
		p := about.prompt
		if q.Named != "small" || q.Salt != "s" || q.LoRA != "a" || p.Salt != "s" || p.LoRA != "a" || len(q.Tokens) == 0 {
			t.Errorf("%s: %+v, %+v", arg, q, p)
		}
	}
}
