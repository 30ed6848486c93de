package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvscope/kvscope/capture"
	"github.com/kvscope/kvscope/wire"
)

type list = []any

// batch is one message of vLLM 0.14, as its struct definitions encode it.
func batch(t *testing.T, seq uint64, events ...any) [][]byte {
	t.Helper()
	payload, err := msgpack.Marshal(list{float64(seq), list(events), 0})
	if err != nil {
		t.Fatal(err)
	}
	return [][]byte{{}, binary.BigEndian.AppendUint64(nil, seq), payload}
}

func stored(hash, parent any, tokens ...int) any {
	return list{"BlockStored", list{hash}, parent, tokens, len(tokens), nil, "GPU", nil}
}

// TestHeldRecording reads what a live tap recorded: a removal that came before
// the answer that brings what it removes.
func TestHeldRecording(t *testing.T) {
	t.Parallel()
	records := []wire.Record{
		{Kind: wire.Frames, Frames: batch(t, 0, stored(1, nil, 10, 11))},
		{Kind: wire.Frames, Frames: batch(t, 2, list{"BlockRemoved", list{2}, "GPU"})},
		{Kind: wire.ReplayBegin, From: 1},
		{Kind: wire.ReplayFrames, Frames: batch(t, 1, stored(2, 1, 12, 13))},
		{Kind: wire.ReplayEnd},
	}
	for _, tt := range []struct {
		hold  int
		trust string
	}{
		{64, "EXACT"},
		// As a plain recording: the removal was applied at once, and the gap is
		// one that nothing fills.
		{0, "DEGRADED"},
	} {
		path := filepath.Join(t.TempDir(), "live.kvcap")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w, err := capture.NewWriter(f, capture.Header{Hold: tt.hold})
		if err != nil {
			t.Fatal(err)
		}
		for i, rec := range records {
			rec.At, rec.Replica = wire.Time(i+1)*1e9, "a"
			if err := w.Write(rec); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"report", "--json", "--from", path}, {"replay", "--json", path}, {"report", "--json", "--from", filepath.Dir(path)}} {
			var out, errs bytes.Buffer
			if code := run(context.Background(), args, nil, &out, &errs); code != exitFine {
				t.Fatalf("exit code %d: %s", code, errs.String())
			}
			var got struct {
				Replicas []struct {
					Trust  string
					Blocks struct{ Device int }
				}
			}
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Replicas) != 1 || got.Replicas[0].Blocks.Device != 1 || got.Replicas[0].Trust != tt.trust {
				t.Errorf("hold %d, %s: %+v, want 1 block and %s", tt.hold, args[0], got, tt.trust)
			}
		}
	}
}
