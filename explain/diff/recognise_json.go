package diff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// This file holds the recognisers of JSON and of markup around it.

// Bounds of a search for JSON.
const (
	maxValue = 1 << 20 // the length of a value, in bytes
	maxDepth = 32      // the number of values that hold the change
)

// json knows JSON that is equal in value on both sides: with other white space, with
// keys in another order, with the items of a list in another order.
func (ch *change) json() (best found, ok bool) {
	text := ch.a.s.text
	depth, tries := 0, 0
	for at := ch.a.from - 1; at >= ch.a.low && tries < maxDepth && ch.c.budget > 0; at-- {
		switch text[at] {
		case '}', ']':
			depth++
		case '{', '[':
			if depth > 0 {
				depth--
				continue
			}
			tries++
			// The widest value that is equal counts; for keys, from where the
			// narrowest begins.
			if f, is := ch.sameJSON(at); is {
				if ok && f.class != ToolOrder && f.class != ListOrder && best.class == f.class {
					f.a[0], f.b[0] = best.a[0], best.b[0]
				}
				best, ok = f, true
			}
		}
	}
	return best, ok
}

// sameJSON compares the values that begin at a byte of A and the same place of B.
func (ch *change) sameJSON(at int) (found, bool) {
	bAt := ch.b.from - (ch.a.from - at)
	a, okA := ch.c.rawValue(ch.a.s.text[at:])
	b, okB := ch.c.rawValue(ch.b.s.text[bAt:])
	if !okA || !okB || at+len(a) <= ch.a.from && bAt+len(b) <= ch.b.from {
		return found{}, false
	}
	compactA, compactB := compact(a), compact(b)
	head, tail := textPrefix(a, b), 0
	if a != b {
		tail = textSuffix(a[head:], b[head:])
	}
	f := found{a: [2]int{at, at + len(a) - tail}, b: [2]int{bAt, bAt + len(b) - tail}}
	switch {
	case a == b:
		return found{}, false
	case compactA == compactB:
		f.class = JSONSpacing
	case canonical(a) == canonical(b) && len(compactA) == len(compactB):
		f.class = KeyOrder
	case canonical(a) == canonical(b):
		f.class, f.detail = JSONSpacing, "other escapes"
	case a[0] == '[' && b[0] == '[':
		return ch.sameList(f, a, b)
	default:
		return found{}, false
	}
	return f, true
}

// sameList compares two arrays as lists whose order does not matter.
func (ch *change) sameList(f found, a, b string) (found, bool) {
	itemsA, placesA := elements(a)
	itemsB, placesB := elements(b)
	if !sameItems(itemsA, itemsB) {
		return found{}, false
	}
	n := len(itemsA)
	i, j := 0, n-1
	for itemsA[i] == itemsB[i] {
		i++
	}
	for itemsA[j] == itemsB[j] {
		j--
	}
	atA, atB := f.a[0], f.b[0]
	f.a = [2]int{atA + placesA[i][0], atA + placesA[j][1]}
	f.b = [2]int{atB + placesB[i][0], atB + placesB[j][1]}
	f.class, f.detail = ListOrder, fmt.Sprintf("%d items", n)
	if ch.isTools(f) {
		f.class, f.detail = ToolOrder, fmt.Sprintf("%d tools", n)
	}
	return f, true
}

// rawValue gives the JSON value at the beginning of a text.
func (c *comparison) rawValue(text string) (string, bool) {
	if c.budget <= 0 {
		return "", false
	}
	r := strings.NewReader(text[:min(len(text), maxValue)])
	size := r.Len()
	dec := json.NewDecoder(r)
	var raw json.RawMessage
	err := dec.Decode(&raw)
	c.budget -= size - r.Len()
	return string(raw), err == nil && len(raw) > 0
}

func compact(raw string) string {
	var out bytes.Buffer
	if json.Compact(&out, []byte(raw)) != nil {
		return raw
	}
	return out.String()
}

// canonical gives a value with its keys in order.
func canonical(raw string) string {
	dec := json.NewDecoder(strings.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return string(out)
}

// elements gives the elements of an array, each in its canonical form, and where
// they are.
func elements(raw string) (items []string, places [][2]int) {
	dec := json.NewDecoder(strings.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, nil
	}
	for dec.More() {
		var e json.RawMessage
		if dec.Decode(&e) != nil {
			return nil, nil
		}
		end := int(dec.InputOffset())
		items = append(items, canonical(string(e)))
		places = append(places, [2]int{end - len(e), end})
	}
	return items, places
}

// contentJSON knows the content list of a message that one side writes as JSON text
// and the other as the text that is meant.
func (ch *change) contentJSON() (found, bool) {
	a, b, ok := ch.c.contentList(&ch.a, &ch.b)
	if !ok {
		b, a, ok = ch.c.contentList(&ch.b, &ch.a)
	}
	return found{class: ContentJSON, a: a, b: b}, ok
}

// contentList looks for the list in x and its text in y.
func (c *comparison) contentList(x, y *zone) (inX, inY [2]int, ok bool) {
	const back = 8 // a text may begin like the list
	for at := x.from; at >= max(x.low, x.from-back); at-- {
		text := x.s.text
		if at == len(text) || text[at] != '[' {
			continue
		}
		raw, is := c.rawValue(text[at:])
		var list []struct {
			Type string  `json:"type"`
			Text *string `json:"text"`
		}
		if !is || json.Unmarshal([]byte(raw), &list) != nil || len(list) == 0 {
			continue
		}
		yAt := y.from - (x.from - at)
		end := yAt
		for _, e := range list {
			if e.Type != "text" || e.Text == nil {
				return inX, inY, false
			}
			// Templates join texts with or without something between.
			rest := y.s.text[end:]
			i := strings.Index(rest[:min(len(rest), len(*e.Text)+2)], *e.Text)
			if i < 0 {
				return inX, inY, false
			}
			end += i + len(*e.Text)
		}
		return [2]int{at, at + len(raw)}, [2]int{yAt, end}, true
	}
	return inX, inY, false
}

// thinkTags are what reasoning is written in.
var thinkTags = [...][2]string{
	{"<think>", "</think>"},
	{"<thinking>", "</thinking>"},
	{"<reasoning>", "</reasoning>"},
	{"[THINK]", "[/THINK]"},
	{"<|channel|>analysis", "<|end|>"},
}

// think knows reasoning that only one side has.
func (ch *change) think() (found, bool) {
	if a, b, detail, ok := thinkIn(&ch.a, &ch.b); ok {
		return found{class: ThinkBlock, detail: detail + " in A", a: a, b: b}, true
	}
	b, a, detail, ok := thinkIn(&ch.b, &ch.a)
	return found{class: ThinkBlock, detail: detail + " in B", a: a, b: b}, ok
}

// thinkIn looks for reasoning in x at the change, where y has none.
func thinkIn(x, y *zone) (inX, inY [2]int, detail string, ok bool) {
	const back, most = 24, 1 << 20
	for at := x.from; at >= max(x.low, x.from-back); at-- {
		text := x.s.text[at:]
		other := y.s.text[y.from-(x.from-at):]
		i := slices.IndexFunc(thinkTags[:], func(tag [2]string) bool {
			return strings.HasPrefix(text, tag[0]) && !strings.HasPrefix(other, tag[0])
		})
		if i < 0 {
			continue
		}
		tag := thinkTags[i]
		text = text[:min(len(text), most)]
		end := strings.Index(text, tag[1])
		if end < 0 {
			return inX, inY, "", false
		}
		detail = "full"
		if strings.TrimSpace(text[len(tag[0]):end]) == "" {
			detail = "empty"
		}
		end += len(tag[1])
		end += len(text[end:]) - len(strings.TrimLeft(text[end:], " \t\r\n"))
		yAt := y.from - (x.from - at)
		return [2]int{at, at + end}, [2]int{yAt, yAt}, detail, true
	}
	return inX, inY, "", false
}
