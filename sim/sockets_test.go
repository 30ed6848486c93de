package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventually waits for what other goroutines do.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

func openPublisher(t testing.TB, opt PublisherOptions) *Publisher {
	t.Helper()
	p, err := OpenPublisher(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func openReplayer(t testing.TB, opt ReplayerOptions) *Replayer {
	t.Helper()
	r, err := OpenReplayer(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// follow taps an endpoint.
func follow(t testing.TB, opt tap.Options, ep tap.Endpoint) *tap.Tap {
	t.Helper()
	tp := tap.New(opt)
	t.Cleanup(func() { _ = tp.Close() })
	if err := tp.Add(ep); err != nil {
		t.Fatal(err)
	}
	return tp
}

// records takes records until stop says so.
func records(t testing.TB, src wire.Source, stop func(wire.Record) bool) []wire.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out []wire.Record
	for {
		rec, err := src.Next(ctx)
		if err != nil {
			t.Fatalf("%v after %d records", err, len(out))
		}
		if out = append(out, rec); stop(rec) {
			return out
		}
	}
}

// count stops at the n-th record of a kind.
func count(kind wire.RecordKind, n int) func(wire.Record) bool {
	return func(rec wire.Record) bool {
		if rec.Kind == kind {
			n--
		}
		return n == 0
	}
}

func payloadOf(seq uint64) []byte { return fmt.Appendf(nil, "payload %d", seq) }

// live gives the sequences of live batches, and fails for a wrong payload.
func live(t testing.TB, recs []wire.Record, topic string) []uint64 {
	t.Helper()
	var out []uint64
	for _, rec := range recs {
		if rec.Kind != wire.Frames {
			continue
		}
		got, seq, payload, err := wire.SplitFrames(rec.Frames)
		if err != nil || got != topic || !bytes.Equal(payload, payloadOf(seq)) {
			t.Fatalf("batch %q %d %q: %v", got, seq, payload, err)
		}
		out = append(out, seq)
	}
	return out
}

func span(from, to uint64) []uint64 {
	var out []uint64
	for ; from <= to; from++ {
		out = append(out, from)
	}
	return out
}

func TestPublisherToTap(t *testing.T) {
	t.Parallel()
	p := openPublisher(t, PublisherOptions{})
	tp := follow(t, tap.Options{PingEvery: time.Second}, tap.Endpoint{Name: "a", Address: p.Address(), Topics: []string{"kv@"}})
	eventually(t, "a subscription", func() bool { return p.Stats().Subscriptions == 1 })
	const n = 5000
	for seq := range uint64(n) {
		p.Publish("other", seq, payloadOf(seq))
		p.Publish("kv@a", seq, payloadOf(seq))
	}
	recs := records(t, tp, count(wire.Frames, n))
	if got := live(t, recs, "kv@a"); !slices.Equal(got, span(0, n-1)) {
		t.Errorf("%d batches, not as published", len(got))
	}
	eventually(t, "an answer to PING", func() bool { return tp.Stats()[0].RTT > 0 })
	if st := p.Stats(); st.Published != 2*n || st.Dropped != 0 {
		t.Errorf("the publisher: %+v", st)
	}
	// Gone as a process that is killed, and back at the same address.
	address := p.Address()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	// A program that is being started, by another test, has the closed socket for
	// a moment.
	eventually(t, "bound again", func() bool {
		again, err := OpenPublisher(PublisherOptions{Address: address})
		if err == nil {
			p = again
			t.Cleanup(func() { _ = again.Close() })
		}
		return err == nil
	})
	eventually(t, "a subscription after the restart", func() bool { return p.Stats().Subscriptions == 1 })
	p.Publish("kv@a", 0, payloadOf(0))
	if got := live(t, records(t, tp, count(wire.Frames, 1)), "kv@a"); !slices.Equal(got, []uint64{0}) {
		t.Errorf("batches %v", got)
	}
}

func TestReplayerToTap(t *testing.T) {
	t.Parallel()
	full, err := tap.ParsePolicy("full")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name     string
		opt      ReplayerOptions
		from     uint64
		want     []uint64
		end, err string
		requests uint64
		// idle is short only where it has to pass.
		idle time.Duration
	}{
		{"whole", ReplayerOptions{}, 0, span(0, 99), "100 batches from 0 on", "", 1, 20 * time.Second},
		{"old shape", ReplayerOptions{Old: true}, 40, span(40, 99), "60 batches", "", 1, 20 * time.Second},
		{"clipped start", ReplayerOptions{Buffer: 30}, 20, span(70, 99), "the first 50 are no longer kept", "", 1, 20 * time.Second},
		{"in the future", ReplayerOptions{}, 500, nil, "0 batches", "", 1, 20 * time.Second},
		{"cut", ReplayerOptions{Limit: 40}, 0, span(0, 99), "100 batches from 0 on, in 3 requests", "", 3, 2 * time.Second},
		{"mute", ReplayerOptions{Mute: true}, 0, nil, "", "no answer", 1, 300 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, r := openPublisher(t, PublisherOptions{}), openReplayer(t, tt.opt)
			for seq := range uint64(100) {
				r.Keep("kv@a", seq, payloadOf(seq))
			}
			tp := follow(t, tap.Options{Replay: tap.ReplayOptions{Policy: full, Idle: tt.idle}},
				tap.Endpoint{Name: "a", Address: p.Address(), Replay: r.Address()})
			if tt.from > 0 { // the policy asks from 0 on
				records(t, tp, count(wire.ReplayEnd, 1))
				tp.Want(tap.Want{Replica: "a", From: tt.from})
			}
			recs := records(t, tp, count(wire.ReplayEnd, 1))
			var got []uint64
			for _, rec := range recs {
				if rec.Kind != wire.ReplayFrames {
					continue
				}
				reply, err := wire.SplitReply(rec.Frames)
				if err != nil {
					t.Fatal(err)
				}
				if reply.End {
					continue
				}
				if reply.HasTopic == tt.opt.Old || !tt.opt.Old && reply.Topic != "kv@a" || !bytes.Equal(reply.Payload, payloadOf(reply.Seq)) {
					t.Fatalf("reply %+v", reply)
				}
				got = append(got, reply.Seq)
			}
			end := recs[len(recs)-1]
			if !slices.Equal(got, tt.want) || !strings.Contains(end.Text, tt.end) || (end.Err == "") != (tt.err == "") {
				t.Errorf("batches %v, end %q %q", got, end.Text, end.Err)
			}
			if tt.from == 0 {
				eventually(t, fmt.Sprint(tt.requests, " requests"), func() bool { return r.Stats().Requests == tt.requests })
			}
		})
	}
}

// rawPeer is a client of few lines.
type rawPeer struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
}

// dial connects as a socket of a type with a minor version of ZMTP 3.
func dial(t testing.TB, address, typ string, minor byte) *rawPeer {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(address, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	p := &rawPeer{t, conn, bufio.NewReader(conn)}
	hello := make([]byte, 64)
	hello[0], hello[9], hello[10], hello[11] = 0xff, 0x7f, 3, minor
	copy(hello[12:], "NULL")
	p.send(string(hello))
	body := "\x05READY\x0bSocket-Type\x00\x00\x00" + string(rune(len(typ))) + typ
	p.send("\x04" + string(rune(len(body))) + body)
	return p
}

func (p *rawPeer) send(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.conn, s); err != nil {
		p.t.Fatal(err)
	}
}

// expect reads exactly that.
func (p *rawPeer) expect(want string) {
	p.t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(p.r, got)
	if err != nil || string(got) != want {
		p.t.Fatalf("read %q (%v), want %q", got[:n], err, want)
	}
}

// closed waits until the other side hangs up.
func (p *rawPeer) closed() {
	p.t.Helper()
	if _, err := io.Copy(io.Discard, p.r); err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
		p.t.Fatal(err)
	}
}

const (
	helloPub    = "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x01NULL"
	readyPub    = "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"
	readyRouter = "\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"
)

func greeted(ready string) string { return helloPub + strings.Repeat("\x00", 48) + ready }

// TestPublisherRaw has every byte of both forms of a subscription, of heartbeats
// and of what a full queue drops.
func TestPublisherRaw(t *testing.T) {
	t.Parallel()
	p := openPublisher(t, PublisherOptions{})
	subscribed := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d subscriptions", n), func() bool { return p.Stats().Subscriptions == n })
	}
	batch := func(topic string) string {
		return "\x01" + string(rune(len(topic))) + topic + "\x01\x08\x00\x00\x00\x00\x00\x00\x01\x02\x00\x02hi"
	}
	for _, form := range []struct{ on, off string }{
		{"\x00\x03\x01kv", "\x00\x03\x00kv"},                               // messages of ZMTP 3.0
		{"\x04\x0c\x09SUBSCRIBEkv", "\x04\x09\x06CANCELkv"},                // commands of 3.1
		{"\x04\x0c\x09SUBSCRIBEkv", "\x02" + be8(3) + "\x00kv"},            // a long frame
		{"\x04\x02\x01?" + "\x00\x01\x07\x00\x03\x01kv", "\x00\x03\x00kv"}, // what means nothing is passed over
	} {
		c := dial(t, p.Address(), "SUB", 0)
		c.expect(greeted(readyPub))
		c.send(form.on + form.on) // twice, so it takes two to cancel
		c.send("\x04\x09\x04PING\x00\x0aab")
		c.expect("\x04\x07\x04PONGab")
		subscribed(1)
		p.Publish("other", 258, []byte("hi"))
		p.Publish("kv@a", 258, []byte("hi"))
		c.expect(batch("kv@a"))
		c.send(form.off + "\x04\x07\x04PING\x00\x00")
		c.expect("\x04\x05\x04PONG")
		p.Publish("kv", 258, []byte("hi"))
		c.expect(batch("kv"))
		c.send(form.off)
		subscribed(0)
		p.Publish("kv", 258, []byte("hi"))
		c.send("\x04\x08\x04PING\x00\x00x")
		c.expect("\x04\x06\x04PONGx")
		_ = c.conn.Close()
	}
}

func be8(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// TestPublisherRefuses: whoever is no subscriber, or says what is not ZMTP, is
// hung up on, and nobody else notices.
func TestPublisherRefuses(t *testing.T) {
	t.Parallel()
	p := openPublisher(t, PublisherOptions{})
	good := dial(t, p.Address(), "SUB", 1)
	good.send("\x00\x01\x01")
	eventually(t, "a subscription", func() bool { return p.Stats().Subscriptions == 1 })
	bad := []string{
		"\x02" + be8(1<<62), // a frame without end
		"\x02" + be8(5000),  // and one that is merely too long
		"\x04\x00",          // a command without a name
		"\x04\x02\x09a",     // a command that ends within it
		strings.Repeat("\x01\x00", 17) + "\x00\x00", // a message of many frames
	}
	for _, b := range bad {
		c := dial(t, p.Address(), "SUB", 1)
		c.send(b)
		c.closed()
	}
	dial(t, p.Address(), "PUB", 1).closed()
	hellos := []string{
		"GET / HTTP/1.1\r\n\r\n" + strings.Repeat("x", 64),
		strings.Replace(greeted(""), "NULL", "PLAI", 1),
		greeted("\x00\x01x"),
		greeted("\x04\x06\x05READY"),
		greeted("\x04\x0b\x05READY\x03abc\xff"),
		greeted("\x04\x0e\x05READY\x03abc\xff\xff\xff\xff"),
	}
	for _, h := range hellos {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.Address(), "tcp://"))
		if err != nil {
			t.Fatal(err)
		}
		c := &rawPeer{t, conn, bufio.NewReader(conn)}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		c.send(h)
		c.closed()
		_ = conn.Close()
	}
	p.Publish("t", 1, []byte("hi"))
	good.expect(greeted(readyPub) + "\x01\x01t\x01\x08" + be8(1) + "\x00\x02hi")
	if st := p.Stats(); st.Subscriptions != 1 {
		t.Errorf("%+v", st)
	}
}

// TestPublisherDrops: a subscriber that takes nothing loses what does not fit
// into its queue, and no more memory than that is taken; another one loses
// nothing.
func TestPublisherDrops(t *testing.T) {
	t.Parallel()
	const hwm, n, size = 100, 3000, 32 << 10
	p := openPublisher(t, PublisherOptions{HWM: hwm})
	stuck := dial(t, p.Address(), "SUB", 1)
	stuck.send("\x00\x01\x01")
	eventually(t, "a subscription", func() bool { return p.Stats().Subscriptions == 1 })
	payload := bytes.Repeat([]byte("x"), size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for seq := range uint64(n) {
		p.Publish("t", seq, payload)
	}
	runtime.ReadMemStats(&after)
	st := p.Stats()
	if st.Dropped == 0 || st.Published != n {
		t.Fatalf("%+v", st)
	}
	// A queue of 3 MB, twice for a write that hangs, in a buffer that doubles.
	if more := int64(after.HeapAlloc) - int64(before.HeapAlloc); more > 60<<20 {
		t.Errorf("%d MB more of memory", more>>20)
	}
	// What it then takes is what was not dropped, each batch whole.
	stuck.expect(greeted(readyPub))
	for range n - int(st.Dropped) {
		stuck.expect("\x01\x01t\x01\x08")
		if _, err := io.CopyN(io.Discard, stuck.r, 8); err != nil {
			t.Fatal(err)
		}
		stuck.expect("\x02" + be8(size) + string(payload))
	}
	eventually(t, "all sent", func() bool { return p.Stats().Sent == n-st.Dropped })
}

func TestReplayerRaw(t *testing.T) {
	t.Parallel()
	r := openReplayer(t, ReplayerOptions{Buffer: 2})
	for seq := range uint64(4) {
		r.Keep("t", seq, []byte("hi"))
	}
	c := dial(t, r.Address(), "DEALER", 1)
	c.expect(greeted(readyRouter))
	batch := func(seq uint64) string { return "\x01\x00\x01\x01t\x01\x08" + be8(seq) + "\x00\x02hi" }
	const end = "\x01\x00\x01\x00\x01\x08\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00"
	for _, tt := range []struct{ request, want string }{
		{"\x01\x00\x00\x08" + be8(3), batch(3) + end},
		{"\x01\x00\x00\x08" + be8(0), batch(2) + batch(3) + end},
		{"\x01\x01x\x00\x01\x03", batch(3) + end},                                // its delimiter is not looked at, and short numbers are fine
		{"\x01\x00\x00\x00", batch(2) + batch(3) + end},                          // as is none
		{"\x01\x00\x00\x09\x01" + be8(0), end},                                   // and one that is too large
		{"\x00\x08" + be8(0) + "\x04\x08\x04PING\x00\x00x", "\x04\x06\x04PONGx"}, // no delimiter, no answer
		{"\x01\x00\x01\x00\x00\x00\x01\x00\x00\x01\x04", end},                    // nor with a frame too many
	} {
		c.send(tt.request)
		c.expect(tt.want)
	}
	if st := r.Stats(); st.Requests != 6 || st.Ignored != 2 || st.Batches != 6 {
		t.Errorf("%+v", st)
	}
	dial(t, r.Address(), "SUB", 1).closed()
}

func TestSocketsRefuseAddresses(t *testing.T) {
	t.Parallel()
	taken := openPublisher(t, PublisherOptions{})
	for _, address := range []string{"ipc://x", "127.0.0.1:0", taken.Address()} {
		if _, err := OpenPublisher(PublisherOptions{Address: address}); err == nil {
			t.Errorf("a publisher at %s", address)
		}
		if _, err := OpenReplayer(ReplayerOptions{Address: address}); err == nil {
			t.Errorf("a replayer at %s", address)
		}
	}
	if _, err := OpenReplayer(ReplayerOptions{Buffer: -1}); err == nil {
		t.Error("a buffer of -1")
	}
}

func BenchmarkPublish(b *testing.B) {
	p := openPublisher(b, PublisherOptions{HWM: 1 << 30})
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.Address(), "tcp://"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, greeted("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB\x00\x01\x01")); err != nil {
		b.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	eventually(b, "a subscription", func() bool { return p.Stats().Subscriptions == 1 })
	payload := make([]byte, 2<<10)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	var seq uint64
	for b.Loop() {
		p.Publish("kv@a@m", seq, payload)
		seq++
	}
	eventually(b, "all sent", func() bool { return p.Stats().Sent == seq })
}
