package observe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// source opens an events file with the metrics pages beside it.
func source(t *testing.T, events string) wire.Source {
	t.Helper()
	src := wire.NewJSONL(bytes.NewReader(read(t, events)), filepath.Base(events))
	metrics := filepath.Join(filepath.Dir(events), "metrics.jsonl.gz")
	if _, err := os.Stat(metrics); err != nil {
		return src
	}
	return wire.Merge(src, wire.NewJSONL(bytes.NewReader(read(t, metrics)), "metrics"))
}

// TestOracleEngineHashes recomputes the engine's own hash of every stored
// block from its tokens. Left out are chains whose parent is from before the
// recording, roots of recipes that are not known, and blocks whose hash covers
// what is not published.
func TestOracleEngineHashes(t *testing.T) {
	t.Parallel()
	for _, path := range refdata.Files(t, refdata.Root(t), "vllm/*/events.jsonl.gz") {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			t.Parallel()
			h := hasher{t: t, chains: map[wire.Replica]*chains{}}
			src := source(t, path)
			for {
				rec, err := src.Next(context.Background())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if rec.Kind == wire.Frames {
					h.batch(rec)
				}
			}
			t.Logf("%d blocks equal; left out: %d behind a parent never seen, %d that cover what is not published, %d of unknown root",
				h.equal, h.noParent, h.unpublished, h.noRoot)
			if h.equal+h.noParent+h.unpublished+h.noRoot == 0 {
				t.Error("the recording holds no stored block")
			}
		})
	}
}

type hasher struct {
	t                                    *testing.T
	chains                               map[wire.Replica]*chains
	equal, noParent, unpublished, noRoot int
}

// chains is what is known of one replica's hashes.
type chains struct {
	recipe  blockhash.Recipe
	digests map[wire.Handle]blockhash.Digest
	last    uint64
}

func (h *hasher) batch(rec wire.Record) {
	topic, seq, payload, err := wire.SplitFrames(rec.Frames)
	if err != nil {
		h.t.Fatal(err)
	}
	b, err := wire.Decode(topic, seq, payload)
	if err != nil {
		h.t.Fatal(err)
	}
	c := h.chains[rec.Replica]
	if c == nil || seq < c.last { // a restart has hashes of its own
		c = &chains{digests: map[wire.Handle]blockhash.Digest{}}
		h.chains[rec.Replica] = c
	}
	c.last = seq
	for i := range b.Events {
		if e := &b.Events[i]; e.Kind == wire.Stored && e.Aligned() {
			h.store(c, e)
		}
	}
}

func (h *hasher) store(c *chains, e *wire.Event) {
	run := blockhash.Run[wire.Token]{
		Context: blockhash.Context{LoRA: e.LoRAName, LoRAID: e.LoRAID, Salt: e.Salt},
		Tokens:  e.Tokens, BlockSize: e.BlockSize, Bigram: e.Bigram, Lookahead: e.Lookahead,
	}
	for _, keys := range e.Extra {
		var values []blockhash.Value
		for _, k := range keys {
			values = append(values, valueOf(k))
		}
		run.Extra = append(run.Extra, values)
	}
	parent, known := c.digests[e.Parent]
	switch {
	case e.Parent.Set && !known:
		h.noParent += len(e.Hashes)
		return
	case !e.Parent.Set:
		s := blockhash.Store[wire.Token]{Run: run}
		for _, x := range e.Hashes {
			s.Handles = append(s.Handles, x.N)
			if x.S != "" {
				s.Bytes = append(s.Bytes, x.S)
			}
		}
		if r, ok := blockhash.Identify(s); ok && (c.recipe.IsZero() || r.Form != blockhash.AnyForm) {
			c.recipe = r
		}
	}
	if c.recipe.IsZero() {
		h.noRoot += len(e.Hashes)
		return
	}
	links, err := blockhash.Chain(c.recipe, parent, run)
	// Before the form of extra keys is known, a LoRA block's path may be needed.
	lora := e.LoRAName != "" && errors.Is(err, blockhash.ErrForm)
	if lora || errors.Is(err, blockhash.ErrUnpublished) {
		h.unpublished += len(e.Hashes) - len(links)
	} else if err != nil {
		h.t.Errorf("store of %d blocks: %v", len(e.Hashes), err)
	}
	for i, link := range links {
		want := e.Hashes[i]
		if link.Handle != want.N || want.S != "" && want.S != string(link.Digest.Bytes()) {
			h.t.Errorf("block %d: computed %016x, the engine sent %s", i, link.Handle, want)
			continue
		}
		h.equal++
		c.digests[want] = link.Digest
	}
}

func valueOf(k wire.ExtraKey) blockhash.Value {
	switch {
	case k.List != nil:
		var list []blockhash.Value
		for _, e := range k.List {
			list = append(list, valueOf(e))
		}
		return blockhash.Tuple(list...)
	case k.IsInt:
		return blockhash.Int(k.Int)
	case k.Bytes != nil:
		return blockhash.Bytes(k.Bytes)
	}
	return blockhash.Text(k.Text)
}

// TestOracleAudit holds predictions against what real engines reported, for
// every recording with a truth log. A sampling recorder cannot see everything
// (a request served while the link was down), so 1 in 100 may disagree.
func TestOracleAudit(t *testing.T) {
	t.Parallel()
	for _, path := range refdata.Files(t, refdata.Root(t), "vllm/*/events.jsonl.gz") {
		truth := filepath.Join(filepath.Dir(path), "truth.jsonl.gz")
		if _, err := os.Stat(truth); err != nil {
			continue
		}
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			t.Parallel()
			requests, err := explain.ReadRequests(bytes.NewReader(read(t, truth)), "truth")
			if err != nil {
				t.Fatal(err)
			}
			o := New(Options{Scrape: fleet.ParseMetrics, Requests: requests})
			if err := o.Run(context.Background(), source(t, path), nil); err != nil {
				t.Fatal(err)
			}
			a := o.Audit()
			t.Logf("%d requests: %d agree (%d by a bound, %d of these right in full), %d over, %d under, %d unverifiable, %d excluded",
				a.Requests, a.Agree, a.Bounds, a.Tight, a.Over, a.Under, a.Unverifiable, a.Excluded)
			if sum := a.Agree + a.Over + a.Under + a.Unverifiable + a.Excluded; sum != a.Requests || sum != len(requests) {
				t.Errorf("counts sum to %d of %d requests", sum, len(requests))
			}
			if a.Agree == 0 || (a.Over+a.Under)*100 > a.Requests {
				t.Errorf("disagreements: %+v", a.Disagreements)
			}
			for _, r := range o.Snapshot().Replicas {
				if r.Trust.Exact() && r.Facts.Capacity > 0 && r.Index.Copies > r.Facts.Capacity {
					t.Errorf("replica %s is EXACT with %d copies on %d blocks", r.Replica, r.Index.Copies, r.Facts.Capacity)
				}
			}
		})
	}
}
