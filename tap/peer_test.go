package tap

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvscope/kvscope/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frame is one ZMTP frame as a peer saw it.
type frame struct {
	flags byte
	body  string
}

// peer is a ZMTP peer of few lines, independent of the library and of what is
// tested. It keeps all that it is sent.
type peer struct {
	conn net.Conn
	mu   sync.Mutex
	got  []frame
	// came is closed and renewed with each frame, ended when the tap hung up.
	came  chan struct{}
	ended chan struct{}
	// deaf peers do not answer PING.
	deaf bool
}

// manners are what a peer says of itself.
type manners struct {
	minor     byte   // of ZMTP 3
	mechanism string // NULL if empty
	typ       string // PUB if empty
	deaf      bool
}

func greetingOf(m manners) []byte {
	b := make([]byte, 64)
	b[0], b[9], b[10], b[11] = 0xff, 0x7f, 3, m.minor
	copy(b[12:], or2(m.mechanism, "NULL"))
	return b
}

func or2(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func rawFrame(flags byte, body string) []byte {
	if len(body) > 255 {
		b := binary.BigEndian.AppendUint64([]byte{flags | 2}, uint64(len(body)))
		return append(b, body...)
	}
	return append([]byte{flags, byte(len(body))}, body...)
}

func ready(typ string) []byte {
	body := "\x05READY\x0bSocket-Type\x00\x00\x00" + string(rune(len(typ))) + typ
	return rawFrame(4, body)
}

// greet does the handshake on the peer's side.
func greet(conn net.Conn, m manners) (*peer, error) {
	r := bufio.NewReader(conn)
	if _, err := io.ReadFull(r, make([]byte, 64)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(greetingOf(m)); err != nil {
		return nil, err
	}
	if _, err := readRaw(r); err != nil {
		return nil, err
	}
	if _, err := conn.Write(ready(or2(m.typ, "PUB"))); err != nil {
		return nil, err
	}
	p := &peer{conn: conn, came: make(chan struct{}), ended: make(chan struct{}), deaf: m.deaf}
	go p.listen(r)
	return p, nil
}

func newRaw(conn net.Conn) *bufio.Reader { return bufio.NewReader(conn) }

func readRaw(r *bufio.Reader) (frame, error) {
	flags, err := r.ReadByte()
	if err != nil {
		return frame{}, err
	}
	size := make([]byte, 1)
	if flags&2 != 0 {
		size = make([]byte, 8)
	}
	if _, err := io.ReadFull(r, size); err != nil {
		return frame{}, err
	}
	var n uint64
	for _, b := range size {
		n = n<<8 | uint64(b)
	}
	body := make([]byte, n)
	_, err = io.ReadFull(r, body)
	return frame{flags, string(body)}, err
}

func (p *peer) listen(r *bufio.Reader) {
	defer close(p.ended)
	for {
		f, err := readRaw(r)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.got = append(p.got, f)
		close(p.came)
		p.came = make(chan struct{})
		p.mu.Unlock()
		if f.flags == 4 && len(f.body) >= 7 && f.body[:5] == "\x04PING" && !p.deaf {
			go p.write(rawFrame(4, "\x04PONG"+f.body[7:]))
		}
	}
}

func (p *peer) write(b []byte) { _, _ = p.conn.Write(b) }

// frames gives what came so far.
func (p *peer) frames() []frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}

// await waits until a frame came that is wanted.
func (p *peer) await(want func(frame) bool) (frame, error) {
	for at := 0; ; {
		p.mu.Lock()
		got, came := p.got[at:], p.came
		p.mu.Unlock()
		for _, f := range got {
			if want(f) {
				return f, nil
			}
		}
		at += len(got)
		select {
		case <-came:
		case <-p.ended:
			return frame{}, io.EOF
		}
	}
}

func isSubscribe(f frame) bool { return f.flags == 0 && len(f.body) > 0 && f.body[0] == 1 }

// publish sends a message as an engine does.
func (p *peer) publish(topic string, seq uint64, payload string) {
	p.write(message(topic, string(be(seq)), payload))
}

func message(frames ...string) []byte {
	var b []byte
	for i, f := range frames {
		flags := byte(1)
		if i == len(frames)-1 {
			flags = 0
		}
		b = append(b, rawFrame(flags, f)...)
	}
	return b
}

func be(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// world is a network of pipes: addresses and who answers there.
type world struct {
	mu      sync.Mutex
	at      map[string]func(net.Conn)
	dials   map[string]int
	serving sync.WaitGroup
}

func newWorld() *world { return &world{at: map[string]func(net.Conn){}, dials: map[string]int{}} }

// serve says who answers at an address; nil means nobody.
func (w *world) serve(address string, who func(net.Conn)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at[address] = who
}

// publisher serves peers with these manners, and gives them once subscribed.
func (w *world) publisher(address string, m manners) <-chan *peer {
	up := make(chan *peer, 64)
	w.serve(address, func(conn net.Conn) {
		p, err := greet(conn, m)
		if err != nil {
			return
		}
		if _, err := p.await(isSubscribe); err == nil {
			up <- p
		}
	})
	return up
}

func (w *world) dial(_ context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials[address]++
	who := w.at[address]
	if who == nil {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	w.serving.Go(func() { who(theirs) })
	return ours, nil
}

func (w *world) dialled(address string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials[address]
}

// options for a world: jitter takes nothing off.
func (w *world) options() Options {
	return Options{Dial: w.dial, Rand: func() float64 { return 1 }}
}

// collect takes records until stop reports true or the time is over.
func collect(t *testing.T, src wire.Source, within time.Duration, stop func(wire.Record) bool) []wire.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var out []wire.Record
	for {
		rec, err := src.Next(ctx)
		if err != nil {
			t.Fatalf("%v after %d records: %s", err, len(out), said(out))
		}
		out = append(out, rec)
		if stop(rec) {
			return out
		}
	}
}

// until stops at the n-th record of a kind.
func until(kind wire.RecordKind, n int) func(wire.Record) bool {
	return func(rec wire.Record) bool {
		if rec.Kind == kind {
			n--
		}
		return n == 0
	}
}

// said writes records in short.
func said(records []wire.Record) string {
	var b bytes.Buffer
	for _, rec := range records {
		switch rec.Kind {
		case wire.Frames:
			fmt.Fprintf(&b, "%s #%d; ", rec.Replica, seqOf(rec))
		case wire.ReplayFrames:
			if r, err := wire.SplitReply(rec.Frames); err != nil || r.End {
				fmt.Fprintf(&b, "end marker; ")
			} else {
				fmt.Fprintf(&b, "replayed %d; ", r.Seq)
			}
		case wire.ReplayBegin:
			fmt.Fprintf(&b, "begin %d; ", rec.From)
		case wire.ReplayEnd:
			fmt.Fprintf(&b, "end %q; ", rec.Err)
		case wire.Link:
			fmt.Fprintf(&b, "%s %s %s; ", rec.Replica, rec.Link, rec.Err)
		default:
			fmt.Fprintf(&b, "%s; ", rec.Text)
		}
	}
	return b.String()
}

func seqOf(rec wire.Record) int64 {
	_, seq, _, err := wire.SplitFrames(rec.Frames)
	if err != nil {
		return -1
	}
	return int64(seq)
}

func seqs(records []wire.Record, name wire.Replica) []int64 {
	var out []int64
	for _, rec := range records {
		if rec.Kind == wire.Frames && rec.Replica == name {
			out = append(out, seqOf(rec))
		}
	}
	return out
}

// statsOf gives the stats of one link.
func statsOf(t *testing.T, tp *Tap, name wire.Replica) Stats {
	t.Helper()
	for _, st := range tp.Stats() {
		if st.Name == name {
			return st
		}
	}
	t.Fatalf("no stats of %s", name)
	return Stats{}
}

func add(t *testing.T, tp *Tap, ep Endpoint) {
	t.Helper()
	if err := tp.Add(ep); err != nil {
		t.Fatal(err)
	}
}

// scripted is a connection on which the peer says in and then hangs up.
type scripted struct {
	net.Conn
	in io.Reader
}

func (s *scripted) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *scripted) Write(p []byte) (int, error)      { return len(p), nil }
func (s *scripted) Close() error                     { return nil }
func (s *scripted) SetDeadline(time.Time) error      { return nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }
