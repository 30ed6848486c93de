package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Message is a message of a chat.
type Message struct {
	Role string

	name, callID, reasoning, task *string
	parts                         []part
	calls                         []json.RawMessage
	tools                         json.RawMessage // of a developer message
	list                          json.RawMessage // the content, where it is a list
}

// part is a piece of a message's content: a text, a medium, or a tool's name.
type part struct {
	text, media, reference, uuid string
}

func textPart(s string) []part { return []part{{text: s}} }

// Texts are the texts of the message's content.
func (m *Message) Texts() []string {
	var out []string
	for _, p := range m.parts {
		if p.media == "" && p.reference == "" {
			out = append(out, p.text)
		}
	}
	return out
}

// List reports whether the content came as a list of parts.
func (m *Message) List() bool { return m.list != nil }

// textFields says which field of a content part holds its text, by type.
var textFields = map[string]string{
	"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal", "thinking": "thinking",
}

// mediaKinds are the types of content parts that are no text.
var mediaKinds = map[string]string{
	"image_url": "image", "input_image": "image", "image": "image", "image_pil": "image", "image_embeds": "image",
	"audio_url": "audio", "input_audio": "audio", "audio": "audio", "audio_embeds": "audio",
	"video_url": "video", "video": "video", "video_embeds": "video",
}

// readMessage reads a message of the chat completions API; at names it in errors.
func readMessage(raw json.RawMessage, at string) (Message, error) {
	o, ok := fields(raw)
	if !ok {
		return Message{}, fmt.Errorf("%s is %s, not an object", at, kindOf(raw))
	}
	m := Message{Role: o.text("role")}
	if m.Role == "" {
		return Message{}, fmt.Errorf("%s has no role", at)
	}
	var err error
	if m.parts, err = readContent(o.get("content"), at+".content"); err != nil {
		return Message{}, err
	}
	if raw := o.get("content"); isList(raw) {
		m.list = raw
	}
	m.name, m.task = optional(o, "name"), optional(o, "task")
	switch m.Role {
	case "assistant":
		if m.reasoning = optional(o, "reasoning"); m.reasoning == nil {
			m.reasoning = optional(o, "reasoning_content")
		}
		m.calls, err = readCalls(o.get("tool_calls"), at+".tool_calls")
	case "tool":
		m.callID = optional(o, "tool_call_id")
	case "developer":
		m.tools = o.get("tools")
	}
	return m, err
}

func optional(o object, key string) *string {
	if s, ok := text(o.get(key)); ok {
		return &s
	}
	return nil
}

func readContent(raw json.RawMessage, at string) (parts []part, err error) {
	if raw == nil {
		return nil, nil
	}
	if s, ok := text(raw); ok {
		return textPart(s), nil
	}
	items, ok := list(raw)
	if !ok {
		return nil, fmt.Errorf("%s is no text and %s", at, notList(raw))
	}
	for i, item := range items {
		p, ok, err := readPart(item)
		if err != nil {
			return nil, fmt.Errorf("%s[%d] %w", at, i, err)
		}
		if ok {
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// readPart reads a content part; ok is false for an empty one.
func readPart(raw json.RawMessage) (p part, ok bool, err error) {
	if s, is := text(raw); is {
		return part{text: s}, true, nil
	}
	o, is := fields(raw)
	if !is {
		return p, false, fmt.Errorf("is %s, not an object", kindOf(raw))
	}
	kind := o.text("type")
	if kind == "" { // clients leave it out beside the field of the same name
		for _, f := range o {
			if mediaKinds[f.key] != "" {
				kind = f.key
			}
		}
	}
	switch {
	case textFields[kind] != "":
		p.text, ok = text(o.get(textFields[kind]))
		return p, ok, nil
	case mediaKinds[kind] != "":
		p.media, p.uuid = mediaKinds[kind], o.text("uuid")
		return p, true, nil
	case kind == "tool_reference":
		p.reference = o.text("name")
		return p, true, nil
	case kind == "":
		return p, false, errors.New("has no type")
	case kind == "prompt_embeds":
		return p, false, errors.New("holds vectors (prompt_embeds), which have no tokens: give text")
	}
	return p, false, errors.New("has a type that chat completions do not take")
}

// readCalls reads tool calls into what templates expect: vLLM orders their fields
// and makes objects of the arguments' JSON texts; what is no object becomes an
// empty one.
func readCalls(raw json.RawMessage, at string) ([]json.RawMessage, error) {
	items, ok := list(raw)
	if !ok && raw != nil {
		return nil, fmt.Errorf("%s is %s", at, notList(raw))
	}
	var out []json.RawMessage
	for i, item := range items {
		o, ok := fields(item)
		function, also := fields(o.get("function"))
		if !ok || !also {
			return nil, fmt.Errorf("%s[%d] has no function", at, i)
		}
		out = append(out, call(o, function))
	}
	return out, nil
}

func call(o, function object) json.RawMessage {
	arguments := function.get("arguments")
	if s, ok := text(arguments); ok {
		arguments = nil
		if s = strings.TrimSpace(s); json.Valid([]byte(s)) {
			arguments = json.RawMessage(s)
		}
	}
	if kindOf(arguments) != "an object" {
		arguments = json.RawMessage("{}")
	}
	function = function.with("arguments", arguments).ordered(false, "arguments", "name")
	return o.with("function", function.encode()).ordered(false, "id", "function", "type").encode()
}

// newCall builds a tool call.
func newCall(id, name string, arguments json.RawMessage) json.RawMessage {
	return call(object{{"id", quote(id)}, {"type", quote("function")}}, object{{"name", quote(name)}, {"arguments", arguments}})
}

// encode writes the message as vLLM hands it to a template: content is a text, or
// with items a list of parts.
func (m *Message) encode(items bool) json.RawMessage {
	o := object{{"role", quote(m.Role)}, {"content", m.content(items)}}
	add := func(key string, s *string) {
		if s != nil {
			o = append(o, field{key, quote(*s)})
		}
	}
	if len(m.calls) > 0 {
		o = append(o, field{"tool_calls", encodeList(m.calls)})
	}
	add("reasoning", m.reasoning)
	add("reasoning_content", m.reasoning)
	add("tool_call_id", m.callID)
	add("name", m.name)
	add("task", m.task)
	if m.tools != nil {
		o = append(o, field{"tools", m.tools})
	}
	return o.encode()
}

func (m *Message) content(items bool) json.RawMessage {
	plain := true // no part but texts
	for _, p := range m.parts {
		plain = plain && p.media == "" && p.reference == ""
	}
	if items && (m.Role != "tool" || !plain) {
		out := make([]json.RawMessage, len(m.parts))
		for i, p := range m.parts {
			out[i] = p.encode()
		}
		return encodeList(out)
	}
	var texts []string
	for _, p := range m.parts {
		if s := p.text + p.reference; s != "" {
			texts = append(texts, s)
		}
	}
	return quote(strings.Join(texts, "\n"))
}

func (p part) encode() json.RawMessage {
	switch {
	case p.media != "":
		return object{{"type", quote(p.media)}}.encode()
	case p.reference != "":
		return object{{"type", quote("tool_reference")}, {"name", quote(p.reference)}}.encode()
	}
	return object{{"type", quote("text")}, {"text", quote(p.text)}}.encode()
}
