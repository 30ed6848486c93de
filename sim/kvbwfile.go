package sim

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The file, all little-endian:
//
//	"KVBW0001", u32 workers, u32 block size, u64 events, u64 queries
//	event:  u8 operation, u32 worker, u64 id, then
//	  store:  u8 has parent, u64 parent, u32 n, n × (u64 sequence, u64 local)
//	  remove: u32 n, n × u64 sequence
//	query:  u32 n, n × u64 local
const kvbwMagic = "KVBW0001"

// maxKVBWRun bounds the blocks of one event or query in a file.
const maxKVBWRun = 1 << 20

// WriteTo writes the workload as a file of the KVBW0001 layout.
func (k *KVBW) WriteTo(w io.Writer) (int64, error) {
	c := &countingWriter{w: w}
	b := bufio.NewWriterSize(c, 1<<16)
	e := kvbwEncoder{w: b}
	e.bytes([]byte(kvbwMagic))
	e.u32(uint32(k.Workers))
	e.u32(KVBWBlockSize)
	e.u64(uint64(len(k.Events)))
	e.u64(uint64(len(k.Queries)))
	for i := range k.Events {
		e.event(&k.Events[i])
	}
	for _, q := range k.Queries {
		e.hashes(q)
	}
	if err := b.Flush(); err != nil {
		return c.n, fmt.Errorf("writing a workload: %w", err)
	}
	return c.n, nil
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// kvbwEncoder leaves errors to the buffered writer, which keeps the first one
// for Flush.
type kvbwEncoder struct {
	w       *bufio.Writer
	scratch [8]byte
}

func (e *kvbwEncoder) bytes(b []byte) { _, _ = e.w.Write(b) }
func (e *kvbwEncoder) u8(v uint8)     { _ = e.w.WriteByte(v) }

func (e *kvbwEncoder) u32(v uint32) {
	binary.LittleEndian.PutUint32(e.scratch[:4], v)
	e.bytes(e.scratch[:4])
}

func (e *kvbwEncoder) u64(v uint64) {
	binary.LittleEndian.PutUint64(e.scratch[:], v)
	e.bytes(e.scratch[:])
}

func (e *kvbwEncoder) hashes(hs []uint64) {
	e.u32(uint32(len(hs)))
	for _, h := range hs {
		e.u64(h)
	}
}

func (e *kvbwEncoder) event(ev *KVBWEvent) {
	e.u8(uint8(ev.Op))
	e.u32(ev.Worker)
	e.u64(ev.ID)
	switch ev.Op {
	case KVBWStore:
		var has uint8
		if ev.HasParent {
			has = 1
		}
		e.u8(has)
		e.u64(ev.Parent)
		e.u32(uint32(len(ev.Blocks)))
		for _, b := range ev.Blocks {
			e.u64(b.Seq)
			e.u64(b.Local)
		}
	case KVBWRemove:
		e.hashes(ev.Hashes)
	}
}

// ReadKVBW reads a file that WriteTo or the Rust generator wrote, to its end.
// Memory grows with what is really read, not with what the file claims.
func ReadKVBW(r io.Reader) (*KVBW, error) {
	d := kvbwDecoder{r: bufio.NewReaderSize(r, 1<<16)}
	k, err := d.workload()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("reading a workload: %w", err)
	}
	return k, nil
}

// kvbwDecoder keeps its first error; after it every number is 0.
type kvbwDecoder struct {
	r       *bufio.Reader
	scratch [8]byte
	err     error
}

func (d *kvbwDecoder) bytes(n int) []byte {
	b := d.scratch[:n]
	if d.err == nil {
		_, d.err = io.ReadFull(d.r, b)
	}
	if d.err != nil {
		clear(b)
	}
	return b
}

func (d *kvbwDecoder) u8() uint8   { return d.bytes(1)[0] }
func (d *kvbwDecoder) u32() uint32 { return binary.LittleEndian.Uint32(d.bytes(4)) }
func (d *kvbwDecoder) u64() uint64 { return binary.LittleEndian.Uint64(d.bytes(8)) }

func (d *kvbwDecoder) run() int {
	n := d.u32()
	if n > maxKVBWRun {
		d.err = fmt.Errorf("a run of %d blocks, more than %d", n, maxKVBWRun)
		return 0
	}
	return int(n)
}

func (d *kvbwDecoder) hashes() []uint64 {
	n := d.run()
	hs := make([]uint64, 0, min(n, 1024))
	for range n {
		hs = append(hs, d.u64())
		if d.err != nil {
			return nil
		}
	}
	return hs
}

func (d *kvbwDecoder) workload() (*KVBW, error) {
	if magic := string(d.bytes(len(kvbwMagic))); d.err == nil && magic != kvbwMagic {
		return nil, fmt.Errorf("starts with %q, want %q", magic, kvbwMagic)
	}
	k := &KVBW{Workers: int(d.u32())}
	if size := d.u32(); d.err == nil && size != KVBWBlockSize {
		return nil, fmt.Errorf("block size %d, want %d", size, KVBWBlockSize)
	}
	events, queries := d.u64(), d.u64()
	for i := uint64(0); i < events && d.err == nil; i++ {
		k.Events = append(k.Events, d.event(k.Workers))
	}
	for i := uint64(0); i < queries && d.err == nil; i++ {
		k.Queries = append(k.Queries, d.hashes())
	}
	if d.err != nil {
		return nil, d.err
	}
	if _, err := d.r.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more bytes after the last query")
	}
	return k, nil
}

func (d *kvbwDecoder) event(workers int) KVBWEvent {
	e := KVBWEvent{Op: KVBWOp(d.u8()), Worker: d.u32(), ID: d.u64()}
	if d.err == nil && int(e.Worker) >= workers {
		d.err = fmt.Errorf("worker %d of %d", e.Worker, workers)
		return e
	}
	switch e.Op {
	case KVBWStore:
		e.HasParent, e.Parent = d.u8() == 1, d.u64()
		n := d.run()
		e.Blocks = make([]KVBWBlock, 0, min(n, prefillChunk))
		for range n {
			e.Blocks = append(e.Blocks, KVBWBlock{Seq: d.u64(), Local: d.u64()})
			if d.err != nil {
				break
			}
		}
	case KVBWRemove:
		e.Hashes = d.hashes()
	case KVBWClear:
	default:
		d.err = fmt.Errorf("operation %d", e.Op)
	}
	return e
}
