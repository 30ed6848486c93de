package diff

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/kvscope/kvscope/prompt"
)

// This file holds the recognisers of values: what one side has and the other has
// another of.

// values are forms of volatile values, the first that fits counts. detail gets the
// values of both sides; an empty class goes on.
var values = [...]struct {
	re    *regexp.Regexp
	class func(a, b string) (Class, string, bool)
}{
	{uuidForm, fixed(ID, "UUID")},
	{timeForm, timeOf},
	{epochForm, epochOf},
	{hexForm, hexOf},
	{wordForm, wordOf},
	{numberForm, numberOf},
}

const (
	months = `(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?`
	days   = `(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?`
	clock  = `\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?: ?[AaPp](?:[Mm]\b|\.[Mm]\.))?`
	offset = `(?: ?(?:Z\b|UTC\b|GMT\b|[A-Z]{3,4}\b|[+-]\d{2}:?\d{2}\b))?`
)

var (
	uuidForm = regexp.MustCompile(`\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b`)
	timeForm = regexp.MustCompile(`\b(?:` +
		days + `(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{1,2}/\d{1,2}/\d{2}\b` +
		`|\d{4} ?年 ?\d{1,2} ?月 ?\d{1,2} ?日` +
		`|\d{1,2}(?:st|nd|rd|th)? ` + months + `,? \d{4}|` + months + ` \d{1,2}(?:st|nd|rd|th)?,? \d{4})` +
		`(?:(?:[T ]|, | at )` + clock + offset + `)?` +
		`|` + days + months + ` {1,2}\d{1,2} ` + clock + `(?: [A-Z]{3,4})? \d{4}` +
		`|\d{8}T\d{6}Z?\b` +
		`|` + clock + offset + `)`)
	epochForm  = regexp.MustCompile(`\b[12]\d{9}(?:\.\d{1,9}|\d{3}|\d{6}|\d{9})?\b`)
	hexForm    = regexp.MustCompile(`\b(?:0x)?[0-9a-fA-F]{6,128}\b`)
	wordForm   = regexp.MustCompile(`[A-Za-z0-9_-]{8,128}`)
	numberForm = regexp.MustCompile(`\b\d{1,18}(?:\.\d+)*\b`)

	fraction = regexp.MustCompile(`:\d\d[.,](\d+)`)
	seconds  = regexp.MustCompile(`:\d\d:\d\d|T\d{6}`)
)

// value knows the forms of the table.
func (ch *change) value() (found, bool) {
	const around = 136 // longer than any of the forms before or behind what differs
	for _, v := range values {
		a, ok := ch.a.match(v.re, around)
		if !ok {
			continue
		}
		b, ok := ch.b.match(v.re, around)
		if !ok || ch.a.from-a[0] != ch.b.from-b[0] {
			continue
		}
		ta, tb := ch.a.s.text[a[0]:a[1]], ch.b.s.text[b[0]:b[1]]
		if class, detail, ok := v.class(ta, tb); ok && ta != tb {
			return found{class: class, detail: detail, a: a, b: b}, true
		}
	}
	return found{}, false
}

// match gives the form that holds the first byte that differs, or ends there.
func (z *zone) match(re *regexp.Regexp, around int) ([2]int, bool) {
	from := max(z.low, z.from-around)
	text := z.s.text[from:min(z.from+around, len(z.s.text))]
	for _, m := range re.FindAllStringIndex(text, -1) {
		if r := [2]int{from + m[0], from + m[1]}; r[0] <= z.from && z.from <= r[1] {
			return r, true
		}
	}
	return [2]int{}, false
}

func fixed(c Class, detail string) func(a, b string) (Class, string, bool) {
	return func(string, string) (Class, string, bool) { return c, detail, true }
}

// timeOf gives the resolution that both sides are written in.
func timeOf(a, b string) (Class, string, bool) {
	at, bt := resolution(a), resolution(b)
	if (at == "day") != (bt == "day") {
		return 0, "", false
	}
	if at == "day" {
		return Date, "day", true
	}
	return Timestamp, at, true
}

func resolution(text string) string {
	switch m := fraction.FindStringSubmatch(text); {
	case m != nil:
		return below(len(m[1]))
	case seconds.MatchString(text):
		return "second"
	case strings.Contains(text, ":"):
		return "minute"
	}
	return "day"
}

// below names the resolution of a second with so many decimals.
func below(decimals int) string {
	switch {
	case decimals == 0:
		return "second"
	case decimals <= 3:
		return "ms"
	case decimals <= 6:
		return "µs"
	}
	return "ns"
}

// epochOf takes numbers for Unix times where both are of the same years.
func epochOf(a, b string) (Class, string, bool) {
	whole, frac, _ := strings.Cut(a, ".")
	other, _, _ := strings.Cut(b, ".")
	if len(whole) != len(other) {
		return 0, "", false
	}
	x, _ := strconv.Atoi(whole[:10])
	y, _ := strconv.Atoi(other[:10])
	const tenYears = 10 * 365 * 86400
	if max(x, y)-min(x, y) > tenYears {
		return 0, "", false
	}
	return Timestamp, below(max(len(whole)-10, len(frac))), true
}

func hexOf(a, b string) (Class, string, bool) {
	if !mixed(a) && !mixed(b) || min(digits(a), digits(b)) == 0 {
		return 0, "", false
	}
	return ID, fmt.Sprintf("%d hex digits", len(strings.TrimPrefix(b, "0x"))), true
}

// wordOf takes words for identifiers that mix letters and digits as no language
// does, and are about as long.
func wordOf(a, b string) (Class, string, bool) {
	const slack = 4
	if min(digits(a), digits(b)) < 2 || !mixed(a) || !mixed(b) || max(len(a), len(b))-min(len(a), len(b)) > slack {
		return 0, "", false
	}
	return ID, fmt.Sprintf("%d characters", len(b)), true
}

func digits(s string) int {
	n := 0
	for i := range len(s) {
		if s[i] >= '0' && s[i] <= '9' {
			n++
		}
	}
	return n
}

// mixed reports whether a word has letters as well as digits.
func mixed(s string) bool {
	return digits(s) > 0 && strings.ContainsFunc(s, unicode.IsLetter)
}

// numberOf takes whole numbers for counters, but no versions or fractions, and says
// by how much they differ.
func numberOf(a, b string) (Class, string, bool) {
	x, errA := strconv.ParseInt(a, 10, 64)
	y, errB := strconv.ParseInt(b, 10, 64)
	return Counter, fmt.Sprintf("%+d", y-x), errA == nil && errB == nil && x != y
}

// headerForm is a line as HTTP writes headers; only names that are no words of
// prose count.
var headerForm = regexp.MustCompile(`^(?i)((?:x-[a-z0-9-]+|traceparent|tracestate|cookie|user-agent|request-id|correlation-id)): ?\S`)

// header knows a line that is a header on both sides.
func (ch *change) header() (found, bool) {
	a, b := ch.a.line(), ch.b.line()
	ma := headerForm.FindStringSubmatch(ch.a.s.text[a[0]:a[1]])
	mb := headerForm.FindStringSubmatch(ch.b.s.text[b[0]:b[1]])
	if ma == nil || mb == nil || !strings.EqualFold(ma[1], mb[1]) || ch.a.from-a[0] != ch.b.from-b[0] {
		return found{}, false
	}
	return found{class: HeaderLine, detail: ma[1], a: a, b: b}, true
}

// whiteSpace knows texts that are alike but for white space.
func (ch *change) whiteSpace() (found, bool) {
	a, b := ch.a.here(), ch.b.here()
	if a == b || strings.Join(strings.Fields(a), "") != strings.Join(strings.Fields(b), "") {
		return found{}, false
	}
	f := found{class: WhiteSpace, a: [2]int{ch.a.from, ch.a.to}, b: [2]int{ch.b.from, ch.b.to}}
	if strings.TrimSpace(a) == "" {
		f.detail = fmt.Sprintf("%s, then %s", blanks(a), blanks(b))
	}
	return f, true
}

// blanks describes white space.
func blanks(s string) string {
	const most = 12
	if len(s) > most {
		return fmt.Sprintf("%d bytes", len(s))
	}
	if s == "" {
		return "nothing"
	}
	return strconv.Quote(s)
}

// retokenized knows the same text in other tokens.
func (ch *change) retokenized() (found, bool) {
	if ch.a.here() != ch.b.here() || ch.a.here() == "" {
		return found{}, false
	}
	h := ch.h
	return found{class: Retokenized, tokens: &h}, true
}

// userText knows a copy of the user's latest message ahead of that message.
func (ch *change) userText() (found, bool) {
	a, okA, isA := ch.a.copied()
	b, okB, isB := ch.b.copied()
	if !okA && !okB || okA != isA || okB != isB {
		return found{}, false
	}
	switch {
	case okA && okB && ch.a.from-a[0] != ch.b.from-b[0]:
		return found{}, false
	case !okA:
		a = [2]int{ch.a.from - (ch.b.from - b[0]), ch.a.to}
	case !okB:
		b = [2]int{ch.b.from - (ch.a.from - a[0]), ch.b.to}
	}
	return found{class: UserText, a: a, b: b}, true
}

// copied gives where the user's latest message stands at the change, and whether
// the side has one behind it at all.
func (z *zone) copied() (r [2]int, ok, has bool) {
	const least, most = 3, 64 << 10
	parts := z.s.p.Parts
	for i := len(parts) - 1; i >= 0; i-- {
		p := parts[i]
		if p.Kind != prompt.Content || p.Role != "user" || p.Start < 0 || p.End > len(z.s.text) || p.Start >= p.End {
			continue
		}
		text := strings.TrimSpace(z.s.text[p.Start:p.End])
		if p.Start <= z.from || len(text) < least || len(text) > most {
			return r, false, p.Start > z.from
		}
		from := max(z.low, z.from-len(text))
		at := strings.Index(z.s.text[from:min(z.from+len(text), p.Start)], text)
		return [2]int{from + at, from + at + len(text)}, at >= 0, true
	}
	return r, false, false
}
