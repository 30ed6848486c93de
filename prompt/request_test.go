package prompt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// encodeMessages gives the messages of a request as a template that reads texts,
// or lists of parts, gets them.
func encodeMessages(r *Request, items bool) string {
	var out []json.RawMessage
	for _, m := range r.Messages {
		out = append(out, m.encode(items))
	}
	return string(encodeList(out))
}

func parse(t *testing.T, s string) *Request {
	t.Helper()
	r, err := Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParseForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, in string
		form     Form
		text     string // or the messages as JSON
		tokens   []wire.Token
		note     string
	}{
		{"plain text", "Where is my parcel?\n", PlainText, "Where is my parcel?\n", nil, ""},
		{"a byte order mark", "\ufeffHi", PlainText, "Hi", nil, "byte order mark"},
		{"a rendered prompt", "[INST] Hi [/INST]", PlainText, "[INST] Hi [/INST]", nil, "begins with ["},
		{"text that begins with a number", "1. Write a poem", PlainText, "1. Write a poem", nil, "begins with a number"},
		{"a word like the command", "curling is a sport", PlainText, "curling is a sport", nil, ""},
		{"numbers", "151644 8948, 198", TokenIDs, "", []wire.Token{151644, 8948, 198}, ""},
		{"a list", "[1, 2]", TokenIDs, "", []wire.Token{1, 2}, ""},
		{"a /tokenize answer", `{"count": 2, "tokens": [5, 6]}`, TokenIDs, "", []wire.Token{5, 6}, ""},
		{"a completion", `{"model": "m", "prompt": "Hi", "max_tokens": 1}`, Completions, "Hi", nil, ""},
		{"several prompts", `{"prompt": ["Hi", "Ho"]}`, Completions, "Hi", nil, "holds 2 prompts; only the first"},
		{"a prompt of ids", `{"prompt": [5, 6]}`, Completions, "", []wire.Token{5, 6}, ""},
		{"several prompts of ids", `{"prompt": [[5, 6], [7]]}`, Completions, "", []wire.Token{5, 6}, "holds 2 prompts"},
		{"SGLang's own API", `{"text": "Hi", "sampling_params": {"max_new_tokens": 1}}`, Completions, "Hi", nil, ""},
		{"SGLang's own API with ids", `{"input_ids": [5, 6]}`, TokenIDs, "", []wire.Token{5, 6}, ""},
		{"a chat", `{"messages": [{"role": "user", "content": "Hi"}]}`, Chat, `[{"role":"user","content":"Hi"}]`, nil, ""},
		{"messages alone", ` [{"role": "user", "content": "Hi"}]`, Chat, `[{"role":"user","content":"Hi"}]`, nil, ""},
		{"several bodies", "{\"prompt\": \"Hi\"}\n{\"prompt\": \"Ho\"}\n", Completions, "Hi", nil, "more follows the first"},
		{
			"a truth log's line", `{"kind": "chat", "request": {"messages": [{"role": "user", "content": "Hi"}]}, "response": {"prompt_token_ids": [1, 2]}}`,
			Chat, `[{"role":"user","content":"Hi"}]`,
			[]wire.Token{1, 2},
			"",
		},
		{
			"messages beside ids", `{"messages": [{"role": "user", "content": "Hi"}], "token_ids": [1, 2]}`,
			Chat, `[{"role":"user","content":"Hi"}]`,
			[]wire.Token{1, 2},
			"",
		},
		{
			"a batch file's line", `{"custom_id": "1", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "Hi"}]}}`,
			Chat, `[{"role":"user","content":"Hi"}]`, nil, "",
		},
		{
			"the last of two fields with a name", `{"prompt": "a", "prompt": "b"}`, Completions, "b", nil, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := parse(t, c.in)
			got := r.Text
			if len(r.Messages) > 0 {
				got = encodeMessages(r, false)
			}
			notes := strings.Join(r.Notes, "; ")
			if r.Form != c.form || got != c.text || !slices.Equal(r.Tokens, c.tokens) || c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
				t.Errorf("%s: %q %v, notes %q", r.Form, got, r.Tokens, notes)
			}
		})
	}
}

func TestParseFields(t *testing.T) {
	t.Parallel()
	r := parse(t, `{"model": "m", "cache_salt": "s", "messages": [{"role": "user", "content": "Hi"}],
		"chat_template_kwargs": {"enable_thinking": false, "x": [1]}, "reasoning_effort": "low", "documents": [{"title": "t"}],
		"add_generation_prompt": false, "continue_final_message": true, "add_special_tokens": true, "temperature": 0.5,
		"truncate_prompt_tokens": 10, "prompt_logprobs": 1, "tool_choice": "none",
		"tools": [{"function": {"strict": true, "parameters": {"type": "object", "b": 1, "a": 2.0}, "name": "f"}, "type": "function", "x": 1}]}`)
	if r.Model != "m" || r.Salt != "s" || !r.NoOpening || !r.Continue || r.Special == nil || !*r.Special {
		t.Errorf("%+v", r)
	}
	// The order is vLLM's; the values keep theirs.
	if got, want := string(r.Tools), `[{"type":"function","function":{"name":"f","description":null,"parameters":{"type": "object", "b": 1, "a": 2.0},"strict":true}}]`; got != want {
		t.Errorf("tools %s", got)
	}
	if got, want := string(r.kwargs.encode()), `{"enable_thinking":false,"x":[1],"documents":[{"title": "t"}],"reasoning_effort":"low"}`; got != want {
		t.Errorf("kwargs %s", got)
	}
	if got := strings.Join(r.Notes, "\n"); strings.Count(got, "\n") != 2 || !strings.Contains(got, "truncate_prompt_tokens") ||
		!strings.Contains(got, "prompt_logprobs") || !strings.Contains(got, "tool_choice") {
		t.Errorf("notes %s", got)
	}
	r = parse(t, `{"messages": [{"role": "user", "content": "Hi"}], "chat_template_args": {"enable_thinking": false}}`)
	if got := string(r.kwargs.encode()); got != `{"enable_thinking":false}` || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "Dynamo") {
		t.Errorf("kwargs %s, notes %q", got, r.Notes)
	}
	r = parse(t, `{"messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "none", "lora_path": "a"}`)
	if got := string(r.kwargs.encode()); got != `{"reasoning_effort":"none","enable_thinking":false}` || r.LoRA != "a" {
		t.Errorf("kwargs %s, LoRA %s", got, r.LoRA)
	}
}

// The expected messages are what vLLM's rules make of these: fields that templates
// do not get are gone, arguments are objects.
func TestChatMessages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, messages, texts, items string }{
		{
			"list content", `[{"role": "user", "name": "n", "x": 1, "content": [{"type": "text", "text": "a"}, "b", {"type": "input_text", "text": ""}]}]`,
			`[{"role":"user","content":"a\nb","name":"n"}]`,
			`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"text","text":""}],"name":"n"}]`,
		},
		{
			"an image", `[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}, "uuid": "U"}]}]`,
			`[{"role":"user","content":"a"}]`,
			`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image"}]}]`,
		},
		{
			"calls", `[{"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}, "id": "i"}, {"function": {"name": "g", "arguments": "[]"}}]},
			{"role": "tool", "tool_call_id": "i", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]`,
			`[{"role":"assistant","content":"","tool_calls":[{"id":"i","function":{"arguments":{"b": 1, "a": 2},"name":"f"},"type":"function"},{"function":{"arguments":{},"name":"g"}}],"reasoning":"hm","reasoning_content":"hm"},{"role":"tool","content":"a\nb","tool_call_id":"i"}]`,
			`[{"role":"assistant","content":[],"tool_calls":[{"id":"i","function":{"arguments":{"b": 1, "a": 2},"name":"f"},"type":"function"},{"function":{"arguments":{},"name":"g"}}],"reasoning":"hm","reasoning_content":"hm"},{"role":"tool","content":"a\nb","tool_call_id":"i"}]`,
		},
		{
			"no calls", `[{"role": "assistant", "content": "<a>&\u2028", "tool_calls": []}]`,
			`[{"role":"assistant","content":"<a>&\u2028"}]`,
			`[{"role":"assistant","content":[{"type":"text","text":"<a>&\u2028"}]}]`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := parse(t, `{"messages": `+c.messages+`}`)
			if got := encodeMessages(r, false); got != c.texts {
				t.Errorf("texts\n%s, want\n%s", got, c.texts)
			}
			if got := encodeMessages(r, true); got != c.items {
				t.Errorf("items\n%s, want\n%s", got, c.items)
			}
		})
	}
	r := parse(t, `{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"image_url": "u"}, {"type": "input_audio", "uuid": "U"}]}]}`)
	if want := []Media{{0, 1, "image", ""}, {0, 2, "audio", "U"}}; !slices.Equal(r.Media, want) {
		t.Errorf("media %v", r.Media)
	}
}

func TestResponses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, body, want string }{
		{
			"a text", `{"model": "m", "instructions": "Be brief.", "input": "Hi"}`,
			`[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]`,
		},
		{
			"items", `{"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
			{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
			{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Ho"}, {"type": "output_text", "text": "lost"}]},
			{"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\": 1}"},
			{"type": "function_call", "call_id": "c2", "name": "g", "arguments": ""},
			{"type": "function_call_output", "call_id": "c1", "output": "42"}]}`,
			`[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho","tool_calls":[{"id":"c1","function":{"arguments":{"a": 1},"name":"f"},"type":"function"},{"id":"c2","function":{"arguments":{},"name":"g"},"type":"function"}],"reasoning":"hm","reasoning_content":"hm"},{"role":"tool","content":"42","tool_call_id":"c1"}]`,
		},
		{
			"a summary of reasoning, two answers", `{"input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]}`,
			`[{"role":"assistant","content":"a","reasoning":"s","reasoning_content":"s"},{"role":"assistant","content":"b"}]`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := parse(t, c.body)
			if got := encodeMessages(r, false); r.Form != Responses || got != c.want {
				t.Errorf("%s\n%s, want\n%s", r.Form, got, c.want)
			}
		})
	}
	r := parse(t, `{"input": [{"role": "assistant", "status": "incomplete", "content": "Once"}], "reasoning": {"effort": "high"},
		"tools": [{"type": "function", "name": "f", "strict": true, "parameters": {}}, {"type": "web_search"}]}`)
	if !r.Continue || !r.NoOpening || string(r.kwargs.encode()) != `{"reasoning_effort":"high","enable_thinking":true}` {
		t.Errorf("%+v", r)
	}
	if got := string(r.Tools); got != `[{"type":"function","function":{"name":"f","description":null,"parameters":{},"strict":true}}]` {
		t.Errorf("tools %s", got)
	}
	if got := strings.Join(r.Notes, ""); !strings.Contains(got, "1 tool of a kind other than function") {
		t.Errorf("notes %s", got)
	}
}

func TestAnthropic(t *testing.T) {
	t.Parallel()
	r := parse(t, `{"model": "m", "max_tokens": 10, "output_config": {"effort": "low"},
		"system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "brief."}],
		"tools": [{"input_schema": {"type": "object"}, "name": "f", "cache_control": {"type": "ephemeral"}}],
		"messages": [
		{"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image", "source": {"type": "base64", "data": "AAAA"}}]},
		{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Well"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": "x"}}]},
		{"role": "user", "content": [{"type": "text", "text": "so?"}, {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r1"}, {"type": "text", "text": "r2"}]}]},
		{"role": "system", "content": " Quick."},
		{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t2", "content": "r3"}]}]}`)
	want := `[{"role":"system","content":[{"type":"text","text":"Be brief. Quick."}]},` +
		`{"role":"user","content":[{"type":"text","text":"Look"},{"type":"image"}]},` +
		`{"role":"assistant","content":[{"type":"text","text":"Well"}],"tool_calls":[{"id":"t1","function":{"arguments":{"b": 1, "a": "x"},"name":"f"},"type":"function"}],"reasoning":"hm","reasoning_content":"hm"},` +
		`{"role":"tool","content":"r1\nr2","tool_call_id":"t1"},` +
		`{"role":"user","content":[{"type":"text","text":"so?"}]},` +
		`{"role":"tool","content":"r3","tool_call_id":"t2"}]`
	if got := encodeMessages(r, true); r.Form != Anthropic || got != want {
		t.Errorf("%s\n%s, want\n%s", r.Form, got, want)
	}
	if got := string(r.Tools); got != `[{"type":"function","function":{"name":"f","description":null,"parameters":{"type": "object"}}}]` {
		t.Errorf("tools %s", got)
	}
	if got := string(r.kwargs.encode()); got != `{"reasoning_effort":"low","enable_thinking":true}` {
		t.Errorf("kwargs %s", got)
	}
	if want := []Media{{1, 1, "image", ""}}; !slices.Equal(r.Media, want) {
		t.Errorf("media %v", r.Media)
	}
	notes := strings.Join(r.Notes, "\n")
	for _, want := range []string{"other engines and releases may do it differently", "was left out, as vLLM does", "joined to the first"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes %s: want %q", notes, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 20000)
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "there is nothing in it"},
		{"blank", "\ufeff \n", "there is nothing in it"},
		{"no UTF-8", "abc\xff", "byte 4 is no UTF-8"},
		{"broken JSON", `{"messages": [}`, "the JSON breaks at character 15"},
		{"broken JSON, what then", `{"messages": [}`, "as plain text, say so (--text)"},
		{"a cut body", `{"messages": [{"role": "user", "content": "SECRET`, "its end is missing"},
		{"a lone surrogate", `{"prompt": "a\ud83dSECRET"}`, "half of an escaped character"},
		{"deep", deep, "exceeded max depth"},
		{"no request", `{"SECRET": 1, "b": 2}`, "has 2 fields, but none that makes a request"},
		{"an answer", `{"choices": [{"token_ids": [9], "message": {"content": "SECRET"}}]}`, "none that makes a request"},
		{"no messages", `{"messages": [], "prompt": 1}`, "messages is empty"},
		{"a list of a list", `[["SECRET"]]`, "a list within the list"},
		{"messages of numbers", `{"messages": [1]}`, "messages[0] is a number, not an object"},
		{"no role", `{"messages": [{"content": "SECRET"}]}`, "messages[0] has no role"},
		{"content", `{"messages": [{"role": "user", "content": {"a": "SECRET"}}]}`, "messages[0].content is no text and an object, not a list"},
		{"a part", `{"messages": [{"role": "user", "content": ["a", 1]}]}`, "messages[0].content[1] is a number, not an object"},
		{"a part's type", `{"messages": [{"role": "user", "content": [{"type": "SECRET"}]}]}`, "messages[0].content[0] has a type that"},
		{"calls", `{"messages": [{"role": "assistant", "tool_calls": [{"id": "SECRET"}]}]}`, "messages[0].tool_calls[0] has no function"},
		{"tools", `{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {}}]}`, "tools[0] is no function with a name"},
		{"both endings", `{"messages": [{"role": "user", "content": "a"}], "continue_final_message": true}`, "needs add_generation_prompt to be false"},
		{"earlier turns", `{"input": "Hi", "previous_response_id": "SECRET"}`, "give the whole conversation"},
		{"arguments", `{"prompt": "a", "chat_template_kwargs": ["SECRET"]}`, "chat_template_kwargs is a list, not an object"},
		{"arguments by Dynamo's name", `{"prompt": "a", "chat_template_args": "SECRET"}`, "chat_template_args is a string, not an object"},
		{"many arguments", `{"prompt": "a", "chat_template_kwargs": {` + strings.Repeat(`"a":1,`, 3) + many(300) + `}}`, "more than 256 fields"},
		{"an argument that is none", `{"prompt": "a", "chat_template_kwargs": {"messages": "SECRET"}}`, "holds messages, which is no argument"},
		{"an unknown item", `{"input": [{"type": "SECRET"}]}`, "input[0] is neither a message"},
		{"encrypted", `{"input": [{"type": "reasoning", "encrypted_content": "SECRET"}]}`, "input[0] is encrypted reasoning"},
		{"vectors", `{"prompt": "", "prompt_embeds": "SECRET"}`, "vectors and have no tokens"},
		{"an empty prompt", `{"prompt": ""}`, "prompt is empty"},
		{"many messages", `{"messages": [` + strings.Repeat("0,", maxItems) + `0]}`, "messages is a list of more than 131 072 items"},
		{"many prompts", `{"prompt": [` + strings.Repeat(`"",`, maxItems) + `""]}`, "prompt is a list of more than"},
		{"many fields", `{"a": [` + strings.Repeat(`{"":0},`, maxFields) + `0]}`, "more than 1 048 576 fields"},
		{"a huge id", `{"prompt": [1e400]}`, "in prompt: character 2"},
		{"broken ids", `{"request": {"prompt": "SECRET"}, "response": {"prompt_token_ids": [1, true]}}`, "in response.prompt_token_ids: character 5"},
		{"an unknown block", `{"system": "SECRET", "messages": [{"role": "user", "content": [{"type": "SECRET"}]}]}`, "block 1 of message 1 is of a type"},
		{"a tool without a schema", `{"system": "s", "messages": [{"role": "user", "content": "a"}], "tools": [{"name": "SECRET"}]}`, "tools[0] is no function"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(c.in))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Parse(make([]byte, MaxInput+1)); err == nil || !strings.Contains(err.Error(), "the longest input") {
		t.Errorf("error %v", err)
	}
}

// many gives n fields of an object.
func many(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`"k%d":1`, i)
	}
	return strings.Join(out, ",")
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, s := range []string{`{"prompt": "Hi"}`, "[1, 2]", "{broken", "curl x", "\ufeff\n"} {
		if r, err := Text([]byte(s)); err != nil || r.Form != PlainText || r.Text != s {
			t.Errorf("%q: %+v, %v", s, r, err)
		}
	}
	if _, err := Text(nil); err == nil {
		t.Error("nothing is a text")
	}
}

func TestLoneSurrogate(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int{
		`"\ud83d\ude00"`: -1, `"\ud83d"`: 1, `"a\ude00"`: 2, `"\ud83dx"`: 1, `"\\ud83d"`: -1, `"\\\ud83d"`: 3,
		`"\ud83d\ud83d\ude00"`: 1, `"\u00e9"`: -1, `"\ud83d\ude00\ude00"`: 13, `\`: -1, `\u12`: -1,
	} {
		if got := loneSurrogate(s); got != want {
			t.Errorf("%s: %d, want %d", s, got, want)
		}
	}
}

func TestCountFields(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int{`{"a": {"b:": "\":\""}, "c": [1]}`: 3, `[":"]`: 0} {
		if got := countFields(s); got != want {
			t.Errorf("%s: %d", s, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"Hi", "[1, 2]", `{"prompt": ["Hi"]}`, `{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "tools": [{"type": "function", "function": {"name": "f"}}]}`,
		`{"input": [{"type": "function_call", "name": "f", "arguments": "{}"}, {"role": "assistant", "status": "incomplete", "content": "a"}]}`,
		`{"system": "s", "messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "image"}]}]}]}`,
		`curl -sd '{"prompt": "Hi"}' http://h/v1/completions`, "curl x -d @- <<'E'\n{\"prompt\": \"a\"}\nE\n", `curl $'\x41\u00e9\101' -d "\"a\""`,
		`{"request": {"prompt": "a"}, "response": {"prompt_token_ids": [1]}}`, `{"a": "\ud83d"}`, "{\"a\":1,\"a\":[[[", "curl -d '", "curl <<A",
	} {
		f.Add([]byte(s))
	}
	m, err := loadFiles(map[string]string{templateFile: tagged}, Options{Encoder: bytewise{}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if err != nil {
			if file := (*FileError)(nil); r != nil || err.Error() == "" || errors.As(err, &file) && file.Name == "" {
				t.Fatalf("%v beside error %q", r, err)
			}
			return
		}
		if r.Text == "" && len(r.Messages) == 0 && len(r.Tokens) == 0 {
			t.Fatalf("nothing in %+v", r)
		}
		if r.Tools != nil && !json.Valid(r.Tools) || !json.Valid(r.kwargs.encode()) {
			t.Fatalf("broken JSON in %+v", r)
		}
		for _, items := range []bool{false, true} {
			s := encodeMessages(r, items)
			if !json.Valid([]byte(s)) {
				t.Fatalf("broken JSON %s", s)
			}
		}
		if r.Special != nil || r.Template != "" {
			return
		}
		if p, err := m.Prompt(context.Background(), r, RenderOptions{}); err == nil && p.Text != "" && p.Tokens[0] != bos {
			whole(t, p)
		}
		for _, v := range Views {
			if p, err := m.View(context.Background(), r, v.Name, RenderOptions{}); err == nil && p.Tokens != nil && p.Tokens[0] != bos {
				whole(t, p)
			}
		}
	})
}
