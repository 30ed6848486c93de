package doctor

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

// Bounds on what is kept of one member.
const (
	maxTopics = 8
	maxRoots  = 256
	maxSizes  = 16
	maxShown  = 128 // bytes of a topic
)

// sight is what was seen of one member.
type sight struct {
	fleet.Member
	// addErr is what is wrong with its own settings.
	addErr error
	// addresses are what the name of its host stands for.
	addresses []string
	lookUpErr error
	// dialled says that somebody tried to connect, and dialErr how the newest
	// attempt ended.
	dialled bool
	dialErr error
	link    tap.Stats

	began  wire.Time
	waited time.Duration
	// messages counts what came under a topic that is wanted, from first to
	// last; stray what came under another, and topics are some of all topics.
	messages, stray uint64
	first, last     wire.Time
	topics          []string
	// fastest is the shortest time from the engine's own clock to ours, if any
	// batch was timed.
	fastest wire.Time
	timed   bool
	identity
	// earlier is what the process before a restart was.
	earlier   *identity
	broken    uint64 // messages of other frames
	bad       uint64 // events or batches that cannot be read
	lastError string

	// policy is that for replays. asked says that the replay socket was asked,
	// answered that it was settled, and answerErr how it failed.
	policy          tap.Policy
	asked, answered bool
	answerErr       string
	// pages are the metrics at the beginning and at the end.
	pages [2]reading
}

// identity is what must agree within a fleet.
type identity struct {
	dialect wire.DialectSet
	sizes   map[int]bool
	forms   wire.HandleForm
	// roots are the engine's hashes of first blocks, by a digest of the content.
	roots map[[sha256.Size]byte]string
}

// reading is what one GET of a metrics page gave.
type reading struct {
	read  bool
	page  fleet.Page
	facts wire.Facts
	load  wire.Load
	err   error
	// foreign says that there was a page, and that it is not an engine's.
	foreign bool
}

// tapped reports whether the event socket is listened to.
func (s *sight) tapped() bool { return s.Events != "" && s.addErr == nil }

// isNATS reports whether it is a server with Dynamo's event plane.
func (s *sight) isNATS() bool { return strings.HasPrefix(s.Events, "nats://") }

// endpoint is where it is listened to. One that sends load alone can have the
// name of a replica. All topics are wanted, so that a wrong filter shows: those
// of the member are sorted out here. A NATS server has much else.
func (s *sight) endpoint() tap.Endpoint {
	ep := tap.Endpoint{Name: s.Name, Address: s.Events, Bind: s.Bind, Replay: s.Replay, User: s.User, Password: s.Password}
	if s.Kind == fleet.LoadOnly {
		ep.Name = wire.LoadName(ep.Name)
	}
	if s.isNATS() {
		ep.Topics = s.Topics
	}
	return ep
}

// dial gives the address that is dialled for it.
func (s *sight) dial() string {
	_, address, _ := strings.Cut(s.Events, "://")
	if s.isNATS() {
		address = strings.TrimSuffix(address, "/")
		if _, _, err := net.SplitHostPort(address); err != nil {
			address += ":4222"
		}
	}
	return address
}

// host gives the name to look up, "" if there is none.
func (s *sight) host() string {
	rest, ok := strings.CutPrefix(s.Events, "tcp://")
	if !ok || s.Bind {
		return ""
	}
	host, _, err := net.SplitHostPort(rest)
	if err != nil || net.ParseIP(host) != nil {
		return ""
	}
	return host
}

// message counts a message by its topic.
func (s *sight) message(rec wire.Record) {
	topic := ""
	if len(rec.Frames) > 0 {
		topic = string(rec.Frames[0])
	}
	if shown := topic[:min(len(topic), maxShown)]; len(s.topics) < maxTopics && !slices.Contains(s.topics, shown) {
		s.topics = append(s.topics, strings.Clone(shown))
	}
	wanted := len(s.Topics) == 0 || s.isNATS() || slices.ContainsFunc(s.Topics, func(prefix string) bool {
		return strings.HasPrefix(topic, prefix)
	})
	if !wanted {
		s.stray++
		return
	}
	if s.messages++; s.messages == 1 {
		s.first = rec.At
	}
	s.last = rec.At
}

// step looks at a batch, or at a restart.
func (s *sight) step(step *stream.Step) {
	switch step.Kind {
	case stream.Drop:
		was := s.identity
		s.earlier, s.identity = &was, identity{}
	case stream.Apply:
		if b := step.Batch; b.Engine > 0 {
			if lag := step.At - b.Engine; !s.timed || lag < s.fastest {
				s.fastest, s.timed = lag, true
			}
		}
		for i := range step.Batch.Events {
			s.event(&step.Batch.Events[i])
		}
	}
}

func (id *identity) event(e *wire.Event) {
	id.dialect.Add(e)
	if e.Kind != wire.Stored {
		return
	}
	id.forms |= e.Form
	if e.BlockSize > 0 && len(id.sizes) < maxSizes {
		if id.sizes == nil {
			id.sizes = map[int]bool{}
		}
		id.sizes[e.BlockSize] = true
	}
	id.root(e)
}

// root keeps the hash of a first block.
func (id *identity) root(e *wire.Event) {
	if e.Parent.Set || !e.Aligned() || len(e.Hashes) == 0 || len(id.roots) >= maxRoots {
		return
	}
	if id.roots == nil {
		id.roots = map[[sha256.Size]byte]string{}
	}
	h := sha256.New()
	var id8 [8]byte
	for _, t := range e.Tokens[:min(e.BlockSize, len(e.Tokens))] {
		binary.LittleEndian.PutUint64(id8[:], uint64(t))
		h.Write(id8[:])
	}
	fmt.Fprintf(h, "%q %q %d", e.LoRAName, e.Salt, e.Group)
	if len(e.Extra) > 0 {
		fmt.Fprintf(h, " %v", e.Extra[0])
	}
	id.roots[[sha256.Size]byte(h.Sum(nil))] = e.Hashes[0].String()
}

// state takes what the tracker counted of one of the member's streams.
func (s *sight) state(st *stream.State) {
	s.broken, s.bad = max(s.broken, st.FrameErrors), max(s.bad, st.Undecodable)
	if st.LastError != "" {
		s.lastError = st.LastError
	}
}

// facts joins what the engine says of itself with its metrics.
func (s *sight) facts() wire.Facts {
	f := s.Facts
	for _, p := range s.pages {
		if p.read && p.err == nil {
			g := p.facts
			if g.Model != "" {
				f.Model = g.Model
			}
			if g.BlockSize != 0 {
				f.BlockSize = g.BlockSize
			}
			if g.HashAlgo != "" {
				f.HashAlgo = g.HashAlgo
			}
			if g.PrefixCaching != nil {
				f.PrefixCaching = g.PrefixCaching
			}
		}
	}
	return f
}

// served counts the requests that finished between the two readings of the
// metrics page.
func (s *sight) served() (n int, known bool) {
	a, b := s.pages[0], s.pages[1]
	if !a.read || !b.read || a.err != nil || b.err != nil || !a.load.Known || !b.load.Known {
		return 0, false
	}
	return int(min(max(0, b.load.Requests-a.load.Requests), 1<<53)), true
}

// rate gives batches per second, where there were enough to tell.
func (s *sight) rate() (float64, bool) {
	const least, span = 10, 1e9
	if s.messages < least || s.last-s.first < span {
		return 0, false
	}
	return float64(s.messages-1) / (s.last - s.first).Seconds(), true
}

// blockSizes gives the sizes in words, by what was stored or, without that, by
// what the engine says.
func (id *identity) blockSizes(said int) string {
	if len(id.sizes) == 0 {
		if said > 0 {
			return strconv.Itoa(said)
		}
		return ""
	}
	var words []string
	for _, n := range slices.Sorted(maps.Keys(id.sizes)) {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, " and ")
}

// form names the form of hashes.
func (id *identity) form() string {
	switch {
	case id.forms == 0:
		return ""
	case id.forms&^wire.FormBytes == 0:
		return "bytes"
	case id.forms&wire.FormBytes == 0:
		return "integers"
	}
	return "integers and bytes"
}
