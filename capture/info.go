package capture

import (
	"context"
	"errors"
	"io"

	"github.com/kvscope/kvscope/wire"
)

// Info is what a whole capture holds.
type Info struct {
	Header Header
	// Records counts all that could be read, Kinds those of each kind, by
	// wire.RecordKind. Unknown counts records of kinds that a newer version
	// added; they are in no other count.
	Records uint64
	Kinds   [len(kinds)]uint64
	Unknown uint64
	// From and Until bound the times of reception that are known.
	From, Until wire.Time
	// Replicas are in order of first appearance. Others counts records of
	// replicas beyond MaxReplicas.
	Replicas []ReplicaInfo
	Others   uint64
	// Chunks counts the zstd frames with records. Compressed is the size of
	// the file and Uncompressed that of what was unpacked, in bytes.
	Chunks                   int
	Compressed, Uncompressed int64
	// Complete says that the capture was closed, with its seek table.
	Complete bool
	// Damage is nil if everything could be read.
	Damage *DamagedError
}

// ReplicaInfo counts the records of one replica.
type ReplicaInfo struct {
	Replica wire.Replica
	Records uint64
	// Messages counts live messages, and Bytes what is in their frames.
	Messages, Bytes uint64
}

// Info reads the whole capture and counts what is in it. The Reader itself
// stays where it is. The error is ctx's, ErrNoSeek for a stream, or one of the
// file; what is damaged is in Info.
func (r *Reader) Info(ctx context.Context) (Info, error) {
	if r.ra == nil {
		return Info{}, ErrNoSeek
	}
	all, err := newReader(r.damage.Name)
	if err != nil {
		return Info{}, err
	}
	all.ra, all.size, all.chunks, all.cut = r.ra, r.size, r.chunks, r.cut
	all.damage = DamagedError{Name: r.damage.Name, Offset: r.damage.Offset, Header: r.damage.Header}
	all.rewind(0)
	info := Info{
		Header: r.header, Chunks: len(r.chunks), Compressed: r.size, Complete: r.cut == nil,
	}
	err = info.count(ctx, all)
	info.Unknown, info.Uncompressed = all.unknown, all.unpacked
	if errors.As(err, &info.Damage) {
		err = nil
	}
	return info, err
}

// Count counts the records of any Source, such as a recording in JSON Lines.
// What is about the file stays zero. The error is nil at a clean end, or what
// ended src.
func Count(ctx context.Context, src wire.Source) (Info, error) {
	var info Info
	return info, info.count(ctx, src)
}

func (info *Info) count(ctx context.Context, src wire.Source) error {
	at := map[wire.Replica]int{}
	for {
		rec, err := src.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		info.add(&rec, at)
	}
}

func (info *Info) add(rec *wire.Record, at map[wire.Replica]int) {
	info.Records++
	info.Kinds[rec.Kind]++
	if rec.At != 0 {
		if info.From == 0 {
			info.From, info.Until = rec.At, rec.At
		}
		info.From, info.Until = min(info.From, rec.At), max(info.Until, rec.At)
	}
	i, ok := at[rec.Replica]
	switch {
	case ok:
	case len(info.Replicas) == MaxReplicas:
		info.Others++
		return
	default:
		i = len(info.Replicas)
		at[rec.Replica] = i
		info.Replicas = append(info.Replicas, ReplicaInfo{Replica: rec.Replica})
	}
	c := &info.Replicas[i]
	c.Records++
	if rec.Kind == wire.Frames {
		c.Messages++
		for _, f := range rec.Frames {
			c.Bytes += uint64(len(f))
		}
	}
}
