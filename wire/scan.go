package wire

import (
	"bytes"
	"encoding/base64"
)

// parseFrames reads a line of the form that nearly all lines have,
//
//	{"t": 1.5, "replica": "a", "frames": ["base64", ...]}
//
// without encoding/json, which takes several times as long. Whatever differs,
// be it valid or not, it leaves to that.
func parseFrames(line []byte) (rec Record, ok bool) {
	s := scan{b: line}
	s.skip('{')
	s.key("t")
	at := s.number()
	s.skip(',')
	s.key("replica")
	replica := s.text()
	s.skip(',')
	s.key("frames")
	s.skip('[')
	for n := 0; !s.failed && n < maxFrames; n++ {
		frame := s.text()
		if s.failed {
			break
		}
		raw := make([]byte, base64.StdEncoding.DecodedLen(len(frame)))
		size, err := base64.StdEncoding.Decode(raw, frame)
		if err != nil {
			return Record{}, false
		}
		rec.Frames = append(rec.Frames, raw[:size])
		if s.next() == ']' {
			s.skip(']')
			s.skip('}')
			if s.failed || s.next() != 0 {
				return Record{}, false
			}
			rec.At, rec.Replica = parseTime(string(at)), Replica(replica)
			return rec, true
		}
		s.skip(',')
	}
	return Record{}, false
}

// scan goes through a line of JSON from left to right. Once it has failed it
// stays so.
type scan struct {
	b      []byte
	failed bool
}

// next gives the next byte that is not white space, and 0 at the end.
func (s *scan) next() byte {
	for len(s.b) > 0 && (s.b[0] == ' ' || s.b[0] == '\t' || s.b[0] == '\r') {
		s.b = s.b[1:]
	}
	if len(s.b) == 0 {
		return 0
	}
	return s.b[0]
}

// skip passes the byte c.
func (s *scan) skip(c byte) {
	if s.failed = s.failed || s.next() != c; !s.failed {
		s.b = s.b[1:]
	}
}

// key passes a key and the colon behind it.
func (s *scan) key(name string) {
	s.failed = string(s.text()) != name || s.failed
	s.skip(':')
}

// text passes a string of printable ASCII without escapes.
func (s *scan) text() []byte {
	s.skip('"')
	n := bytes.IndexByte(s.b, '"')
	if s.failed = s.failed || n < 0; s.failed {
		return nil
	}
	text := s.b[:n]
	for _, c := range text {
		if c < ' ' || c > '~' || c == '\\' {
			s.failed = true
		}
	}
	s.b = s.b[n+1:]
	return text
}

// number passes a decimal number without a sign or an exponent.
func (s *scan) number() []byte {
	s.next()
	n, points := 0, 0
	for n < len(s.b) && (s.b[n] >= '0' && s.b[n] <= '9' || s.b[n] == '.') {
		if s.b[n] == '.' {
			points++
		}
		n++
	}
	digits := s.b[:n]
	// JSON wants a digit on both sides of the point, and no 0 in front.
	if n == 0 || points > 1 || digits[0] == '.' || digits[n-1] == '.' ||
		n > 1 && digits[0] == '0' && digits[1] != '.' {
		s.failed = true
	}
	s.b = s.b[n:]
	return digits
}
