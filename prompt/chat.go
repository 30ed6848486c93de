package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// billing begins a line of an agent's that is new with every request.
const billing = "x-anthropic-billing-header"

func (r *Request) readChat(o object) error {
	items, ok := list(o.get("messages"))
	if !ok || len(items) == 0 {
		return fmt.Errorf("messages is %s: a chat has its messages there", notList(o.get("messages")))
	}
	for i, raw := range items {
		m, err := readMessage(raw, fmt.Sprintf("messages[%d]", i))
		if err != nil {
			return err
		}
		r.add(m)
		if texts := m.Texts(); m.Role == "system" && len(texts) > 0 && strings.HasPrefix(texts[0], billing) {
			r.note("newer releases of vLLM leave out the line %s of a system message; it is kept here", billing)
		}
	}
	var err error
	if r.Tools, err = readTools(o.get("tools"), func(t object) (object, bool) {
		return fields(t.get("function"))
	}); err != nil {
		return err
	}
	r.effort(o.text("reasoning_effort"))
	r.NoOpening = kindOf(o.get("add_generation_prompt")) == "true or false" && !isTrue(o.get("add_generation_prompt"))
	r.Continue = isTrue(o.get("continue_final_message"))
	if r.Continue && !r.NoOpening {
		return errors.New("continue_final_message needs add_generation_prompt to be false: vLLM refuses both")
	}
	return nil
}

// add appends a message and lists its media.
func (r *Request) add(m Message) {
	for i, p := range m.parts {
		if p.media != "" {
			r.Media = append(r.Media, Media{Message: len(r.Messages), Part: i, Kind: p.media, UUID: p.uuid})
		}
	}
	r.Messages = append(r.Messages, m)
}

// readTools reads the tools of a request into what templates get from vLLM: of a
// function always name, description and parameters, then what else it has. A
// tool that function finds none in is an error.
func readTools(raw json.RawMessage, function func(tool object) (object, bool)) (json.RawMessage, error) {
	items, ok := list(raw)
	switch {
	case raw == nil, ok && len(items) == 0:
		return nil, nil
	case !ok:
		return nil, fmt.Errorf("tools is %s", notList(raw))
	}
	out := make([]json.RawMessage, len(items))
	for i, item := range items {
		tool, _ := fields(item)
		f, ok := function(tool)
		if !ok || f.text("name") == "" {
			return nil, fmt.Errorf("tools[%d] is no function with a name", i)
		}
		f = f.ordered(true, "name", "description", "parameters")
		out[i] = object{{"type", quote("function")}, {"function", f.encode()}}.encode()
	}
	return encodeList(out), nil
}
