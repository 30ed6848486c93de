package tui

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

// Width is always that of the terminal's cells, never bytes or runes: styles
// have none, and wide characters have two.

// fit cuts or pads a text to exactly w cells.
func fit(s string, w int) string {
	switch n := ansi.StringWidth(s); {
	case w <= 0:
		return ""
	case n > w:
		s = ansi.Truncate(s, w, glyphMore)
		return s + strings.Repeat(" ", max(0, w-ansi.StringWidth(s)))
	default:
		return s + strings.Repeat(" ", w-n)
	}
}

// fitRight is fit with the text at the right.
func fitRight(s string, w int) string {
	if n := ansi.StringWidth(s); n < w {
		return strings.Repeat(" ", w-n) + s
	}
	return fit(s, w)
}

// cut shortens a text to at most w cells.
func cut(s string, w int) string {
	if w <= 0 {
		return ""
	}
	if ansi.StringWidth(s) <= w {
		return s
	}
	return ansi.Truncate(s, w, glyphMore)
}

// wrap breaks a text into at most most lines of w cells; what does not fit is
// cut and says so.
func wrap(s string, w, most int) []string {
	if w <= 0 || most <= 0 {
		return nil
	}
	lines := strings.Split(ansi.Wrap(s, w, ""), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	if len(lines) > most {
		rest := strings.Join(lines[most-1:], " ")
		lines = append(lines[:most-1], cut(rest, w))
	}
	return lines
}

// clean makes a text from outside fit to be shown.
func clean(s string) string { return wire.Printable(s) }

// percent gives part of whole with one decimal, or a dash.
func percent(part, whole float64) string {
	if whole <= 0 || math.IsNaN(part/whole) {
		return glyphNone
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}

// approx is the mark before each number of a replica that is not EXACT.
func approx(r *diagnose.Replica) string {
	if r.Trust.Exact() {
		return ""
	}
	return glyphApprox
}

// clock gives the time of day, in UTC.
func clock(t wire.Time) string { return stamp(t, "15:04:05") }

// clockMilli is clock with milliseconds.
func clockMilli(t wire.Time) string { return stamp(t, "15:04:05.000") }

// date gives day and time of day, in UTC.
func date(t wire.Time) string { return stamp(t, "2006-01-02 15:04:05") }

func stamp(t wire.Time, layout string) string {
	if t == 0 {
		return glyphNone
	}
	return time.Unix(0, int64(t)).UTC().Format(layout)
}

// ago gives an age in two units at most.
func ago(d wire.Time) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	const second = wire.Time(time.Second)
	switch {
	case d < second:
		return sign + strconv.FormatInt(int64(d/1e6), 10) + " ms"
	case d < 10*second:
		return sign + strconv.FormatFloat(float64(d/1e8)/10, 'f', 1, 64) + " s"
	case d < 60*second:
		return sign + strconv.FormatInt(int64(d/second), 10) + " s"
	case d < 3600*second:
		return fmt.Sprintf("%s%d m %02d s", sign, d/(60*second), d/second%60)
	}
	return fmt.Sprintf("%s%d h %02d m", sign, d/(3600*second), d/(60*second)%60)
}

// when gives a moment as the user wants times: absolute, or as an age before
// the newest record shown.
func (s *scene) when(t wire.Time) string {
	switch {
	case t == 0:
		return glyphNone
	case s.relative && s.snap != nil:
		return ago(s.snap.Until-t) + " ago"
	}
	return clockMilli(t)
}

// spark draws values, scaled to the largest of them.
func spark(values []uint32) string {
	var top uint32
	for _, v := range values {
		top = max(top, v)
	}
	out := make([]rune, len(values))
	for i, v := range values {
		out[i] = sparkGlyphs[0]
		if v > 0 {
			steps := uint64(len(sparkGlyphs) - 1)
			out[i] = sparkGlyphs[(uint64(v)*steps+uint64(top)-1)/uint64(top)]
		}
	}
	return string(out)
}
