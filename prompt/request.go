package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kvscope/kvscope/wire"
)

// MaxInput is the longest input that is read, in bytes: images may be in it.
const MaxInput = 64 << 20

// Form says what a request is.
type Form string

// The forms of requests.
const (
	PlainText   Form = "plain text"
	TokenIDs    Form = "token ids"
	Chat        Form = "chat completions"
	Completions Form = "completions"
	Responses   Form = "responses"
	Anthropic   Form = "Anthropic messages"
)

// Request is what was pasted or read, in the one form that all others become:
// messages and tools as the chat completions API has them.
type Request struct {
	Form Form
	// From is what it was taken out of, such as "a curl command"; empty where it
	// came as it is.
	From string
	// Text is the prompt where there are no messages.
	Text     string
	Messages []Message
	// Tools is a JSON list, nil without tools.
	Tools json.RawMessage
	// Tokens are ids that were given, alone or by an engine beside the request;
	// TokensFrom is the field that held them.
	Tokens     []wire.Token
	TokensFrom string

	Model, Salt, LoRA string
	// Template is a chat template of the request's own.
	Template string
	// NoOpening leaves out the generation prompt, Continue leaves the last message
	// open, Special overrides whether the tokenizer adds tokens such as a BOS.
	NoOpening, Continue bool
	Special             *bool
	// Media are the parts that are no text.
	Media []Media
	Notes []string

	kwargs object // for the template
	body   string // the JSON as it came
}

// Body gives the JSON of the request as it came, nil where it came as something else.
func (r *Request) Body() json.RawMessage {
	if r.body == "" {
		return nil
	}
	return json.RawMessage(r.body)
}

// Media is a part of a message that is no text: how many tokens it takes, and the
// extra keys of their blocks, only the engine knows.
type Media struct {
	Message, Part int
	Kind          string // "image", "audio", "video"
	// UUID is the name that the request gives it in place of a hash of its
	// contents; empty for none.
	UUID string
}

// note adds a note, once.
// Contents are the texts of all messages in their order, or the prompt, as routers
// read them that know no template.
func (r *Request) Contents() []string {
	if len(r.Messages) == 0 {
		if r.Text == "" {
			return nil
		}
		return []string{r.Text}
	}
	var out []string
	for i := range r.Messages {
		out = append(out, r.Messages[i].Texts()...)
	}
	return out
}

func (r *Request) note(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, s) {
		r.Notes = append(r.Notes, s)
	}
}

// Parse recognises what was pasted or read: a request's JSON body, a line of a
// request log, a whole curl command, token ids, or plain text. A text that begins
// with { and is no JSON is more likely a body that was cut or mistyped than a
// prompt, so it is an error; Text takes everything as it is.
func Parse(data []byte) (*Request, error) {
	if err := check(data); err != nil {
		return nil, err
	}
	s, marked := strings.CutPrefix(string(data), "\ufeff")
	body := strings.TrimLeft(s, " \t\r\n")
	switch {
	case body == "":
		return nil, errors.New("there is nothing in it: give a prompt, a request's JSON body, a curl command or token ids")
	case isCurl(body):
		return parseCurl(body)
	case body[0] == '{':
		return parseBody(s, "", "")
	case body[0] == '[':
		return parseBracket(s, body)
	}
	r := &Request{Form: PlainText, Text: s}
	if c := body[0]; c == '-' || c >= '0' && c <= '9' {
		tokens, err := scanTokens([]byte(s))
		if err == nil {
			return &Request{Form: TokenIDs, Tokens: tokens}, nil
		}
		r.note("it begins with a number but is no list of token ids, so it is taken as plain text")
	}
	if marked {
		r.note("the byte order mark before the text was left out")
	}
	return r, nil
}

// Text takes a text as it is, whatever it looks like.
func Text(data []byte) (*Request, error) {
	if err := check(data); err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return nil, errors.New("there is nothing in it: give a prompt")
	}
	return &Request{Form: PlainText, Text: string(data)}, nil
}

func check(data []byte) error {
	if len(data) > MaxInput {
		return fmt.Errorf("it has more than %s bytes, the longest input that is read", wire.Grouped(MaxInput))
	}
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Errorf("byte %s is no UTF-8, so no engine takes it: give the text in UTF-8", wire.Grouped(i+1))
		}
		i += n
	}
	return nil
}

// parseBracket reads what begins with [: ids, a list of messages, or a text such
// as "[INST] …".
func parseBracket(s, body string) (*Request, error) {
	next := strings.TrimLeft(body[1:], " \t\r\n")
	if strings.HasPrefix(next, "{") {
		return parseBody(s, "", "")
	}
	if next == "" || strings.ContainsRune("[],-0123456789", rune(next[0])) {
		tokens, err := scanTokens([]byte(s))
		if err != nil {
			return nil, err
		}
		return &Request{Form: TokenIDs, Tokens: tokens}, nil
	}
	return &Request{Form: PlainText, Text: s, Notes: []string{"it begins with [ but is no list of ids or messages, so it is taken as plain text"}}, nil
}

// parseBody reads JSON. The path of the URL that it goes to, where known, says
// which API's it is.
func parseBody(s, from, path string) (*Request, error) {
	value, more, err := firstValue(s)
	if err != nil && from == "" {
		err = fmt.Errorf("%w; if it is meant as plain text, say so (--text)", err)
	}
	if err != nil {
		return nil, err
	}
	if countFields(string(value)) > maxFields {
		return nil, fmt.Errorf("the JSON has more than %s fields, the most that are read", wire.Grouped(maxFields))
	}
	if loneSurrogate(string(value)) >= 0 {
		return nil, errors.New("the JSON holds half of an escaped character (a lone surrogate, \\ud800 to \\udfff), which no tokenizer takes")
	}
	if isList(value) {
		value = object{{"messages", value}}.encode()
	}
	o, ok := fields(value)
	if !ok {
		return nil, fmt.Errorf("it is %s in JSON: give an object with messages, prompt or input", kindOf(value))
	}
	r := &Request{From: from, body: string(value)}
	if err := r.read(o, path); err != nil {
		return nil, err
	}
	if more {
		r.note("more follows the first JSON object; only that one was taken")
	}
	return r, nil
}

// paths maps the ends of URL paths to what is sent there, longer ones first.
var paths = []struct {
	end  string
	form Form
}{
	{"/chat/completions", Chat},
	{"/completions", Completions},
	{"/responses", Responses},
	{"/messages", Anthropic},
	{"/messages/count_tokens", Anthropic},
}

// readers read the body of each API.
var readers = map[Form]func(*Request, object) error{
	Chat:        (*Request).readChat,
	Completions: (*Request).readCompletions,
	Responses:   (*Request).readResponses,
	Anthropic:   (*Request).readAnthropic,
}

// formOf says which API's body an object is, empty for none.
func formOf(o object, path string) Form {
	path, _, _ = strings.Cut(path, "?")
	for _, p := range paths {
		if strings.HasSuffix(strings.TrimRight(path, "/"), p.end) {
			return p.form
		}
	}
	prompt := o.get("prompt")
	switch {
	case isList(o.get("messages")) && looksAnthropic(o):
		return Anthropic
	case isList(o.get("messages")):
		return Chat
	case o.has("input"):
		return Responses
	case len(prompt) > 0 && (prompt[0] == '"' || isList(prompt)):
		return Completions
	case kindOf(o.get("text")) == "a string" && (o.has("sampling_params") || strings.HasSuffix(path, "/generate")):
		return Completions // SGLang's own API
	}
	return ""
}

// wrappers are the fields in which logs and batch files keep a request, and where
// they keep the path.
var wrappers = []string{"request", "body"}

// read fills the request from an object: a body, or a log's line around one.
func (r *Request) read(o object, path string) error {
	body, form := o, formOf(o, path)
	for _, name := range wrappers {
		inner, ok := fields(o.get(name))
		if form != "" || !ok {
			continue
		}
		if form = formOf(inner, o.text("url")); form != "" {
			body = inner
			r.body = string(o.get(name))
			if r.From == "" {
				r.From = "a log's line"
			}
		}
	}
	ids, where := o.allIDs()
	if form == Completions && strings.HasSuffix(where, "prompt") {
		ids = nil // that is the prompt itself
	}
	switch {
	case form == "" && ids == nil:
		return fmt.Errorf("the JSON object has %s, but none that makes a request (messages, prompt, input) and no token ids (prompt_token_ids, token_ids, tokens)", wire.Counted(len(o), "field"))
	case form == "":
		r.Form = TokenIDs
	default:
		r.Form = form
		if err := r.common(body); err != nil {
			return err
		}
		if err := readers[form](r, body); err != nil {
			return err
		}
		if r.Tools != nil && body.text("tool_choice") == "none" {
			r.note("tool_choice is none: Dynamo's frontend leaves the tools out, and vLLM does with --exclude-tools-when-tool-choice-none; here they are rendered")
		}
	}
	if ids == nil {
		return nil
	}
	tokens, err := scanTokens(ids)
	if err != nil {
		return fmt.Errorf("in %s: %w", where, err)
	}
	r.Tokens, r.TokensFrom = tokens, where
	return nil
}

// asides are fields that may change what the engine computes but not what is
// shown here.
var asides = []struct{ field, note string }{
	{"truncate_prompt_tokens", "truncate_prompt_tokens is not applied: the engine may cut the prompt"},
	{"prompt_logprobs", "with prompt_logprobs vLLM does not read the prefix cache for this request"},
	{"mm_processor_kwargs", "mm_processor_kwargs are not applied"},
	{"thinking", "thinking is not handed to the template, as vLLM does not; Dynamo's frontend makes enable_thinking of it"},
	{"suffix", "suffix is left out: vLLM does not take it"},
	{"kv_transfer_params", "kv_transfer_params are not applied"},
}

// maxKwargs bounds the arguments for a template.
const maxKwargs = 256

// common reads the fields that all APIs share.
func (r *Request) common(o object) error {
	r.Model, r.Salt = o.text("model"), o.text("cache_salt")
	r.LoRA = o.text("lora_path") // SGLang; vLLM's adapters are names of models
	r.Template = o.text("chat_template")
	at := "chat_template_kwargs"
	if !o.has(at) && o.has("chat_template_args") {
		at = "chat_template_args"
		r.note("chat_template_args is what Dynamo calls chat_template_kwargs: other servers leave it unread")
	}
	kwargs, err := readKwargs(o.get(at))
	if err != nil {
		return fmt.Errorf("%s %w", at, err)
	}
	r.kwargs = kwargs
	if documents := o.get("documents"); isList(documents) {
		r.kwargs = r.kwargs.with("documents", documents)
	}
	if b := o.get("add_special_tokens"); kindOf(b) == "true or false" {
		special := b[0] == 't'
		r.Special = &special
	}
	if r.Template != "" {
		r.note("the request brings a chat template: vLLM takes it only with --trust-request-chat-template")
	}
	for _, a := range asides {
		if o.has(a.field) {
			r.note("%s", a.note)
		}
	}
	return nil
}

// readKwargs reads arguments for a template, null for none.
func readKwargs(raw json.RawMessage) (object, error) {
	kwargs, ok := fields(raw)
	if !ok && !isNull(raw) {
		return nil, fmt.Errorf("is %s, not an object", kindOf(raw))
	}
	if len(kwargs) > maxKwargs {
		return nil, fmt.Errorf("has more than %d fields, the most that are read", maxKwargs)
	}
	for _, name := range []string{"messages", "tools", "chat_template", "tokenize"} {
		if kwargs.has(name) {
			return nil, fmt.Errorf("holds %s, which is no argument of a template", name)
		}
	}
	return kwargs, nil
}

// effort hands a reasoning effort to the template, as vLLM does.
func (r *Request) effort(level string) {
	if level == "" {
		return
	}
	r.kwargs = r.kwargs.with("reasoning_effort", quote(level))
	if !r.kwargs.has("enable_thinking") {
		r.kwargs = r.kwargs.with("enable_thinking", json.RawMessage(strconv.FormatBool(level != "none")))
	}
}

func isTrue(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == 't' }

func (r *Request) readCompletions(o object) error {
	at, raw := "prompt", o.get("prompt")
	if raw == nil {
		at, raw = "text", o.get("text")
	}
	if isList(raw) && (first(raw) == '[' || first(raw) == '"') {
		items, ok := list(raw)
		if !ok {
			return fmt.Errorf("%s is %s", at, notList(raw))
		}
		if len(items) > 1 {
			r.note("%s holds %s; only the first was taken", at, wire.Counted(len(items), "prompt"))
		}
		at, raw = at+"[0]", items[0]
	}
	if isList(raw) {
		tokens, err := scanTokens(raw)
		if err != nil {
			return fmt.Errorf("in %s: %w", at, err)
		}
		r.Tokens, r.TokensFrom = tokens, at
		return nil
	}
	s, ok := text(raw)
	switch {
	case o.has("prompt_embeds"):
		return errors.New("prompt_embeds are vectors and have no tokens: give a prompt as text")
	case !ok:
		return fmt.Errorf("%s is %s: a completions request has a text or token ids there", at, kindOf(raw))
	case s == "":
		return fmt.Errorf("%s is empty: there is nothing to look up", at)
	}
	r.Text = s
	return nil
}
