package tui

import (
	"slices"

	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// tierColumns are the numbers of matched blocks; those of lower tiers show
// where any replica has some.
var tierColumns = []struct {
	head string
	n    func(*observe.Row) int
}{
	{"device", func(r *observe.Row) int { return r.Device }},
	{"host", func(r *observe.Row) int { return r.Host }},
	{"disk", func(r *observe.Row) int { return r.Disk }},
	{"external", func(r *observe.Row) int { return r.External }},
}

// termHeads are the heads of columns of terms. Those that are not here are short.
var termHeads = map[string]string{
	"active_prefill_blocks": "prefill", "prompt_blocks": "prompt", "device_overlap_credit": "credit", "host_overlap_credit": "host cr",
	"disk_overlap_credit": "disk cr", "shared_cache_credit": "shared cr", "clamp_at_zero": "clamp", "active_decode_blocks": "decode",
	"new_decode_blocks": "new dec", "active_request_cost_blocks": "requests", "preferred_taint_multiplier": "taints",
	"missing_blocks": "missing", "active_requests": "requests", "turns_to_wait": "turns", "device_overlap_blocks": "overlap",
	"queue-scorer": "queue", "kv-cache-utilization-scorer": "usage", "prefix-cache-scorer": "prefix", "running-requests-size-scorer": "running",
	"load-aware-scorer": "load", "active-request-scorer": "active", "token-load-scorer": "tokens", "no-hit-lru-scorer": "no hit",
	"matched_tokens": "matched",
}

// whatIfColumn is a column of the table, strip and name left out.
type whatIfColumn struct {
	head string
	text func(*whatIfRow) string
	w    int
	// before says that it stands before the strip, at the left.
	before bool
	// drop orders what is left out on a narrow screen: the highest first.
	drop int
}

// leastStrip is how wide the strip stays while columns are left out.
func leastStrip(room, blocks int) int { return min(max(6, room/6), blocks) }

// columns are those that fit beside a name and a strip.
func (v *whatIf) columns(rows []*whatIfRow, room, blocks int) []whatIfColumn {
	out := v.allColumns(rows, room > 140)
	used := 0
	for i := range out {
		c := &out[i]
		c.w = ansi.StringWidth(c.head)
		for _, r := range rows {
			c.w = max(c.w, ansi.StringWidth(c.text(r)))
		}
		c.w = min(c.w, 34)
		used += c.w + 2
	}
	for len(out) > 0 && used+leastStrip(room, blocks) > room {
		at := 0
		for i := range out {
			if out[i].drop > out[at].drop {
				at = i
			}
		}
		used -= out[at].w + 2
		out = slices.Delete(out, at, at+1)
	}
	return out
}

// allColumns are those that say something of these rows; whole are the words of
// trust with their reasons.
func (v *whatIf) allColumns(rows []*whatIfRow, whole bool) []whatIfColumn {
	some := func(has func(*whatIfRow) bool) bool { return slices.ContainsFunc(rows, has) }
	mark := func(r *whatIfRow, n int) string { return about(r.Row) + wire.Grouped(n) }
	trust := func(r *whatIfRow) string { return string(r.Trust.Word) }
	if whole {
		trust = func(r *whatIfRow) string { return r.Trust.String() }
	}
	judged := v.why != nil
	var out []whatIfColumn
	add := func(when bool, c whatIfColumn) {
		if when {
			out = append(out, c)
		}
	}
	add(judged, whatIfColumn{head: "rank", text: (*whatIfRow).rank, before: true, drop: 7})
	add(true, whatIfColumn{head: "trust", text: trust, before: true, drop: 3})
	for at, c := range tierColumns {
		add(at == 0 || some(func(r *whatIfRow) bool { return r.tier(at) > 0 }), whatIfColumn{head: c.head, drop: 6, text: func(r *whatIfRow) string {
			switch {
			case r.matched:
				return mark(r, r.tier(at)) + byHand
			case at == 0 && r.Upper > r.Device: // a group of a hybrid model lacks its part
				return mark(r, r.Device) + " " + glyphAtMost + wire.Grouped(r.Upper)
			}
			return mark(r, r.tier(at))
		}})
	}
	unsure := some(func(r *whatIfRow) bool { return r.Certain < r.Depth() })
	add(unsure, whatIfColumn{head: "sure", drop: 9, text: func(r *whatIfRow) string { return wire.Grouped(r.Certain) }})
	add(true, whatIfColumn{head: "cached tok", drop: 0, text: func(r *whatIfRow) string { return mark(r, r.cached()) }})
	add(true, whatIfColumn{head: "share", drop: 8, text: v.share})
	if !judged {
		return out
	}
	for _, at := range v.why.Telling() {
		name := v.terms()[at].Name
		c := whatIfColumn{head: name, drop: 5, text: func(r *whatIfRow) string { return r.term(at) }}
		if short, ok := termHeads[name]; ok {
			c.head = short
		}
		if name == v.why.Deciding {
			c.head, c.drop = glyphMarker+c.head, 4
		}
		out = append(out, c)
	}
	add(true, whatIfColumn{head: "load", drop: 2, text: (*whatIfRow).load})
	add(true, whatIfColumn{head: "from", drop: 10, text: (*whatIfRow).loadFrom})
	add(true, whatIfColumn{head: "chance", drop: 3, text: (*whatIfRow).chance})
	add(true, whatIfColumn{head: "cost", drop: 1, text: (*whatIfRow).cost})
	return out
}
