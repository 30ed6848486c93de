package explain

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

const second = wire.Time(1e9)

// booking makes the NATS message of a router: "add", "done" or "free" of a request.
func booking(at wire.Time, publisher, seq uint64, what, request, worker string, blocks ...uint64) wire.Record {
	word := func(b []byte, key string) []byte { return msgp.AppendString(b, key) }
	p := msgp.AppendMapHeader(nil, 3)
	p = msgp.AppendString(word(p, "request_id"), request)
	var id uint64
	if _, err := fmt.Sscan(worker, &id); err != nil {
		panic(err)
	}
	p = msgp.AppendMapHeader(word(p, "worker"), 2)
	p = msgp.AppendUint64(word(p, "worker_id"), id)
	p = msgp.AppendInt(word(p, "dp_rank"), 0)
	p = word(p, "data")
	switch what {
	case "add":
		p = msgp.AppendMapHeader(p, 1)
		p = msgp.AppendMapHeader(word(p, "AddRequest"), 3)
		p = msgp.AppendArrayHeader(word(p, "token_sequence"), uint32(len(blocks)))
		for _, b := range blocks {
			p = msgp.AppendUint64(p, b)
		}
		p = msgp.AppendBool(word(p, "track_prefill_tokens"), true)
		p = msgp.AppendMapHeader(word(p, "prefill_load_hint"), 1)
		p = msgp.AppendInt(word(p, "initial_effective_prefill_tokens"), 100)
	case "done":
		p = word(p, "MarkPrefillCompleted")
	default:
		p = word(p, "Free")
	}
	env := msgp.AppendMapHeader(nil, 5)
	env = msgp.AppendUint64(word(env, "publisher_id"), publisher)
	env = msgp.AppendUint64(word(env, "sequence"), seq)
	env = msgp.AppendUint64(word(env, "published_at"), 1)
	env = msgp.AppendString(word(env, "topic"), wire.PlaneActivity)
	env = msgp.AppendBytes(word(env, "payload"), p)
	return wire.Record{At: at, Replica: "nats/load", Kind: wire.Frames, Frames: [][]byte{[]byte("a.b." + wire.PlaneActivity), env}}
}

// shown is a load in short.
func shown(l Load) string {
	return fmt.Sprintf("%s %d/%d/%d of %d from %q without %s; %d wait, usage %v",
		l.State, l.PrefillTokens, l.Blocks, l.Prefix, l.Requests, l.From, strings.Join(l.Missing, ","), l.Waiting, l.Usage)
}

func TestBookings(t *testing.T) {
	t.Parallel()
	const books = `from "the routers' bookings" without waiting_requests,kv_cache_usage; 0 wait, usage 0`
	link := func(state wire.LinkState) wire.Record {
		return wire.Record{At: 2 * second, Replica: "nats/load", Kind: wire.Link, Link: state}
	}
	for name, tt := range map[string]struct {
		push []wire.Record
		now  wire.Time
		want string
		note string
	}{
		"nothing": {nil, 9 * second, `unknown 0/0/0 of 0 from "" without active_prefill_tokens,active_decode_blocks,active_requests,waiting_requests,kv_cache_usage; 0 wait, usage 0`, ""},
		"workers alone": {
			[]wire.Record{booking(second, 1, 0, "done", "q", "7")},
			9 * second, `unknown 0/0/0 of 0 from "" without active_prefill_tokens,active_decode_blocks,active_requests,waiting_requests,kv_cache_usage; 0 wait, usage 0`, "",
		},
		"from the first message on": {
			[]wire.Record{booking(second, 1, 0, "add", "q", "7", 11, 12), booking(second, 1, 1, "add", "p", "7", 11, 13), booking(second, 2, 5, "done", "p", "7")},
			9 * second, "known 100/3/2 of 2 " + books, "",
		},
		"and freed": {
			[]wire.Record{booking(second, 1, 0, "add", "q", "7", 11, 12), booking(second, 1, 1, "free", "q", "7")},
			9 * second, "known 0/0/0 of 0 " + books, "",
		},
		"another worker's": {
			[]wire.Record{booking(second, 1, 0, "add", "q", "8", 11, 12)},
			9 * second, "known 0/0/0 of 0 " + books, "",
		},
		"joined late": {
			[]wire.Record{booking(second, 1, 3, "add", "q", "7", 11)},
			9 * second, "stale 100/1/1 of 1 " + books, "for 292 s more",
		},
		"a gap": {
			[]wire.Record{booking(second, 1, 0, "add", "q", "7", 11), booking(3*second, 1, 2, "add", "p", "7", 11)},
			9 * second, "stale 200/1/1 of 2 " + books, "for 294 s more",
		},
		"long after a gap": { // the first booking has expired
			[]wire.Record{booking(second, 1, 0, "add", "q", "7", 11), booking(3*second, 1, 2, "add", "p", "7", 12), booking(280*second, 1, 3, "add", "r", "7", 13)},
			340 * second, "known 100/1/0 of 1 " + books, "",
		},
		"a router that began anew": {
			[]wire.Record{booking(second, 1, 0, "add", "q", "7", 11), booking(3*second, 1, 0, "add", "p", "7", 11)},
			9 * second, "known 200/1/1 of 2 " + books, "",
		},
		"a link that is down": {
			[]wire.Record{link(wire.LinkUp), booking(second, 1, 0, "add", "q", "7", 11), link(wire.LinkDown)},
			9 * second, "stale 100/1/1 of 1 " + books, "the link to a router is down",
		},
		"a link that came back": {
			[]wire.Record{booking(second, 1, 0, "add", "q", "7", 11), link(wire.LinkDown), link(wire.LinkUp)},
			9 * second, "known 100/1/1 of 1 " + books, "",
		},
	} {
		l := NewLoads()
		for _, rec := range tt.push {
			if got := l.Push(rec); got != (rec.Kind == wire.Frames) {
				t.Errorf("%s: a booking %t", name, got)
			}
		}
		for _, book := range []*Loads{l.Clone(), l} {
			got := book.of(tt.now, &Replica{Name: "7/0"}, nil, []uint64{11, 12})
			if shown(got) != tt.want || !strings.Contains(got.Note, tt.note) || (got.Note == "") != (tt.note == "") {
				t.Errorf("%s: %s, note %q\nwant %s, %q", name, shown(got), got.Note, tt.want, tt.note)
			}
		}
	}
}

// What cannot be read counts, is taken, and takes nothing with it.
func TestBadBookings(t *testing.T) {
	t.Parallel()
	l := NewLoads()
	bad := booking(second, 1, 0, "add", "q", "7", 11)
	env := bad.Frames[1]
	bad.Frames[1] = env[:len(env)-3]
	for _, rec := range []wire.Record{bad, booking(second, 1, 1, "add", "", "7")} {
		if !l.Push(rec) {
			t.Error("a message of the topic is none")
		}
	}
	if l.Push(wire.Record{Kind: wire.Frames, Frames: [][]byte{[]byte("kv"), make([]byte, 8), {0x90}}}) || l.Unread != 2 {
		t.Errorf("%d unread", l.Unread)
	}
	for i := range uint64(maxRouters + 10) {
		l.Push(booking(second, i, 0, "add", fmt.Sprint(i), "7"))
	}
	if len(l.routers) != maxRouters || l.Unread != 12 {
		t.Errorf("%d routers, %d unread", len(l.routers), l.Unread)
	}
}

func TestLoadSources(t *testing.T) {
	t.Parallel()
	engine := wire.Load{Known: true, At: 100 * second, Running: 3, Waiting: 2, KVUsage: 0.25}
	page := func(at wire.Time, name wire.Replica, prefill, blocks, requests float64) *Page {
		return &Page{At: at, Workers: []WorkerLoad{{"x", 1, 1, 1}, {name, prefill, blocks, requests}}}
	}
	for name, tt := range map[string]struct {
		r    Replica
		page *Page
		now  wire.Time
		want string
	}{
		"metrics": {
			Replica{Load: engine, Capacity: 400},
			nil, 101 * second,
			`known 0/100/0 of 5 from "the engine's metrics" without active_prefill_tokens; 2 wait, usage 0.25`,
		},
		"without a capacity": {
			Replica{Load: engine},
			nil, 101 * second,
			`known 0/0/0 of 5 from "the engine's metrics" without active_prefill_tokens,active_decode_blocks; 2 wait, usage 0.25`,
		},
		"old metrics": {
			Replica{Load: engine, Capacity: 400},
			nil, 111 * second,
			`stale 0/100/0 of 5 from "the engine's metrics" without active_prefill_tokens; 2 wait, usage 0.25`,
		},
		"Dynamo's page": {
			Replica{},
			page(100*second, "r", 320, 21, -1), 101 * second,
			`known 320/21/0 of 0 from "the router's metrics" without active_requests,waiting_requests,kv_cache_usage; 0 wait, usage 0`,
		},
		"both": {
			Replica{Load: engine, Capacity: 400},
			page(101*second, "r", 320, 21, -1), 101 * second,
			`known 320/21/0 of 5 from "the router's metrics and the engine's metrics" without ; 2 wait, usage 0.25`,
		},
		"an old page": {
			Replica{Load: engine, Capacity: 400},
			page(80*second, "r", 320, 21, 2), 101 * second,
			`stale 320/21/0 of 2 from "the router's metrics" without ; 2 wait, usage 0.25`,
		},
		"a page beside old metrics": {
			Replica{Load: engine, Capacity: 400},
			page(120*second, "r", 320, 21, 2), 120 * second,
			`known 320/21/0 of 2 from "the router's metrics" without waiting_requests,kv_cache_usage; 0 wait, usage 0`,
		},
		"a page beside metrics": {
			Replica{Load: engine, Capacity: 400},
			page(101*second, "r", 320, 21, 2), 101 * second,
			`known 320/21/0 of 2 from "the router's metrics" without ; 2 wait, usage 0.25`,
		},
		"metrics that cannot be": {
			Replica{Load: wire.Load{Known: true, At: 100 * second, Running: 1, Waiting: math.NaN(), KVUsage: 7}},
			nil, 101 * second,
			`unknown 0/0/0 of 0 from "" without active_prefill_tokens,active_decode_blocks,active_requests,waiting_requests; 0 wait, usage 1`,
		},
		"a page of unknown age": {
			Replica{},
			page(0, "r", 320, 21, 2), 101 * second,
			`known 320/21/0 of 2 from "the router's metrics" without waiting_requests,kv_cache_usage; 0 wait, usage 0`,
		},
		"a page of others": {
			Replica{},
			page(100*second, "s", 320, 21, 2), 101 * second,
			`unknown 0/0/0 of 0 from "" without active_prefill_tokens,active_decode_blocks,active_requests,waiting_requests,kv_cache_usage; 0 wait, usage 0`,
		},
		"beyond all numbers": {
			Replica{},
			page(100*second, "r", 1e300, 1, 1), 101 * second,
			`known 2147483647/1/0 of 1 from "the router's metrics" without waiting_requests,kv_cache_usage; 0 wait, usage 0`,
		},
	} {
		tt.r.Name = "r"
		got := NewLoads().of(tt.now, &tt.r, tt.page, nil)
		if shown(got) != tt.want || (got.State == route.LoadStale) != (got.Note != "") {
			t.Errorf("%s: %s, note %q\nwant %s", name, shown(got), got.Note, tt.want)
		}
	}
	// Bookings say nothing of queues.
	books := NewLoads()
	books.Push(booking(100*second, 1, 0, "add", "q", "7", 11))
	got := books.of(101*second, &Replica{Name: "7/0", Load: engine}, nil, []uint64{11})
	if want := `known 100/1/1 of 1 from "the routers' bookings" without ; 2 wait, usage 0.25`; shown(got) != want {
		t.Errorf("%s, want %s", shown(got), want)
	}
	l := Load{From: fromMetrics, Missing: []string{loadFields[0]}}
	missing := slices.Clone(l.Missing)
	l.edited(loadFields[0])
	l.edited(loadFields[1])
	if l.From != "the engine's metrics and by hand" || len(l.Missing) != 0 || missing[0] != loadFields[0] {
		t.Errorf("%+v", l)
	}
}
