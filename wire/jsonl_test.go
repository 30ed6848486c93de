package wire

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// readAll gives all records of a source and its final error.
func readAll(t testing.TB, s Source) (recs []Record, final error) {
	t.Helper()
	for {
		rec, err := s.Next(context.Background())
		if err != nil {
			if _, again := s.Next(context.Background()); again == nil || again.Error() != err.Error() {
				t.Errorf("after the end: %v, then %v", err, again)
			}
			return recs, err
		}
		recs = append(recs, rec)
	}
}

func zip(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestJSONLKinds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		line string
		want Record
	}{
		{`{"t": 1.5, "replica": "a", "frames": ["a3Y=", "AAAAAAAAAAc=", "kA=="]}`, Record{At: 1.5e9, Replica: "a", Frames: frames("kv", seq7, "\x90")}},
		{`{"frames": []}`, Record{}},
		{`{"t": 1, "replica": "a", "monitor": "EVENT_CONNECTED", "value": 13}`, Record{At: 1e9, Replica: "a", Kind: Link, Link: LinkUp, Text: "EVENT_CONNECTED"}},
		{`{"monitor": "EVENT_HANDSHAKE_SUCCEEDED"}`, Record{Kind: Link, Link: LinkUp, Text: "EVENT_HANDSHAKE_SUCCEEDED"}},
		{`{"monitor": "EVENT_CONNECT_RETRIED"}`, Record{Kind: Link, Link: LinkConnecting, Text: "EVENT_CONNECT_RETRIED"}},
		{`{"monitor": "EVENT_DISCONNECTED"}`, Record{Kind: Link, Link: LinkDown, Text: "EVENT_DISCONNECTED"}},
		{`{"monitor": "EVENT_HANDSHAKE_FAILED_AUTH"}`, Record{Kind: Link, Link: LinkRefused, Text: "EVENT_HANDSHAKE_FAILED_AUTH"}},
		{`{"monitor": "EVENT_NEW"}`, Record{Kind: Link, Text: "EVENT_NEW"}},
		{`{"t": 2, "replica": "a", "full": true, "text": "a 1\nb 2\n"}`, Record{At: 2e9, Replica: "a", Kind: Scrape, Text: "a 1\nb 2\n"}},
		{`{"t": 2, "replica": "a", "error": "refused"}`, Record{At: 2e9, Replica: "a", Kind: Scrape, Err: "refused"}},
		{`{"note": "hello"}`, Record{Kind: Note, Text: "hello"}},
		{`{"replay_from": "18446744073709551615"}`, Record{Kind: ReplayBegin, From: 1<<64 - 1}},
		{`{"replay_frames": ["", "AAAAAAAAAAc="]}`, Record{Kind: ReplayFrames, Frames: frames("", seq7)}},
		{`{"replay_end": true, "error": "timeout"}`, Record{Kind: ReplayEnd, Err: "timeout"}},
		{`{"t": 3, "replica": "a", "new": 1}`, Record{At: 3e9, Replica: "a", Kind: Note, Text: `{"t": 3, "replica": "a", "new": 1}`, Err: "a line of unknown kind"}},
		{`{"t": 1796011690.2839003, "note": ""}`, Record{At: 1796011690283900300, Kind: Note}},
		{`{"t": 1.12345678999, "note": ""}`, Record{At: 1123456789, Kind: Note}},
		{`{"t": 1.796e9, "note": ""}`, Record{At: 1796000000e9, Kind: Note}},
		{`{"t": -0.25, "note": ""}`, Record{At: -25e7, Kind: Note}},
		{`{"t": 1e300, "note": ""}`, Record{Kind: Note}},
		{`{"t": 9999999999, "note": ""}`, Record{Kind: Note}},
	}
	var all []byte
	var want []Record
	for _, tt := range tests {
		all = append(append(all, tt.line...), '\n')
		want = append(want, tt.want)
	}
	for name, file := range map[string][]byte{
		"plain": all, "gzip": zip(t, all), "no end of line": bytes.TrimSpace(all),
		"CRLF":           bytes.ReplaceAll(all, []byte("\n"), []byte("\r\n")),
		"blank lines":    bytes.ReplaceAll(all, []byte("\n"), []byte("\n \n\n")),
		"two gzip files": append(zip(t, all[:len(tests[0].line)+1]), zip(t, all[len(tests[0].line)+1:])...),
	} {
		recs, err := readAll(t, NewJSONL(iotest.HalfReader(bytes.NewReader(file)), name))
		if diff := cmp.Diff(want, recs, cmpopts.EquateEmpty()); diff != "" || err != io.EOF {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
	}
}

// TestParseFrames compares the fast way to read a line with encoding/json.
func TestParseFrames(t *testing.T) {
	t.Parallel()
	const rest = `,"replica":"a","frames":["AA==",""]}`
	for line, fast := range map[string]bool{
		`{"t":1.5` + rest: true, `{"t":0` + rest: true, "{ \"t\" :\t0.5 , \"replica\":\"a\",\"frames\" : [ \"AA==\" ] } ": true,
		`{"t":1.2.3` + rest: false, `{"t":01` + rest: false, `{"t":1.` + rest: false, `{"t":.5` + rest: false, `{"t":` + rest: false,
		`{"t":-1` + rest: false, `{"t":1e3` + rest: false, `{"t":"1"` + rest: false,
		`{"t":1,"replica":"\u0061","frames":["AA=="]}`: false, `{"t":1,"replica":"é","frames":["AA=="]}`: false,
		`{"t":1,"replica":"a","frames":["A\r=="]}`: false, `{"t":1,"replica":"a","frames":["AA"]}`: false,
		`{"t":1,"replica":"a","frames":["AA==",]}`: false, `{"t":1,"replica":"a","frames":["AA==" "AA=="]}`: false,
		`{"t":1,"replica":"a","frames":["AA=="]} x`: false, `{"t":1,"replica":"a","frames":["AA=="],"error":"e"}`: false,
		`{"t":1,"replica":"a","frames":[` + strings.Repeat(`"",`, maxFrames-1) + `""]}`: true,
		`{"t":1,"replica":"a","frames":[` + strings.Repeat(`"",`, maxFrames) + `""]}`:   false,
		"{\"t\":1,\"replica\":\"a\x01\",\"frames\":[\"AA==\"]}":                         false, "{\"t\":1,\"replica\":\"\xff\",\"frames\":[\"AA==\"]}": false,
	} {
		rec, ok := parseFrames([]byte(line))
		if ok != fast {
			t.Errorf("%q: read the fast way: %v", line, ok)
		}
		want, _, err := parseObject([]byte(line))
		if diff := cmp.Diff(want, rec, cmpopts.EquateEmpty()); ok && (err != nil || diff != "") {
			t.Errorf("%q: %v (-encoding/json +fast)\n%s", line, err, diff)
		}
	}
}

// TestJSONLDamaged reads files that are not whole: all that can be read comes
// first, then one sentence.
func TestJSONLDamaged(t *testing.T) {
	t.Parallel()
	line := func(i int) string { return fmt.Sprintf(`{"t":%d,"replica":"a","note":"n"}`+"\n", i) }
	good := line(1) + line(2) + line(3)
	zipped := zip(t, []byte(strings.Repeat(good, 2000)))
	spoiled := bytes.Clone(zipped)
	spoiled[len(spoiled)-6] ^= 1 // in the checksum
	garbled := zip(t, []byte(good))
	garbled[10] |= 6 // a block of a type that does not exist
	const foreign = `not a recording that kvscope can read: expected JSON Lines with "t" and "replica", plain or gzip`
	tests := []struct {
		name  string
		in    string
		recs  int // -1 for some
		want  string
		cause error
	}{
		{"nothing", "", 0, "recording FILE is empty: nothing was written into it", ErrEmpty},
		{"blank lines", "\n \n", 0, "recording FILE is empty: nothing was written into it", ErrEmpty},
		{"nothing in gzip", string(zip(t, nil)), 0, "recording FILE is empty: nothing was written into it", ErrEmpty},
		{"killed recorder", good + `{"t":4,"repl`, 3, "recording FILE is cut off after line 3: what came before was read", nil},
		{"killed at once", `{"t":4,"repl`, 0, "recording FILE is cut off within its first line: nothing of it can be read", nil},
		{"one damaged line", line(1) + "{oops}\n" + line(2), 2, "recording FILE: all of its 3 lines were read, but for line 2, which is damaged: not JSON from byte 2 on", nil},
		{
			"damaged lines", line(1) + "[]\n" + line(2) + "{\"frames\":3}\n" + line(3), 3,
			"recording FILE: all of its 5 lines were read, but for 2 damaged ones from line 2 on: JSON, but not an object", nil,
		},
		{"damaged and cut", line(1) + "oops\n" + line(2) + "{", 2, "recording FILE is cut off after line 3: what came before was read, but for line 2, which is damaged", nil},
		{"frame is not base64", line(1) + `{"frames":["@"]}` + "\n", 1, "recording FILE: all of its 2 lines were read, but for line 2, which is damaged: a frame is not base64", nil},
		{"frame of another type", line(1) + `{"frames":[1]}` + "\n", 1, "recording FILE: all of its 2 lines were read, but for line 2, which is damaged: \"frames\" has a value of another type", nil},
		{"text of another type", line(1) + `{"text":1}` + "\n", 1, `recording FILE: all of its 2 lines were read, but for line 2, which is damaged: "text" has a value of another type`, nil},
		{
			"too many frames", line(1) + `{"frames":["` + strings.Repeat(`","`, maxFrames) + `"]}` + "\n", 1,
			"recording FILE: all of its 2 lines were read, but for line 2, which is damaged: more than 64 frames in one message", nil,
		},
		{"replay from nowhere", line(1) + `{"replay_from":"x"}` + "\n", 1, "recording FILE: all of its 2 lines were read, but for line 2, which is damaged: replay_from is not a sequence number", nil},
		{"text file", "hello\nworld\n", 0, "FILE is " + foreign, ErrForeign},
		{"text file without an end", "hello", 0, "FILE is " + foreign, ErrForeign},
		{"long text file", strings.Repeat("hello\n", 1000), 0, "FILE is " + foreign, ErrForeign},
		{"another kind of JSON Lines", `{"kind":"chat"}` + "\n" + `{"kind":"chat"}` + "\n", 2, "FILE is " + foreign, ErrForeign},
		{"binary", string(bytes.Repeat([]byte{0x28, 0xb5, 0x2f, 0xfd, 0}, 1000)), 0, "FILE is " + foreign, ErrForeign},
		{"gzip of something else", string(zip(t, []byte("hello\n"))), 0, "FILE is " + foreign, ErrForeign},
		{"cut gzip", string(zipped[:len(zipped)/2]), -1, "what came before was read", io.ErrUnexpectedEOF},
		{"gzip cut in its head", string(zipped[:5]), 0, "recording FILE is cut off within its first line: nothing of it can be read", io.ErrUnexpectedEOF},
		{"gzip without its sum", string(zipped[:len(zipped)-4]), 6000, "recording FILE is cut off after line 6000: what came before was read", io.ErrUnexpectedEOF},
		{"gzip with a wrong sum", string(spoiled), 6000, "recording FILE: its checksum is wrong: all 6000 lines were read, and some of them may be false", gzip.ErrChecksum},
		{"gzip that is garbled", string(garbled), 0, "recording FILE is cut off within its first line: nothing of it can be read", nil},
		{"something behind gzip", string(zip(t, []byte(good))) + "a tail that is not gzip", 3, "recording FILE is followed by bytes that do not belong to it: all its 3 lines were read", gzip.ErrHeader},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			recs, err := readAll(t, NewJSONL(strings.NewReader(tt.in), "FILE"))
			var damaged *DamagedError
			if !errors.As(err, &damaged) || tt.cause != nil && !errors.Is(err, tt.cause) {
				t.Fatalf("error %v, want a DamagedError from %v", err, tt.cause)
			}
			if got := err.Error(); got != tt.want && (tt.recs >= 0 || !strings.Contains(got, tt.want)) {
				t.Errorf("error %q,\nwant  %q", got, tt.want)
			}
			if len(recs) != tt.recs && (tt.recs >= 0 || len(recs) == 0) {
				t.Errorf("%d records, want %d", len(recs), tt.recs)
			}
		})
	}
}

// TestJSONLSecrets checks that errors hold nothing of a line.
func TestJSONLSecrets(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		`{"t":"SECRET"}`, `{"t":1,"SECRET`, `SECRET`, `"SECRET"`, `{"frames":["SECRET!"]}`, `{"text":{"SECRET":1}}`,
		`{"replay_from":"SECRET"}`, `{"replay_end":"SECRET"}`, `{"frames":"SECRET"}`, `{"replica":["SECRET"]}`,
	} {
		_, err := readAll(t, NewJSONL(strings.NewReader(`{"note":""}`+"\n"+line+"\n"), "FILE"))
		var damaged *DamagedError
		if !errors.As(err, &damaged) || damaged.First != 2 || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestJSONLBounds(t *testing.T) {
	t.Parallel()
	const limit = 1000
	text := strings.Repeat("x", 200<<10)
	file := `{"note":"1"}` + "\n" + `{"note":"` + text + `"}` + "\n" + `{"note":"2"}` + "\n"
	j := NewJSONL(strings.NewReader(file), "FILE")
	j.maxLine = limit
	recs, err := readAll(t, j)
	var damaged *DamagedError
	if len(recs) != 2 || !errors.As(err, &damaged) || damaged.Damaged != 1 || damaged.First != 2 || damaged.Lines != 3 {
		t.Errorf("%d records, error %v", len(recs), err)
	}
	if cap(j.line) > limit {
		t.Errorf("%d bytes are held of a line of at most %d", cap(j.line), limit)
	}
	long := `{"note":"` + strings.Repeat("z", 2*smallLine) + `"}` + "\n"
	j = NewJSONL(strings.NewReader(long+file), "FILE")
	if recs, err := readAll(t, j); len(recs) != 4 || err != io.EOF || cap(j.line) > smallLine {
		t.Errorf("%d records, error %v, and %d bytes are held", len(recs), err, cap(j.line))
	}
	exact := `{"note":"` + strings.Repeat("y", limit-len(`{"note":""}`)-1) + `"}` + "\n"
	j = NewJSONL(strings.NewReader(exact), "FILE")
	j.maxLine = limit
	if recs, err := readAll(t, j); len(recs) != 1 || err != io.EOF {
		t.Errorf("a line of %d bytes: %d records, error %v", len(exact), len(recs), err)
	}
	recs, _ = readAll(t, NewJSONL(strings.NewReader(`{"new":"é`+strings.Repeat("é", maxNote)+`"}`), "FILE"))
	if len(recs) != 1 || len(recs[0].Text) > maxNote || !strings.HasPrefix(recs[0].Text, `{"new":"é`) {
		t.Errorf("a long line of unknown kind: %d records", len(recs))
	}
}

// endless yields the same bytes for ever, without a line end.
type endless struct{ read int64 }

func (e *endless) Read(b []byte) (int, error) {
	e.read += int64(len(b))
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// TestJSONLForeignEndless stops in a device or a large file of another kind
// after one line, and holds no more than that.
func TestJSONLForeignEndless(t *testing.T) {
	e := &endless{}
	file := io.MultiReader(io.LimitReader(e, 1<<26), strings.NewReader("\n"), io.LimitReader(e, 1<<40))
	j := NewJSONL(file, "FILE")
	j.maxLine = 1 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := j.Next(context.Background())
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrForeign) || e.read > 2<<26 {
		t.Errorf("%v after %d bytes", err, e.read)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
		t.Errorf("%d bytes were taken", got)
	}
}

func TestJSONLReaderErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is gone")
	r := io.MultiReader(strings.NewReader(`{"note":"1"}`+"\n"), iotest.ErrReader(broken))
	recs, err := readAll(t, NewJSONL(r, "FILE"))
	if len(recs) != 1 || !errors.Is(err, broken) || errors.As(err, new(*DamagedError)) || !strings.Contains(err.Error(), "FILE") {
		t.Errorf("%d records, error %v", len(recs), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	j := NewJSONL(strings.NewReader(`{"note":"1"}`), "FILE")
	if _, err := j.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if recs, err := readAll(t, j); len(recs) != 1 || err != io.EOF {
		t.Errorf("afterwards: %d records, error %v", len(recs), err)
	}
}

func TestAppendJSONL(t *testing.T) {
	t.Parallel()
	recs := []Record{
		{At: 1796011690283900301, Replica: "pod-1/0", Frames: frames("kv", seq7, "\x00\xff\n")},
		{At: 1, Kind: ReplayBegin, From: 1<<64 - 1},
		{At: -1, Kind: ReplayFrames, Frames: frames("", "kv", ends, "")},
		{Kind: ReplayEnd},
		{Kind: ReplayEnd, Err: "no answer"},
		{At: 5e9, Kind: Link, Link: LinkUp, Text: "EVENT_HANDSHAKE_SUCCEEDED"},
		{At: 5e9, Kind: Link, Link: LinkUp},
		{Kind: Link, Link: LinkConnecting, Text: "dialing"},
		{Kind: Link, Link: LinkDown, Text: "EVENT_CONNECTED", Err: "reset"},
		{Kind: Link, Link: LinkRefused, Text: "no greeting"},
		{Kind: Link},
		{Kind: Link, Text: "EVENT_NEW"},
		{Kind: Scrape, Text: "# HELP \"a\"\n<b> 1\n"},
		{Kind: Scrape},
		{Kind: Scrape, Err: "refused"},
		{Kind: Scrape, Text: "a 1", Err: "cut"},
		{Kind: Note, Text: "ünïcode 日本\u2028"},
		{Kind: Note, Err: "odd"},
	}
	var file []byte
	for _, r := range recs {
		file = AppendJSONL(file, r)
	}
	got, err := readAll(t, NewJSONL(bytes.NewReader(file), "FILE"))
	if diff := cmp.Diff(recs, got, cmpopts.EquateEmpty()); diff != "" || err != io.EOF {
		t.Errorf("%v (-written +read)\n%s", err, diff)
	}
	if want := `{"t":1796011690.283900301,"replica":"pod-1/0","frames":["a3Y=","AAAAAAAAAAc=","AP8K"]}` + "\n"; !strings.HasPrefix(string(file), want) {
		t.Errorf("written as %s", file[:len(want)])
	}
	if n := bytes.Count(file, []byte{'\n'}); n != len(recs) {
		t.Errorf("%d lines for %d records", n, len(recs))
	}
}
