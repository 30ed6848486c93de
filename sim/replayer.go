package sim

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"net"
	"sync"
	"time"
)

// endSeq is the sequence of the message that ends an answer.
const endSeq = math.MaxUint64

// stalled is how long a client may take nothing of an answer before its
// connection is closed.
const stalled = 10 * time.Second

// ReplayerOptions of a Replayer. Zero values mean the defaults given.
type ReplayerOptions struct {
	// Address is tcp://host:port, port 0 for any: any port of the loopback.
	Address string
	// Buffer is how many batches are kept: 10,000.
	Buffer int
	// Old leaves the topic out of answers, as vLLM up to 0.25.
	Old bool
	// Limit, if not 0, is how many batches an answer has at most; one that is
	// cut has no end marker, as where vLLM before 0.33 fills its queue.
	Limit int
	// Mute takes requests and answers none.
	Mute bool
	// Listen is net.Listen, with ports of its own choice where any will do.
	Listen Listen
}

// Replayer is the ROUTER socket that an engine answers requests for past
// batches with. Close it after use. It is safe for concurrent use.
type Replayer struct {
	opt    ReplayerOptions
	server *server

	mu sync.Mutex
	// ring holds the newest batches, the oldest one at first once it is full.
	ring  []kept
	first int
	stats ReplayerStats
}

type kept struct {
	topic   string
	seq     uint64
	payload []byte
}

// ReplayerStats count since a Replayer was opened.
type ReplayerStats struct {
	// Requests are those that were taken, Ignored those of the wrong form.
	Requests, Ignored uint64
	// Batches were sent in answers.
	Batches uint64
}

// OpenReplayer binds a Replayer.
func OpenReplayer(opt ReplayerOptions) (*Replayer, error) {
	opt.Buffer = cmp.Or(opt.Buffer, defaultBuffer)
	if opt.Buffer < 0 {
		return nil, fmt.Errorf("a replay buffer of %d batches: it needs room for one", opt.Buffer)
	}
	r := &Replayer{opt: opt}
	var err error
	r.server, err = serve(opt.Listen, cmp.Or(opt.Address, anyPort), r.serve)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Address is where the socket is bound, as tcp://host:port.
func (r *Replayer) Address() string { return r.server.address() }

// Keep puts a batch into the buffer, in place of the oldest if that is full. The
// payload is not copied.
func (r *Replayer) Keep(topic string, seq uint64, payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := kept{topic, seq, payload}
	if len(r.ring) < r.opt.Buffer {
		r.ring = append(r.ring, b)
		return
	}
	r.ring[r.first] = b
	r.first = (r.first + 1) % len(r.ring)
}

// from gives the batches that are kept from a sequence on.
func (r *Replayer) from(seq uint64) []kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Requests++
	var out []kept
	for i := range r.ring {
		if b := r.ring[(r.first+i)%len(r.ring)]; b.seq >= seq {
			out = append(out, b)
		}
	}
	return out
}

// Stats gives the counts so far.
func (r *Replayer) Stats() ReplayerStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Close ends all connections and waits until nothing runs any more. It may be
// called again, and its error is nil.
func (r *Replayer) Close() error {
	r.server.close()
	return nil
}

func (r *Replayer) serve(conn net.Conn) {
	c, err := accept(conn, "ROUTER", "DEALER", "REQ", "ROUTER")
	if err != nil {
		return
	}
	w := bufio.NewWriterSize(deadlined{conn}, 64<<10)
	for {
		frames, err := c.message(func(name string, data []byte) {
			if name == "PING" {
				_, _ = w.Write(pong(data)) // a failure stays with the writer
				_ = w.Flush()
			}
		})
		if err != nil || r.answer(w, frames) != nil {
			return
		}
	}
}

// answer answers a request: an empty delimiter, of which vLLM asks nothing, and
// where to start. Anything else it logs and leaves alone.
func (r *Replayer) answer(w *bufio.Writer, request [][]byte) error {
	if len(request) != 2 {
		r.mu.Lock()
		r.stats.Ignored++
		r.mu.Unlock()
		return nil
	}
	batches := r.from(startOf(request[1]))
	if r.opt.Mute {
		return nil
	}
	cut := r.opt.Limit > 0 && len(batches) > r.opt.Limit
	if cut {
		batches = batches[:r.opt.Limit]
	}
	var buf []byte
	for i := range batches {
		b := &batches[i]
		buf = r.appendReply(buf[:0], b.topic, b.seq, b.payload)
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
	r.mu.Lock()
	r.stats.Batches += uint64(len(batches))
	r.mu.Unlock()
	if !cut {
		if _, err := w.Write(r.appendReply(buf[:0], "", endSeq, nil)); err != nil {
			return err
		}
	}
	return w.Flush()
}

func (r *Replayer) appendReply(dst []byte, topic string, seq uint64, payload []byte) []byte {
	dst = appendFrame(dst, flagMore, "")
	if !r.opt.Old {
		dst = appendFrame(dst, flagMore, topic)
	}
	return appendSeqAndPayload(dst, seq, payload)
}

// startOf reads a big-endian number of any length, as Python does.
func startOf(b []byte) uint64 {
	var n uint64
	for _, c := range b {
		if n >= 1<<56 {
			return endSeq
		}
		n = n<<8 | uint64(c)
	}
	return n
}

// deadlined gives each write to a connection its time.
type deadlined struct{ net.Conn }

func (d deadlined) Write(p []byte) (int, error) {
	_ = d.SetWriteDeadline(time.Now().Add(stalled))
	return d.Conn.Write(p)
}
