package tui

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/wire"
)

// column is one column of the fleet.
type column struct {
	name, head string
	// keep orders columns when there is little room: lower ones stay longer.
	keep int
	// least and most are widths; the column gets what the fleet's largest
	// value needs between them, so that digits stay where they are.
	least, most int
	left        bool
	text        func(*scene, *diagnose.Replica) string
	// paint, if set, draws for a width in place of text.
	paint func(*scene, *diagnose.Replica, int) string
	style func(*theme, *diagnose.Replica) style
	// key sorts by number, largest first.
	key func(*scene, *diagnose.Replica) float64
	// used says whether a replica has something to show; a column that no
	// replica uses is left out. nil is always.
	used func(*diagnose.Replica) bool
	// known says whether the column has something to say in this scene, where
	// that does not go by replica.
	known func(*scene) bool
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// fleetColumns are all columns, in the order in which they are shown.
var fleetColumns = []column{
	{
		name: "replica", head: "replica", keep: 0, least: 8, most: 28, left: true,
		text: func(_ *scene, r *diagnose.Replica) string { return nameOf(r.Replica) },
	},
	{
		name: "trust", head: "trust", keep: 1, least: 10, most: 40, left: true,
		text: func(_ *scene, r *diagnose.Replica) string { return trustText(r) }, paint: trustCell,
		style: func(t *theme, r *diagnose.Replica) style { return t.trust(r.Trust.Word.Badness()) },
		key:   func(_ *scene, r *diagnose.Replica) float64 { return float64(r.Trust.Word.Badness()) },
	},
	{
		name: "model", head: "model", keep: 16, least: 6, most: 20, left: true,
		text:  func(_ *scene, r *diagnose.Replica) string { return clean(r.Model) },
		known: severalModels,
	},
	{
		name: "link", head: "link", keep: 8, least: 7, most: 10, left: true,
		text:  func(_ *scene, r *diagnose.Replica) string { return linkText(r) },
		style: linkStyle,
		used:  func(r *diagnose.Replica) bool { return r.Link != wire.LinkUnknown },
	},
	{
		name: "epoch", head: "epoch", keep: 12, least: 5, most: 6,
		text: func(_ *scene, r *diagnose.Replica) string { return strconv.Itoa(r.Epoch) },
		key:  func(_ *scene, r *diagnose.Replica) float64 { return float64(r.Epoch) },
		used: func(r *diagnose.Replica) bool { return r.Epoch > 1 },
	},
	{
		name: "seq", head: "seq", keep: 6, least: 7, most: 16,
		text: func(_ *scene, r *diagnose.Replica) string {
			if !r.Heard {
				return glyphNone
			}
			return wire.Grouped(r.Last)
		},
		key: func(_ *scene, r *diagnose.Replica) float64 { return float64(r.Last) },
	},
	{
		name: "gaps", head: "gaps", keep: 4, least: 5, most: 11,
		text: func(_ *scene, r *diagnose.Replica) string { return fmt.Sprintf("%d/%d", r.GapsOpen, r.GapsHealed) },
		style: func(t *theme, r *diagnose.Replica) style {
			if r.GapsOpen > 0 {
				return t.bad
			}
			return style{}
		},
		key: func(_ *scene, r *diagnose.Replica) float64 {
			return float64(r.GapsOpen) + float64(r.GapsHealed)/1e6
		},
	},
	{
		name: "lag", head: "lag", keep: 11, least: 7, most: 10,
		text: func(_ *scene, r *diagnose.Replica) string {
			if r.LastBatch == 0 || r.Lag == 0 {
				return glyphNone
			}
			return lagText(r.Lag)
		},
		key: func(_ *scene, r *diagnose.Replica) float64 { return float64(r.Lag) },
	},
	{
		name: "silent", head: "silent", keep: 13, least: 7, most: 10,
		text: func(s *scene, r *diagnose.Replica) string {
			if r.LastBatch == 0 {
				return glyphNone
			}
			return ago(s.snap.Until - r.LastBatch)
		},
		key: func(s *scene, r *diagnose.Replica) float64 { return float64(s.snap.Until - r.LastBatch) },
	},
	{
		name: "events", head: "events/s", keep: 7, least: 16, most: 26,
		text:  func(s *scene, r *diagnose.Replica) string { return rateText(s, r) },
		paint: rateCell,
		key:   rateOf,
	},
	{
		name: "device", head: "device blocks", keep: 2, least: 13, most: 24,
		text: func(_ *scene, r *diagnose.Replica) string { return deviceText(r) },
		key:  func(_ *scene, r *diagnose.Replica) float64 { return float64(r.Index.Resident[wire.Device]) },
	},
	{
		// Blocks of chains whose beginning was never announced: they count for
		// the engine and match nothing yet.
		name: "orphans", head: "orphans", keep: 9, least: 7, most: 9,
		text: func(_ *scene, r *diagnose.Replica) string { return wire.Grouped(r.Index.Orphans) },
		key:  func(_ *scene, r *diagnose.Replica) float64 { return float64(r.Index.Orphans) },
		used: func(r *diagnose.Replica) bool { return r.Index.Orphans > 0 },
	},
	tierColumn(wire.Host, 9), tierColumn(wire.Disk, 14), tierColumn(wire.External, 15),
	{
		name: "running", head: "run", keep: 5, least: 4, most: 7,
		text: func(_ *scene, r *diagnose.Replica) string {
			return loadText(r, func(l *wire.Load) string { return number(l.Running) })
		},
		key: func(_ *scene, r *diagnose.Replica) float64 { return r.Load.Running },
	},
	{
		name: "waiting", head: "wait", keep: 5, least: 4, most: 7,
		text: func(_ *scene, r *diagnose.Replica) string {
			return loadText(r, func(l *wire.Load) string { return number(l.Waiting) })
		},
		key: func(_ *scene, r *diagnose.Replica) float64 { return r.Load.Waiting },
	},
	{
		name: "kv", head: "KV %", keep: 10, least: 4, most: 5,
		text: func(_ *scene, r *diagnose.Replica) string {
			return loadText(r, func(l *wire.Load) string { return fmt.Sprintf("%.0f", 100*l.KVUsage) })
		},
		key: func(_ *scene, r *diagnose.Replica) float64 { return r.Load.KVUsage },
	},
	{
		name: "hit", head: "hit %", keep: 3, least: 5, most: 6,
		text: func(_ *scene, r *diagnose.Replica) string {
			rate, ok := r.Load.HitRate()
			if !ok {
				return glyphNone
			}
			return fmt.Sprintf("%.1f", 100*rate)
		},
		key: func(_ *scene, r *diagnose.Replica) float64 {
			if rate, ok := r.Load.HitRate(); ok {
				return rate
			}
			return -1
		},
	},
	{
		name: "real", head: "real/pred", keep: 4, least: 9, most: 9,
		text: func(s *scene, r *diagnose.Replica) string {
			ratio, ok := realOverPredicted(s, r)
			if !ok {
				return glyphNone
			}
			return approx(r) + fmt.Sprintf("%.2f", ratio)
		},
		key: func(s *scene, r *diagnose.Replica) float64 {
			ratio, _ := realOverPredicted(s, r)
			return ratio
		},
		known: func(s *scene) bool { return s.audit != nil },
	},
}

// realOverPredicted is what the engine really reused over what the index
// promised, for the judged requests of a replica.
func realOverPredicted(s *scene, r *diagnose.Replica) (float64, bool) {
	if s.audit == nil {
		return 0, false
	}
	for _, a := range s.audit.PerReplica {
		if a.Predicted > 0 && slices.Contains(a.Replicas, r.Replica) {
			return float64(a.Cached) / float64(a.Predicted), true
		}
	}
	return 0, false
}

func tierColumn(tier wire.Tier, keep int) column {
	return column{
		name: tier.String(), head: tier.String(), keep: keep, least: 7, most: 12,
		text: func(_ *scene, r *diagnose.Replica) string {
			if r.Index.Resident[tier] == 0 {
				return glyphNone
			}
			return approx(r) + wire.Grouped(r.Index.Resident[tier])
		},
		key:  func(_ *scene, r *diagnose.Replica) float64 { return float64(r.Index.Resident[tier]) },
		used: func(r *diagnose.Replica) bool { return r.Index.Resident[tier] > 0 },
	}
}

func columnNamed(name string) *column {
	for i := range fleetColumns {
		if fleetColumns[i].name == name {
			return &fleetColumns[i]
		}
	}
	return nil
}

// trustText is the word with its reasons and its doubt, as in the reports.
func trustText(r *diagnose.Replica) string {
	s := r.Trust.String()
	if d := doubtText(r); d != "" {
		s += " " + d
	}
	return s
}

func doubtText(r *diagnose.Replica) string {
	if r.Trust.Exact() || r.Doubt <= 0 {
		return ""
	}
	return glyphAtMost + wire.Grouped(r.Doubt) + " blk"
}

// trustCell says as much as fits: the word always, then the doubt and the
// first reason.
func trustCell(_ *scene, r *diagnose.Replica, w int) string {
	word, doubt := string(r.Trust.Word), doubtText(r)
	reason := ""
	if len(r.Trust.Reasons) > 0 {
		reason = " " + string(r.Trust.Reasons[0])
	}
	if doubt != "" {
		doubt = " " + doubt
	}
	for _, s := range []string{trustText(r), word + reason + doubt, word + reason, word} {
		if ansi.StringWidth(s) <= w {
			return s
		}
	}
	return word[:min(len(word), 4)]
}

func linkText(r *diagnose.Replica) string {
	if r.Link == wire.LinkUnknown {
		return glyphNone
	}
	return r.Link.String()
}

func linkStyle(t *theme, r *diagnose.Replica) style {
	switch r.Link {
	case wire.LinkUp, wire.LinkUnknown:
		return style{}
	case wire.LinkConnecting:
		return t.warn
	}
	return t.bad
}

func lagText(lag wire.Time) string {
	return time.Duration(lag).Round(time.Millisecond).String()
}

func loadText(r *diagnose.Replica, value func(*wire.Load) string) string {
	if !r.Load.Known {
		return glyphNone
	}
	return value(&r.Load)
}

func deviceText(r *diagnose.Replica) string {
	s := approx(r) + wire.Grouped(r.Index.Resident[wire.Device])
	if r.Facts.Capacity > 0 {
		s += " / " + wire.Grouped(r.Facts.Capacity)
	}
	return s
}

// rateSeconds is how long the number of events per second looks back.
const rateSeconds = 5

func rateOf(s *scene, r *diagnose.Replica) float64 {
	var sum float64
	for _, n := range r.Rate(s.snap.Until, rateSeconds) {
		sum += float64(n)
	}
	return sum / rateSeconds
}

func rateText(s *scene, r *diagnose.Replica) string {
	return rateWord(rateOf(s, r))
}

func rateWord(v float64) string {
	if v > 0 && v < 10 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return wire.Grouped(uint64(v + 0.5))
}

func rateCell(s *scene, r *diagnose.Replica, w int) string {
	const digits = 6
	bins := r.Rate(s.snap.Until, max(w-digits-1, rateSeconds))
	var sum float64
	for _, n := range bins[len(bins)-rateSeconds:] {
		sum += float64(n)
	}
	text := fitRight(rateWord(sum/rateSeconds), digits)
	if n := w - digits - 1; n > 0 {
		return spark(bins[len(bins)-min(n, len(bins)):]) + " " + text
	}
	return text
}

// placed is a column with its width.
type placed struct {
	*column
	w int
}

func (c placed) align(s string, w int) string {
	if c.left {
		return fit(s, w)
	}
	return fitRight(s, w)
}

func (c placed) draw(s *scene, r *diagnose.Replica, w int) string {
	if c.paint != nil {
		return c.paint(s, r, w)
	}
	return c.text(s, r)
}

// shown says whether a column is wanted: not switched off, and used by some
// replica or switched on.
func (f *fleetView) shown(s *scene, c *column) bool {
	switch {
	case f.hidden[c.name]:
		return false
	case f.chosen[c.name]:
		return true
	case c.known != nil:
		return c.known(s)
	case c.used == nil:
		return true
	}
	for i := range s.snap.Replicas {
		if c.used(&s.snap.Replicas[i]) {
			return true
		}
	}
	return false
}

func severalModels(s *scene) bool {
	for i := range s.snap.Replicas {
		if s.snap.Replicas[i].Model != s.snap.Replicas[0].Model {
			return true
		}
	}
	return false
}

// roomy is the width that the trust column should have before columns that say
// less get any: word, first reason and doubt.
const (
	roomy     = 30
	roomyFrom = 5
)

// columns chooses what fits, by keep, and then gives spare room back in the
// same order.
func (f *fleetView) columns(s *scene, w int) []placed {
	var wanted []*column
	for i := range fleetColumns {
		if c := &fleetColumns[i]; f.shown(s, c) {
			wanted = append(wanted, c)
		}
	}
	byKeep := slices.Clone(wanted)
	slices.SortStableFunc(byKeep, func(a, b *column) int { return a.keep - b.keep })
	chosen := map[*column]bool{}
	used, reserve := -gutter, 0
	for _, c := range byKeep {
		if c.keep >= roomyFrom && reserve == 0 && chosen[columnNamed("trust")] {
			trust := columnNamed("trust")
			reserve = max(0, min(trust.want(s), roomy)-trust.least)
		}
		if len(chosen) > 0 && used+gutter+c.least+reserve > w {
			break
		}
		used += gutter + c.least
		chosen[c] = true
	}
	var cols []placed
	for _, c := range wanted {
		if chosen[c] {
			cols = append(cols, placed{c, c.least})
		}
	}
	f.widen(s, cols, w-used)
	return cols
}

// gutter is the space between columns.
const gutter = 2

// sampled bounds how many replicas are measured for the widths.
const sampled = 64

// widen gives spare room to the columns that need it.
func (f *fleetView) widen(s *scene, cols []placed, spare int) {
	for keep := 0; keep <= len(fleetColumns) && spare > 0; keep++ {
		for i := range cols {
			c := &cols[i]
			if c.keep != keep {
				continue
			}
			grow := min(spare, max(0, min(c.most, c.want(s))-c.w))
			c.w += grow
			spare -= grow
		}
	}
}

// want is the width that a column's texts would like to have.
func (c *column) want(s *scene) int {
	if c.name == "events" {
		return c.most
	}
	n := 0
	replicas := s.snap.Replicas
	for i := 0; i < len(replicas); i += 1 + len(replicas)/sampled {
		n = max(n, ansi.StringWidth(c.text(s, &replicas[i])))
	}
	return n
}
