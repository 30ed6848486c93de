package doctor

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"go.uber.org/goleak"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type list = []any

// world is a network of pipes: who answers at an address, and the pages at URLs.
type world struct {
	mu    sync.Mutex
	at    map[string]func(net.Conn)
	pages map[string]func(turn int) (fleet.Page, error)
	turns map[string]int
	// asked are the replay requests that came.
	asked   []uint64
	serving sync.WaitGroup
}

func newWorld() *world {
	return &world{at: map[string]func(net.Conn){}, pages: map[string]func(int) (fleet.Page, error){}, turns: map[string]int{}}
}

func (w *world) dial(_ context.Context, _, address string) (net.Conn, error) {
	who := w.at[address]
	if who == nil {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	ours, theirs := net.Pipe()
	w.serving.Go(func() {
		defer theirs.Close()
		who(theirs)
	})
	return ours, nil
}

func (w *world) get(_ context.Context, url string) (fleet.Page, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	page := w.pages[url]
	if page == nil {
		return fleet.Page{}, fmt.Errorf("GET %s: connection refused", url)
	}
	w.turns[url]++
	return page(w.turns[url])
}

func (w *world) options() Options {
	return Options{
		Tap: tap.Options{Dial: w.dial, Rand: func() float64 { return 1 }}, Get: w.get,
		LookupHost: func(_ context.Context, host string) ([]string, error) {
			if host == "nowhere" {
				return nil, &net.DNSError{Err: "no such host", Name: host}
			}
			return []string{"10.0.0.1"}, nil
		},
	}
}

// greet does the publisher's part of a ZMTP 3.0 handshake, which has no PING.
func greet(conn net.Conn, typ string) (*bufio.Reader, bool) {
	r := bufio.NewReader(conn)
	hello := make([]byte, 64)
	if _, err := io.ReadFull(r, hello); err != nil {
		return nil, false
	}
	hello = make([]byte, 64)
	hello[0], hello[9], hello[10] = 0xff, 0x7f, 3
	copy(hello[12:], "NULL")
	_, err := conn.Write(hello)
	if _, ok := readFrame(r); !ok || err != nil {
		return nil, false
	}
	_, err = conn.Write(rawFrame(4, "\x05READY\x0bSocket-Type\x00\x00\x00"+string(rune(len(typ)))+typ))
	return r, err == nil
}

func rawFrame(flags byte, body string) []byte {
	if len(body) > 255 {
		return append(binary.BigEndian.AppendUint64([]byte{flags | 2}, uint64(len(body))), body...)
	}
	return append([]byte{flags, byte(len(body))}, body...)
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

// readFrame reads a short frame.
func readFrame(r *bufio.Reader) (string, bool) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head); err != nil {
		return "", false
	}
	body := make([]byte, head[1])
	_, err := io.ReadFull(r, body)
	return string(body), err == nil
}

func be(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// publishes serves an event socket, with a message each tenth of a second; nil
// ends it.
func publishes(next func(seq uint64) []byte) func(net.Conn) {
	return func(conn net.Conn) {
		r, ok := greet(conn, "PUB")
		if !ok {
			return
		}
		if _, ok := readFrame(r); !ok { // the subscription
			return
		}
		for seq := uint64(0); ; seq++ {
			b := next(seq)
			if b == nil {
				_, _ = readFrame(r) // until the tap hangs up
				return
			}
			if _, err := conn.Write(b); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func silent(uint64) []byte { return nil }

// like is what an engine publishes.
type like struct {
	topic string
	size  int
	// hash is of the first block.
	hash int
	// ahead is how far the engine's clock is ahead.
	ahead time.Duration
	// asMap writes events as vLLM does from 0.24 on.
	asMap bool
	// restarts says after how many batches the process is a new one, with
	// blocks of 32 tokens.
	restarts uint64
}

func (l like) batch(t *testing.T) func(uint64) []byte {
	return func(seq uint64) []byte {
		size := l.size
		if l.restarts > 0 && seq >= l.restarts {
			seq, size = seq-l.restarts, 32
		}
		tokens := make([]int, size)
		for i := range tokens {
			tokens[i] = int(seq) + i
		}
		var event any = list{"BlockStored", list{l.hash + int(seq)}, nil, tokens, size, nil, "GPU", nil}
		if l.asMap {
			event = map[string]any{
				"type": "BlockStored", "block_hashes": list{l.hash + int(seq)}, "parent_block_hash": nil, "token_ids": tokens,
				"block_size": size, "lora_id": nil, "medium": "GPU", "lora_name": nil,
			}
		}
		ts := float64(time.Now().Add(l.ahead).UnixNano()) / 1e9
		payload, err := msgpack.Marshal(list{ts, list{event}, 0})
		if err != nil {
			t.Error(err)
		}
		return message(l.topic, be(seq), string(payload))
	}
}

// answers serves a replay socket as vLLM 0.32 does, when its buffer holds
// nothing that was asked for.
func (w *world) answers(conn net.Conn) {
	r, ok := greet(conn, "ROUTER")
	for ok {
		var from string
		if _, ok = readFrame(r); !ok { // the delimiter
			return
		}
		if from, ok = readFrame(r); !ok {
			return
		}
		w.mu.Lock()
		w.asked = append(w.asked, binary.BigEndian.Uint64([]byte(from)))
		w.mu.Unlock()
		_, err := conn.Write(message("", "", be(1<<64-1), ""))
		ok = err == nil
	}
}

// page is a metrics page on which requests grow by per with each reading.
func page(caching string, per int) func(int) (fleet.Page, error) {
	return func(turn int) (fleet.Page, error) {
		now := wire.Time(time.Now().UnixNano())
		text := fmt.Sprintf(`vllm:cache_config_info{block_size="16",enable_prefix_caching=%q,engine="0",num_gpu_blocks="200",prefix_caching_hash_algo="sha256"} 1
vllm:num_requests_running{engine="0",model_name="m"} 0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} %d
`, caching, per*turn)
		return fleet.Page{Body: []byte(text), Sent: now, Received: now, Date: now / 1e9 * 1e9}, nil
	}
}

// said writes the results that are not ok or skipped, one a line.
func said(r *Report) string {
	var lines []string
	add := func(who string, results []Result) {
		for _, c := range results {
			if c.Status == Error || c.Status == Warning {
				lines = append(lines, fmt.Sprintf("%s %s %s: %s", who, c.Status, c.Code, c.Text))
			}
		}
	}
	for _, m := range r.Members {
		add(string(m.Replica), m.Checks)
	}
	add("fleet", r.Fleet)
	return strings.Join(lines, "\n")
}
