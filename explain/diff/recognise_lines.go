package diff

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/kvscope/kvscope/prompt"
)

// This file holds the recognisers of lines and lists.

// maxLine bounds how far the ends of a line are looked for, in bytes.
const maxLine = 4 << 10

// line gives the line in which the change begins, without its line feed.
func (z *zone) line() [2]int {
	return [2]int{z.bound("\n"), z.s.until(z.from, "\n")}
}

// bound gives where the item begins that the change begins in: behind a separator.
func (z *zone) bound(seps string) int {
	before := z.before(maxLine)
	return z.from - len(before) + strings.LastIndexAny(before, seps) + 1
}

// until gives the first separator from a place on.
func (s *side) until(at int, seps string) int {
	end := min(at+maxLine, len(s.text))
	if i := strings.IndexAny(s.text[at:end], seps); i >= 0 {
		return at + i
	}
	return end
}

// lines knows the same lines in another order.
func (ch *change) lines() (found, bool) { return ch.reordered("\n", "\n", "\n", "lines") }

// items knows the same items of a list on one line in another order.
func (ch *change) items() (found, bool) { return ch.reordered(",[({:\n", ",", ",])}\n.", "items") }

// reordered knows a list that begins behind one of the bytes of begin, has sep
// between its items, and ends before one of end.
func (ch *change) reordered(begin, sep, end, noun string) (found, bool) {
	a0, b0 := ch.a.bound(begin), ch.b.bound(begin)
	if ch.a.from-a0 != ch.b.from-b0 {
		return found{}, false
	}
	ends := func(s *side, to int) int {
		if to > 0 && strings.ContainsRune(sep, rune(s.text[to-1])) {
			return to - 1
		}
		return s.until(to, end)
	}
	h := ch.h
	for i := 0; i <= min(len(ch.rest), maxHunks); i++ {
		if i > 0 {
			h = ch.rest[i-1]
		}
		a1, b1 := ends(ch.a.s, ch.a.s.starts[h.a1]), ends(ch.b.s, ch.b.s.starts[h.b1])
		if i == 0 {
			a1, b1 = ends(ch.a.s, ch.a.to), ends(ch.b.s, ch.b.to)
		}
		switch {
		case max(a1-a0, b1-b0) > maxHull || ch.c.budget <= 0:
			return found{}, false
		case a1-a0 != b1-b0 || a1 < a0:
			continue
		}
		ch.c.budget -= 2 * (a1 - a0)
		a, b := ch.a.s.text[a0:a1], ch.b.s.text[b0:b1]
		itemsA, itemsB := trimmed(strings.Split(a, sep)), trimmed(strings.Split(b, sep))
		if sameItems(itemsA, itemsB) {
			f := found{class: ListOrder, detail: fmt.Sprintf("%d %s", len(itemsA), noun), a: [2]int{a0, a1}, b: [2]int{b0, b1}}
			if ch.isTools(f) {
				f.class, f.detail = ToolOrder, ""
			}
			return f, true
		}
	}
	return found{}, false
}

func trimmed(items []string) []string {
	for i, s := range items {
		items[i] = strings.TrimSpace(s)
	}
	return items
}

// isTools reports whether a range of A declares tools.
func (ch *change) isTools(f found) bool {
	if ch.a.s.where(f.a[0]).Part == prompt.Tools {
		return true
	}
	text := ch.a.s.text[f.a[0]:f.a[1]]
	before := strings.ToLower(ch.a.before(ch.a.from - max(f.a[0]-64, ch.a.low)))
	return strings.Contains(text, `"name"`) && (strings.Contains(text, `"description"`) || strings.Contains(text, `"parameters"`)) ||
		strings.Contains(before[:max(len(before)-(ch.a.from-f.a[0]), 0)], "tool")
}

// block gives the lines around the change that a form fits, and their number. What
// is read comes off the budget.
func (z *zone) block(form *regexp.Regexp, budget *int) (r [2]int, n int) {
	const most = 5000
	text := z.s.text
	at := z.bound("\n")
	r = [2]int{at, at}
	fits := func(line string) bool {
		*budget -= len(line) + 1
		return *budget > 0 && form.MatchString(line)
	}
	for n < most && r[0] > z.low {
		from := max(z.low, r[0]-1-maxLine)
		start := from + strings.LastIndexByte(text[from:r[0]-1], '\n') + 1
		if start == from && from > z.low || !fits(text[start:r[0]-1]) {
			break
		}
		r[0], n = start, n+1
	}
	for n < most && r[1] < len(text) {
		end := z.s.until(r[1], "\n")
		if !fits(text[r[1]:end]) {
			break
		}
		r[1], n = min(end+1, len(text)), n+1
	}
	return r, n
}

// whole gives the whole lines of what differs; none where that is nothing between
// two lines.
func (z *zone) whole() [2]int {
	r := [2]int{z.bound("\n"), z.to}
	if r[0] < r[1] {
		r[1] = min(z.s.until(z.to, "\n")+1, len(z.s.text))
	}
	return r
}

var (
	// gitForm is a line of git status, short or long, of the branch before it, or of
	// the log that agents put behind it.
	gitForm = regexp.MustCompile(`^(?:(?:[MADRCUT?!][ MADRCUT?!]| [MADRCUT]) \S.*|\s+(?:modified|new file|deleted|renamed|both modified):\s.*|` +
		`[0-9a-f]{7,40} \S.*|On branch .*|Current branch: .*|Your branch .*|Changes .*commit.*|Untracked files:.*|nothing to commit.*|no changes added.*)$`)
	gitWord = regexp.MustCompile(`(?i)\bgit\b|\bstatus\b|\bbranch\b`)
	// pathForm is a line with the path of a file alone, in a list or a tree.
	pathForm = regexp.MustCompile("^[ \t]*(?:[-*•] |[│├└─ |`+-]* )?[^\\s<>{}\":;,()]*[^\\s<>{}\":;,()./][./][^\\s<>{}\":;,()]*/?$")
)

// gitStatus knows the lines of git status: some on one side at least.
func (ch *change) gitStatus() (found, bool) {
	f, n, ok := ch.blocks(gitForm)
	if !ok || n == 0 {
		return f, false
	}
	before := ch.a.s.text[max(ch.a.low, f.a[0]-256):max(f.a[0], ch.a.low)]
	f.class = GitStatus
	return f, gitWord.MatchString(before) || gitWord.MatchString(ch.a.s.text[f.a[0]:f.a[1]])
}

// fileList knows lists of paths.
func (ch *change) fileList() (found, bool) {
	f, n, ok := ch.blocks(pathForm)
	if !ok || n < 3 {
		return f, false
	}
	f.class = FileList
	return f, true
}

// blocks gives the lines of a form on both sides, and how many there are. A side
// without any is what differs there.
func (ch *change) blocks(form *regexp.Regexp) (f found, n int, ok bool) {
	a, na := ch.a.block(form, &ch.c.budget)
	b, nb := ch.b.block(form, &ch.c.budget)
	if na == 0 {
		a = ch.a.whole()
	}
	if nb == 0 {
		b = ch.b.whole()
	}
	// Each must hold what differs first.
	if a[1] < ch.a.from || b[1] < ch.b.from || ch.a.from-a[0] != ch.b.from-b[0] {
		return f, 0, false
	}
	f.detail = fmt.Sprintf("%d lines, then %d", na, nb)
	f.a, f.b = a, b
	return f, na + nb, true
}
