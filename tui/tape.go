package tui

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// short gives the beginning of a block's hash.
func short(h wire.Handle) string {
	s := h.String()
	if len(s) > 4 {
		return s[:4] + "…"
	}
	return s
}

// eventTitle says in a line what an event tells. An engine's own words are not
// cleaned here.
func eventTitle(e *wire.Event) string {
	switch e.Kind {
	case wire.Stored:
		s := "stored " + wire.Counted(len(e.Hashes), "block")
		if e.Tier != wire.Device {
			s += " on " + e.Tier.String()
		}
		if !e.Parent.Set {
			return s + " at the root"
		}
		return s + " parent " + short(e.Parent)
	case wire.Removed:
		s := "removed " + wire.Counted(len(e.Hashes), "block")
		if e.Tier != wire.Device {
			s += " from " + e.Tier.String()
		}
		return s
	case wire.Cleared:
		return "cleared everything"
	case wire.Bad:
		return strings.TrimSpace("unreadable " + e.Name)
	}
	return "unknown kind " + e.Name
}

// summary says in a line what a batch tells: runs of the same kind on the same
// tier are one part.
func summary(b *wire.Batch) string {
	const most = 8 // parts; nobody reads on
	var parts []string
	for i := 0; i < len(b.Events) && len(parts) < most; {
		sum, n := b.Events[i], 1
		for i+n < len(b.Events) && b.Events[i+n].Kind == sum.Kind && b.Events[i+n].Tier == sum.Tier && sum.Kind <= wire.Removed && sum.Kind >= wire.Stored {
			n++
		}
		blocks := 0
		for k := i; k < i+n; k++ {
			blocks += len(b.Events[k].Hashes)
		}
		part := eventTitle(&sum)
		if n > 1 {
			part = strings.Replace(part, wire.Counted(len(sum.Hashes), "block"), wire.Counted(blocks, "block"), 1) + fmt.Sprintf(" (%d events)", n)
		}
		parts = append(parts, part)
		i += n
		if len(parts) == most && i < len(b.Events) {
			parts = append(parts, "…")
		}
	}
	if len(parts) == 0 {
		return "[no events]"
	}
	return "[" + strings.Join(parts, " | ") + "]"
}

// batchJSON is a batch as it is copied. Hashes are strings, because they do not
// fit the numbers of most readers.
type batchJSON struct {
	Replica  wire.Replica `json:"replica"`
	Seq      uint64       `json:"seq"`
	At       wire.Time    `json:"t"`
	Engine   wire.Time    `json:"engine_time"`
	Topic    string       `json:"topic"`
	Rank     int          `json:"rank"`
	Replayed bool         `json:"replayed"`
	Events   []eventJSON  `json:"events"`
	Payload  []byte       `json:"payload"`
}

type eventJSON struct {
	Kind      string   `json:"kind"`
	Name      string   `json:"type"`
	Hashes    []string `json:"block_hashes,omitempty"`
	Parent    string   `json:"parent_block_hash,omitempty"`
	Tokens    []uint64 `json:"token_ids,omitempty"`
	BlockSize int      `json:"block_size,omitempty"`
	Tier      string   `json:"tier,omitempty"`
	LoRA      string   `json:"lora_name,omitempty"`
	Group     *int     `json:"group_idx,omitempty"`
	Err       string   `json:"error,omitempty"`
}

// entryJSON writes a batch for the clipboard.
func entryJSON(e *observe.Entry) string {
	b := e.Batch
	out := batchJSON{
		Replica: e.Replica, Seq: b.Seq, At: e.At, Engine: b.Engine, Topic: b.Topic, Rank: b.Rank,
		Replayed: e.Replayed, Events: []eventJSON{}, Payload: e.Payload,
	}
	for i := range b.Events {
		ev := &b.Events[i]
		j := eventJSON{Kind: ev.Kind.String(), Name: ev.Name, BlockSize: ev.BlockSize, LoRA: ev.LoRAName}
		for _, h := range ev.Hashes {
			j.Hashes = append(j.Hashes, h.String())
		}
		for _, t := range ev.Tokens {
			j.Tokens = append(j.Tokens, uint64(t))
		}
		if ev.Parent.Set {
			j.Parent = ev.Parent.String()
		}
		if ev.Kind == wire.Stored || ev.Kind == wire.Removed {
			j.Tier = ev.Tier.String()
		}
		if ev.Group >= 0 {
			j.Group = &ev.Group
		}
		if ev.Err != nil {
			j.Err = ev.Err.Error()
		}
		out.Events = append(out.Events, j)
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return "" // plain data always marshals
	}
	return string(text)
}

// fieldLine is a line of an event's fields. One of its tokens says which: from
// to before to.
type fieldLine struct {
	text     string
	from, to int
}

// eventLines gives every field of an event that is set, wrapped to w cells. It
// is kept until another event or width is asked for, or the tokenizer changes.
func eventLines(s *scene, st *study, i int, r *diagnose.Replica, w int) []fieldLine {
	if i >= len(st.entry.Batch.Events) {
		return nil
	}
	if st.lines == nil || st.linesOf != i || st.linesWidth != w || st.linesState != s.state {
		st.lines, st.linesOf, st.linesWidth, st.linesState = nil, i, w, s.state
		e := &st.entry.Batch.Events[i]
		for _, f := range eventFields {
			for _, line := range fieldLines(f.name, f.text(st, i, e, r), w) {
				st.lines = append(st.lines, fieldLine{text: line})
			}
		}
		st.lines = append(st.lines, tokenLines(s.speech(), e, st.first[i], w)...)
	}
	return st.lines
}

const nameWidth = 12 // of a field

// fieldLines wraps a field's text beside its name; an empty one has no lines.
func fieldLines(name, text string, w int) []string {
	const most = 4096 // lines; the bytes have the rest
	if text == "" {
		return nil
	}
	var out []string
	for i, line := range wrap(clean(text), max(8, w-nameWidth), most) {
		if i > 0 {
			name = ""
		}
		out = append(out, fit(name, nameWidth)+line)
	}
	return out
}

// maxRowText is how much of the text of a row of tokens is shown, in bytes.
const maxRowText = 240

// tokenLines gives a store's tokens, a row for some, each with the place of its
// first one: in the whole chain if that is known, else in the store. Below a row
// stands what its tokens say, where a tokenizer is known.
func tokenLines(words Words, e *wire.Event, first, w int) []fieldLine {
	name, base, sign := "tokens", 0, "+"
	if first >= 0 {
		base, sign = first*e.BlockSize, ""
	}
	perRow := 16
	for perRow > 1 && nameWidth+10+perRow*7 > w {
		perRow /= 2
	}
	var out []fieldLine
	for i := 0; i < len(e.Tokens); i += perRow {
		to := min(len(e.Tokens), i+perRow)
		var b strings.Builder
		for _, t := range e.Tokens[i:to] {
			b.WriteString(" " + fitRight(strconv.FormatUint(uint64(t), 10), 6))
		}
		out = append(out, fieldLine{fit(name, nameWidth) + fitRight(sign+wire.Grouped(base+i), 8) + ": " + b.String()[1:], i, to})
		name = ""
		if text, ok := quoted(words, e.Tokens[i:to], maxRowText); ok {
			for _, line := range wrap(text, max(8, w-nameWidth-10), 4) {
				out = append(out, fieldLine{fit("", nameWidth+10) + line, i, to})
			}
		}
	}
	return out
}

// eventFields are the fields of an event but its tokens, "" where it is not set.
var eventFields = []struct {
	name string
	text func(st *study, i int, e *wire.Event, r *diagnose.Replica) string
}{
	{"error", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string {
		if e.Err == nil {
			return ""
		}
		return e.Err.Error()
	}},
	{"type", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string { return e.Name }},
	{"parent", func(st *study, i int, e *wire.Event, r *diagnose.Replica) string {
		switch {
		case e.Parent.Set:
			return e.Parent.String() + "  " + st.parentWords(i, r)
		case e.Kind == wire.Stored:
			return "none: the chain begins here"
		}
		return ""
	}},
	{"place", func(st *study, i int, e *wire.Event, _ *diagnose.Replica) string {
		if e.Kind != wire.Stored || st.first[i] < 0 || len(e.Hashes) == 0 {
			return ""
		}
		return "block " + rangeOf(uint64(st.first[i]), uint64(st.first[i]+len(e.Hashes)-1)) + " of its chain"
	}},
	{"hashes", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string {
		words := make([]string, len(e.Hashes))
		for i, h := range e.Hashes {
			words[i] = h.String()
		}
		return strings.Join(words, " ")
	}},
	{"block size", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string {
		switch {
		case e.BlockSize == 0:
			return ""
		case e.Kind == wire.Stored && !e.Aligned():
			return fmt.Sprintf("%d tokens; %s and %s do not align", e.BlockSize, wire.Counted(len(e.Tokens), "token"), wire.Counted(len(e.Hashes), "block"))
		}
		return wire.Counted(e.BlockSize, "token")
	}},
	{"tier", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string {
		switch {
		case e.UnknownMedium:
			return e.Tier.String() + ", because nobody knows " + e.Medium
		case e.Medium != "":
			return e.Tier.String() + " (" + e.Medium + ")"
		}
		return ""
	}},
	{"group", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string {
		var words []string
		if e.Group >= 0 {
			words = append(words, strconv.Itoa(e.Group))
		}
		if e.Spec != "" {
			words = append(words, e.Spec)
		}
		if e.Window > 0 {
			words = append(words, "window "+wire.Counted(e.Window, "token"))
		}
		return strings.Join(words, ", ")
	}},
	{"LoRA", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string {
		if e.LoRAID != nil {
			return strings.TrimSpace(fmt.Sprintf("%s (id %d)", e.LoRAName, *e.LoRAID))
		}
		return e.LoRAName
	}},
	{"salt", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string { return e.Salt }},
	{"extra keys", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string { return extraWords(e.Extra) }},
	{"lookahead", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string {
		n := 0
		for _, l := range e.Lookahead {
			n += len(l)
		}
		if n == 0 {
			return ""
		}
		return wire.Counted(n, "speculative token")
	}},
	{"locality", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string { return e.Locality }},
	{"ownership", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string { return e.Ownership }},
	{"session", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string { return e.Session }},
	{"form", func(_ *study, _ int, e *wire.Event, _ *diagnose.Replica) string { return formWords(e) }},
}

// extraWords lists the extra keys of the blocks that have any.
func extraWords(extra [][]wire.ExtraKey) string {
	var out []string
	for i, keys := range extra {
		for _, k := range keys {
			out = append(out, fmt.Sprintf("block %d: %s", i+1, keyWords(k, 4)))
		}
	}
	return strings.Join(out, "; ")
}

func keyWords(k wire.ExtraKey, deep int) string {
	switch {
	case k.IsInt:
		return strconv.FormatInt(k.Int, 10)
	case len(k.Bytes) > 0:
		return fmt.Sprintf("%x", k.Bytes)
	case len(k.List) > 0 && deep == 0:
		return "…"
	case len(k.List) > 0:
		words := make([]string, len(k.List))
		for i := range k.List {
			words[i] = keyWords(k.List[i], deep-1)
		}
		return "[" + strings.Join(words, ", ") + "]"
	}
	return strconv.Quote(k.Text)
}

// formWords says how the event was written, as far as consumers differ in what
// they accept.
func formWords(e *wire.Event) string {
	words := []string{"map of " + strconv.Itoa(e.Len)}
	if e.Array {
		words[0] = "array of " + strconv.Itoa(e.Len)
	}
	for _, x := range []struct {
		is   bool
		word string
	}{
		{e.Form&wire.FormSigned != 0, "signed hashes"},
		{e.Form&wire.FormBytes != 0, "byte hashes"},
		{e.Bigram, "tokens as pairs (speculative decoding)"},
		{e.OpaqueTokens, "tokens that are no sequence of ids"},
		{e.MMKeys > 0, wire.Counted(e.MMKeys, "multimodal key")},
		{e.UnknownFields > 0, wire.Counted(e.UnknownFields, "unknown field")},
	} {
		if x.is {
			words = append(words, x.word)
		}
	}
	return strings.Join(words, ", ")
}
