package capture

import (
	"github.com/tinylib/msgp/msgp"

	"github.com/kvscope/kvscope/wire"
)

// keyTags are the engines' own words at the head of a tagged extra key.
var keyTags = map[string]bool{"lora": true, "mm": true, "cache_salt": true, "prompt_embeds": true}

func (e *encoder) extra(blocks [][]wire.ExtraKey) {
	lists(e, blocks, func(keys []wire.ExtraKey) {
		e.b = msgp.AppendArrayHeader(e.b, uint32(len(keys)))
		for i := range keys {
			e.key(&keys[i], false)
		}
	})
}

// lists writes a list of lists; it and each of them may be nil.
func lists[T any](e *encoder, all [][]T, one func([]T)) {
	if all == nil {
		e.b = msgp.AppendNil(e.b)
		return
	}
	e.b = msgp.AppendArrayHeader(e.b, uint32(len(all)))
	for _, l := range all {
		if l == nil {
			e.b = msgp.AppendNil(e.b)
			continue
		}
		one(l)
	}
}

// key writes an extra key. Numbers within a list are offsets into the prompt
// and stay; alone they are adapters.
func (e *encoder) key(k *wire.ExtraKey, inList bool) {
	s := e.r.secret
	switch {
	case k.List != nil:
		e.b = msgp.AppendArrayHeader(e.b, uint32(len(k.List)))
		for i := range k.List {
			if item := &k.List[i]; i == 0 && len(k.List) > 1 && keyTags[item.Text] {
				e.b = msgp.AppendString(e.b, item.Text)
			} else {
				e.key(item, true)
			}
		}
	case k.IsInt && inList:
		e.b = msgp.AppendInt64(e.b, k.Int)
	case k.IsInt:
		e.b = msgp.AppendInt64(e.b, int64(s.number(adapterDomain, uint64(k.Int))))
	case k.Bytes != nil:
		e.b = msgp.AppendBytes(e.b, s.expand(bytesDomain, string(k.Bytes), len(k.Bytes)))
	default:
		e.b = msgp.AppendString(e.b, s.text(k.Text))
	}
}

// hashForms says for each event whether its byte hashes are text on the wire:
// decoded they look like any other bytes. It is nil where no event has any.
func hashForms(payload []byte, batch *wire.Batch) []bool {
	some := false
	for i := range batch.Events {
		some = some || batch.Events[i].Form&wire.FormBytes != 0
	}
	if !some {
		return nil
	}
	forms := make([]bool, 0, len(batch.Events))
	list := eventList(payload)
	n, list, err := msgp.ReadArrayHeaderBytes(list)
	for ; err == nil && n > 0 && len(forms) < len(batch.Events); n-- {
		event := list
		if list, err = msgp.Skip(list); err == nil {
			forms = append(forms, textHash(event))
		}
	}
	return forms
}

// eventList gives the payload from its list of events on.
func eventList(b []byte) []byte {
	if n, rest, err := msgp.ReadArrayHeaderBytes(b); err == nil {
		for ; n > 0 && err == nil && msgp.NextType(rest) != msgp.ArrayType; n-- {
			rest, err = msgp.Skip(rest)
		}
		return rest
	}
	n, rest, err := msgp.ReadMapHeaderBytes(b)
	for ; n > 0 && err == nil; n-- {
		var key []byte
		if key, rest, err = msgp.ReadMapKeyZC(rest); err == nil && string(key) == "events" {
			return rest
		}
		if err == nil {
			rest, err = msgp.Skip(rest)
		}
	}
	return nil
}

// textHash reports whether the first hash of an event, or else its parent, is
// text.
func textHash(b []byte) bool {
	if n, rest, err := msgp.ReadArrayHeaderBytes(b); err == nil {
		// Behind the tag, which is the first text.
		for ; n > 0 && err == nil && msgp.NextType(rest) != msgp.StrType; n-- {
			rest, err = msgp.Skip(rest)
		}
		if n < 2 || err != nil {
			return false
		}
		if rest, err = msgp.Skip(rest); err != nil {
			return false
		}
		if firstIsText(rest) || n < 3 {
			return firstIsText(rest)
		}
		rest, err = msgp.Skip(rest)
		return err == nil && msgp.NextType(rest) == msgp.StrType
	}
	n, rest, err := msgp.ReadMapHeaderBytes(b)
	for ; n > 0 && err == nil; n-- {
		var key []byte
		if key, rest, err = msgp.ReadMapKeyZC(rest); err != nil {
			return false
		}
		switch string(key) {
		case "block_hashes":
			if firstIsText(rest) {
				return true
			}
		case "parent_block_hash":
			if msgp.NextType(rest) == msgp.StrType {
				return true
			}
		}
		rest, err = msgp.Skip(rest)
	}
	return false
}

func firstIsText(b []byte) bool {
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	return err == nil && n > 0 && msgp.NextType(rest) == msgp.StrType
}
