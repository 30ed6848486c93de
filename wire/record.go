package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// maxFrames is the most frames of one recorded message; real ones have 4.
	maxFrames = 64
	// maxNote is how much of a line of unknown kind is kept as a note, in bytes.
	maxNote = 1 << 10
)

// foreignLine marks the note that a line of unknown kind becomes: it can hold
// anything, a prompt too, and is not for showing.
const foreignLine = "a line of unknown kind"

// linkEvents gives the state that libzmq's monitor events leave a link in; a
// subscriber that binds sees the listening ones.
var linkEvents = map[string]LinkState{
	"EVENT_CONNECTED":                  LinkUp,
	"EVENT_HANDSHAKE_SUCCEEDED":        LinkUp,
	"EVENT_ACCEPTED":                   LinkUp,
	"EVENT_CONNECT_DELAYED":            LinkConnecting,
	"EVENT_CONNECT_RETRIED":            LinkConnecting,
	"EVENT_LISTENING":                  LinkConnecting,
	"EVENT_DISCONNECTED":               LinkDown,
	"EVENT_CLOSED":                     LinkDown,
	"EVENT_CLOSE_FAILED":               LinkDown,
	"EVENT_ACCEPT_FAILED":              LinkDown,
	"EVENT_BIND_FAILED":                LinkDown,
	"EVENT_HANDSHAKE_FAILED_AUTH":      LinkRefused,
	"EVENT_HANDSHAKE_FAILED_PROTOCOL":  LinkRefused,
	"EVENT_HANDSHAKE_FAILED_NO_DETAIL": LinkRefused,
	"REMOVED":                          LinkGone, // not libzmq's
}

// linkWords are the events written for links that came with another word.
var linkWords = [...]string{
	LinkUnknown:    "",
	LinkConnecting: "EVENT_CONNECT_RETRIED",
	LinkUp:         "EVENT_CONNECTED",
	LinkDown:       "EVENT_DISCONNECTED",
	LinkRefused:    "EVENT_HANDSHAKE_FAILED_NO_DETAIL",
	LinkGone:       "REMOVED",
}

// jsonRecord is a line of a recording; see JSONL.
type jsonRecord struct {
	T            json.Number `json:"t"`
	Replica      Replica     `json:"replica"`
	Frames       jsonFrames  `json:"frames"`
	ReplayFrames jsonFrames  `json:"replay_frames"`
	ReplayFrom   *string     `json:"replay_from"`
	ReplayEnd    bool        `json:"replay_end"`
	Monitor      *string     `json:"monitor"`
	// Detail is the transport's own word where monitor is not.
	Detail *string `json:"detail"`
	Text   *string `json:"text"`
	Error  *string `json:"error"`
	Note   *string `json:"note"`
	// What follows is of other recorders; see foreign.
	Endpoint *string `json:"endpoint"`
	Subject  *string `json:"subject"`
	Data     *string `json:"data"`
}

// jsonFrames are the frames of one message, encoded.
type jsonFrames []string

var errManyFrames = fmt.Errorf("more than %d frames in one message", maxFrames)

func (f *jsonFrames) UnmarshalJSON(b []byte) error {
	// The encodings have no comma, so this counts before anything is made.
	if bytes.Count(b, []byte{','}) >= maxFrames {
		return errManyFrames
	}
	return json.Unmarshal(b, (*[]string)(f))
}

func (f jsonFrames) decode(what string, decode func(string) ([]byte, error)) ([][]byte, error) {
	out := make([][]byte, len(f))
	for i, text := range f {
		var err error
		if out[i], err = decode(text); err != nil {
			return nil, fmt.Errorf("a frame is not %s", what)
		}
	}
	return out, nil
}

func (f jsonFrames) base64() ([][]byte, error) {
	return f.decode("base64", base64.StdEncoding.DecodeString)
}

// parseLine reads a line, and reports whether its kind is known.
func parseLine(line []byte) (rec Record, known bool, err error) {
	if rec, ok := parseFrames(line); ok {
		return rec, true, nil
	}
	return parseObject(line)
}

func parseObject(line []byte) (rec Record, known bool, err error) {
	var j jsonRecord
	if err := json.Unmarshal(line, &j); err != nil {
		return rec, false, plainJSON(err)
	}
	rec.Replica = j.Replica
	rec.At = parseTime(string(j.T))
	value := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	rec.Err = value(j.Error)
	switch {
	case j.Replica == "" && (j.Endpoint != nil && j.Frames != nil || j.Subject != nil && j.Data != nil):
		err = j.foreign(&rec)
		return rec, err == nil, err
	case j.Frames != nil:
		rec.Kind = Frames
		rec.Frames, err = j.Frames.base64()
		return rec, err == nil, err
	case j.ReplayFrames != nil:
		rec.Kind = ReplayFrames
		rec.Frames, err = j.ReplayFrames.base64()
		return rec, err == nil, err
	case j.ReplayFrom != nil:
		rec.Kind = ReplayBegin
		if rec.From, err = strconv.ParseUint(*j.ReplayFrom, 10, 64); err != nil {
			return rec, false, errors.New("replay_from is not a sequence number")
		}
	case j.ReplayEnd:
		rec.Kind = ReplayEnd
	case j.Monitor != nil:
		rec.Kind, rec.Link, rec.Text = Link, linkEvents[*j.Monitor], *j.Monitor
		if j.Detail != nil {
			rec.Text = *j.Detail
		}
	case j.Note != nil:
		rec.Kind, rec.Text = Note, *j.Note
	case j.Text != nil || j.Error != nil:
		rec.Kind, rec.Text = Scrape, value(j.Text)
	default:
		rec.Kind = Note
		rec.Text = strings.ToValidUTF8(string(line[:min(len(line), maxNote)]), "")
		rec.Err = foreignLine
		return rec, false, nil
	}
	return rec, true, nil
}

// plainJSON puts an error of encoding/json in words that hold nothing of the
// line, which can be a prompt.
func plainJSON(err error) error {
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON from byte %d on", syntax.Offset)
	case errors.As(err, &typed) && typed.Field == "":
		return errors.New("JSON, but not an object")
	case errors.As(err, &typed):
		return fmt.Errorf("%q has a value of another type", typed.Field)
	case errors.Is(err, errManyFrames):
		return errManyFrames
	}
	return errors.New("not a record")
}

// parseTime reads Unix seconds to the nanosecond, which a float64 does not
// keep. Times that are missing or out of range are 0.
func parseTime(s string) Time {
	digits, negative := strings.CutPrefix(s, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	if strings.ContainsAny(s, "eE") || len(whole) > 10 {
		seconds, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return 0
		}
		t, _ := TimeOf(seconds)
		return t
	}
	const nano = 9
	if len(fraction) > nano {
		fraction = fraction[:nano]
	}
	n, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", nano-len(fraction)), 10, 64)
	if err != nil || n > 1<<62 { // as TimeOf
		return 0
	}
	if negative {
		n = -n
	}
	return Time(n)
}

// AppendJSONL appends rec as a line of a recording, with its end, in the form
// that JSONL reads. What is not valid UTF-8 in a text is replaced.
func AppendJSONL(dst []byte, rec Record) []byte {
	dst = append(dst, `{"t":`...)
	dst = appendTime(dst, rec.At)
	dst = appendText(dst, "replica", string(rec.Replica))
	switch rec.Kind {
	case Frames:
		dst = appendFrames(dst, "frames", rec.Frames)
	case ReplayFrames:
		dst = appendFrames(dst, "replay_frames", rec.Frames)
	case ReplayBegin:
		dst = appendText(dst, "replay_from", strconv.FormatUint(rec.From, 10))
	case ReplayEnd:
		dst = append(dst, `,"replay_end":true`...)
	case Link:
		word := rec.Text
		if linkEvents[word] != rec.Link {
			word = linkWords[min(int(rec.Link), len(linkWords)-1)]
			dst = appendText(dst, "detail", rec.Text)
		}
		dst = appendText(dst, "monitor", word)
		dst = append(dst, `,"value":0`...)
	case Scrape:
		if rec.Text != "" || rec.Err == "" {
			dst = appendText(dst, "text", rec.Text)
		}
	case Note:
		dst = appendText(dst, "note", rec.Text)
	}
	if rec.Err != "" {
		dst = appendText(dst, "error", rec.Err)
	}
	return append(dst, "}\n"...)
}

// appendTime writes Unix seconds with as many decimals as it takes.
func appendTime(dst []byte, t Time) []byte {
	n := uint64(t)
	if t < 0 {
		dst = append(dst, '-')
		n = -n
	}
	const second = 1e9
	dst = strconv.AppendUint(dst, n/second, 10)
	if n %= second; n == 0 {
		return dst
	}
	dst = append(dst, '.')
	decimals := strconv.AppendUint(nil, second+n, 10)[1:]
	return append(dst, bytes.TrimRight(decimals, "0")...)
}

func appendText(dst []byte, key, text string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, key...)
	dst = append(dst, '"', ':')
	quoted, err := json.Marshal(text)
	if err != nil { // a string cannot fail
		panic(err)
	}
	return append(dst, quoted...)
}

func appendFrames(dst []byte, key string, frames [][]byte) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, key...)
	dst = append(dst, '"', ':', '[')
	for i, f := range frames {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, f)
		dst = append(dst, '"')
	}
	return append(dst, ']')
}
