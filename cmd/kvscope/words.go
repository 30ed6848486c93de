package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/prompt/hf"
	"github.com/kvscope/kvscope/prompt/remote"
	"github.com/kvscope/kvscope/wire"
)

// wordFlags say how prompts become tokens, and tokens text.
type wordFlags struct {
	dir, template, args, with string
}

func (w *wordFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.dir, "tokenizer", "", "model's folder with tokenizer.json and its chat template, or a model's name in HuggingFace's cache on this machine")
	f.StringVar(&w.template, "chat-template", "", "file with the chat template, in place of the model's")
	f.StringVar(&w.args, "template-args", "", `arguments for the chat template: a JSON object such as {"enable_thinking": false}`)
	f.StringVar(&w.with, "tokenize-with", "go", "who makes the tokens: go (built in), rust (HuggingFace's, where built in) or the URL of an engine, which is sent the prompt")
}

// maxTemplateFile is the longest file that is taken for a chat template.
const maxTemplateFile = 1 << 20

// settle takes what was not given from the environment and the configuration.
func (w *wordFlags) settle(cmd *cobra.Command, getenv func(string) string) error {
	path := getenv(variable("config"))
	if f := cmd.Flags().Lookup("config"); f != nil {
		path = firstOf(f.Value.String(), path)
	}
	cfg, _, err := readConfig(path, getenv)
	if err != nil {
		return usageError("%w", err)
	}
	w.dir = firstOf(w.dir, getenv(variable("tokenizer")), cfg.Tokenizer)
	w.template = firstOf(w.template, getenv(variable("chat-template")), cfg.ChatTemplate)
	var args map[string]json.RawMessage
	if w.args != "" && (json.Unmarshal([]byte(w.args), &args) != nil || args == nil) {
		return usageError(`--template-args: give a JSON object, such as {"enable_thinking": false}`)
	}
	if w.with != "go" && w.with != "rust" && !strings.Contains(w.with, "://") {
		return usageError("--tokenize-with %s: give go, rust or the URL of an engine such as http://10.0.0.5:8000", w.with)
	}
	return nil
}

// given says whether anything is known that makes tokens of text.
func (w *wordFlags) given() bool {
	return w.dir != "" || w.template != "" || strings.Contains(w.with, "://")
}

// load reads a model's files. It takes seconds for a large vocabulary.
func (w *wordFlags) load(ctx context.Context, progress func(stage string, done, size int64)) (*prompt.Model, error) {
	opt := prompt.Options{Progress: progress}
	if w.template != "" {
		text, err := readFile(w.template, maxTemplateFile)
		if err != nil {
			return nil, fmt.Errorf("the chat template: %w", err)
		}
		opt.Template = string(text)
	}
	var files fs.FS = nothing{}
	if w.dir != "" {
		dir, err := modelFolder(w.dir, os.Getenv)
		if err != nil {
			return nil, err
		}
		files = os.DirFS(dir)
	}
	var err error
	switch w.with {
	case "go":
	case "rust":
		opt.Encoder, err = rust(files)
	default:
		opt.Encoder, err = remote.New(w.with, remote.Options{})
	}
	if err != nil {
		return nil, err
	}
	m, err := prompt.Load(ctx, files, opt)
	if err != nil && w.dir != "" {
		err = fmt.Errorf("the tokenizer of %s: %w", w.dir, err)
	}
	return m, err
}

// renderer loads what makes and spells tokens for the checks, nil where nothing is
// given.
func (w *wordFlags) renderer(ctx context.Context) (explain.Renderer, error) {
	if !w.given() {
		return nil, nil
	}
	m, err := w.load(ctx, nil)
	if err != nil {
		return nil, inputError(err)
	}
	return speech{m}, nil
}

// rust gives HuggingFace's own tokenizers for a model.
func rust(files fs.FS) (prompt.Encoder, error) {
	info, err := fs.Stat(files, "tokenizer.json")
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("tokenizer.json is no regular file")
	}
	var data []byte
	if err == nil {
		data, err = fs.ReadFile(files, "tokenizer.json")
	}
	if err != nil {
		return nil, fmt.Errorf("--tokenize-with rust needs a tokenizer.json (--tokenizer DIR): %w", err)
	}
	return hf.Load(data)
}

// nothing is a folder without files.
type nothing struct{}

func (nothing) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// readFile reads a file of at most so many bytes.
func readFile(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read from
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("%s has more than %d bytes: is it the right file?", path, most)
	}
	return data, err
}

// modelFolder finds a model's files: a folder, the tokenizer.json in it, or a
// model's name in HuggingFace's cache.
func modelFolder(name string, getenv func(string) string) (string, error) {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return name, nil
	case err == nil && filepath.Base(name) == "tokenizer.json":
		return filepath.Dir(name), nil
	case err == nil:
		return "", fmt.Errorf("%s is no folder: give the model's, which holds tokenizer.json", name)
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	case strings.Count(name, "/") > 1 || strings.HasPrefix(name, "/") || strings.HasPrefix(name, "."):
		return "", fmt.Errorf("there is no folder %s: give the folder with tokenizer.json, or a model's name such as Qwen/Qwen3-8B", name)
	}
	hub := getenv("HF_HUB_CACHE")
	if hub == "" {
		home := getenv("HF_HOME")
		if home == "" {
			home = filepath.Join(firstOf(getenv("XDG_CACHE_HOME"), filepath.Join(getenv("HOME"), ".cache")), "huggingface")
		}
		hub = filepath.Join(home, "hub")
	}
	model := filepath.Join(hub, "models--"+strings.ReplaceAll(name, "/", "--"))
	if commit, err := readFile(filepath.Join(model, "refs", "main"), 1<<10); err == nil {
		if dir := filepath.Join(model, "snapshots", filepath.Base(strings.TrimSpace(string(commit)))); isFolder(dir) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("there is neither a folder %s nor that model in HuggingFace's cache (%s): give the folder with its tokenizer.json", name, hub)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// words read prompts and spell tokens for the UI, by a model that loads in the
// background.
type words struct {
	args   json.RawMessage
	loaded chan struct{}

	mu    sync.Mutex
	state string
	model *prompt.Model
	err   error
}

// start loads the model, if there is one, until ctx ends.
func (w *wordFlags) start(ctx context.Context) *words {
	if w.given() {
		return startWords(ctx, rawArgs(w.args), w.load)
	}
	out := &words{loaded: make(chan struct{}), err: errNoTokenizer, state: "no tokenizer, so only token ids are read: --tokenizer DIR"}
	close(out.loaded)
	return out
}

// startWords loads a model until ctx ends.
func startWords(ctx context.Context, args json.RawMessage, load func(context.Context, func(string, int64, int64)) (*prompt.Model, error)) *words {
	out := &words{loaded: make(chan struct{}), args: args, state: "loading the tokenizer"}
	go func() {
		defer close(out.loaded)
		m, err := load(ctx, out.progress)
		out.done(m, err)
	}()
	return out
}

func rawArgs(s string) json.RawMessage {
	if s == "" {
		return nil
	}
	return json.RawMessage(s)
}

var errNoTokenizer = errors.New("text needs the model's tokenizer: give its folder with --tokenizer DIR, or token ids such as [151644, 8948, 198]")

func (w *words) progress(stage string, done, size int64) {
	state := "loading the tokenizer: " + stage
	if size > 0 {
		state += fmt.Sprintf(", %d %%", 100*done/size)
	}
	w.mu.Lock()
	w.state = state
	w.mu.Unlock()
}

func (w *words) done(m *prompt.Model, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.model, w.err, w.state = m, err, ""
	if err == nil {
		err = m.Tokenizes() // a chat template alone is something
	}
	if err != nil {
		w.state = "no tokenizer: " + err.Error()
	}
}

// State says how far the model is.
func (w *words) State() (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.loaded:
		return w.state, false
	default:
		return w.state, true
	}
}

// wait gives the model once it is there.
func (w *words) wait(ctx context.Context) (*prompt.Model, error) {
	select {
	case <-w.loaded:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.model, w.err
}

// Read makes a prompt of what was pasted. Token ids need no model.
func (w *words) Read(ctx context.Context, text string) (*prompt.Prompt, error) {
	r, err := prompt.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	m, err := w.wait(ctx)
	if err != nil {
		if r.Tokens != nil && ctx.Err() == nil {
			return bare(r), nil
		}
		return nil, err
	}
	return m.Prompt(ctx, r, prompt.RenderOptions{Now: time.Now(), Kwargs: w.args})
}

// bare is a prompt of which only the tokens are known.
func bare(r *prompt.Request) *prompt.Prompt {
	p := &prompt.Prompt{Tokens: r.Tokens, Model: r.Model, Salt: r.Salt, LoRA: r.LoRA, Notes: slices.Clone(r.Notes)}
	if r.TokensFrom != "" {
		p.Notes = append(p.Notes, "read from "+r.TokensFrom)
	}
	return p
}

// Text spells a token.
func (w *words) Text(t wire.Token) (string, bool) {
	select {
	case <-w.loaded:
	default:
		return "", false
	}
	return spell(w.model, t)
}

// spell gives the bytes that a token stands for.
func spell(m *prompt.Model, t wire.Token) (string, bool) {
	if m == nil || m.Tokenizer == nil {
		return "", false
	}
	text, _, ok := m.Tokenizer.Token(t)
	return text, ok
}

// Encode makes tokens of a rendered text.
func (w *words) Encode(ctx context.Context, text string) ([]wire.Token, []prompt.Span, error) {
	m, err := w.wait(ctx)
	if err != nil {
		return nil, nil, err
	}
	return speech{m}.Encode(ctx, text)
}

// speech is a loaded model as package explain needs it.
type speech struct{ *prompt.Model }

func (s speech) Text(t wire.Token) (string, bool) { return spell(s.Model, t) }

func (s speech) Encode(ctx context.Context, text string) ([]wire.Token, []prompt.Span, error) {
	e, err := s.Model.Encode(ctx, text, false)
	return e.IDs, e.Spans, err
}
