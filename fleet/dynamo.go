package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/kvscope/kvscope/web"
	"github.com/kvscope/kvscope/wire"
)

// Bounds of a discovery directory.
const (
	maxEntries = 1 << 14
	maxEntry   = 1 << 20 // bytes of one file
	// dead is how much older than the newest file one may be: Dynamo touches
	// its own every three seconds and drops others' after ten.
	dead = 30 * time.Second
)

// dynamoDir is a directory of Dynamo's file discovery. Below v1 it has a folder
// for each kind of entry, and in it a file for each key, which is the file's
// name, percent-encoded; but the contents repeat all of the key.
type dynamoDir struct {
	Dynamo
	last []Member
	ever bool
}

// dynamoChannel is a socket of the event plane.
type dynamoChannel struct {
	Topic     string `json:"topic"`
	Publisher uint64 `json:"instance_id"`
	Transport struct {
		Kind   string `json:"kind"`
		Config struct {
			Endpoint string `json:"endpoint"`
		} `json:"config"`
	} `json:"transport"`
}

// dynamoWorker is a worker's data-parallel rank.
type dynamoWorker struct {
	ID   uint64 `json:"worker_id"`
	Rank uint32 `json:"dp_rank"`
}

func (w dynamoWorker) name() wire.Replica {
	return wire.Replica(strconv.FormatUint(w.ID, 10) + "/" + strconv.FormatUint(uint64(w.Rank), 10))
}

// dynamoSource says whose events a publisher sends.
type dynamoSource struct {
	Publisher uint64 `json:"publisher_id"`
	Metadata  struct {
		Worker *dynamoWorker `json:"worker"`
	} `json:"metadata"`
}

// dynamoCard is a model that a worker serves.
type dynamoCard struct {
	Worker uint64 `json:"instance_id"`
	Card   struct {
		Name      string       `json:"display_name"`
		BlockSize lenientCount `json:"kv_cache_block_size"`
		Info      struct {
			Config struct {
				Path string `json:"path"`
			} `json:"hf_config_json"`
		} `json:"model_info"`
		Runtime struct {
			Publishing *bool `json:"kv_event_publishing_enabled"`
		} `json:"runtime_config"`
	} `json:"card_json"`
}

// metrics guesses a worker's metrics page. Cards that name files by URL name
// the worker's own HTTP server, which has that page too.
func (c dynamoCard) metrics() string {
	u, err := web.Parse(c.Card.Info.Config.Path)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/metrics"}).String()
}

func (d *dynamoDir) look(_ context.Context, p *Prober, found *findings) []error {
	members, problems, err := d.read(p.opt.OpenDir(d.Dir), p.opt.Clock.Now())
	switch {
	case err != nil && d.ever:
		problems = append(problems, fmt.Errorf("%w: its %d members of before are kept", err, len(d.last)))
	case err != nil:
		return append(problems, err)
	default:
		d.last, d.ever = members, true
	}
	found.expect(1)
	found.put(0, d.last)
	return problems
}

func (d *dynamoDir) read(dir fs.FS, now time.Time) (members []Member, problems []error, err error) {
	fail := func(bad error) { problems = append(problems, fmt.Errorf("dynamo %s: %w", d.Dir, bad)) }
	channels, newest, err := entries[dynamoChannel](dir, "event_channels", fail)
	if err != nil {
		return nil, problems, fmt.Errorf("dynamo %s: %w", d.Dir, err)
	}
	if !newest.IsZero() && now.Sub(newest) > dead {
		fail(fmt.Errorf("nobody has renewed an entry for more than %s: has the fleet stopped?", dead))
	}
	sources, _, err := entries[dynamoSource](dir, "event_sources", fail)
	if err != nil {
		return nil, problems, fmt.Errorf("dynamo %s: %w", d.Dir, err)
	}
	list, _, err := entries[dynamoCard](dir, "mdc", fail)
	if err != nil {
		return nil, problems, fmt.Errorf("dynamo %s: %w", d.Dir, err)
	}
	workers := map[uint64]dynamoWorker{}
	for _, s := range sources {
		if s.Metadata.Worker != nil {
			workers[s.Publisher] = *s.Metadata.Worker
		}
	}
	cards := map[uint64]dynamoCard{}
	for _, c := range list {
		if _, twice := cards[c.Worker]; !twice { // an adapter's card has a longer key
			cards[c.Worker] = c
		}
	}
	publishing := map[uint64]bool{}
	for _, c := range channels {
		kind, ok := dynamoTopics[c.Topic]
		if !ok {
			continue
		}
		m := d.member(kind, c)
		// Bookings are about many workers, whoever tells of them.
		if w, ok := workers[c.Publisher]; ok && c.Topic != wire.PlaneActivity {
			publishing[w.ID] = publishing[w.ID] || kind == Plane
			m.Name, m.Rank = w.name(), int(w.Rank)
			m.Facts = cards[w.ID].facts()
			if kind == Plane {
				m.Metrics = cards[w.ID].metrics()
			}
		}
		members = append(members, m)
	}
	for id, c := range cards {
		if off := c.Card.Runtime.Publishing; !publishing[id] && off != nil && !*off {
			m := Member{Name: dynamoWorker{ID: id}.name(), Kind: Plane, Facts: c.facts(), Metrics: c.metrics(), Found: d.found()}
			m.fail("the worker publishes no cache events: turn on its KV events (--kv-events-config of vLLM and SGLang, --publish-events-and-metrics of TensorRT-LLM)")
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Events, b.Events))
	})
	return members, problems, nil
}

// dynamoTopics are the topics that are followed, and as what.
var dynamoTopics = map[string]Kind{wire.PlaneEvents: Plane, wire.PlaneLoad: LoadOnly, wire.PlaneActivity: LoadOnly}

func (d *dynamoDir) found() string { return "dynamo " + d.Dir }

// member makes a member of a socket. Where nothing says whose it is, it is
// named by its publisher's id, as the file is.
func (d *dynamoDir) member(kind Kind, c dynamoChannel) Member {
	m := Member{
		Name: wire.Replica(c.Topic + "-" + strconv.FormatUint(c.Publisher, 16)),
		Kind: kind, Rank: -1, Found: d.found(),
	}
	if c.Transport.Kind != "Zmq" {
		m.fail(fmt.Sprintf("its events go by %q, not by ZMQ sockets: start Dynamo with DYN_EVENT_PLANE=zmq, or give the server itself with --nats nats://host:port", c.Transport.Kind))
		return m
	}
	a, err := parseAddress(c.Transport.Config.Endpoint)
	if err == nil && isWildcard(a.host) && d.Host == "" {
		err = fmt.Errorf("its address is %s, which is everywhere: give host beside dir, or start it with DYN_EVENT_PLANE_HOST", a)
	}
	if err != nil {
		m.fail(err.Error())
		return m
	}
	if d.Host != "" && a.path == "" {
		a.host = d.Host
	}
	m.Events = a.String()
	return m
}

func (c dynamoCard) facts() wire.Facts {
	return wire.Facts{Model: c.Card.Name, BlockSize: int(c.Card.BlockSize)}
}

// entries reads the entries of one kind, in the order of their keys, and gives
// when the newest was last touched. One that cannot be read is passed to fail;
// one that is much older than the newest is of a process that died.
func entries[T any](dir fs.FS, kind string, fail func(error)) (out []T, newest time.Time, err error) {
	folder := path.Join("v1", kind)
	files, err := readDir(dir, folder)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := fs.Stat(dir, "v1"); err == nil {
			return nil, newest, nil // nobody has such an entry yet
		}
		return nil, newest, errors.New("it holds no folder v1: give the directory that DYN_FILE_KV names")
	}
	if err != nil {
		return nil, newest, fmt.Errorf("%s: %w", folder, err)
	}
	touched := map[string]time.Time{}
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() { // gone since it was listed, or none
			continue
		}
		touched[f.Name()] = info.ModTime()
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	for _, f := range files {
		at, ok := touched[f.Name()]
		if !ok || newest.Sub(at) > dead {
			continue
		}
		v, err := entry[T](dir, path.Join(folder, f.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone meanwhile
		case err != nil:
			fail(fmt.Errorf("%s: %w", path.Join(folder, f.Name()), err))
		default:
			out = append(out, v)
		}
	}
	return out, newest, nil
}

func readDir(dir fs.FS, folder string) ([]fs.DirEntry, error) {
	f, err := dir.Open(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, errors.New("it is no folder")
	}
	files, err := d.ReadDir(maxEntries + 1)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(files) > maxEntries {
		return nil, fmt.Errorf("more than %d entries", maxEntries)
	}
	slices.SortFunc(files, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return files, nil
}

func entry[T any](dir fs.FS, name string) (T, error) {
	var v T
	f, err := dir.Open(name)
	if err != nil {
		return v, err
	}
	defer func() { _ = f.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(f, maxEntry+1))
	switch {
	case err != nil:
		return v, err
	case len(b) > maxEntry:
		return v, fmt.Errorf("more than %d bytes", maxEntry)
	case json.Unmarshal(b, &v) != nil:
		return v, errors.New("it is not an entry of Dynamo 1.6")
	}
	return v, nil
}
