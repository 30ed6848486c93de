package prompt

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/wire"
)

// bytewise makes a token of every byte, and of a special one before them.
type bytewise struct{}

const bos = 256

func (bytewise) Name() string { return "bytes" }

func (bytewise) Encode(_ context.Context, text string, special bool) (tokenizer.Encoding, error) {
	var e tokenizer.Encoding
	if special {
		e.IDs, e.Spans = []wire.Token{bos}, []Span{{}}
	}
	for i := range len(text) {
		e.IDs = append(e.IDs, wire.Token(text[i]))
		e.Spans = append(e.Spans, span(i, i+1))
	}
	return e, nil
}

// tagged is a template that puts tags around everything.
const tagged = `{%- if tools %}<tools>{% for t in tools %}{{ t | tojson }};{% endfor %}</tools>{% endif -%}
{%- for m in messages -%}
<{{ m.role }}>{{ m.content }}
{%- for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor -%}
</>{% endfor -%}
{%- if add_generation_prompt %}<assistant{{ ' ' + effort if effort }}>{% endif -%}`

func load(t *testing.T, files map[string]string, o Options) *Model {
	t.Helper()
	m, err := loadFiles(files, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func loadFiles(files map[string]string, o Options) (*Model, error) {
	fsys := fstest.MapFS{}
	for name, s := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(s)}
	}
	return Load(context.Background(), fsys, o)
}

func ask(t *testing.T, m *Model, s string, o RenderOptions) *Prompt {
	t.Helper()
	p, err := m.Prompt(context.Background(), parse(t, s), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// marked shows a prompt's text with the parts' kinds and messages.
func marked(p *Prompt) string {
	var b strings.Builder
	for _, part := range p.Parts {
		b.WriteString(string("mctkop"[part.Kind]))
		if part.Message >= 0 {
			b.WriteByte('0' + byte(part.Message))
		}
		b.WriteString("{" + p.Text[part.Start:part.End] + "}")
	}
	return b.String()
}

func TestPromptParts(t *testing.T) {
	t.Parallel()
	m := load(t, map[string]string{templateFile: tagged}, Options{Encoder: bytewise{}, Kwargs: json.RawMessage(`{"effort": "low", "x": 1}`)})
	for _, c := range []struct{ name, body, want string }{
		{"plain text", "Hi", "p{Hi}"},
		{
			"a chat", `{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}`,
			"m0{<user>}c0{Hi}m1{</><assistant>}c1{Ho}m1{</>}o{<assistant low>}",
		},
		{
			"no opening", `{"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": false}`,
			"m0{<user>}c0{Hi}m0{</>}",
		},
		{
			"kwargs of the request", `{"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": {"effort": "high", "add_generation_prompt": false}}`,
			"m0{<user>}c0{Hi}m0{</>}o{<assistant high>}",
		},
		{
			"an open end", `{"messages": [{"role": "assistant", "content": "Once "}], "add_generation_prompt": false, "continue_final_message": true}`,
			"m0{<assistant>}c0{Once }",
		},
		{
			"tools and calls", `{"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}],
			"messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{\"b\":1,\"a\":2}"}}, {"function": {"name": "g", "arguments": {}}}]}]}`,
			`m{<tools>}t{{"type": "function", "function": {"name": "f", "description": null, "parameters": null}};{"type": "function", "function": {"name": "g", "description": null, "parameters": null}}}` +
				`m0{;</tools><assistant>[}k0{f {"b": 1, "a": 2}][g {}}m0{]</>}o{<assistant low>}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := ask(t, m, c.body, RenderOptions{})
			if got := marked(p); got != c.want {
				t.Errorf("\n%s, want\n%s", got, c.want)
			}
			if p.Tokens[0] == bos {
				if p.Text != "Hi" {
					t.Error("a chat got another BOS")
				}
				p.Tokens, p.Spans = p.Tokens[1:], p.Spans[1:]
			}
			whole(t, p)
			if p.Encoder != "bytes" || p.Doubt != 0 {
				t.Errorf("%+v", p)
			}
		})
	}
	p := ask(t, m, `{"prompt": "Hi", "add_special_tokens": false, "cache_salt": "s"}`, RenderOptions{LoRA: "a"})
	if len(p.Tokens) != 2 || p.Salt != "s" || p.LoRA != "a" || p.Template != "" {
		t.Errorf("%+v", p)
	}
	p = ask(t, m, `{"messages": [{"role": "user", "content": "Hi"}], "chat_template": "{{ messages[0].content }}!", "add_special_tokens": true}`, RenderOptions{})
	if p.Text != "Hi!" || p.Tokens[0] != bos || p.Template != "the request's own chat template" {
		t.Errorf("%+v", p)
	}
	p = ask(t, m, `{"messages": [{"role": "user", "content": "Hi"}]}`, RenderOptions{Kwargs: json.RawMessage(`{"effort": "mid"}`)})
	if !strings.HasSuffix(p.Text, "<assistant mid>") || p.Template != "chat template of "+templateFile {
		t.Errorf("%+v", p)
	}
}

func TestPromptWithMedia(t *testing.T) {
	t.Parallel()
	m := load(t, map[string]string{templateFile: tagged}, Options{Encoder: bytewise{}})
	p := ask(t, m, `{"messages": [{"role": "system", "content": "ab"}, {"role": "user", "content": [{"type": "text", "text": "cd"}, {"type": "image_url", "image_url": {"url": "u"}}]}]}`, RenderOptions{})
	// What is certain is the first message with its markup: <system>ab.
	if p.Text != "<system>ab</><user>cd</><assistant>" || len(p.Tokens)-p.Doubt != len("<system>ab") {
		t.Errorf("%q, %d in doubt", p.Text, p.Doubt)
	}
	if note := p.Notes[len(p.Notes)-1]; !strings.Contains(note, "message 1 holds an image") || !strings.Contains(note, "tokens from 10 on") {
		t.Error(note)
	}
}

func TestPromptWithIDs(t *testing.T) {
	t.Parallel()
	m := load(t, map[string]string{templateFile: "{{ messages[0].content }}"}, Options{Encoder: bytewise{}})
	none := load(t, map[string]string{templateFile: "{{ messages[0].content }}"}, Options{})
	for _, c := range []struct {
		name, body string
		m          *Model
		text, note string
	}{
		{"the same", `{"request": {"messages": [{"role": "user", "content": "ab"}]}, "response": {"prompt_token_ids": [97, 98]}}`, m, "ab", "the text makes the same tokens as response.prompt_token_ids"},
		{"others", `{"request": {"messages": [{"role": "user", "content": "xx"}]}, "response": {"prompt_token_ids": [97, 98]}}`, m, "", "differ from those of response.prompt_token_ids at token 0"},
		{"fewer", `{"messages": [{"role": "user", "content": "a"}], "token_ids": [97, 98]}`, m, "", "differ from those of token_ids at token 1"},
		{"no tokenizer", `{"messages": [{"role": "user", "content": "ab"}], "token_ids": [97, 98]}`, none, "", "count, and the text is left out: there is no tokenizer.json"},
		{"ids alone", `[97, 98]`, none, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := ask(t, c.m, c.body, RenderOptions{})
			notes := strings.Join(p.Notes, "; ")
			if !slices.Equal(p.Tokens, []wire.Token{97, 98}) || p.Text != c.text || (p.Text == "") != (p.Spans == nil) ||
				c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
				t.Errorf("%+v", p)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	one := `{"messages": [{"role": "user", "content": "Hi"}]}`
	tools := `{"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": {"name": "f"}}]}`
	for _, c := range []struct {
		name  string
		files map[string]string
		o     Options
		body  string
		want  string // the text
	}{
		{"a text in the configuration", map[string]string{configFile: `{"chat_template": "C{{ messages[0].content }}"}`}, Options{}, one, "CHi"},
		{"a file before the configuration", map[string]string{configFile: `{"chat_template": "C"}`, templateFile: "F{{ messages[0].content }}"}, Options{}, one, "FHi"},
		{"an old file", map[string]string{legacyFile: `{"chat_template": "L{{ messages[0].content }}"}`}, Options{}, one, "LHi"},
		{"one that is given", map[string]string{templateFile: "F"}, Options{Template: "G{{ messages[0].content }}"}, one, "GHi"},
		{"one for tools", map[string]string{configFile: `{"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]}`}, Options{}, tools, "T"},
		{"one without tools", map[string]string{configFile: `{"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]}`}, Options{}, one, "D"},
		{
			"special tokens",
			map[string]string{
				configFile:  `{"bos_token": {"content": "<s>"}, "eos_token": null, "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token }}"}`,
				specialFile: `{"bos_token": "no", "eos_token": {"content": "</s>"}, "pad_token": "<p>"}`,
			},
			Options{},
			one, "<s></s><p>",
		},
		{"lists", map[string]string{templateFile: "{% for m in messages %}{% for c in m.content %}[{{ c.text }}]{% endfor %}{% endfor %}"}, Options{}, one, "[Hi]"},
		{"texts if the user says so", map[string]string{templateFile: "{% for m in messages %}{% for c in m.content %}[{{ c }}]{% endfor %}{% endfor %}"}, Options{Format: "string"}, one, "[H][i]"},
		{"lists if the user says so", map[string]string{templateFile: "{{ messages[0].content[0].text }}"}, Options{Format: "openai"}, one, "Hi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.o.Encoder = bytewise{}
			if p := ask(t, load(t, c.files, c.o), c.body, RenderOptions{}); p.Text != c.want {
				t.Errorf("%q, want %q", p.Text, c.want)
			}
		})
	}
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	chat := `{"messages": [{"role": "user", "content": "SECRET"}]}`
	for _, c := range []struct {
		name  string
		files map[string]string
		o     Options
		body  string
		want  string
	}{
		{"nothing", nil, Options{}, chat, "there is no tokenizer.json"},
		{"no template", nil, Options{Encoder: bytewise{}}, chat, "this is a chat: there is no chat template: give one with --chat-template FILE"},
		{"no tokenizer", map[string]string{templateFile: "x"}, Options{}, chat, "there is no tokenizer.json: give a model's directory with --tokenizer DIR"},
		{"a broken template", map[string]string{templateFile: "{% for"}, Options{Encoder: bytewise{}}, chat, "the chat template of chat_template.jinja cannot be used"},
		{"a template that fails", map[string]string{templateFile: "{{ raise_exception('no') }}"}, Options{Encoder: bytewise{}}, chat, "it does not render a question"},
		{"a template that renders nothing", map[string]string{templateFile: "{{ '' }}"}, Options{Encoder: bytewise{}}, chat, "renders this chat to nothing"},
		{"a broken configuration", map[string]string{configFile: `{"a": `}, Options{Encoder: bytewise{}}, chat, "tokenizer_config.json: the JSON object is not closed"},
		{"a configuration of another kind", map[string]string{configFile: `[]`}, Options{Encoder: bytewise{}}, chat, "tokenizer_config.json is a list, not an object"},
		{"a long template", map[string]string{templateFile: strings.Repeat("x", maxTemplate+1)}, Options{Encoder: bytewise{}}, chat, "chat_template.jinja has more than 1 048 576 bytes"},
		{"a bad format", map[string]string{templateFile: "x"}, Options{Encoder: bytewise{}, Format: "SECRET"}, chat, "neither auto, string nor openai"},
		{"bad arguments", map[string]string{templateFile: "x"}, Options{Encoder: bytewise{}, Kwargs: json.RawMessage("1")}, chat, "what is given for the template by default is a number, not an object"},
		{"a broken template that was given", nil, Options{Encoder: bytewise{}, Template: "{% for"}, chat, "this is a chat: the chat template that was given cannot be used"},
		{"a broken template of the request", map[string]string{templateFile: "x"}, Options{Encoder: bytewise{}}, `{"messages": [{"role": "user", "content": "SECRET"}], "chat_template": "{% for"}`, "its own chat template cannot be used"},
		{"an end that is changed", map[string]string{templateFile: "x"}, Options{Encoder: bytewise{}}, `{"messages": [{"role": "user", "content": "SECRET"}], "add_generation_prompt": false, "continue_final_message": true}`, "changes the last message"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := loadFiles(c.files, c.o)
			if err == nil {
				_, err = m.Prompt(context.Background(), parse(t, c.body), RenderOptions{})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	m := load(t, map[string]string{templateFile: "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}x"}, Options{Encoder: bytewise{}})
	if notes := strings.Join(m.Notes, ""); !strings.Contains(notes, "does not render a system message") {
		t.Errorf("notes %q", notes)
	}
	m = load(t, map[string]string{templateFile: "x", modelFile: `{"model_type": "gpt_oss"}`}, Options{Encoder: bytewise{}})
	if p := ask(t, m, chat, RenderOptions{}); !strings.Contains(strings.Join(p.Notes, ""), "code of its own") {
		t.Errorf("notes %q", p.Notes)
	}
	if s := m.Summary(); s != "chat template of chat_template.jinja; tokenizer: bytes" {
		t.Error(s)
	}
}

// pipes is a file system of pipes that nobody writes to.
type pipes struct{}

func (pipes) Open(string) (fs.File, error) { panic("opening a pipe waits for a writer") }

func (pipes) Stat(name string) (fs.FileInfo, error) {
	return fstest.MapFS{name: {Mode: fs.ModeNamedPipe}}.Stat(name)
}

func TestLoadPipes(t *testing.T) {
	t.Parallel()
	_, err := Load(context.Background(), pipes{}, Options{})
	if err == nil || err.Error() != "config.json is no regular file" {
		t.Errorf("error %v", err)
	}
}

// endless is a file system whose files say that they are small and are not.
type endless struct{ fs.FS }

type endlessFile struct{ fs.File }

func (e endless) Open(name string) (fs.File, error) {
	f, err := e.FS.Open(name)
	return endlessFile{f}, err
}
func (endlessFile) Read(b []byte) (int, error) { return len(b), nil }

func TestLoadStops(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{templateFile: {Data: []byte("x")}}
	if _, err := Load(context.Background(), endless{fsys}, Options{}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var stages []string
	_, err := Load(ctx, fsys, Options{Encoder: bytewise{}, Progress: func(stage string, done, size int64) {
		stages = append(stages, stage)
		if done > 0 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || !slices.Contains(stages, "reading "+templateFile) {
		t.Errorf("error %v after %v", err, stages)
	}
}

// The chats of the fixture were rendered and tokenized by Python's libraries.
func TestFixtureChats(t *testing.T) {
	t.Parallel()
	sub, err := fs.Sub(fixtures.FS, "tokenizer")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := fs.ReadFile(sub, "golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Chats []struct {
			Name, Text string
			IDs        []wire.Token
			Kwargs     json.RawMessage
			Messages   json.RawMessage
			Tools      json.RawMessage
			Opening    bool `json:"add_generation_prompt"`
		}
	}
	if err := json.Unmarshal(raw, &golden); err != nil || len(golden.Chats) == 0 {
		t.Fatalf("%d chats, %v", len(golden.Chats), err)
	}
	m, err := Load(context.Background(), sub, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range golden.Chats {
		body := object{{"messages", c.Messages}, {"chat_template_kwargs", c.Kwargs}, {"add_generation_prompt", json.RawMessage("true")}}
		if !c.Opening {
			body = body.with("add_generation_prompt", json.RawMessage("false"))
		}
		if c.Tools != nil {
			body = append(body, field{"tools", c.Tools})
		}
		if c.Kwargs == nil {
			body = body.with("chat_template_kwargs", json.RawMessage("null"))
		}
		p := ask(t, m, string(body.encode()), RenderOptions{Now: time.Unix(0, 0)})
		if p.Text != c.Text || !slices.Equal(p.Tokens, c.IDs) {
			t.Errorf("%s: %q %v, want %q %v", c.Name, p.Text, p.Tokens, c.Text, c.IDs)
		}
		whole(t, p)
	}
}
