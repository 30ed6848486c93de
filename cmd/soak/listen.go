package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

// report is a line of a listening process, whatever it is written in.
type report struct {
	// Messages were received in all.
	Messages uint64 `json:"messages"`
	// CPU is the process's own time so far, user and system, in seconds.
	CPU float64 `json:"cpu"`
	// RSS and Heap are memory now, in bytes; Heap only of our own.
	RSS  uint64 `json:"rss"`
	Heap uint64 `json:"heap"`
	// Dropped were received and thrown away.
	Dropped uint64 `json:"dropped"`
	// Replicas are what the index says, where there is one.
	Replicas []replicaReport `json:"replicas,omitempty"`
}

type replicaReport struct {
	Replica  string `json:"replica"`
	Trust    string `json:"trust"`
	Last     uint64 `json:"last"`
	Resident int    `json:"resident"`
	Gaps     int    `json:"gaps"`
	Batches  uint64 `json:"batches"`
}

// listen is the process of the tap: it reads the addresses, and then answers
// every line with a report.
func listen(index bool, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		return io.ErrUnexpectedEOF
	}
	t := tap.New(tap.Options{})
	defer t.Close()
	for i, address := range strings.Fields(lines.Text()) {
		if err := t.Add(tap.Endpoint{Name: name(i), Address: address}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var live *observe.Live
	var messages atomic.Uint64
	ended := make(chan struct{})
	if index {
		live = observe.NewLive(observe.Options{Stream: stream.Options{}}, nil)
		go func() {
			defer close(ended)
			_ = live.Run(ctx, &counted{t, &messages})
		}()
	} else {
		go func() {
			defer close(ended)
			for src := (&counted{t, &messages}); ; {
				if _, err := src.Next(ctx); err != nil {
					return
				}
			}
		}()
	}
	enc := json.NewEncoder(out)
	for lines.Scan() {
		r := report{Messages: messages.Load(), CPU: cpu(), RSS: rss()}
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		r.Heap = mem.HeapAlloc
		for _, s := range t.Stats() {
			r.Dropped += s.Dropped
		}
		if live != nil && lines.Text() == "all" {
			for _, x := range live.Snapshot().Replicas {
				r.Replicas = append(r.Replicas, replicaReport{string(x.Replica), x.Trust.String(), x.Last, x.Index.Resident[wire.Device], len(x.Gaps), x.Batches})
			}
		}
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	cancel()
	<-ended
	return lines.Err()
}

func name(i int) wire.Replica { return wire.Replica(fmt.Sprintf("r%02d", i)) }

// counted counts messages.
type counted struct {
	wire.Source
	n *atomic.Uint64
}

func (c *counted) Next(ctx context.Context) (wire.Record, error) {
	rec, err := c.Source.Next(ctx)
	if err == nil && rec.Kind == wire.Frames {
		c.n.Add(1)
	}
	return rec, err
}

// rss is the resident memory of this process.
func rss() uint64 {
	b, _ := os.ReadFile("/proc/self/statm")
	var size, resident uint64
	_, _ = fmt.Sscan(string(b), &size, &resident)
	return resident * uint64(os.Getpagesize())
}

// peer is pyzmq in the tap's place: one SUB socket, all addresses, every message
// read with its frames.
const peer = `
import json, resource, sys, threading, zmq
ctx = zmq.Context()
sub = ctx.socket(zmq.SUB)
sub.setsockopt(zmq.RCVHWM, 0)
sub.setsockopt(zmq.SUBSCRIBE, b"")
for address in sys.stdin.readline().split():
    sub.connect(address)
count = 0
def drain():
    global count
    while True:
        sub.recv_multipart()
        count += 1
threading.Thread(target=drain, daemon=True).start()
for line in sys.stdin:
    use = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(open("/proc/self/statm").read().split()[1])
    print(json.dumps({"messages": count, "cpu": use.ru_utime + use.ru_stime, "rss": pages * resource.getpagesize()}), flush=True)
`

// second is how often a soak looks.
const second = time.Second
