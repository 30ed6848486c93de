package prompt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kvscope/kvscope/prompt/template"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/wire"
)

// The files of a model's directory, and how large they may be.
const (
	tokenizerFile = "tokenizer.json"
	configFile    = "tokenizer_config.json"
	specialFile   = "special_tokens_map.json"
	templateFile  = "chat_template.jinja"
	legacyFile    = "chat_template.json"
	modelFile     = "config.json"

	maxTokenizer = 256 << 20
	maxConfig    = 16 << 20
	maxTemplate  = 1 << 20
)

// Options say what is used in place of a model's own.
type Options struct {
	// Template is the text of a chat template, empty for the model's.
	Template string
	// Encoder makes the tokens, nil for our own engine and the model's tokenizer.
	Encoder Encoder
	// Format is how templates get the content of messages, as vLLM's
	// --chat-template-content-format: "string", "openai", or "auto" and "".
	Format string
	// Kwargs is a JSON object of what the engine hands to every template
	// (--default-chat-template-kwargs), nil for nothing.
	Kwargs json.RawMessage
	// Progress is told what Load does, with the bytes of a file that are read and
	// its size, 0 where there is none. It may be nil.
	Progress func(stage string, done, size int64)
}

// Model is what turns requests into tokens: a chat template and a tokenizer.
// Where one of them is missing, what needs it fails and says why. It is safe for
// concurrent use if its encoder is.
type Model struct {
	// Tokenizer decodes tokens, nil if the model's could not be loaded.
	Tokenizer *tokenizer.Tokenizer
	// Notes are what was noticed while it was loaded.
	Notes []string

	encoder    Encoder
	noEncoder  error
	template   *template.Template
	tools      *template.Template // in place of template where there are tools; may be nil
	from       string             // whose template it is
	items      bool               // it gets content as lists
	format     string             // what the user says of that
	noTemplate error
	warning    string // about every chat
	bos, eos   *string
	special    object // the other special tokens, by name
	kwargs     object
}

// pureGo is our own engine as an Encoder.
type pureGo struct{ t *tokenizer.Tokenizer }

func (e pureGo) Encode(_ context.Context, text string, special bool) (tokenizer.Encoding, error) {
	return e.t.Encode(text, special)
}

func (pureGo) Name() string { return "pure Go" }

// Load reads a model's directory. It fails where nothing in it can be used, or
// when ctx ends.
func Load(ctx context.Context, fsys fs.FS, o Options) (*Model, error) {
	l := loader{ctx, fsys, o.Progress}
	m := &Model{format: o.Format}
	if !slices.Contains([]string{"", "auto", "string", "openai"}, o.Format) {
		return nil, errors.New("the content format is neither auto, string nor openai")
	}
	var err error
	if m.kwargs, err = readKwargs(o.Kwargs); err != nil {
		return nil, fmt.Errorf("what is given for the template by default %w", err)
	}
	about, err := l.object(modelFile)
	if err != nil {
		return nil, err
	}
	if kind := about.text("model_type"); ownRenderers[kind] {
		m.warning = "vLLM renders chats of " + kind + " with code of its own, not with a template, so its tokens may differ: compare with the engine's"
		m.Notes = append(m.Notes, m.warning)
	}
	config, err := l.object(configFile)
	if err != nil {
		return nil, err
	}
	if err := l.specials(m, config); err != nil {
		return nil, err
	}
	if err := l.templates(m, config, o.Template); err != nil {
		return nil, err
	}
	if err := l.tokenizer(m, o.Encoder); err != nil {
		return nil, err
	}
	if m.noEncoder != nil && m.noTemplate != nil {
		return nil, fmt.Errorf("the model's directory has nothing to make prompts with: %w; and %w", m.noEncoder, m.noTemplate)
	}
	return m, nil
}

// ownRenderers are the types of models whose chats vLLM renders without a template
// (vllm/renderers/online_renderer.py, and the files beside it).
var ownRenderers = map[string]bool{"gpt_oss": true, "deepseek_v32": true, "deepseek_v4": true, "kimi_k3": true}

// loader reads files of a model.
type loader struct {
	ctx      context.Context
	fsys     fs.FS
	progress func(stage string, done, size int64)
}

func (l loader) tell(stage string, done, size int64) {
	if l.progress != nil {
		l.progress(stage, done, size)
	}
}

// read gives the contents of a file, nil where there is none.
func (l loader) read(name string, most int64) ([]byte, error) {
	info, err := fs.Stat(l.fsys, name) // before opening, which may wait
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	f, err := l.fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = f.Close() }() // read only
	size := info.Size()
	if size > most {
		return nil, fmt.Errorf("%s has more than %s bytes, the most that is read", name, wire.Grouped(int(most)))
	}
	const step = 1 << 20
	out := make([]byte, 0, size+1)
	for {
		l.tell("reading "+name, int64(len(out)), size)
		if err := l.ctx.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(out) == cap(out) {
			out = append(out, 0)[:len(out)]
		}
		n, err := f.Read(out[len(out):min(len(out)+step, cap(out))])
		out = out[:len(out)+n]
		switch {
		case int64(len(out)) > most:
			return nil, fmt.Errorf("%s has more than %s bytes, the most that is read", name, wire.Grouped(int(most)))
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
}

// object reads a JSON object, nil where there is no such file.
func (l loader) object(name string) (object, error) {
	raw, err := l.read(name, maxConfig)
	if err != nil || raw == nil {
		return nil, err
	}
	value, _, err := firstValue(string(raw))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	o, ok := fields(value)
	if !ok {
		return nil, fmt.Errorf("%s is %s, not an object", name, kindOf(value))
	}
	return o, nil
}

// specialNames are the special tokens that a template sees by their names.
var specialNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// specials finds the special tokens: in the configuration, else in their own file.
func (l loader) specials(m *Model, config object) error {
	own, err := l.object(specialFile)
	if err != nil {
		return err
	}
	for _, name := range specialNames {
		raw := config.get(name)
		if raw == nil {
			raw = own.get(name)
		}
		s, ok := text(raw)
		if o, is := fields(raw); is {
			s, ok = text(o.get("content"))
		}
		switch {
		case !ok:
		case name == "bos_token":
			m.bos = &s
		case name == "eos_token":
			m.eos = &s
		default:
			m.special = append(m.special, field{name, quote(s)})
		}
	}
	return nil
}

// templates finds the chat template: the user's, a file of its own, or the
// configuration's, which may have one more for tools.
func (l loader) templates(m *Model, config object, given string) error {
	source, tools := given, ""
	m.from = "chat template that was given"
	if source == "" {
		raw, err := l.read(templateFile, maxTemplate)
		if err != nil {
			return err
		}
		source, m.from = string(raw), "chat template of "+templateFile
	}
	if source == "" {
		source, tools = namedTemplates(config.get("chat_template"))
		m.from = "chat template of " + configFile
	}
	if source == "" {
		legacy, err := l.object(legacyFile)
		if err != nil {
			return err
		}
		source, m.from = legacy.text("chat_template"), "chat template of "+legacyFile
	}
	switch {
	case source == "":
		m.from = ""
		m.noTemplate = errors.New("there is no chat template: give one with --chat-template FILE")
		return nil
	case len(source) > maxTemplate || len(tools) > maxTemplate:
		return fmt.Errorf("the %s has more than %s bytes, the most that is read", m.from, wire.Grouped(maxTemplate))
	case !utf8.ValidString(source):
		return fmt.Errorf("the %s is no UTF-8", m.from)
	}
	l.tell("checking the chat template", 0, 0)
	return l.compile(m, source, tools)
}

// namedTemplates gives the default template of a configuration and the one for
// tools: a text, or a list of templates with names.
func namedTemplates(raw json.RawMessage) (source, tools string) {
	if s, ok := text(raw); ok {
		return s, ""
	}
	items, _ := list(raw)
	for _, item := range items {
		o, _ := fields(item)
		switch o.text("name") {
		case "default":
			source = o.text("template")
		case "tool_use":
			tools = o.text("template")
		}
	}
	return source, tools
}

func (l loader) compile(m *Model, source, tools string) error {
	var err error
	m.items = m.lists(source)
	if m.template, err = template.Compile(source); err == nil && tools != "" {
		m.tools, err = template.Compile(tools)
	}
	if err == nil {
		err = l.try(m)
	}
	if ctx := l.ctx.Err(); ctx != nil {
		return ctx
	}
	if err != nil {
		m.template = nil
		m.noTemplate = fmt.Errorf("the %s cannot be used: %w; ask the engine, or give another with --chat-template FILE", m.from, err)
	}
	return nil
}

// lists tells that a template gets content as lists.
func (m *Model) lists(source string) bool {
	if m.format == "string" || m.format == "openai" {
		return m.format == "openai"
	}
	return wantsItems(source)
}

// trials are the chats that a template must render; what it may refuse is said.
var trials = []struct{ name, messages string }{
	{"a question", `[{"role": "user", "content": "Hello"}]`},
	{"a system message", `[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]`},
	{"several turns", `[{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Bye"}]`},
}

// try renders the trials, so that a template that does not work is known now.
func (l loader) try(m *Model) error {
	for i, trial := range trials {
		r, err := parseBody(trial.messages, "", "")
		if err == nil {
			_, err = m.render(l.ctx, r, RenderOptions{Now: time.Unix(0, 0).UTC()})
		}
		switch {
		case err == nil:
		case i == 0:
			return fmt.Errorf("it does not render %s: %w", trial.name, err)
		default:
			m.Notes = append(m.Notes, fmt.Sprintf("the %s does not render %s: %v", m.from, trial.name, err))
		}
	}
	return nil
}

// tokenizer loads the encoder.
func (l loader) tokenizer(m *Model, given Encoder) error {
	raw, err := l.read(tokenizerFile, maxTokenizer)
	if err != nil {
		return err
	}
	if raw == nil {
		m.noEncoder = errors.New("there is no " + tokenizerFile + ": give a model's directory with --tokenizer DIR")
	} else {
		l.tell("building the tokenizer", 0, 0)
		t, err := tokenizer.Load(raw)
		if err == nil {
			m.Tokenizer, m.encoder = t, pureGo{t}
		} else {
			m.noEncoder = fmt.Errorf("%s cannot be used: %w", tokenizerFile, err)
		}
	}
	if given != nil {
		m.encoder, m.noEncoder = given, nil
	}
	return l.ctx.Err()
}

// Tokenizes says why the model makes no tokens, nil if it does.
func (m *Model) Tokenizes() error { return m.noEncoder }

// Summary says in a sentence what the model can do.
func (m *Model) Summary() string {
	var out []string
	for _, part := range []struct {
		what string
		err  error
	}{{m.from, m.noTemplate}, {"", m.noEncoder}} {
		switch {
		case part.err != nil:
			out = append(out, part.err.Error())
		case part.what != "":
			out = append(out, part.what)
		default:
			out = append(out, "tokenizer: "+m.encoder.Name())
		}
	}
	return strings.Join(out, "; ")
}
