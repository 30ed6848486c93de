package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/web"
	"github.com/kvscope/kvscope/wire"
)

// publisher is one socket that an engine says it has.
type publisher struct {
	rank   int
	events address
	replay address
	topic  string
	// problem says why it cannot be tapped, and noReplay why replay is empty
	// where the engine named one.
	problem, noReplay  string
	buffer, hwm, queue int
}

// description is what an engine says of itself.
type description struct {
	// off says why there is no event at all, with the fix.
	off        string
	publishers []publisher
	loads      []publisher
	facts      wire.Facts
	// onPage says that the metrics page has facts that are not here.
	onPage bool
	// digest is that of the answer, to see a change by.
	digest [sha256.Size]byte
}

// errSilent says that an HTTP server describes no event socket.
var errSilent = errors.New("it does not say where its event socket is")

// answerError is about what a server answered, and so not about reaching it.
type answerError struct{ error }

func (e answerError) Unwrap() error { return e.error }

// descriptions are the pages where engines describe themselves, and who reads
// them; the first that is there counts. A reader's errSilent passes on to the
// next.
var descriptions = []struct {
	path string
	read func(body []byte, h host) (description, error)
}{
	{"kv_event_sources", readVLLM},
	{"server_info", readSGLang},
	{"get_server_info", readSGLang},
}

// describe asks an engine for its event sockets. The error wraps errSilent
// where it is up but tells nothing.
func (p *Prober) describe(ctx context.Context, base string) (description, error) {
	u, err := web.Parse(base)
	if err != nil {
		return description{}, err
	}
	h := p.hostOf(ctx, u.Hostname())
	for _, d := range descriptions {
		page, err := p.Probe(ctx, u.JoinPath(d.path).String())
		if page.Status == http.StatusNotFound {
			continue
		}
		if err != nil {
			return description{}, err
		}
		desc, err := d.read(page.Body, h)
		if errors.Is(err, errSilent) {
			continue
		}
		if err != nil {
			return description{}, answerError{fmt.Errorf("GET %s: %w", page.URL, err)}
		}
		desc.digest = sha256.Sum256(page.Body)
		return desc, nil
	}
	return description{}, fmt.Errorf("%s: %w, as vLLM before 0.31 does not: give events, such as %s", web.Shown(u), errSilent, address{host: u.Hostname(), port: 5557})
}

// lenientCount is a JSON number that is a count; anything else reads as 0,
// unknown.
type lenientCount int

func (c *lenientCount) UnmarshalJSON(b []byte) error {
	var n int32
	if json.Unmarshal(b, &n) == nil && n > 0 {
		*c = lenientCount(n)
	}
	return nil
}

// soft reads a JSON value that is not needed: what is of another type is the
// zero value.
func soft[T any](raw json.RawMessage) T {
	var v, zero T
	if json.Unmarshal(raw, &v) != nil {
		return zero
	}
	return v
}

// vllmSource is vLLM's KVEventsConfig as it is in force for one rank.
type vllmSource struct {
	Enable    *bool        `json:"enable_kv_cache_events"`
	Publisher string       `json:"publisher"`
	Endpoint  string       `json:"endpoint"`
	Replay    string       `json:"replay_endpoint"`
	Topic     string       `json:"topic"`
	Buffer    lenientCount `json:"buffer_steps"`
	HWM       lenientCount `json:"hwm"`
	Queue     lenientCount `json:"max_queue_size"`
}

const vllmOff = `it publishes no cache events: start it with --kv-events-config '{"enable_kv_cache_events": true, "endpoint": "tcp://*:5557"}'`

// readVLLM reads /kv_event_sources, an object of vllmSource by rank.
func readVLLM(body []byte, at host) (description, error) {
	var sources map[int]vllmSource
	if err := json.Unmarshal(body, &sources); err != nil || sources == nil {
		return description{}, errors.New("the answer is not vLLM's: expected an object of publishers by rank")
	}
	d := description{onPage: true}
	if len(sources) > maxRanks {
		return d, fmt.Errorf("%d ranks: the limit is %d", len(sources), maxRanks)
	}
	for rank, s := range sources {
		if rank < 0 || rank > maxPort {
			return d, fmt.Errorf("rank %d: expected 0 to %d", rank, maxPort)
		}
		if s.Enable != nil && !*s.Enable || s.Publisher == "null" {
			continue
		}
		p := publisher{
			rank: rank, topic: s.Topic,
			buffer: int(s.Buffer), hwm: int(s.HWM), queue: int(s.Queue),
		}
		p.events, p.problem = vllmEvents(s.Endpoint, at)
		if s.Replay != "" {
			replay, err := here(s.Replay, at.name)
			p.setReplay(replay, err, at)
		}
		d.publishers = append(d.publishers, p)
	}
	slices.SortFunc(d.publishers, func(a, b publisher) int { return a.rank - b.rank })
	if len(d.publishers) == 0 {
		d.off = vllmOff
	}
	return d, nil
}

// setReplay takes the replay socket that an engine named, or says why not.
func (p *publisher) setReplay(replay address, err error, at host) {
	switch {
	case err != nil:
		p.noReplay = "its replay socket: " + err.Error()
	case !at.has(replay):
		p.noReplay = at.elsewhere(replay, "replay")
	default:
		p.replay = replay
	}
}

// vllmEvents gives where to reach an event socket, or why nobody can. vLLM
// listens on endpoints with * or ::, and dials all other tcp ones; but what it
// reports for tcp://*:0 is the node's own address with the port it got.
func vllmEvents(endpoint string, at host) (address, string) {
	a, err := here(endpoint, at.name)
	if err != nil {
		return a, err.Error()
	}
	listens := strings.Contains(endpoint, "*") || strings.Contains(endpoint, "::") || a.path != ""
	switch {
	case !listens && (isLoopback(a.host) || !at.has(a)):
		return address{}, dialsOut(a)
	case !at.has(a):
		return address{}, at.elsewhere(a, "events")
	}
	return a, ""
}

func dialsOut(a address) string {
	return fmt.Sprintf("it dials %s instead of listening, and only one consumer can be there: "+
		`configure "endpoint": "tcp://*:%d" in --kv-events-config, or run kvscope at that address with events: tcp://*:%d and bind: true`,
		a, a.port, a.port)
}

// here gives the address of a socket that an engine named, as seen from
// outside: the engine's own host in place of a wildcard.
func here(endpoint, engine string) (address, error) {
	a, err := parseAddress(endpoint)
	switch {
	case err != nil:
		return address{}, err
	case a.path != "" && !isLoopback(engine):
		return address{}, fmt.Errorf("it publishes at %s, which only its own machine can reach: configure tcp://*:5557, or run kvscope there with events: %s", a, a)
	case isWildcard(a.host):
		a.host = engine
	}
	return a, nil
}

// sglangInfo is the part of SGLang's /server_info that is read. The rest is
// all settings of the server, most of them of no interest.
type sglangInfo struct {
	Events *struct {
		Publisher string       `json:"publisher"`
		Host      string       `json:"endpoint_host"`
		Port      int          `json:"endpoint_port_base"`
		Topic     string       `json:"topic"`
		BlockSize lenientCount `json:"block_size"`
		Ranks     lenientCount `json:"dp_size"`
		Load      int          `json:"load_endpoint_port_base"`
		LoadTopic string       `json:"load_topic"`
		Replay    int          `json:"replay_endpoint_port_base"`
	} `json:"kv_events"`
	Config json.RawMessage `json:"kv_events_config"`
	Radix  json.RawMessage `json:"disable_radix_cache"`
	Name   json.RawMessage `json:"served_model_name"`
	VLLM   json.RawMessage `json:"vllm_config"`
	Page   json.RawMessage `json:"page_size"`
}

// sglangConfig is the part of --kv-events-config that /server_info repeats as
// text and does not resolve.
type sglangEventsConfig struct {
	Bind   *bool        `json:"bind"`
	Buffer lenientCount `json:"buffer_steps"`
	HWM    lenientCount `json:"hwm"`
	Queue  lenientCount `json:"max_queue_size"`
}

const sglangOff = `it publishes no cache events: start it with --kv-events-config '{"publisher": "zmq", "endpoint": "tcp://*:5557"}'`

// readSGLang reads /server_info.
func readSGLang(body []byte, at host) (description, error) {
	var info sglangInfo
	if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		return description{}, errors.New("the answer is not SGLang's: expected an object")
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return description{}, errors.New("the answer is not SGLang's: kv_events is in another form")
	}
	e := info.Events
	if info.VLLM != nil || e == nil && info.Radix == nil && info.Page == nil {
		return description{}, errSilent // vLLM in its development mode has such a page too
	}
	d := description{facts: wire.Facts{Model: soft[string](info.Name)}}
	off := soft[*bool](info.Radix)
	if off != nil {
		on := !*off
		d.facts.PrefixCaching = &on
	}
	switch {
	case off != nil && *off:
		d.off = "its prefix cache is off, so it has no cache events: start it without --disable-radix-cache"
		return d, nil
	case e == nil || e.Publisher == "null":
		d.off = sglangOff
		return d, nil
	}
	d.facts.BlockSize = int(e.BlockSize)
	if e.Ranks > maxRanks {
		return d, fmt.Errorf("%d ranks: the limit is %d", e.Ranks, maxRanks)
	}
	cfg := soft[sglangEventsConfig](json.RawMessage(soft[string](info.Config)))
	dials := !isWildcard(e.Host) && !strings.Contains(e.Host, "::") // its guess, as its own code has it
	if cfg.Bind != nil {
		dials = !*cfg.Bind
	}
	for rank := range max(1, int(e.Ranks)) {
		p := publisher{rank: rank, topic: e.Topic, buffer: int(cfg.Buffer), hwm: int(cfg.HWM), queue: int(cfg.Queue)}
		p.events, p.problem = sglangSocket(e.Host, e.Port, rank, at.name)
		switch {
		case p.problem != "":
		case dials:
			p.events, p.problem = address{}, dialsOut(p.events)
		case !at.has(p.events):
			p.events, p.problem = address{}, at.elsewhere(p.events, "events")
		}
		if e.Replay != 0 {
			replay, err := portOf(e.Host, e.Replay, rank, at.name)
			p.setReplay(replay, err, at)
		}
		d.publishers = append(d.publishers, p)
		if e.Load != 0 {
			l := publisher{rank: rank, topic: e.LoadTopic}
			l.events, l.problem = sglangSocket("*", e.Load, rank, at.name)
			d.loads = append(d.loads, l)
		}
	}
	return d, nil
}

func sglangSocket(host string, port, rank int, engine string) (address, string) {
	a, err := portOf(host, port, rank, engine)
	if err != nil {
		return address{}, err.Error()
	}
	return a, ""
}

func portOf(host string, port, rank int, engine string) (address, error) {
	if isWildcard(host) {
		host = engine
	}
	a, err := parseAddress(address{host: strings.Trim(host, "[]"), port: port}.String())
	if err != nil {
		return address{}, err
	}
	return a.rank(rank)
}
