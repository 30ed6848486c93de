package blockhash

// Value is a Python object among a block's extra keys: None, str, bytes, int or
// tuple. The zero Value is None. Lists and tuples are not told apart: hashes
// cover tuples, the wire shows lists.
type Value struct {
	kind  valueKind
	depth uint8
	text  string // of str and bytes
	n     int64
	list  []Value
}

type valueKind uint8

const (
	noneValue valueKind = iota
	textValue
	tagValue // a str that the engine's code spells out: one object wherever it is used
	bytesValue
	intValue
	tupleValue
)

// maxDepth bounds nesting, for engines nest 2 deep and recursion must end.
const maxDepth = 16

// Text is a str. Equal Texts are distinct objects, as they are in an engine
// that decoded its request from the network (see pickler.str).
func Text(s string) Value { return Value{kind: textValue, text: s} }

// Bytes is a bytes object. It copies b.
func Bytes(b []byte) Value { return Value{kind: bytesValue, text: string(b)} }

// Int is an int.
func Int(n int64) Value { return Value{kind: intValue, n: n} }

// Tuple is a tuple; it keeps v. Nesting deeper than 16 is cut to None.
func Tuple(v ...Value) Value {
	t := Value{kind: tupleValue, depth: 1, list: v}
	for _, e := range v {
		t.depth = max(t.depth, e.depth+1)
	}
	if t.depth > maxDepth {
		return Value{}
	}
	return t
}

func tag(s string) Value { return Value{kind: tagValue, text: s} }
