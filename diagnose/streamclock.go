package diagnose

import (
	"fmt"
	"math"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

// lags remembers how long after the engine's own time batches came: the least of each
// ten seconds, as delays come and go and an offset of clocks stays.
type lags map[wire.Replica]*lag

type lag struct {
	bins [lagBins]lagBin
	last int
}

type lagBin struct {
	from  wire.Time
	least wire.Time
	n     int
}

const (
	lagBins = 6
	lagTime = wire.Time(10e9)
	// nearClock is what proves nothing, as steps take time, and farClock what no
	// delay is for a minute on end.
	nearClock, farClock = wire.Time(250e6), wire.Time(5e9)
	// sameClock is how near engine times are that are times of day at all, and
	// likeClock how alike are two measurements of one offset.
	sameClock, likeClock = wire.Time(3600e9), wire.Time(1e9)
)

func newLags() Memory { return lags{} }

// Step takes the lag of a live batch.
func (l lags) Step(s *stream.Step, _ *index.Index) {
	if s.Kind != stream.Apply || s.Replayed || s.Batch.Engine <= 0 {
		return
	}
	one := l[s.Replica]
	if one == nil {
		one = &lag{}
		l[s.Replica] = one
	}
	late := s.At - s.Batch.Engine
	b := &one.bins[one.last]
	if from := s.At - s.At%lagTime; b.from != from {
		one.last = (one.last + 1) % lagBins
		b = &one.bins[one.last]
		*b = lagBin{from: from, least: late}
	}
	b.least = min(b.least, late)
	b.n++
}

// Clone copies it.
func (l lags) Clone() Memory {
	c := make(lags, len(l))
	for name, one := range l {
		copied := *one
		c[name] = &copied
	}
	return c
}

// offset gives by how much the engine's clock is behind ours (ahead: below 0) as far
// as the last minute's batches prove that, 0 if they prove nothing.
func (l *lag) offset(now wire.Time) wire.Time {
	least, most, n, bins := wire.Time(math.MaxInt64), wire.Time(math.MinInt64), 0, 0
	for i := range l.bins {
		b := &l.bins[i]
		if b.n == 0 || now-b.from > lagBins*lagTime {
			continue
		}
		least, most = min(least, b.least), max(most, b.least)
		n += b.n
		bins++
	}
	switch {
	case n < 3 || least < -sameClock || most > sameClock:
	case most < -nearClock: // nothing comes before it was sent
		return least
	case bins >= 3 && least > farClock && most-least < likeClock:
		return least
	}
	return 0
}

func clockSkew(v View, m Memory) []Finding {
	l := m.(lags)
	present := make(map[wire.Replica]bool, len(v.Replicas))
	var out []Finding
	timed, least, most := 0, wire.Time(math.MaxInt64), wire.Time(math.MinInt64)
	for i := range v.Replicas {
		r := &v.Replicas[i]
		present[r.Replica] = true
		one := l[r.Replica]
		if one == nil {
			continue
		}
		timed++
		off := one.offset(v.Now)
		if off == 0 {
			continue
		}
		least, most = min(least, off), max(most, off)
		f := about(r, Warning, 0)
		f.Title = "its clock is " + apart(off, "ours")
		f.Counterfactual = "with clocks in step, lags and ages of this replica would be right"
		f.Next = "let the engine's machine keep its time by NTP"
		if off > 0 {
			f.Next += ", unless its publisher is steadily that far behind (then its event queue is long)"
		}
		out = append(out, f)
	}
	for name := range l {
		if !present[name] {
			delete(l, name)
		}
	}
	if timed > 1 && len(out) == timed && most-least < likeClock {
		f := Finding{Severity: Warning, Subject: "fleet"}
		f.Title = "all " + fmt.Sprint(timed) + " engines' clocks are " + apart(most, "ours") + ": kvscope's own clock is off"
		f.Counterfactual = "with clocks in step, lags and ages would be right"
		f.Next = "let the machine that kvscope runs on keep its time by NTP"
		return []Finding{f}
	}
	return out
}

func apart(off wire.Time, whose string) string {
	if off < 0 {
		return ago(-off) + " ahead of " + whose
	}
	return ago(off) + " behind " + whose
}

// rates remembers how many batches each replica had sent, every ten seconds.
type rates map[wire.Replica]*pace

type pace struct {
	at      [lagBins]wire.Time
	batches [lagBins]uint64
	n, last int
}

func newRates() Memory { return rates{} }

// Step has nothing to see: the View counts batches.
func (s rates) Step(*stream.Step, *index.Index) {}

// Clone copies it.
func (s rates) Clone() Memory {
	c := make(rates, len(s))
	for name, one := range s {
		copied := *one
		c[name] = &copied
	}
	return c
}

// per gives a replica's batches a second over the last minute, and false where less
// than half of one is known.
func (s rates) per(r *Replica, now wire.Time) (float64, bool) {
	one := s[r.Replica]
	if one == nil {
		one = &pace{last: lagBins - 1}
		s[r.Replica] = one
	}
	if one.n == 0 || now-one.at[one.last] >= lagTime {
		one.last = (one.last + 1) % lagBins
		one.at[one.last], one.batches[one.last] = now, r.Batches
		one.n = min(one.n+1, lagBins)
	}
	first := (one.last - one.n + 1 + lagBins) % lagBins
	took := now - one.at[first]
	if took < 3*lagTime || r.Batches <= one.batches[first] {
		return 0, false
	}
	return float64(r.Batches-one.batches[first]) / took.Seconds(), true
}

// bounds are the publisher's own, and how long each should last.
var bounds = []struct {
	name  string
	of    func(*wire.Facts) int
	least wire.Time
	why   string
}{
	{"buffer_steps", func(f *wire.Facts) int { return f.Buffer }, 60e9, "a longer outage of the tap cannot be made good by a replay"},
	{"hwm", func(f *wire.Facts) int { return f.HWM }, 5e9, "a subscriber that pauses longer loses batches"},
}

func bufferTooShort(v View, m Memory) []Finding {
	s := m.(rates)
	present := make(map[wire.Replica]bool, len(v.Replicas))
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		present[r.Replica] = true
		rate, known := s.per(r, v.Now)
		if !known {
			continue
		}
		for _, b := range bounds {
			n := b.of(&r.Facts)
			lasts := wire.Time(float64(n) / rate * 1e9)
			if n <= 0 || lasts >= b.least {
				continue
			}
			need := int(math.Ceil(rate * b.least.Seconds()))
			f := about(r, Warning, 0)
			f.about = b.name
			f.Title = fmt.Sprintf("%s of %d holds %s at %.1f batches a second: %s", b.name, n, ago(lasts), rate, b.why)
			f.Counterfactual = fmt.Sprintf("%s of %d would hold %s", b.name, need, ago(b.least))
			f.Next = fmt.Sprintf("raise %s in --kv-events-config to %d or more", b.name, need)
			out = append(out, f)
		}
	}
	for name := range s {
		if !present[name] {
			delete(s, name)
		}
	}
	return out
}
