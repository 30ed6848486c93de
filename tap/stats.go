package tap

import (
	"regexp"
	"strconv"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// State is what a link is doing.
type State uint8

// The states of a link.
const (
	Starting    State = iota
	Connecting        // resolving the host, opening the connection
	Handshaking       // connected, the peer has not finished its handshake
	Up                // subscribed
	BackingOff        // waiting to try again; Stats.LastError says why
	Refused           // the same, but trying again helps only once a setting changes
	Listening         // bound; Stats.Publishers says who has dialled in
	Closed
)

var states = [...]struct {
	name string
	wire wire.LinkState
}{
	{"starting", wire.LinkUnknown},
	{"connecting", wire.LinkConnecting},
	{"handshaking", wire.LinkConnecting},
	{"up", wire.LinkUp},
	{"backing off", wire.LinkDown},
	{"refused", wire.LinkRefused},
	{"listening", wire.LinkUp},
	{"closed", wire.LinkDown},
}

func (s State) String() string {
	if int(s) < len(states) {
		return states[s].name
	}
	return "state " + strconv.Itoa(int(s))
}

// Stats is a link at one moment. It is a copy.
type Stats struct {
	Name    wire.Replica
	Address string
	Bind    bool
	State   State
	// Since is when the state began. LastError is why the link was last down,
	// kept while it is up again; LastErrorAt is when.
	Since       wire.Time
	LastError   string
	LastErrorAt wire.Time
	// Attempts counts attempts to connect, or connections accepted; Connects
	// those that came up.
	Attempts, Connects uint64
	// Messages and Bytes count what was received, LastMessage when.
	Messages, Bytes uint64
	LastMessage     wire.Time
	// RTT is how long the peer took to answer the newest PING, 0 if unknown.
	RTT time.Duration
	// Queued messages, of QueuedBytes, wait for Next. Dropped counts those for
	// which there was no room.
	Queued, QueuedBytes int
	Dropped             uint64
	// Bound is the address listened on, Publishers who is connected to it.
	Bound      string
	Publishers []Publisher
	Replay     Budget
}

// Publisher is one connection to a bound endpoint.
type Publisher struct {
	Remote string
	Since  wire.Time
	// Replicas are the names that its topics have given, in order of appearance.
	Replicas []wire.Replica
}

// Budget is what was asked of a replica's replay socket, and what still may be.
type Budget struct {
	// Address is empty where the replica has no replay socket.
	Address string
	Policy  Policy
	// Wants counts what was wanted, Refused what was not asked for at all,
	// Requests what was sent: one want can take several.
	Wants, Refused, Requests uint64
	// Batches and Bytes count what was answered.
	Batches, Bytes uint64
	// Left is how many requests may be sent within the current minute; after a
	// failure none before NotBefore.
	Left      int
	NotBefore wire.Time
	// Running says that a want is being answered, Waiting counts those behind it.
	Running bool
	Waiting int
	// Last is how the newest want ended, in words.
	Last string
}

// between is what package net puts before an error of a connection: both its
// ends, of which ours has another port each time.
var between = regexp.MustCompile(`[a-z]+ (?:tcp|udp|unix)[46]? [^ ]*->[^ ]*: `)

// words writes an error for Stats and records, without a port of our own, which
// would make old trouble look new.
func words(err error) string { return between.ReplaceAllString(err.Error(), "") }
