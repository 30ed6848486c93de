package tui

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/kvscope/kvscope/wire"
)

// stretch is a range of bytes of a payload, to excluded.
type stretch struct{ from, to int }

// eventBytes says which bytes of a batch's payload each of its events is. What
// has none is empty, at the end.
func eventBytes(payload []byte, events []wire.Event) []stretch {
	out := slices.Repeat([]stretch{{len(payload), len(payload)}}, len(events))
	next := 0
	give := func(at stretch) bool {
		if next < len(out) {
			out[next] = at
			next++
		}
		return next < len(out)
	}
	walkEvents(payload, give)
	for i := range events {
		if at, ok := within(payload, events[i].Raw); ok {
			out[i] = at
		}
	}
	return out
}

// within finds where raw lies in payload, if it is a part of the same memory.
func within(payload, raw []byte) (stretch, bool) {
	from := cap(payload) - cap(raw)
	if len(raw) == 0 || from < 0 || from+len(raw) > len(payload) || &payload[from] != &raw[0] {
		return stretch{}, false
	}
	return stretch{from, from + len(raw)}, true
}

// walkEvents gives the stretch of each element of a payload's list of events,
// as far as the msgpack goes; see wire.Decoder for the forms of a payload.
func walkEvents(payload []byte, give func(stretch) bool) {
	switch msgp.NextType(payload) {
	case msgp.ArrayType:
		n, b, err := msgp.ReadArrayHeaderBytes(payload)
		for ; n > 0 && err == nil; n-- {
			if msgp.NextType(b) == msgp.ArrayType {
				walkList(payload, b, give)
				return
			}
			b, err = msgp.Skip(b)
		}
	case msgp.MapType:
		n, b, err := msgp.ReadMapHeaderBytes(payload)
		for ; n > 0 && err == nil; n-- {
			key, value, keyErr := msgp.ReadMapKeyZC(b)
			if keyErr == nil && string(key) == "events" && msgp.NextType(value) == msgp.ArrayType {
				if b = walkList(payload, value, give); b == nil {
					return
				}
				continue
			}
			if b, err = msgp.Skip(b); err == nil {
				b, err = msgp.Skip(b)
			}
		}
	}
}

// walkList gives the elements of the list that b begins with, and what follows
// it; nil where it breaks off.
func walkList(payload, b []byte, give func(stretch) bool) []byte {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	for ; n > 0 && err == nil; n-- {
		from := len(payload) - len(b)
		rest, skipErr := msgp.Skip(b)
		if skipErr != nil {
			give(stretch{from, len(payload)})
			return nil
		}
		if !give(stretch{from, len(payload) - len(rest)}) {
			return nil
		}
		b = rest
	}
	if err != nil {
		return nil
	}
	return b
}

// tokenBytes says which bytes tokens from to before to of an event are; false
// where they do not stand in the event as a list of numbers.
func (st *study) tokenBytes(event, from, to int) (stretch, bool) {
	if st.tokensOf != event {
		st.tokensOf = event
		st.tokens = tokenStretches(st.entry.Payload, st.bytes[event], st.entry.Batch.Events[event].Tokens)
	}
	if from >= to || to > len(st.tokens) {
		return stretch{}, false
	}
	return stretch{st.tokens[from].from, st.tokens[to-1].to}, true
}

// tokenStretches finds the list of an event's tokens among its fields, and gives
// the bytes of each.
func tokenStretches(payload []byte, event stretch, tokens []wire.Token) []stretch {
	b := payload[event.from:event.to]
	n, isMap := uint32(0), false
	var err error
	switch msgp.NextType(b) {
	case msgp.ArrayType:
		n, b, err = msgp.ReadArrayHeaderBytes(b)
	case msgp.MapType:
		n, b, err = msgp.ReadMapHeaderBytes(b)
		isMap = true
	}
	for ; n > 0 && err == nil; n-- {
		if isMap {
			if b, err = msgp.Skip(b); err != nil {
				break
			}
		}
		if out := listOf(b, event.to-len(b), tokens); out != nil {
			return out
		}
		b, err = msgp.Skip(b)
	}
	return nil
}

// listOf gives the bytes of each token of a list that holds these and no more,
// where b, which ends with the event, begins with one.
func listOf(b []byte, at int, tokens []wire.Token) []stretch {
	if len(tokens) == 0 || msgp.NextType(b) != msgp.ArrayType {
		return nil
	}
	end := at + len(b)
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil || uint64(n) != uint64(len(tokens)) {
		return nil
	}
	out := make([]stretch, len(tokens))
	for i, t := range tokens {
		id, rest, err := msgp.ReadUint64Bytes(b)
		if err != nil || wire.Token(id) != t {
			return nil
		}
		out[i] = stretch{end - len(b), end - len(rest)}
		b = rest
	}
	return out
}

// dumpRow gives n bytes of a payload from an offset on as hex and as ASCII. The
// bytes within mark are in the style, and a bar before the row says that it
// holds some of them.
func dumpRow(payload []byte, from, n int, mark stretch, on style) string {
	var hex, text strings.Builder
	margin := " "
	for i := from; i < from+n; i++ {
		if n > 8 && i == from+n/2 {
			hex.WriteByte(' ')
		}
		if i >= len(payload) {
			hex.WriteString("   ")
			continue
		}
		c := payload[i]
		digits, letter := fmt.Sprintf("%02x", c), "."
		if c >= 0x20 && c < 0x7f {
			letter = string(rune(c))
		}
		if i >= mark.from && i < mark.to {
			margin = glyphBar
			digits, letter = on.render(digits), on.render(letter)
		}
		hex.WriteString(digits + " ")
		text.WriteString(letter)
	}
	return fmt.Sprintf("%s%06x %s%s", margin, from, hex.String(), text.String())
}

// dumpWidths says how many bytes a row of the dump holds at a width.
func dumpWidth(w int) int {
	switch {
	case w >= 1+6+1+3*16+1+16:
		return 16
	case w >= 1+6+1+3*8+8:
		return 8
	}
	return 4
}
