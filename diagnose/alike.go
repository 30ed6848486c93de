package diagnose

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Alike are findings that say the same of several replicas, or of one several
// times.
type Alike []*Finding

// Collapse puts findings together that differ in nothing but the replica, numbers
// and times. What is open stays apart from what is over, and findings on the fleet
// stay alone, as those of one replica do unless repeats are put together too. Their
// order is that of the first of each.
func Collapse(findings []Finding, repeats bool) []Alike {
	var out []Alike
	at, times := map[string]int{}, map[string]int{}
	for i := range findings {
		f := &findings[i]
		if f.Evidence.Replica == "" {
			out = append(out, Alike{f})
			continue
		}
		k := f.likeness()
		if !repeats {
			mine := k + "\x00" + f.Subject
			k += fmt.Sprint("\x00", times[mine])
			times[mine]++
		}
		n, ok := at[k]
		if !ok {
			n = len(out)
			at[k] = n
			out = append(out, nil)
		}
		out[n] = append(out[n], f)
	}
	return out
}

// likeness is what findings that are alike have in common, and no others.
func (f *Finding) likeness() string {
	return fmt.Sprintf("%s %d %t\x00%s\x00%s", f.Code, f.Severity, f.Open(), outline(f, f.Title), outline(f, f.Next))
}

// Key tells them from all others of a list: newer ones may come to them.
func (a Alike) Key() string {
	f := a.First()
	key := fmt.Sprintf("%s %s %d", f.likeness(), f.Subject, f.Since)
	if e := &f.Evidence; e.SeqFrom != nil {
		key += fmt.Sprint(" ", *e.SeqFrom)
	}
	return key
}

// First is the one that began first.
func (a Alike) First() *Finding {
	return slices.MinFunc(a, func(x, y *Finding) int { return cmp.Compare(x.Since, y.Since) })
}

// anonymous is a text without the subject's name where that is a word of it. A name
// of one letter is a word of any text.
func anonymous(f *Finding, text string) string {
	if len(f.Subject) < 2 || !strings.Contains(text, f.Subject) {
		return text
	}
	words := strings.Split(text, " ")
	for i, word := range words {
		if strings.Trim(word, ".,;:()") == f.Subject {
			words[i] = strings.Replace(word, f.Subject, "\x00", 1)
		}
	}
	return strings.Join(words, " ")
}

// grouped is a number of more than three digits.
var grouped = regexp.MustCompile(`\b\d{1,3}(?: \d{3})+\b`)

// outline is a text without the numbers and the subject in it.
func outline(f *Finding, text string) string {
	text = grouped.ReplaceAllString(anonymous(f, text), "1000")
	var b strings.Builder
	counted := false
	for word := range strings.SplitSeq(text, " ") {
		digits := false
		bare := strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				digits = true
				return -1
			}
			return r
		}, word)
		if counted { // 1 batch and 2 batches
			bare = strings.TrimSuffix(bare, "s")
			if strings.HasSuffix(bare, "he") {
				bare = strings.TrimSuffix(bare, "e")
			}
		}
		if counted = digits && bare == ""; counted {
			bare = "#"
		}
		b.WriteString(bare + " ")
	}
	return b.String()
}

// Names are the subjects, in order, each with how often it is meant if more than
// once.
func (a Alike) Names() []string {
	var names []string
	times := map[string]int{}
	for _, f := range a {
		if times[f.Subject]++; times[f.Subject] == 1 {
			names = append(names, f.Subject)
		}
	}
	for i, name := range names {
		if n := times[name]; n > 1 {
			names[i] = fmt.Sprintf("%s ×%d", name, n)
		}
	}
	return names
}

// Same reports whether all titles are one, but for the subject.
func (a Alike) Same() bool {
	title := anonymous(a[0], a[0].Title)
	return !slices.ContainsFunc(a[1:], func(f *Finding) bool { return anonymous(f, f.Title) != title })
}
