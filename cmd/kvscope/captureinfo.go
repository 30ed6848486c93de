package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/capture"
	"github.com/kvscope/kvscope/wire"
)

func newInfo() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "info FILE|-",
		Short: "Say what a recording holds",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			src, err := open(args[0], cmd.InOrStdin())
			if err != nil {
				return inputError(err)
			}
			defer src.Close()
			info, err := src.info(cmd.Context())
			if cmd.Context().Err() != nil {
				return err
			}
			if err != nil {
				err = inputError(err)
			}
			if info.Records == 0 && err != nil && !asJSON {
				return err
			}
			write := infoText
			if asJSON {
				write = infoJSON
			}
			return first(write(cmd.OutOrStdout(), args[0], &info, sentence(err)), err)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// info reads a recording to its end. The error can be what is damaged.
func (r *recording) info(ctx context.Context) (capture.Info, error) {
	if c, ok := r.Source.(*capture.Reader); ok {
		info, err := c.Info(ctx)
		if err == nil && info.Damage != nil {
			err = info.Damage
		}
		if !errors.Is(err, capture.ErrNoSeek) {
			return info, err
		}
	}
	info, err := capture.Count(ctx, r.Source)
	info.Header, info.Complete = r.header, err == nil
	return info, err
}

// kindWords name the kinds of record, by wire.RecordKind.
var kindWords = [...]struct{ json, text string }{
	wire.Frames:       {"messages", "messages"},
	wire.ReplayFrames: {"replayed_messages", "replayed messages"},
	wire.ReplayBegin:  {"replay_requests", "replay requests"},
	wire.ReplayEnd:    {"replay_ends", "ends of replays"},
	wire.Link:         {"link_changes", "changes of a link"},
	wire.Scrape:       {"metrics_pages", "metrics pages"},
	wire.Note:         {"notes", "notes"},
}

func infoText(w io.Writer, name string, info *capture.Info, damage string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, wire.Printable(fmt.Sprintf(format, args...)))
	}
	row("recording", "%s", name)
	if damage != "" {
		row("INCOMPLETE", "%s", damage)
	}
	if h := &info.Header; h.Version > 0 {
		row("written by", "%s, capture version %d", firstOf(h.Tool, "an unknown tool"), h.Version)
		if h.Created != 0 {
			row("begun", "%s", stamp(h.Created))
		}
		if h.Hold > 0 {
			row("replays", "asked for, with up to %d live batches held back", h.Hold)
		}
	}
	row("records", "%d", info.Records)
	for kind, n := range info.Kinds {
		if n > 0 {
			row("  "+kindWords[kind].text, "%d", n)
		}
	}
	if info.Unknown > 0 {
		row("  of unknown kinds", "%d", info.Unknown)
	}
	if info.From != 0 {
		row("time", "%s to %s (%.1f s)", stamp(info.From), stamp(info.Until), (info.Until - info.From).Seconds())
	}
	if info.Compressed > 0 {
		row("size", "%d bytes, %d unpacked, %d chunks", info.Compressed, info.Uncompressed, info.Chunks)
	}
	row("replicas", "%d", len(info.Replicas))
	for _, r := range info.Replicas {
		row("  "+wire.Printable(string(r.Replica)), "%d records, %d messages of %d bytes", r.Records, r.Messages, r.Bytes)
	}
	if info.Others > 0 {
		row("  others", "%d records", info.Others)
	}
	return t.Flush()
}

// captureSchema names the form of infoJSON's output.
const captureSchema = "kvscope.capture/1"

type jsonInfo struct {
	Schema    string            `json:"schema"`
	Source    string            `json:"source"`
	Damage    string            `json:"damage,omitempty"`
	Version   int               `json:"version"`
	Tool      string            `json:"tool"`
	Created   *wire.Time        `json:"created"`
	Hold      int               `json:"hold"`
	Complete  bool              `json:"complete"`
	Records   uint64            `json:"records"`
	Kinds     map[string]uint64 `json:"kinds"`
	Unknown   uint64            `json:"unknown_kinds"`
	From      *wire.Time        `json:"from"`
	Until     *wire.Time        `json:"until"`
	Chunks    int               `json:"chunks"`
	Packed    int64             `json:"packed_bytes"`
	Unpacked  int64             `json:"unpacked_bytes"`
	Replicas  []jsonReplicaInfo `json:"replicas"`
	OtherRecs uint64            `json:"other_records"`
}

type jsonReplicaInfo struct {
	Replica  wire.Replica `json:"replica"`
	Records  uint64       `json:"records"`
	Messages uint64       `json:"messages"`
	Bytes    uint64       `json:"bytes"`
}

func infoJSON(w io.Writer, name string, info *capture.Info, damage string) error {
	known := func(t wire.Time) *wire.Time {
		if t == 0 {
			return nil
		}
		return &t
	}
	out := jsonInfo{
		Schema: captureSchema, Source: name, Damage: damage,
		Version: info.Header.Version, Tool: info.Header.Tool, Created: known(info.Header.Created), Hold: info.Header.Hold,
		Complete: info.Complete,
		Records:  info.Records, Kinds: map[string]uint64{}, Unknown: info.Unknown,
		From: known(info.From), Until: known(info.Until),
		Chunks: info.Chunks, Packed: info.Compressed, Unpacked: info.Uncompressed,
		Replicas: []jsonReplicaInfo{}, OtherRecs: info.Others,
	}
	for kind, n := range info.Kinds {
		out.Kinds[kindWords[kind].json] = n
	}
	for _, r := range info.Replicas {
		out.Replicas = append(out.Replicas, jsonReplicaInfo(r))
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
