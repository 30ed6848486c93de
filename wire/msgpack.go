package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

var (
	errShort    = errors.New("the data ends early")
	errReserved = errors.New("the byte 0xc1, which msgpack never uses")
)

// wide says how the heads from 0xc0 to 0xdf are built: fixed bytes, then an
// unsigned count of lenBytes bytes. The count is of bytes that follow, or of
// values where perCount is not 0. From the msgpack specification.
var wide = [32]struct{ fixed, lenBytes, perCount uint8 }{
	{1, 0, 0}, {0, 0, 0}, {1, 0, 0}, {1, 0, 0}, // nil, reserved, false, true
	{1, 1, 0}, {1, 2, 0}, {1, 4, 0}, // bin
	{2, 1, 0}, {2, 2, 0}, {2, 4, 0}, // ext
	{5, 0, 0}, {9, 0, 0}, // float
	{2, 0, 0}, {3, 0, 0}, {5, 0, 0}, {9, 0, 0}, // uint
	{2, 0, 0}, {3, 0, 0}, {5, 0, 0}, {9, 0, 0}, // int
	{3, 0, 0}, {4, 0, 0}, {6, 0, 0}, {10, 0, 0}, {18, 0, 0}, // fixext
	{1, 1, 0}, {1, 2, 0}, {1, 4, 0}, // str
	{1, 2, 1}, {1, 4, 1}, // array
	{1, 2, 2}, {1, 4, 2}, // map
}

// head gives the bytes that the first value of b takes without its elements,
// and how many elements follow. b is not empty.
func head(b []byte) (size, elements uint64, err error) {
	c := b[0]
	switch {
	case c < 0x80 || c >= 0xe0:
		return 1, 0, nil
	case c < 0x90:
		return 1, 2 * uint64(c&15), nil
	case c < 0xa0:
		return 1, uint64(c & 15), nil
	case c < 0xc0:
		size = 1 + uint64(c&31)
	default:
		w := wide[c-0xc0]
		size = uint64(w.fixed) + uint64(w.lenBytes)
		if size == 0 {
			return 0, 0, errReserved
		}
		if uint64(len(b)) < size {
			return 0, 0, errShort
		}
		var count uint64
		// The type byte of an ext comes behind its length.
		switch at := b[1:]; w.lenBytes {
		case 1:
			count = uint64(at[0])
		case 2:
			count = uint64(binary.BigEndian.Uint16(at))
		case 4:
			count = uint64(binary.BigEndian.Uint32(at))
		}
		if w.perCount > 0 {
			return size, count * uint64(w.perCount), nil
		}
		size += count
	}
	if uint64(len(b)) < size {
		return 0, 0, errShort
	}
	return size, 0, nil
}

// skip gives what follows the first value of b.
func skip(b []byte) ([]byte, error) { return skipValues(b, 1) }

// skipValues gives what follows the first n values of b. It neither recurses
// nor allocates, whatever the values claim to hold.
func skipValues(b []byte, n uint64) ([]byte, error) {
	for want := n; want > 0; want-- {
		// Each value still to come takes a byte at least.
		if uint64(len(b)) < want {
			return nil, errShort
		}
		size, elements, err := head(b)
		if err != nil {
			return nil, err
		}
		b = b[size:]
		want += elements
	}
	return b, nil
}

var typeWords = map[msgp.Type]string{
	msgp.InvalidType: "nothing",
	msgp.StrType:     "text",
	msgp.BinType:     "bytes",
	msgp.MapType:     "a map",
	msgp.ArrayType:   "a list",
	msgp.Float64Type: "a fraction",
	msgp.Float32Type: "a fraction",
	msgp.BoolType:    "true or false",
	msgp.IntType:     "an integer",
	msgp.UintType:    "an integer",
	msgp.NilType:     "nil",
}

// found names the type of the first value of b.
func found(b []byte) string {
	if w := typeWords[msgp.NextType(b)]; w != "" {
		return w
	}
	return "an extension"
}

func wrongType(want string, b []byte) error {
	if len(b) == 0 {
		return errShort
	}
	return fmt.Errorf("found %s in place of %s", found(b), want)
}

// readNil reports whether b begins with nil, and gives what follows it.
func readNil(b []byte) ([]byte, bool) {
	if len(b) > 0 && b[0] == 0xc0 {
		return b[1:], true
	}
	return b, false
}

// readText reads a str, or a bin: Dynamo takes either as text.
func readText(b []byte) (text, rest []byte, err error) {
	if text, rest, err = msgp.ReadMapKeyZC(b); err != nil {
		return nil, nil, wrongOr(err, "text", b)
	}
	return text, rest, nil
}

// readList reads the head of a list whose elements can all still follow. An
// empty bin is an empty list, as it is for Dynamo.
func readList(b []byte) (n int, rest []byte, err error) {
	if len(b) >= 2 && b[0] == 0xc4 && b[1] == 0 {
		return 0, b[2:], nil
	}
	u, rest, err := msgp.ReadArrayHeaderBytes(b)
	switch {
	case err != nil:
		return 0, nil, wrongOr(err, "a list", b)
	case uint64(u) > uint64(len(rest)):
		return 0, nil, errShort
	}
	return int(u), rest, nil
}

// readMap reads the head of a map whose entries can all still follow.
func readMap(b []byte) (n int, rest []byte, err error) {
	u, rest, err := msgp.ReadMapHeaderBytes(b)
	switch {
	case err != nil:
		return 0, nil, wrongOr(err, "a map", b)
	case 2*uint64(u) > uint64(len(rest)):
		return 0, nil, errShort
	}
	return int(u), rest, nil
}

// readUint reads an integer from 0.
func readUint(b []byte) (u uint64, rest []byte, err error) {
	if u, rest, err = msgp.ReadUint64Bytes(b); err != nil {
		return 0, nil, wrongOr(err, "an integer from 0", b)
	}
	return u, rest, nil
}

// wrongOr puts an error of msgp in words, without the value that it may hold.
func wrongOr(err error, want string, b []byte) error {
	if errors.Is(err, msgp.ErrShortBytes) {
		return errShort
	}
	if below := (msgp.UintBelowZero{}); errors.As(err, &below) {
		return fmt.Errorf("found a negative integer in place of %s", want)
	}
	return wrongType(want, b)
}
