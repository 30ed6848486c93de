package tui

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"
	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// An event's bytes, put into a batch of their own, decode to that event: in
// every batch of every fixture.
func TestEventBytes(t *testing.T) {
	t.Parallel()
	for _, fixture := range []string{"a_fleet", "c_reset", "d_restart", "k_v0.22.1_array"} {
		t.Run(fixture, func(t *testing.T) {
			t.Parallel()
			f, err := fixtures.Open(fixture + "/events.jsonl.gz")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			src := wire.NewJSONL(f, fixture)
			n := 0
			for {
				rec, err := src.Next(context.Background())
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if rec.Kind == wire.Frames {
					n += checkBytes(t, rec.Frames[len(rec.Frames)-1])
				}
			}
			if n == 0 {
				t.Error("no events")
			}
		})
	}
}

// checkBytes checks all events of a payload, and counts them.
func checkBytes(t interface {
	Helper()
	Fatalf(string, ...any)
}, payload []byte,
) int {
	t.Helper()
	batch, err := wire.Decode("", 0, payload)
	if err != nil {
		return 0
	}
	got := eventBytes(payload, batch.Events)
	if len(got) != len(batch.Events) {
		t.Fatalf("%d stretches of %d events", len(got), len(batch.Events))
	}
	last := 0
	for i, at := range got {
		bad := batch.Events[i].Kind == wire.Bad // of the rest, which can be nothing
		if at.from < last || at.to < at.from || at.to == at.from && !bad || at.to > len(payload) {
			t.Fatalf("event %d is at %v, behind %d of %d bytes", i, at, last, len(payload))
		}
		last = at.to
		if bad && at.to == at.from {
			continue
		}
		one := append([]byte{0x92, 0xc0, 0x91}, payload[at.from:at.to]...)
		again, err := wire.Decode("", 0, one)
		if err != nil || len(again.Events) != 1 {
			t.Fatalf("event %d: %v, %d events", i, err, len(again.Events))
		}
		want, have := batch.Events[i], again.Events[0]
		if want.Kind == wire.Bad { // why it is bad can depend on the rest
			continue
		}
		if !reflect.DeepEqual(want, have) {
			t.Fatalf("event %d is\n%+v and its bytes say\n%+v", i, want, have)
		}
	}
	return len(got)
}

// The same for made-up payloads of each form, whole and cut off.
func TestEventBytesOfAllForms(t *testing.T) {
	t.Parallel()
	event := func(t *rapid.T) []byte {
		var b []byte
		switch rapid.IntRange(0, 5).Draw(t, "event") {
		case 0:
			b = msgp.AppendArrayHeader(b, 2)
			b = msgp.AppendString(b, "BlockRemoved")
			b = msgp.AppendArrayHeader(b, 1)
			return msgp.AppendUint64(b, rapid.Uint64().Draw(t, "hash"))
		case 1:
			b = msgp.AppendMapHeader(b, 1)
			b = msgp.AppendString(b, "type")
			return msgp.AppendString(b, "AllBlocksCleared")
		case 2:
			b = msgp.AppendArrayHeader(b, 2)
			b = msgp.AppendString(b, "SomethingNew")
			return msgp.AppendBytes(b, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes"))
		case 3:
			return msgp.AppendString(b, "no event at all")
		case 4:
			b = msgp.AppendArrayHeader(b, 2)
			b = msgp.AppendString(b, "BlockStored")
			return msgp.AppendString(b, "bad")
		}
		b = msgp.AppendArrayHeader(b, 5)
		b = msgp.AppendString(b, "BlockStored")
		b = msgp.AppendArrayHeader(b, 1)
		b = msgp.AppendInt64(b, rapid.Int64().Draw(t, "hash"))
		b = msgp.AppendNil(b)
		b = msgp.AppendArrayHeader(b, 2)
		b = msgp.AppendInt(b, 1)
		b = msgp.AppendInt(b, 2)
		return msgp.AppendInt(b, 2)
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 6).Draw(t, "events")
		list := msgp.AppendArrayHeader(nil, uint32(n))
		for range n {
			list = append(list, event(t)...)
		}
		var b []byte
		if rapid.Bool().Draw(t, "map") {
			b = msgp.AppendMapHeader(b, 2)
			b = msgp.AppendString(b, "ts")
			b = msgp.AppendFloat64(b, 1)
			b = msgp.AppendString(b, "events")
			b = append(b, list...)
		} else {
			b = msgp.AppendArrayHeader(b, 4)
			b = msgp.AppendInt(b, 3)
			b = msgp.AppendFloat64(b, 1)
			b = append(b, list...)
			b = msgp.AppendNil(b)
		}
		cut := rapid.IntRange(0, len(b)).Draw(t, "cut")
		if rapid.Bool().Draw(t, "whole") {
			cut = len(b)
		}
		checkBytes(t, b[:cut])
	})
}

// FuzzEventBytes looks for payloads that the decoder reads and the walk does
// not, or that make the walk fail.
func FuzzEventBytes(f *testing.F) {
	f.Add([]byte("\x93\xcb\x41\xda\xc3\x3e\x53\x6c\x59\x1f\x91\x92\xacBlockRemoved\x91\x01\x00"))
	f.Add([]byte("\x82\xa2ts\x01\xa6events\x91\x81\xa4type\xb0AllBlocksCleared"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		batch, err := wire.Decode("", 0, payload)
		if err != nil {
			return
		}
		for i, at := range eventBytes(payload, batch.Events) {
			if at.from < 0 || at.to < at.from || at.to > len(payload) {
				t.Fatalf("event %d is at %v of %d bytes", i, at, len(payload))
			}
			for _, token := range tokenStretches(payload, at, batch.Events[i].Tokens) {
				if token.from < at.from || token.to <= token.from || token.to > at.to {
					t.Fatalf("a token is at %v of event %d at %v", token, i, at)
				}
			}
		}
	})
}

func stored(parent wire.Handle, hashes ...uint64) wire.Event {
	e := wire.Event{Kind: wire.Stored, Name: "BlockStored", Parent: parent, BlockSize: 2, Group: -1}
	for i, h := range hashes {
		e.Hashes = append(e.Hashes, wire.IntHandle(h))
		e.Tokens = append(e.Tokens, wire.Token(2*i), wire.Token(2*i+1))
	}
	return e
}

func removed(hashes ...uint64) wire.Event {
	e := stored(wire.Handle{}, hashes...)
	e.Kind, e.Tokens = wire.Removed, nil
	return e
}

func entry(seq uint64, events ...wire.Event) *observe.Entry {
	return &observe.Entry{Replica: "r", At: wire.Time(seq+1) * second, Batch: &wire.Batch{Seq: seq, Events: events, Rank: -1}}
}

func TestStudy(t *testing.T) {
	t.Parallel()
	h := wire.IntHandle
	alive := stream.State{Epoch: 1}
	for _, c := range []struct {
		name  string
		state stream.State
		tape  []*observe.Entry
		first int
		words string
	}{
		{"at the root", alive, []*observe.Entry{entry(0, stored(wire.Handle{}, 1))}, 0, ""},
		{"known to the root", alive, []*observe.Entry{
			entry(0, stored(wire.Handle{}, 1, 2)), entry(1, stored(h(2), 3)), entry(2, stored(h(3), 4)),
		}, 3, "known: stored in batch 1"},
		{"in the same batch", alive, []*observe.Entry{entry(0, stored(h(1), 2), stored(wire.Handle{}, 1), stored(h(1), 2))}, 1, "known: stored in this batch"},
		{"removed since", alive, []*observe.Entry{
			entry(0, stored(wire.Handle{}, 1)), entry(1, removed(1)), entry(2, stored(h(1), 2)),
		}, 1, "known: stored in batch 0, removed in 1"},
		{"before the tape", stream.State{Epoch: 1, First: 3}, []*observe.Entry{entry(7), entry(8, stored(h(1), 2))}, -1, "not on the tape, which begins at batch 7"},
		{"before we joined", stream.State{Epoch: 1, First: 7}, []*observe.Entry{entry(7), entry(8, stored(h(1), 2))}, -1, "unknown: from before we joined at batch 7"},
		{"in a gap", stream.State{Epoch: 1, Gaps: []stream.Gap{{From: 3, To: 6, Epoch: 1}}}, []*observe.Entry{entry(0), entry(8, stored(h(1), 2))}, -1, "unknown: perhaps in the gap 3–6"},
		{"never", alive, []*observe.Entry{entry(0), entry(1, stored(h(1), 2))}, -1, "unknown: never announced"},
		{"cleared", alive, []*observe.Entry{
			entry(0, stored(wire.Handle{}, 1)), entry(1, wire.Event{Kind: wire.Cleared}), entry(2, stored(h(1), 2)),
		}, -1, "unknown: not announced since the cache was cleared"},
		{"of the life before", stream.State{Epoch: 2, Marks: []stream.Mark{{Kind: stream.MarkRestart, At: 2 * second}}}, []*observe.Entry{
			entry(0, stored(wire.Handle{}, 1)), entry(1, stored(h(1), 2)),
		}, -1, "not on the tape, which begins at batch 1"},
		{"a ring", alive, []*observe.Entry{entry(0, stored(h(2), 1)), entry(1, stored(h(1), 2)), entry(2, stored(h(2), 1))}, -1, "known: stored in batch 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := &diagnose.Replica{State: c.state}
			last := c.tape[len(c.tape)-1]
			st := newStudy(c.tape, last, r)
			i := len(last.Batch.Events) - 1
			if st.first[i] != c.first {
				t.Errorf("its first block is %d of the chain, want %d", st.first[i], c.first)
			}
			if c.words == "" {
				return
			}
			if got := st.parentWords(i, r); got != c.words {
				t.Errorf("got %q, want %q", got, c.words)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	h := wire.Handle{N: 0x8f3a << 48, Set: true}
	host := removed(1)
	host.Tier = wire.Host
	for _, c := range []struct {
		events []wire.Event
		want   string
	}{
		{nil, "[no events]"},
		{[]wire.Event{stored(h, 1, 2, 3, 4, 5, 6), removed(1, 2)}, "[stored 6 blocks parent 8f3a… | removed 2 blocks]"},
		{[]wire.Event{stored(wire.Handle{}, 1)}, "[stored 1 block at the root]"},
		{[]wire.Event{removed(1), removed(2), host}, "[removed 2 blocks (2 events) | removed 1 block from host]"},
		{[]wire.Event{{Kind: wire.Cleared}, {Kind: wire.Unknown, Name: "New"}, {Kind: wire.Bad}}, "[cleared everything | unknown kind New | unreadable]"},
	} {
		if got := summary(&wire.Batch{Events: c.events}); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestDumpRow(t *testing.T) {
	t.Parallel()
	on := style{"<", ">"}
	payload := []byte("\x93BlockStored\x00\xff")
	for _, c := range []struct {
		from int
		mark stretch
		want string
	}{
		{0, stretch{}, " 000000 93 42 6c 6f 63 6b 53 74 .BlockSt"},
		{8, stretch{}, " 000008 6f 72 65 64 00 ff       ored.."},
		{8, stretch{13, 14}, "│000008 6f 72 65 64 00 <ff>       ored.<.>"},
	} {
		if got := dumpRow(payload, c.from, 8, c.mark, on); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestEntryJSON(t *testing.T) {
	t.Parallel()
	e := entry(4, stored(wire.IntHandle(1), 1<<63), wire.Event{Kind: wire.Bad, Group: -1, Err: io.ErrUnexpectedEOF})
	e.Payload = []byte{1}
	var got map[string]any
	if err := json.Unmarshal([]byte(entryJSON(e)), &got); err != nil {
		t.Fatal(err)
	}
	events := got["events"].([]any)
	first := events[0].(map[string]any)
	if got["seq"] != 4.0 || got["t"] != 5.0 || got["payload"] != "AQ==" || len(events) != 2 ||
		first["block_hashes"].([]any)[0] != "8000000000000000" || first["parent_block_hash"] != "0000000000000001" {
		t.Errorf("got %v", got)
	}
}

func linesText(lines []fieldLine) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}

// With a tokenizer each row of tokens says what they stand for, and nothing of it
// reaches the terminal but what can be seen; the rows change once it is there.
func TestTokensInWords(t *testing.T) {
	t.Parallel()
	e := stored(wire.Handle{}, 1, 2)
	e.Tokens = []wire.Token{3, 151644, 4, 8} // a word, its role mark, a line's end and more in oddWords
	last := entry(0, e)
	st := newStudy([]*observe.Entry{last}, last, nil)
	if got := linesText(eventLines(&scene{}, st, 0, nil, 80)); strings.Contains(got, "word") {
		t.Errorf("words without a tokenizer:\n%s", got)
	}
	s := &scene{words: fakeWords{}, state: "ready"}
	if got := linesText(eventLines(s, st, 0, nil, 80)); !strings.Contains(got, "   0:      3 151644      4      8\n"+strings.Repeat(" ", 22)+`" ne<|im_start|> ru el"`) {
		t.Errorf("no words:\n%s", got)
	}
	e.Tokens = make([]wire.Token, len(odd))
	for i := range odd {
		e.Tokens[i] = wire.Token(i)
	}
	got := linesText(tokenLines(oddWords{}, &e, 0, 400))
	for _, want := range []string{
		`" aword\n\r\n\t\x1b[2J\u202e\u200b\u0301` + "e\u0301" + `日本語👩\u200d💻🇩🇪\xff"`, `"\xe6\x97\x00\u009b5mlonglong`, `long\u0301\u0301`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
	if strings.ContainsFunc(got, func(r rune) bool { return r < 0x20 && r != '\n' || r == 0x202e }) {
		t.Errorf("lets something through: %q", got)
	}
}

// The bytes of each token of each store of the fixtures are that token.
func TestTokenBytes(t *testing.T) {
	t.Parallel()
	compared := 0
	for _, fixture := range []string{"a_fleet", "c_reset", "d_restart", "k_v0.22.1_array"} {
		for _, e := range loadFixture(t, fixture).Snapshot().Tape {
			st := newStudy(nil, e, nil)
			for i := range e.Batch.Events {
				tokens := e.Batch.Events[i].Tokens
				if at, ok := st.tokenBytes(i, 0, len(tokens)); ok && (at.from <= st.bytes[i].from || at.to > st.bytes[i].to) {
					t.Fatalf("%s: %v is not in the event, %v", fixture, at, st.bytes[i])
				}
				for k, id := range tokens {
					at, ok := st.tokenBytes(i, k, k+1)
					if !ok {
						t.Fatalf("%s: token %d of %d is nowhere", fixture, k, len(tokens))
					}
					got, rest, err := msgp.ReadUint64Bytes(e.Payload[at.from:at.to])
					if err != nil || len(rest) > 0 || wire.Token(got) != id {
						t.Fatalf("%s: token %d is %d by its bytes, not %d", fixture, k, got, id)
					}
					compared++
				}
			}
		}
	}
	if compared < 1000 {
		t.Errorf("only %d tokens compared", compared)
	}
}

// Every field of every form shows, clean.
func TestEventLines(t *testing.T) {
	t.Parallel()
	id := int64(7)
	e := stored(wire.IntHandle(9), 1, 2)
	e.LoRAID, e.LoRAName, e.Salt, e.Medium, e.Tier, e.Group, e.Spec, e.Window = &id, "adapter\x1b[31m", "pepper", "CPU", wire.Host, 1, "sliding", 128
	e.Extra = [][]wire.ExtraKey{{{Text: "a"}}, {{Bytes: []byte{0xab}}, {Int: 3, IsInt: true}, {List: []wire.ExtraKey{{Text: "img"}, {Int: 5, IsInt: true}}}}}
	e.Lookahead, e.Locality, e.Ownership, e.Session, e.MMKeys = [][]wire.Token{{1}}, "local", "owned", "s1", 2
	e.Form, e.Array, e.Len, e.UnknownFields, e.Bigram = wire.FormSigned, true, 12, 3, false
	last := entry(0, e)
	r := &diagnose.Replica{State: stream.State{Epoch: 1}}
	got := linesText(eventLines(&scene{}, newStudy([]*observe.Entry{last}, last, r), 0, r, 300))
	for _, want := range []string{
		"parent      0000000000000009  unknown: never announced", "hashes      0000000000000001 0000000000000002",
		"LoRA        adapter?[31m (id 7)", "salt        pepper", "tier        host (CPU)", "group       1, sliding, window 128 tokens",
		`block 1: "a"; block 2: ab; block 2: 3; block 2: ["img", 5]`, "1 speculative token", "local", "owned", "s1",
		"array of 12, signed hashes, 2 multimodal keys, 3 unknown fields", "tokens            +0:      0      1      2      3",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

// A payload that claims what it does not hold costs nothing.
func TestEventBytesHostile(t *testing.T) {
	t.Parallel()
	for _, head := range []string{"\xdd", "\x92\x00\xdd", "\x81\xa6events\xdd", "\xdf"} {
		payload := binary.BigEndian.AppendUint32([]byte(head), 1<<32-1)
		eventBytes(payload, make([]wire.Event, 2))
	}
	deep := strings.Repeat("\x91", 1<<20)
	eventBytes([]byte("\x92\x00"+deep), make([]wire.Event, 1))
}
