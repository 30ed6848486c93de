package prompt

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kvscope/kvscope/wire"
)

// readResponses reads a body of the responses API. Reasoning, an answer and calls
// that follow each other become one message of the assistant, as in vLLM.
func (r *Request) readResponses(o object) error {
	for _, name := range []string{"previous_response_id", "conversation"} {
		if o.has(name) {
			return fmt.Errorf("%s stands for turns that only the engine has: give the whole conversation as input", name)
		}
	}
	if s := o.text("instructions"); s != "" {
		r.add(Message{Role: "system", parts: textPart(s)})
	}
	input := o.get("input")
	if s, ok := text(input); ok {
		r.add(Message{Role: "user", parts: textPart(s)})
	} else if err := r.readItems(input); err != nil {
		return err
	}
	tools, left := functionTools(o.get("tools"))
	if left > 0 {
		r.note("%s of a kind other than function left out: what the engine makes of them is not known", wire.Counted(left, "tool"))
	}
	var err error
	r.Tools, err = readTools(tools, func(t object) (object, bool) {
		var f object
		for _, field := range t {
			if field.key != "type" {
				f = append(f, field)
			}
		}
		return f, f != nil
	})
	if reasoning, ok := fields(o.get("reasoning")); ok {
		r.effort(reasoning.text("effort"))
	}
	return err
}

// functionTools gives the tools that are functions and counts the others.
func functionTools(raw json.RawMessage) (tools json.RawMessage, left int) {
	items, ok := list(raw)
	if !ok {
		return raw, 0
	}
	var out []json.RawMessage
	for _, item := range items {
		if t, ok := fields(item); ok && t.text("type") != "function" {
			left++
			continue
		}
		out = append(out, item)
	}
	return encodeList(out), left
}

func (r *Request) readItems(input json.RawMessage) error {
	items, ok := list(input)
	if !ok || len(items) == 0 {
		return fmt.Errorf("input is %s: a responses request has a text or its items there", notList(input))
	}
	var last object
	for i, raw := range items {
		o, ok := fields(raw)
		if !ok {
			return fmt.Errorf("input[%d] is %s, not an object", i, kindOf(raw))
		}
		if err := r.readItem(o, raw, i); err != nil {
			return err
		}
		last = o
	}
	switch last.text("status") {
	case "in_progress", "incomplete":
		r.Continue = r.Messages[len(r.Messages)-1].Role == "assistant" && last.text("type") != "function_call"
		r.NoOpening = r.Continue
	}
	return nil
}

func (r *Request) readItem(o object, raw json.RawMessage, i int) error {
	at := fmt.Sprintf("input[%d]", i)
	kind := o.text("type")
	switch {
	case kind == "function_call":
		c := newCall(o.text("call_id"), o.text("name"), o.get("arguments"))
		m := r.assistant(func(*Message) bool { return true })
		m.calls = append(m.calls, c)
	case kind == "function_call_output":
		parts, err := readContent(o.get("output"), at+".output")
		if err != nil {
			return err
		}
		r.add(Message{Role: "tool", parts: parts, callID: optional(o, "call_id")})
	case kind == "reasoning":
		if o.has("encrypted_content") {
			return fmt.Errorf("%s is encrypted reasoning, which vLLM refuses", at)
		}
		s := firstText(o.get("content"))
		if s == "" {
			s = firstText(o.get("summary"))
		}
		r.assistant(func(m *Message) bool { return m.reasoning == nil }).reasoning = &s
	case o.text("role") == "assistant":
		r.assistant(func(m *Message) bool { return m.parts == nil }).parts = textPart(firstText(o.get("content")))
	case kind == "message" || kind == "" && o.has("role"):
		m, err := readMessage(raw, at)
		if err != nil {
			return err
		}
		r.add(m)
	default:
		return errors.New(at + " is neither a message, a function call or its output, nor reasoning")
	}
	return nil
}

// assistant gives the last message, if it is the assistant's and has room, else a
// new one.
func (r *Request) assistant(room func(*Message) bool) *Message {
	if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == "assistant" && room(&r.Messages[n-1]) {
		return &r.Messages[n-1]
	}
	r.add(Message{Role: "assistant"})
	return &r.Messages[len(r.Messages)-1]
}

// firstText gives a text, or the text of a list's first part: vLLM takes no more
// of an assistant's content.
func firstText(raw json.RawMessage) string {
	if s, ok := text(raw); ok {
		return s
	}
	items, ok := list(raw)
	if !ok || len(items) == 0 {
		return ""
	}
	if s, ok := text(items[0]); ok {
		return s
	}
	o, _ := fields(items[0])
	return o.text("text")
}
