package observe

import (
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// Entry is one batch as it was applied.
type Entry struct {
	Replica  wire.Replica
	At       wire.Time
	Batch    *wire.Batch
	Payload  []byte
	Replayed bool
}

// The newest batches are kept for showing, bounded in number and in bytes.
const (
	tapeEntries = 4096
	tapeBytes   = 64 << 20
)

// tape keeps the newest entries, oldest first. Entries never change, so copies
// of the slice may be shared.
type tape struct {
	entries []*Entry
	bytes   int
}

func (t *tape) add(s *stream.Step) {
	t.entries = append(t.entries, &Entry{
		Replica: s.Replica, At: s.At, Batch: s.Batch, Payload: s.Payload, Replayed: s.Replayed,
	})
	t.bytes += len(s.Payload)
	drop := 0
	for len(t.entries)-drop > tapeEntries || t.bytes > tapeBytes && drop < len(t.entries)-1 {
		t.bytes -= len(t.entries[drop].Payload)
		drop++
	}
	t.entries = t.entries[drop:]
}

// clone gives a tape that can go its own way.
func (t *tape) clone() tape {
	return tape{entries: t.entries[:len(t.entries):len(t.entries)], bytes: t.bytes}
}
