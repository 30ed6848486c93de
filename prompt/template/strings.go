package template

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// stripping makes strip, lstrip and rstrip.
func stripping(left, right bool) func(r *run, in []value) (value, error) {
	return func(r *run, in []value) (value, error) { return r.strip(in[0].(str), in[1], left, right) }
}

func (r *run) strip(t str, chars value, left, right bool) (value, error) {
	cut := isSpace
	if c := or(chars, nil); c != nil {
		set, err := textArg(c)
		if err != nil {
			return nil, err
		}
		if err := r.charge(len(set.s) * valueSize); err != nil {
			return nil, err
		}
		of := map[rune]bool{}
		for _, c := range set.s {
			of[c] = true
		}
		cut = func(c rune) bool { return of[c] }
	}
	start, end := 0, len(t.s)
	if left {
		start = end - len(strings.TrimLeftFunc(t.s, cut))
	}
	if right {
		end = start + len(strings.TrimRightFunc(t.s[start:], cut))
	}
	if err := r.charge((len(t.s) - end + start) / 8); err != nil {
		return nil, err
	}
	return r.cut(t, start, end)
}

// span is a range of a text's bytes.
type span struct{ start, end int }

// pieces cuts a text into several, a list or a tuple.
func (r *run) pieces(kind seqKind, t str, spans []span) (value, error) {
	if err := r.charge(len(spans) * 4 * valueSize); err != nil {
		return nil, err
	}
	out := make([]value, len(spans))
	for i, s := range spans {
		p, err := r.cut(t, s.start, s.end)
		if err != nil {
			return nil, err
		}
		out[i] = p
	}
	return &seq{kind: kind, items: out}, nil
}

// splitArgs reads the arguments of split and rsplit: a separator, empty for white
// space, and how often to split at most, below zero for always.
func splitArgs(r *run, in []value) (t str, sep string, most int64, err error) {
	t = in[0].(str)
	if most, err = intArg(in[2], -1); err != nil {
		return t, "", 0, err
	}
	if s := or(in[1], nil); s != nil {
		by, err := textArg(s)
		if err == nil && by.s == "" {
			err = errors.New("the separator is empty")
		}
		return t, by.s, most, errors.Join(err, r.charge(len(t.s)))
	}
	return t, "", most, r.charge(len(t.s))
}

func split(r *run, in []value) (value, error) {
	t, sep, most, err := splitArgs(r, in)
	if err != nil {
		return nil, err
	}
	var spans []span
	if sep == "" {
		return r.pieces(listSeq, t, words(t.s, most))
	}
	at := 0
	for int64(len(spans)) != most {
		i := strings.Index(t.s[at:], sep)
		if i < 0 {
			break
		}
		spans = append(spans, span{at, at + i})
		at += i + len(sep)
	}
	return r.pieces(listSeq, t, append(spans, span{at, len(t.s)}))
}

// words finds what is between white space.
func words(s string, most int64) []span {
	var out []span
	at := 0
	for {
		at = len(s) - len(strings.TrimLeftFunc(s[at:], isSpace))
		if at == len(s) {
			return out
		}
		if int64(len(out)) == most {
			return append(out, span{at, len(s)})
		}
		n := strings.IndexFunc(s[at:], isSpace)
		if n < 0 {
			n = len(s) - at
		}
		out = append(out, span{at, at + n})
		at += n
	}
}

func rsplit(r *run, in []value) (value, error) {
	t, sep, most, err := splitArgs(r, in)
	if err != nil {
		return nil, err
	}
	var spans []span
	end := len(t.s)
	if sep == "" {
		spans = wordsBack(t.s, most)
	} else {
		for int64(len(spans)) != most {
			i := strings.LastIndex(t.s[:end], sep)
			if i < 0 {
				break
			}
			spans = append(spans, span{i + len(sep), end})
			end = i
		}
		spans = append(spans, span{0, end})
	}
	slices.Reverse(spans)
	return r.pieces(listSeq, t, spans)
}

// wordsBack is words from the end, the last first.
func wordsBack(s string, most int64) []span {
	var out []span
	end := len(s)
	for {
		end = len(strings.TrimRightFunc(s[:end], isSpace))
		if end == 0 {
			return out
		}
		if int64(len(out)) == most {
			return append(out, span{0, end})
		}
		at := 0
		if i := strings.LastIndexFunc(s[:end], isSpace); i >= 0 {
			_, n := utf8.DecodeRuneInString(s[i:])
			at = i + n
		}
		out = append(out, span{at, end})
		end = at
	}
}

// lineEnd gives how many bytes of a line end a text starts with.
func lineEnd(s string) int {
	if strings.HasPrefix(s, "\r\n") {
		return 2
	}
	r, n := utf8.DecodeRuneInString(s)
	switch r {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return n
	}
	return 0
}

// lines splits at line ends, with or without those.
func lines(s string, ends bool) []span {
	var out []span
	at := 0
	for i := 0; i < len(s); {
		n := lineEnd(s[i:])
		if n == 0 {
			_, n := utf8.DecodeRuneInString(s[i:])
			i += n
			continue
		}
		end := i
		if ends {
			end += n
		}
		out = append(out, span{at, end})
		i += n
		at = i
	}
	if at < len(s) {
		out = append(out, span{at, len(s)})
	}
	return out
}

func splitLines(r *run, in []value) (value, error) {
	t := in[0].(str)
	if err := r.charge(len(t.s)); err != nil {
		return nil, err
	}
	return r.pieces(listSeq, t, lines(t.s, truth(or(in[1], false))))
}

// partition makes partition and rpartition of how they look for the separator.
func partition(index func(s, sep string) int, last bool) func(r *run, in []value) (value, error) {
	return func(r *run, in []value) (value, error) {
		t := in[0].(str)
		sep, err := textArg(in[1])
		if err != nil {
			return nil, err
		}
		if sep.s == "" {
			return nil, errors.New("the separator is empty")
		}
		i := index(t.s, sep.s)
		switch {
		case i < 0 && last:
			return r.pieces(tupleSeq, t, []span{{}, {}, {0, len(t.s)}})
		case i < 0:
			return r.pieces(tupleSeq, t, []span{{0, len(t.s)}, {}, {}})
		}
		end := i + len(sep.s)
		return r.pieces(tupleSeq, t, []span{{0, i}, {i, end}, {end, len(t.s)}})
	}
}

// affix makes startswith and endswith.
func affix(has func(s, affix string) bool) func(r *run, in []value) (value, error) {
	return func(_ *run, in []value) (value, error) {
		any := []value{in[1]}
		if tuple, ok := in[1].(*seq); ok && tuple.kind == tupleSeq {
			any = tuple.items
		}
		for _, v := range any {
			a, err := textArg(v)
			if err != nil {
				return nil, err
			}
			if has(in[0].(str).s, a.s) {
				return true, nil
			}
		}
		return false, nil
	}
}

// removing makes removeprefix and removesuffix.
func removing(prefix bool) func(r *run, in []value) (value, error) {
	return func(r *run, in []value) (value, error) {
		t := in[0].(str)
		a, err := textArg(in[1])
		if err != nil {
			return nil, err
		}
		switch {
		case prefix && strings.HasPrefix(t.s, a.s):
			return r.cut(t, len(a.s), len(t.s))
		case !prefix && strings.HasSuffix(t.s, a.s):
			return r.cut(t, 0, len(t.s)-len(a.s))
		}
		return t, nil
	}
}

func replace(r *run, in []value) (value, error) {
	t := in[0].(str)
	old, err := textArg(in[1])
	if err != nil {
		return nil, err
	}
	with, err := textArg(in[2])
	if err != nil {
		return nil, err
	}
	most, err := intArg(in[3], -1)
	if err != nil {
		return nil, err
	}
	return r.collect(func(b *buffer) error {
		at := 0
		for n := int64(0); n != most; n++ {
			i := strings.Index(t.s[at:], old.s)
			if i < 0 {
				break
			}
			if old.s == "" && n > 0 { // between all characters
				if at == len(t.s) {
					break
				}
				_, i = utf8.DecodeRuneInString(t.s[at:])
			}
			if err := b.cut(t, at, at+i); err != nil {
				return err
			}
			if err := b.add(with); err != nil {
				return err
			}
			at += i + len(old.s)
		}
		return b.cut(t, at, len(t.s))
	})
}

// cut adds a range of a text.
func (b *buffer) cut(t str, start, end int) error {
	p, err := b.r.cut(t, start, end)
	if err != nil {
		return err
	}
	return b.add(p)
}

func joinMethod(r *run, in []value) (value, error) {
	items, err := r.items(in[1])
	if err != nil {
		return nil, err
	}
	for _, v := range items {
		if _, err := textArg(v); err != nil {
			return nil, err
		}
	}
	return join(r, []value{&seq{items: items}, in[0], absent{}})
}

func countText(_ *run, in []value) (value, error) {
	sub, err := textArg(in[1])
	return int64(strings.Count(in[0].(str).s, sub.s)), err
}

// find makes find and rfind.
func find(index func(s, sub string) int) func(r *run, in []value) (value, error) {
	return func(r *run, in []value) (value, error) {
		t := in[0].(str)
		sub, err := textArg(in[1])
		if err != nil {
			return nil, err
		}
		i := index(t.s, sub.s)
		if i > 0 {
			i = utf8.RuneCountInString(t.s[:i])
		}
		return int64(i), r.charge(len(t.s) / 8)
	}
}

func indexText(r *run, in []value) (value, error) {
	i, err := find(strings.Index)(r, in)
	if err == nil && i == int64(-1) {
		err = errors.New("the substring was not found")
	}
	return i, err
}
