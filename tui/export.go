package tui

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/wire"
)

// formats are the kinds of file that a view can be written as.
var formats = []struct {
	name, what string
	encode     func(table) []byte
}{
	{"json", "a list of objects", encodeJSON},
	{"csv", "comma-separated, with a head", encodeCSV},
	{"md", "a Markdown table", encodeMarkdown},
	{"txt", "columns for people", encodeText},
}

func formatNames() []string {
	out := make([]string, len(formats))
	for i := range formats {
		out[i] = formats[i].name
	}
	return out
}

func encodeJSON(t table) []byte {
	var b bytes.Buffer
	b.WriteString("[")
	for i, row := range t.rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  " + rowJSON(t.columns, padded(row, len(t.columns))))
	}
	b.WriteString("\n]\n")
	return b.Bytes()
}

func encodeCSV(t table) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write(t.columns) // memory takes everything
	for _, row := range t.rows {
		_ = w.Write(padded(row, len(t.columns)))
	}
	w.Flush()
	return b.Bytes()
}

func encodeMarkdown(t table) []byte {
	var b bytes.Buffer
	line := func(cells []string) {
		b.WriteByte('|')
		for _, c := range cells {
			c = strings.NewReplacer("\\", "\\\\", "|", "\\|", "\r", " ", "\n", " ").Replace(c)
			b.WriteString(" " + c + " |")
		}
		b.WriteByte('\n')
	}
	line(t.columns)
	b.WriteString("|" + strings.Repeat(" --- |", len(t.columns)) + "\n")
	for _, row := range t.rows {
		line(padded(row, len(t.columns)))
	}
	return b.Bytes()
}

func encodeText(t table) []byte {
	widths := make([]int, len(t.columns))
	lines := [][]string{t.columns}
	for _, row := range t.rows {
		row = padded(row, len(t.columns))
		for i := range row {
			row[i] = clean(row[i])
		}
		lines = append(lines, row)
	}
	for _, row := range lines {
		for i, c := range row {
			widths[i] = max(widths[i], ansi.StringWidth(c))
		}
	}
	var b bytes.Buffer
	for _, row := range lines {
		var line strings.Builder
		for i, c := range row {
			line.WriteString(fit(c, widths[i]) + "  ")
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.Bytes()
}

// padded gives a copy of a row with exactly n cells.
func padded(row []string, n int) []string {
	out := make([]string, n)
	copy(out, row)
	return out
}

// exportName is the name to write a view under: what, and of which moment.
func exportName(view string, at wire.Time, format string) string {
	return fmt.Sprintf("kvscope-%s-%s.%s", view, time.Unix(0, int64(at)).UTC().Format("20060102T150405Z"), format)
}

// export writes the view as it is shown.
func (m *model) export(format string) tea.Cmd {
	for _, f := range formats {
		if f.name != format {
			continue
		}
		if m.opt.WriteFile == nil {
			return m.say("there is nowhere to write to")
		}
		v, write := m.view(), m.opt.WriteFile
		t := v.export(m.scene())
		name := exportName(v.name(), m.snap.Until, f.name)
		return func() tea.Msg {
			path, err := write(name, f.encode(t))
			if err != nil {
				return toastMsg{"export failed: " + err.Error()}
			}
			return toastMsg{fmt.Sprintf("wrote %s of %s to %s", wire.Counted(len(t.rows), "row"), v.name(), path)}
		}
	}
	return m.say(fmt.Sprintf("no format %q: %s", format, strings.Join(formatNames(), ", ")))
}
