package tap

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// natsMessage is a real message of an event plane.
type natsMessage struct {
	subject string
	body    []byte
}

// recordedNATS gives the first messages of a topic.
func recordedNATS(t *testing.T, topic string) []natsMessage {
	t.Helper()
	var out []natsMessage
	for _, file := range refdata.Files(t, filepath.Join("..", "wire", "testdata"), "plane/nats_raw.jsonl.gz") {
		refdata.Each(t, file, func(_ int, line struct{ Subject, Data string }) {
			body, err := hex.DecodeString(line.Data)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(line.Subject, "."+topic) {
				out = append(out, natsMessage{line.Subject, body})
			}
		})
	}
	if len(out) == 0 {
		t.Fatalf("no message of %s", topic)
	}
	return out
}

const plainInfo = `INFO {"server_id":"x","max_payload":1048576}` + "\r\n"

// natsServer is the server's side of a connection. It keeps all lines it is
// sent and answers PING unless it is deaf.
type natsServer struct {
	conn  net.Conn
	lines chan string
}

func (s *natsServer) say(text string) { _, _ = s.conn.Write([]byte(text)) }

func (s *natsServer) publish(m natsMessage) {
	s.say(fmt.Sprintf("MSG %s 1 %d\r\n%s\r\n", m.subject, len(m.body), m.body))
}

// sent gives the lines that came so far.
func (s *natsServer) sent() []string {
	var out []string
	for {
		select {
		case line := <-s.lines:
			out = append(out, line)
		default:
			return out
		}
	}
}

// natsAt serves NATS at an address, and gives the connections.
func natsAt(w *world, address, info string, deaf bool) <-chan *natsServer {
	up := make(chan *natsServer, 64)
	w.serve(address, func(conn net.Conn) {
		s := &natsServer{conn: conn, lines: make(chan string, 1024)}
		s.say(info)
		up <- s
		in := bufio.NewScanner(conn)
		pings := 0
		for in.Scan() {
			s.lines <- in.Text()
			if in.Text() == "PING" {
				if pings++; !deaf || pings == 1 {
					go s.say("PONG\r\n")
				}
			}
		}
	})
	return up
}

var plane = Endpoint{Name: "plane", Address: "nats://n"}

func TestNATS(t *testing.T) {
	events, loads := recordedNATS(t, wire.PlaneEvents), recordedNATS(t, wire.PlaneLoad)
	bookings := recordedNATS(t, wire.PlaneActivity)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		up := natsAt(w, "n:4222", plainInfo, false)
		tp := New(w.options())
		defer tp.Close()
		add(t, tp, plane)
		s := <-up
		synctest.Wait()
		hello := s.sent()
		if len(hello) != 5 || !strings.HasPrefix(hello[0], "CONNECT {") || strings.Contains(hello[0], "pass") ||
			hello[1] != "SUB namespace.*.component.*.endpoint.*.kv-events 1" ||
			hello[2] != "SUB namespace.*.component.*.endpoint.*.kv_metrics 2" ||
			hello[3] != "SUB namespace.*.component.*.endpoint.*.active_sequences_events 3" || hello[4] != "PING" {
			t.Fatalf("said %q", hello)
		}
		all := slices.Concat(events, loads, bookings)
		names := map[wire.Replica]bool{}
		for i, m := range all {
			_, name, _ := wire.PlaneSender([][]byte{[]byte(m.subject), m.body})
			if i >= len(events)+len(loads) {
				name = wire.LoadName("plane")
			}
			names[name] = true
			s.publish(m)
		}
		s.say("PING\r\n")
		s.say("INFO {}\r\n")
		got := collect(t, tp, time.Second, until(wire.Frames, len(all)))
		ups, n := map[wire.Replica]bool{}, 0
		for _, rec := range got {
			switch rec.Kind {
			case wire.Link:
				ups[rec.Replica] = rec.Link == wire.LinkUp
			case wire.Frames:
				m := all[n]
				n++
				if string(rec.Frames[0]) != m.subject || string(rec.Frames[1]) != string(m.body) || !ups[rec.Replica] {
					t.Errorf("message %d of %s: %q", n, rec.Replica, rec.Frames[0])
				}
			}
		}
		if len(ups) != len(names) || len(names) < 2 || names[""] || ups["plane"] {
			t.Errorf("up: %v, want %v", ups, names)
		}
		time.Sleep(time.Minute)
		for _, line := range s.sent() {
			if line != "PING" && line != "PONG" {
				t.Errorf("said %q", line)
			}
		}
		st := statsOf(t, tp, "plane")
		if st.State != Up || st.Connects != 1 || st.Attempts != 1 || st.Messages != uint64(n) || len(st.Publishers[0].Replicas) != len(names) {
			t.Errorf("%+v", st)
		}

		// The server goes, and comes back.
		s.conn.Close()
		down := collect(t, tp, time.Second, until(wire.Link, len(names)))
		for _, rec := range down {
			if rec.Link != wire.LinkDown || !names[rec.Replica] || rec.Err != "the NATS server closed the connection" {
				t.Errorf("%+v", rec)
			}
		}
		s = <-up
		s.publish(events[0])
		back := map[wire.Replica]wire.LinkState{}
		for _, rec := range collect(t, tp, time.Minute, until(wire.Frames, 1)) {
			if rec.Kind == wire.Link {
				back[rec.Replica] = rec.Link
			}
		}
		for name := range names {
			if back[name] != wire.LinkUp {
				t.Errorf("%s is %s", name, back[name])
			}
		}
		tp.Remove("plane")
		gone := collect(t, tp, time.Second, until(wire.Link, len(names)))
		for _, rec := range gone {
			if rec.Link != wire.LinkGone || rec.Err != "removed" {
				t.Errorf("%+v", rec)
			}
		}
	})
}

// TestNATSUnnamed: a message that names nobody is its publisher's, and where
// that is not known the endpoint's own.
func TestNATSUnnamed(t *testing.T) {
	m := recordedNATS(t, wire.PlaneEvents)[0]
	frames := [][]byte{[]byte(m.subject), m.body}
	publisher, name, _ := wire.PlaneSender(frames)
	empty := append([]byte{0x85, 0xac}, "publisher_id\xcf"...)
	empty = append(empty, be(publisher)...)
	empty = append(empty, "\xa8sequence\x01\xacpublished_at\x01\xa5topic\xa9kv-events\xa7payload\xc4\x01\x90"...)
	l := &link{ep: plane}
	senders := map[uint64]wire.Replica{}
	for i, tt := range []struct {
		body []byte
		want wire.Replica
	}{{empty, "plane"}, {m.body, name}, {empty, name}, {[]byte("x"), "plane"}} {
		if got := l.sender(senders, [][]byte{frames[0], tt.body}); got != tt.want {
			t.Errorf("%d: %s, want %s", i, got, tt.want)
		}
	}
}

func TestNATSTrouble(t *testing.T) {
	tests := []struct {
		name, info, then, user string
		deaf                   bool
		state                  State
		want                   string
	}{
		{name: "a web server", info: "HTTP/1.1 400 Bad Request\r\n", state: Refused, want: "what listens there does not speak NATS: is this the right port?"},
		{name: "odd info", info: "INFO x\r\n", state: Refused, want: "what listens there does not speak NATS: is this the right port?"},
		{name: "TLS", info: `INFO {"tls_required":true}` + "\r\n", state: Refused, want: "the NATS server demands TLS, which kvscope does not speak; use a listener of it without TLS"},
		{name: "nobody given", info: `INFO {"auth_required":true}` + "\r\n", state: Refused, want: "the NATS server demands a user and a password"},
		{name: "a wrong password", info: `INFO {"auth_required":true}` + "\r\n", user: "u", then: "-ERR 'Authorization Violation'\r\n", state: Refused, want: "the NATS server rejects this user and password"},
		{name: "forbidden", info: plainInfo, then: `-ERR 'Permissions Violation for Subscription to "a"'` + "\r\n", state: Refused, want: "the NATS server does not let this user subscribe to the subjects"},
		{name: "too slow", info: plainInfo, then: "-ERR 'Slow Consumer'\r\n", want: `the NATS server says "Slow Consumer"`},
		{name: "silent from the start", info: "", want: "no sign of life for 1s"},
		{name: "silent", info: plainInfo, deaf: true, want: "no sign of life for 15s"},
		{name: "another word", info: plainInfo, then: "HMSG a 1 2 2\r\n", want: `malformed frame: "HMSG" in the place of a word of NATS`},
		{name: "a huge claim", info: plainInfo, then: "MSG a 1 999999999999999999\r\n", want: "malformed frame: a message of 999999999999999999 bytes, and the limit is 67108864"},
		{name: "a larger claim", info: plainInfo, then: "MSG a 1 99999999999999999999\r\n", want: "malformed frame: a MSG line without a size"},
		{name: "a negative claim", info: plainInfo, then: "MSG a 1 -1\r\n", want: "malformed frame: a MSG line without a size"},
		{name: "three words", info: plainInfo, then: "MSG a 1\r\n", want: "malformed frame: a MSG line of 3 words"},
		{name: "an endless subject", info: plainInfo, then: "MSG " + strings.Repeat("a", 1025) + " 1 0\r\n\r\n", want: "malformed frame: a MSG line of 4 words"},
		{name: "a wrong length", info: plainInfo, then: "MSG a 1 1\r\nxy\r\n", want: "malformed frame: a message that is longer than its MSG line says"},
		{name: "an endless line", info: plainInfo, then: strings.Repeat("x", readAhead+1), want: fmt.Sprintf("malformed frame: a line of more than %d bytes", readAhead)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				up := natsAt(w, "n:4222", tt.info, tt.deaf)
				opt := w.options()
				opt.BackoffMin, opt.BackoffMax = time.Hour, time.Hour
				tp := New(opt)
				defer tp.Close()
				ep := plane
				ep.User = tt.user
				add(t, tp, ep)
				s := <-up
				synctest.Wait()
				go s.say(tt.then)
				time.Sleep(30 * time.Second)
				want := tt.state
				if want == Starting {
					want = BackingOff
				}
				if st := statsOf(t, tp, "plane"); st.State != want || st.LastError != tt.want || len(st.Publishers) > 0 {
					t.Errorf("%s, %q", st.State, st.LastError)
				}
				s.conn.Close()
			})
		})
	}
}

// TestNATSSlowProgram: what there is no room for is dropped and counted, and
// the server still gets its answers.
func TestNATSSlowProgram(t *testing.T) {
	m := recordedNATS(t, wire.PlaneEvents)[0]
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		up := natsAt(w, "n:4222", plainInfo, false)
		opt := w.options()
		opt.LaneRecords = 10
		tp := New(opt)
		defer tp.Close()
		add(t, tp, plane)
		s := <-up
		synctest.Wait()
		s.sent()
		for range 100 {
			s.publish(m)
		}
		s.say("PING\r\n")
		synctest.Wait()
		if st := statsOf(t, tp, "plane"); st.State != Up || st.Messages != 100 || st.Dropped != 91 || st.Queued > 11 {
			t.Errorf("%+v", st)
		}
		if said := s.sent(); !slices.Contains(said, "PONG") {
			t.Errorf("said %q", said)
		}
	})
}

func TestNATSEndpoints(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"nats://n":         "n:4222",
		"nats://n:1":       "n:1",
		"nats://n:1/":      "n:1",
		"nats://[::1]":     "[::1]:4222",
		"nats://[::1]:1":   "[::1]:1",
		"nats://10.0.0.1/": "10.0.0.1:4222",
	} {
		if _, got, err := natsAddress(address); got != want || err != nil {
			t.Errorf("%s: %q, %v", address, got, err)
		}
	}
	for want, ep := range map[string]Endpoint{
		"user and password are given beside":    {Address: "nats://u:p@n"},
		"want nats://host:port":                 {Address: "nats://"},
		`"x" is no port number`:                 {Address: "nats://n:x"},
		"port 0 cannot be connected to":         {Address: "nats://n:0"},
		"connected to, never bound":             {Address: "nats://n", Bind: true},
		"nothing can be replayed over NATS":     {Address: "nats://n", Replay: "tcp://n:1"},
		`NATS has no mechanism "PLAIN"`:         {Address: "nats://n", Mechanism: "PLAIN"},
		`"a b" is no subject of NATS`:           {Address: "nats://n", Topics: []string{"a b"}},
		`"" is no subject of NATS`:              {Address: "nats://n", Topics: []string{""}},
		`"a  PUB b" is no subject`:              {Address: "nats://n", Topics: []string{"a\r\nPUB b"}},
		`there is no mechanism "X", only NULL `: {Address: "tcp://n:1", Mechanism: "X"},
	} {
		ep.Name = "p"
		if err := ep.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
