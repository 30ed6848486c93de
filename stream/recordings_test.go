package stream

import (
	"encoding/binary"
	"encoding/hex"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/kvscope/kvscope/refdata"
	"github.com/kvscope/kvscope/wire"
)

type recordedLine struct {
	T               float64
	Replica         string
	Monitor         string
	Frames          base64s
	Port            int
	Endpoint, Error string
	Text            string
}

var processStart = regexp.MustCompile(`(?m)^process_start_time_seconds (\S+)$`)

// record pushes a line of a recording or of the metrics pages beside it.
func (l *recordedLine) record(t *testing.T, tr *Tracker) []Step {
	at, _ := wire.TimeOf(l.T)
	rec := wire.Record{At: at, Replica: wire.Replica(l.Replica)}
	switch {
	case l.Port > 0: // Dynamo's: hexadecimal
		rec.Replica = wire.Replica(strconv.Itoa(l.Port))
		for _, f := range l.Frames {
			frame, err := hex.DecodeString(f)
			if err != nil {
				t.Fatal(err)
			}
			rec.Frames = append(rec.Frames, frame)
		}
	case l.Frames != nil:
		rec.Frames = l.Frames.frames(t)
	case l.Monitor == "EVENT_DISCONNECTED":
		rec.Kind, rec.Link = wire.Link, wire.LinkDown
	case l.Monitor == "EVENT_HANDSHAKE_SUCCEEDED":
		rec.Kind, rec.Link = wire.Link, wire.LinkUp
	case l.Monitor != "":
		rec.Kind, rec.Link = wire.Link, wire.LinkConnecting
	default:
		var facts wire.Facts
		if m := processStart.FindStringSubmatch(l.Text); m != nil {
			seconds, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			facts.Started, _ = wire.TimeOf(seconds)
		}
		return tr.Describe(rec.Replica, at, facts, wire.Load{}, l.Error)
	}
	return tr.Push(rec)
}

// Every batch of every recording is applied or in a gap, and there is no gap
// and no restart where the file has none.
func TestOracleRecordings(t *testing.T) {
	t.Parallel()
	files := append(refdata.Files(t, refdata.Root(t), "vllm/*/events.jsonl.gz"), refdata.Files(t, refdata.Root(t), "dynamo/live/vllm_wire.jsonl.gz")...)
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			t.Parallel()
			all := refdata.All[recordedLine](t, file)
			if pages, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "metrics.jsonl.gz")); len(pages) > 0 {
				all = append(all, refdata.All[recordedLine](t, pages[0])...)
				slices.SortStableFunc(all, func(a, b recordedLine) int {
					switch {
					case a.T < b.T:
						return -1
					case a.T > b.T:
						return 1
					}
					return 0
				})
			}
			recording(t, all)
		})
	}
}

func recording(t *testing.T, all []recordedLine) {
	tr := New(Options{})
	sent := map[wire.Replica][]uint64{}
	watchers := map[wire.Replica]*watcher{}
	applied := map[wire.Replica][]uint64{}
	pages := 0
	for i := range all {
		l := &all[i]
		if l.Frames == nil && l.Monitor == "" {
			pages++
		}
		for _, step := range l.record(t, tr) {
			if watchers[step.Replica] == nil {
				watchers[step.Replica] = &watcher{}
			}
			watchers[step.Replica].follow(t, []Step{step})
			if step.Kind == Apply {
				applied[step.Replica] = append(applied[step.Replica], step.Batch.Seq)
			}
		}
		if l.Frames != nil {
			name := wire.Replica(l.Replica)
			frame := l.Frames[1]
			if l.Port > 0 {
				name = wire.Replica(strconv.Itoa(l.Port))
				n, err := strconv.ParseUint(frame, 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				sent[name] = append(sent[name], n)
				continue
			}
			sent[name] = append(sent[name], binary.BigEndian.Uint64(l.Frames.frames(t)[1]))
		}
	}
	batches := 0
	for name, seqs := range sent {
		batches += len(seqs)
		gaps, restarts := 0, 0
		for i := 1; i < len(seqs); i++ {
			switch {
			case seqs[i] <= seqs[i-1]:
				restarts++
			case seqs[i] > seqs[i-1]+1:
				gaps++
			}
		}
		st, _ := tr.State(name)
		checkGaps(t, st)
		watchers[name].accounts(t, st, false)
		if !slices.Equal(applied[name], seqs) || len(st.Gaps) != gaps || st.Restarts != restarts {
			t.Errorf("%s: %d of %d applied, %d gaps of %d, %d restarts of %d", name,
				len(applied[name]), len(seqs), len(st.Gaps), gaps, st.Restarts, restarts)
		}
		t.Logf("%s: %d batches, %d–%d, %d restarts, %v", name, len(seqs), seqs[0], st.Last, restarts, st.Trust)
	}
	t.Logf("%d batches of %d replicas in order, %d metrics pages", batches, len(sent), pages)
}
