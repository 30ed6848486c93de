package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/wire"
)

var update = flag.Bool("update", false, "write fixtures/s_text/events.jsonl anew")

const (
	textRecording = "../../fixtures/s_text"
	textBegan     = wire.Time(1_796_022_000e9)
	textBlock     = 16
)

// asked is a line of requests.jsonl.
type asked struct {
	Replica, LoRA, Answer string
	Request               json.RawMessage
	// Cached is what the engine has of it, as counted by hand from the texts.
	Cached int `json:"cached_tokens"`
}

// small loads the tokenizer of the fixtures.
func small(t testing.TB) *prompt.Model {
	t.Helper()
	m, err := demoModel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestTextRecording: the recording is what simulated engines publish of the
// requests beside it, and they find as much in their caches as is written there.
func TestTextRecording(t *testing.T) {
	t.Parallel()
	m := small(t)
	lines, err := os.ReadFile(filepath.Join(textRecording, "requests.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	engines, seqs := map[string]*sim.Engine{}, map[string]uint64{}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	n := 0
	for line := range bytes.Lines(lines) {
		n++
		var a asked
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		r, err := prompt.Parse(a.Request)
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.Prompt(t.Context(), r, prompt.RenderOptions{LoRA: a.LoRA})
		if err != nil {
			t.Fatal(err)
		}
		if engines[a.Replica] == nil {
			if engines[a.Replica], err = sim.NewEngine(sim.EngineOptions{Blocks: 100, BlockSize: textBlock}); err != nil {
				t.Fatal(err)
			}
		}
		engine := engines[a.Replica]
		job := sim.Job{Prompt: p.Tokens, Output: demoEncode(m)(a.Answer + "<|im_end|>"), LoRA: p.LoRA, Salt: p.Salt}
		if err := engine.Submit(job); err != nil {
			t.Fatal(err)
		}
		at := textBegan + wire.Time(n)*1e9
		for len(engine.Jobs()) > 0 {
			events, served := engine.Step()
			for _, s := range served {
				if s.Cached != a.Cached {
					t.Errorf("request %d: %d tokens cached, want %d", n, s.Cached, a.Cached)
				}
			}
			if at += 1e6; len(events) == 0 {
				continue
			}
			seq := binary.BigEndian.AppendUint64(nil, seqs[a.Replica])
			seqs[a.Replica]++
			err := enc.Encode(struct {
				T       wire.Time `json:"t"`
				Replica string    `json:"replica"`
				Frames  [][]byte  `json:"frames"`
			}{at, a.Replica, [][]byte{[]byte("kv@" + a.Replica + "@small"), seq, sim.AppendBatch(nil, at, events, 0)}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	name := filepath.Join(textRecording, "events.jsonl")
	if *update {
		if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, out.Bytes()) {
		t.Errorf("the engines publish otherwise than %s (%v): -update writes it anew", name, err)
	}
}
