package tui

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// parseMoment reads a moment: a time of day on the day of day, RFC 3339, Unix
// seconds, or an offset from now such as +90s, -10s or -1m30s.
func parseMoment(text string, now, day wire.Time) (wire.Time, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-") {
		d, err := time.ParseDuration(text)
		if err != nil {
			d, err = time.ParseDuration(text + "s")
		}
		if err != nil {
			return 0, fmt.Errorf("%q is no offset: +90s, -1m30s", text)
		}
		return now + wire.Time(d), nil
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		if t, err := time.Parse(layout, text); err == nil {
			y, m, d := time.Unix(0, int64(day)).UTC().Date()
			at := time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
			if wire.Time(at.UnixNano()) < day-wire.Time(12*time.Hour) {
				at = at.AddDate(0, 0, 1) // the recording went past midnight
			}
			return wire.Time(at.UnixNano()), nil
		}
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return wire.Time(t.UnixNano()), nil
	}
	if sec, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(sec) && math.Abs(sec) > 1e6 {
		if t, ok := wire.TimeOf(sec); ok {
			return t, nil
		}
	}
	return 0, fmt.Errorf("%q is no moment: 14:02:11, RFC 3339, Unix seconds, +90s or -10s", text)
}
