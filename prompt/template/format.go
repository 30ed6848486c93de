package template

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// formatFilter is "…"|format(…), which is the operator % of texts.
func formatFilter(r *run, args []value, kw []kwArg) (value, error) {
	if len(args) == 0 || len(kw) > 0 {
		return nil, unsupported("format with names")
	}
	t, err := r.text(args[0])
	if err != nil {
		return nil, err
	}
	return r.percent(t, &seq{kind: tupleSeq, items: args[1:]})
}

// percent is Python's text % values, without names.
func (r *run) percent(t str, v value) (value, error) {
	if t.safe {
		return nil, errSafe
	}
	args := []value{v}
	if tuple, ok := v.(*seq); ok && tuple.kind == tupleSeq {
		args = tuple.items
	}
	out, err := r.collect(func(b *buffer) error {
		at := 0
		for {
			i := strings.IndexByte(t.s[at:], '%')
			if i < 0 {
				return b.cut(t, at, len(t.s))
			}
			if err := b.cut(t, at, at+i); err != nil {
				return err
			}
			at += i + 1
			spec := len(t.s[at:]) - len(strings.TrimLeft(t.s[at:], "-+ 0123456789.#"))
			if at+spec == len(t.s) {
				return typeError("incomplete format")
			}
			verb := t.s[at+spec]
			if verb == '%' {
				if spec > 0 {
					return unsupported("the format %" + t.s[at:at+spec+1])
				}
				if err := b.lit("%"); err != nil {
					return err
				}
				at++
				continue
			}
			if len(args) == 0 {
				return typeError("not enough arguments for the format")
			}
			if err := b.format(t.s[at:at+spec], verb, args[0]); err != nil {
				return err
			}
			args = args[1:]
			at += spec + 1
		}
	})
	if err != nil {
		return nil, err
	}
	if len(args) > 0 && !subscripts(v) {
		return nil, typeError("not all arguments of the format were used")
	}
	return out, nil
}

// subscripts reports what Python takes for a mapping, of which a format need not
// use anything.
func subscripts(v value) bool {
	switch v := v.(type) {
	case *dict, undefined:
		return true
	case *seq:
		return v.kind == listSeq || v.kind == rangeSeq
	}
	return false
}

// maxWidth bounds widths in formats.
const maxWidth = 4

// format writes one value by a verb of C's printf.
func (b *buffer) format(spec string, verb byte, v value) error {
	refuse := unsupported(fmt.Sprintf("the format %%%.20s%c for a %s", spec, verb, typeName(v)))
	if len(spec) > maxWidth {
		return refuse
	}
	if err := missing(v); err != nil && verb != 's' && verb != 'r' {
		return err
	}
	switch verb {
	case 's', 'r':
		if spec != "" {
			return refuse
		}
		if verb == 'r' {
			return b.repr(v)
		}
		return b.print(v)
	case 'd', 'i', 'x', 'X', 'o':
		if f, ok := v.(float64); ok && (verb == 'd' || verb == 'i') && math.Abs(f) < 1<<53 {
			v = int64(f)
		}
		if !isInt(v) || strings.Contains(spec, ".") || strings.Contains(spec, "#") {
			return refuse
		}
		if verb == 'i' {
			verb = 'd'
		}
		return b.lit(fmt.Sprintf("%"+spec+string(rune(verb)), asInt(v)))
	case 'f', 'F', 'e', 'E':
		f, ok := asFloat(v)
		if !ok || math.IsInf(f, 0) || math.IsNaN(f) || strings.Contains(spec, "#") {
			return refuse
		}
		return b.lit(fmt.Sprintf("%"+spec+string(rune(verb)), f))
	}
	return refuse
}

// formatMethod is "…".format(…), with fields of a name or a number alone.
func formatMethod(r *run, args []value, kw []kwArg) (value, error) {
	t := args[0].(str)
	args = args[1:]
	next := 0
	return r.collect(func(b *buffer) error {
		for at := 0; at < len(t.s); {
			i := strings.IndexAny(t.s[at:], "{}")
			if i < 0 {
				return b.cut(t, at, len(t.s))
			}
			if err := b.cut(t, at, at+i); err != nil {
				return err
			}
			at += i
			if at+1 < len(t.s) && t.s[at] == t.s[at+1] {
				if err := b.lit(t.s[at : at+1]); err != nil {
					return err
				}
				at += 2
				continue
			}
			end := strings.IndexByte(t.s[at:], '}')
			if t.s[at] == '}' || end < 0 {
				return fmt.Errorf("a brace in the format has no partner")
			}
			v, err := field(t.s[at+1:at+end], args, kw, &next)
			if err != nil {
				return err
			}
			if err := b.print(v); err != nil {
				return err
			}
			at += end + 1
		}
		return nil
	})
}

// field gives the value of a field of a format; next counts those without a name,
// and is below zero once there are numbers.
func field(name string, args []value, kw []kwArg, next *int) (value, error) {
	i := *next
	switch {
	case name == "" && i >= 0:
		*next++
	case name != "" && digits(name) == len(name) && len(name) < 4 && i <= 0:
		i = 0
		for _, c := range name {
			i = i*10 + int(c-'0')
		}
		*next = -1
	case strings.ContainsAny(name, ":!.[{") || name == "" || digits(name) > 0:
		return nil, unsupported("the format field {" + name[:min(len(name), maxName)] + "}")
	default:
		for _, k := range kw {
			if k.name == name {
				return k.v, nil
			}
		}
		return nil, fmt.Errorf("the format has no value for %.64q", name)
	}
	if i >= len(args) {
		return nil, fmt.Errorf("the format has no value for field %d", i)
	}
	return args[i], nil
}

// layouts are the directives of strftime in the C locale, without a time zone:
// transformers asks for local time that names none.
var layouts = map[rune]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'e': "_2",
	'F': "2006-01-02", 'D': "01/02/06", 'H': "15", 'I': "03", 'j': "002", 'm': "01", 'M': "04",
	'p': "PM", 'R': "15:04", 'S': "05", 'T': "15:04:05", 'X': "15:04:05", 'x': "01/02/06",
	'y': "06", 'c': "Mon Jan _2 15:04:05 2006", 'r': "03:04:05 PM",
}

var literals = map[rune]string{'%': "%", 'n': "\n", 't': "\t", 'Z': "", 'z': ""}

// plainLayouts are directives with a "-", glibc's for no padding.
var plainLayouts = map[rune]string{'d': "2", 'm': "1", 'I': "3", 'M': "4", 'S': "5", 'y': "06"}

// strftime is Python's, for the directives above.
func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			b.WriteString(format)
			return b.String(), nil
		}
		b.WriteString(format[:i])
		format = format[i+1:]
		known := layouts
		if strings.HasPrefix(format, "-") {
			known, format = plainLayouts, format[1:]
		}
		c, n := utf8.DecodeRuneInString(format)
		layout, ok := known[c]
		text, isText := literals[c]
		switch {
		case ok:
			b.WriteString(t.Format(layout))
		case c == 'Y':
			fmt.Fprintf(&b, "%d", t.Year())
		case c == 'f':
			fmt.Fprintf(&b, "%06d", t.Nanosecond()/1000)
		case isText:
			b.WriteString(text)
		default:
			return "", unsupported(fmt.Sprintf("the directive %%%.1s of strftime", format))
		}
		format = format[n:]
	}
}
