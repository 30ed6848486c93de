package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// blockTypes are content blocks that only Anthropic's API has.
var blockTypes = []string{"tool_use", "tool_result", "redacted_thinking"}

// looksAnthropic tells a body of Anthropic's messages API from one of OpenAI's
// chat completions: by what only the former has. Where nothing tells, both mean
// the same.
func looksAnthropic(o object) bool {
	if o.has("system") || o.has("stop_sequences") || o.has("anthropic_version") {
		return true
	}
	tools, _ := list(o.get("tools"))
	for _, raw := range tools {
		if tool, _ := fields(raw); tool.has("input_schema") {
			return true
		}
	}
	messages, _ := list(o.get("messages"))
	for _, raw := range messages {
		m, _ := fields(raw)
		blocks, _ := list(m.get("content"))
		for _, raw := range blocks {
			b, _ := fields(raw)
			kind := b.text("type")
			if slices.Contains(blockTypes, kind) || kind == "image" && b.has("source") || kind == "thinking" && b.has("signature") {
				return true
			}
		}
	}
	return false
}

// readAnthropic turns a body of Anthropic's messages API into a chat by the rules
// of vLLM's /v1/messages.
func (r *Request) readAnthropic(o object) error {
	items, ok := list(o.get("messages"))
	if !ok || len(items) == 0 {
		return fmt.Errorf("messages is %s: a messages request has its messages there", notList(o.get("messages")))
	}
	r.note("made a chat of it as vLLM's /v1/messages does; other engines and releases may do it differently")
	system, err := r.systemTexts(o.get("system"), "system")
	if err != nil {
		return err
	}
	var rest []object
	inline := false
	for i, raw := range items {
		m, ok := fields(raw)
		if !ok || m.text("role") == "" {
			return fmt.Errorf("messages[%d] is no object with a role", i)
		}
		if m.text("role") != "system" {
			rest = append(rest, m)
			continue
		}
		texts, err := r.systemTexts(m.get("content"), fmt.Sprintf("messages[%d].content", i))
		if err != nil {
			return err
		}
		system, inline = append(system, texts...), true
	}
	if inline {
		r.note("system messages among the others were joined to the first; newer releases of vLLM leave them in place or join them to their neighbours")
	}
	if len(system) > 0 {
		r.add(Message{Role: "system", parts: textPart(strings.Join(system, ""))})
	}
	for i, m := range rest {
		if err := r.readTurn(m, i); err != nil {
			return err
		}
	}
	if r.Tools, err = readTools(o.get("tools"), anthropicTool); err != nil {
		return err
	}
	if config, ok := fields(o.get("output_config")); ok {
		r.effort(config.text("effort"))
	}
	return nil
}

func anthropicTool(t object) (object, bool) {
	if !t.has("input_schema") {
		return nil, false
	}
	return object{{"name", t.get("name")}, {"description", t.get("description")}, {"parameters", t.get("input_schema")}}, t.has("name")
}

// systemTexts gives the texts of a system prompt without an agent's billing line,
// which vLLM leaves out of lists of blocks.
func (r *Request) systemTexts(raw json.RawMessage, at string) ([]string, error) {
	if s, ok := text(raw); ok {
		return []string{s}, nil
	}
	blocks, ok := list(raw)
	if !ok && raw != nil {
		return nil, fmt.Errorf("%s is no text and %s", at, notList(raw))
	}
	var out []string
	for _, raw := range blocks {
		b, _ := fields(raw)
		switch s := b.text("text"); {
		case b.text("type") != "text" || s == "":
		case strings.HasPrefix(s, billing):
			r.note("a system block that begins with %s was left out, as vLLM does", billing)
		default:
			out = append(out, s)
		}
	}
	return out, nil
}

// readTurn reads a user's or an assistant's message. Results of tools become
// messages of their own, before what else the message holds.
func (r *Request) readTurn(o object, i int) error {
	m := Message{Role: o.text("role")}
	content := o.get("content")
	if s, ok := text(content); ok {
		m.parts = textPart(s)
		r.add(m)
		return nil
	}
	blocks, ok := list(content)
	if ok {
		m.list = content
	}
	if !ok && content != nil {
		return fmt.Errorf("the content of message %d is no text and %s", i+1, notList(content))
	}
	for j, raw := range blocks {
		b, ok := fields(raw)
		if !ok {
			return fmt.Errorf("block %d of message %d is %s, not an object", j+1, i+1, kindOf(raw))
		}
		if err := r.readBlock(b, &m); err != nil {
			return fmt.Errorf("block %d of message %d %w", j+1, i+1, err)
		}
	}
	if m.Role != "user" || len(m.parts) > 0 {
		r.add(m)
	}
	return nil
}

func (r *Request) readBlock(b object, m *Message) error {
	switch b.text("type") {
	case "text":
		if s := b.text("text"); s != "" {
			m.parts = append(m.parts, part{text: s})
		}
	case "image":
		m.parts = append(m.parts, part{media: "image"})
	case "thinking":
		s := b.text("thinking")
		if m.reasoning != nil {
			s = *m.reasoning + s
		}
		m.reasoning = &s
	case "redacted_thinking", "tool_reference":
	case "tool_use":
		m.calls = append(m.calls, newCall(b.text("id"), b.text("name"), b.get("input")))
	case "tool_result":
		if m.Role != "user" {
			return errors.New("is a tool's result outside a user's message")
		}
		r.addResult(b)
	default:
		return errors.New("is of a type that vLLM does not take")
	}
	return nil
}

// addResult adds the message of a tool's result; its images follow in one of the
// user's.
func (r *Request) addResult(b object) {
	id := b.text("tool_use_id")
	var texts []string
	var images, references []part
	if s, ok := text(b.get("content")); ok {
		texts = []string{s}
	}
	items, _ := list(b.get("content"))
	for _, raw := range items {
		item, _ := fields(raw)
		switch item.text("type") {
		case "text":
			texts = append(texts, item.text("text"))
		case "image":
			images = append(images, part{media: "image"})
		case "tool_reference":
			name := item.text("tool_name")
			if name == "" {
				name = item.text("name")
			}
			references = append(references, part{reference: name})
		}
	}
	r.add(Message{Role: "tool", callID: &id, parts: textPart(strings.Join(texts, "\n"))})
	if len(images) > 0 {
		r.add(Message{Role: "user", parts: images})
	}
	if len(references) > 0 {
		r.add(Message{Role: "tool", callID: &id, parts: references})
	}
}
