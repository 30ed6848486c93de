package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

// logged is a request of a truth log as a prompt, when it was sent, and how many of
// its tokens the engine says were in its cache afterwards.
type logged struct {
	at     wire.Time
	p      *prompt.Prompt
	stored int
}

// oracleLog makes prompts of the requests of b_timestamp as the commands do, from
// their JSON and the model's template, and holds their tokens against those that
// the engine made.
func oracleLog(t *testing.T, m *prompt.Model, file string) map[string][]logged {
	t.Helper()
	out := map[string][]logged{}
	refdata.Each(t, file, func(n int, r struct {
		Tag      string
		Start    json.Number `json:"t_start"`
		Request  json.RawMessage
		Response struct {
			Tokens []wire.Token `json:"prompt_token_ids"`
			Usage  struct {
				Details struct {
					Cached  int `json:"cached_tokens"`
					Created int `json:"created_cache_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
	},
	) {
		if r.Request == nil {
			return
		}
		p, _, err := (&promptFlags{}).prompt(t.Context(), m, r.Request, fmt.Sprint("request ", n))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.Tokens, r.Response.Tokens) {
			t.Fatalf("request %d (%s) makes other tokens than the engine's", n, r.Tag)
		}
		at, err := parseMoment(r.Start.String())
		if err != nil {
			t.Fatal(err)
		}
		out[r.Tag] = append(out[r.Tag], logged{at.at, p, r.Response.Usage.Details.Cached + r.Response.Usage.Details.Created})
	})
	return out
}

// volatile is what the clients put at the head of a prompt.
var volatile = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:]+Z|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// TestOracleExplainText: what parts the requests that a real engine served is
// found from their JSON on, between two of them, and between one and what the
// fleet held before it came.
func TestOracleExplainText(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(refdata.Root(t), "vllm", "b_timestamp")
	words := wordFlags{dir: refdata.Tokenizer(t, "qwen3"), with: "go"}
	m, err := words.load(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const size = 32
	all := oracleLog(t, m, filepath.Join(folder, "truth.jsonl.gz"))
	tokens := 0
	for _, rows := range all {
		tokens += len(rows)
	}
	player, err := observe.Load(t.Context(), source(t, folder), observe.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	config := defaults(t)
	pairs, asked := 0, 0
	// The losses are what the engine's own cached tokens tell: ts-head and uuid-head
	// find nothing of 5 blocks of a system prompt that ts-tail finds, tools-shuffled
	// 5 of the 15 blocks that tools-stable finds.
	for tag, want := range map[string]struct {
		class  diff.Class
		detail string
		lost   int
	}{
		"ts-head":         {diff.Timestamp, "second", 5},
		"uuid-head":       {diff.ID, "UUID", 5},
		"tools-shuffled":  {diff.ToolOrder, "8 tools", 10},
		"ts-tail":         {diff.Timestamp, "second", 0},
		"whitespace-tail": {diff.WhiteSpace, "", 0},
	} {
		rows := all[tag]
		if len(rows) < 2 {
			t.Fatalf("%d requests of %s", len(rows), tag)
		}
		for i := 1; i < len(rows); i++ {
			holds := func(where string, d *diff.Diff, lost int) {
				t.Helper()
				if d == nil || len(d.Spans) == 0 {
					t.Fatalf("%s %d, %s: nothing parts them: %+v", tag, i, where, d)
				}
				s := d.Spans[0]
				if s.Class != want.class || want.detail != "" && s.Detail != want.detail || d.Reuse.Lost != lost || d.NeedsText {
					t.Errorf("%s %d, %s: %v (%s), %+v, want %+v and %d lost", tag, i, where, s.Class, s.Detail, d.Reuse, want, lost)
				}
				if tag == "ts-head" && s.Kind != diff.Replaced {
					t.Errorf("%s %d, %s: %v", tag, i, where, s.Kind)
				}
			}
			encode := func(text string) ([]wire.Token, []prompt.Span, error) { return speech{m}.Encode(t.Context(), text) }
			d, err := diff.Compare(rows[i-1].p, rows[i].p, diff.Options{BlockSize: size, Encode: encode})
			if err != nil {
				t.Fatal(err)
			}
			holds("beside the one before", d, want.lost)
			pairs++
			if want.lost == 0 {
				continue // what it finds is all there is to find
			}
			if _, err := player.SeekTime(t.Context(), rows[i].at); err != nil {
				t.Fatal(err)
			}
			a, err := player.Explain(t.Context(), explain.Query{Tokens: rows[i].p.Tokens, Config: config})
			if err != nil {
				t.Fatal(err)
			}
			if a.Divergence == nil {
				t.Fatalf("%s %d: all of it is stored before it came", tag, i)
			}
			if err := a.Divergence.Compare(t.Context(), rows[i].p, speech{m}); err != nil {
				t.Fatal(err)
			}
			// Only whole blocks are stored, so of an earlier one there is as much as
			// they leave without what is moved.
			lost := want.lost
			if one := a.Divergence.Diff; one != nil && want.class != diff.ToolOrder {
				at := slices.IndexFunc(rows[:i], func(r logged) bool { return strings.Contains(r.p.Text, one.Spans[0].A.Text) })
				if at < 0 {
					t.Fatalf("%s %d: %q is of no request before", tag, i, one.Spans[0].A.Text)
				}
				prev := rows[at]
				text := prev.p.Text[:prev.p.Spans[prev.stored-1].End]
				rest, _, err := encode(strings.Replace(text, volatile.FindString(text), "", 1))
				if err != nil {
					t.Fatal(err)
				}
				lost = min(lost, len(rest)/size)
			}
			holds("before it came", a.Divergence.Diff, lost)
			if tag == "ts-head" && lost != 5 {
				t.Errorf("ts-head %d: %d blocks lost", i, lost)
			}
			asked++
		}
	}
	t.Logf("%d requests to their tokens, %d pairs compared, %d explained at the moment before", tokens, pairs, asked)
}

// source opens a recording's folder.
func source(t *testing.T, folder string) wire.Source {
	t.Helper()
	src, err := open(folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(src.Close)
	return src
}
