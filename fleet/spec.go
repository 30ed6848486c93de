package fleet

import (
	"time"

	"github.com/kvscope/kvscope/wire"
)

// Kind says what a member publishes.
type Kind uint8

// The kinds of member.
const (
	// Engine publishes cache events in a dialect of its own: vLLM, SGLang,
	// TensorRT-LLM.
	Engine Kind = iota
	// Plane is a publisher of Dynamo's event plane: what Dynamo's relay made of
	// an engine's events.
	Plane
	// LoadOnly publishes load and no cache event: SGLang's load socket, or
	// kv_metrics or active_sequences_events of Dynamo's event plane.
	LoadOnly
)

// Member is one publisher that was found, and how to reach what belongs to it.
// Name and Kind together tell members apart: an engine and its load socket
// share their Name. A socket of Dynamo's plane that nothing says the worker of
// is called by its topic and publisher id, such as kv_metrics-1f0fe88775d851.
type Member struct {
	Name wire.Replica
	Kind Kind
	// Events is the address of the event socket, tcp://host:port or ipc://path.
	// With Bind it is where the publisher dials, and is listened on. It is empty
	// where there is nothing to tap; Problem then says why.
	Events string
	Bind   bool
	// Topics are prefixes of the topics wanted; none means all.
	Topics []string
	// Replay is the address of the replay socket, empty where there is none.
	// NoReplay says in one sentence why the one that the engine named was left
	// out.
	Replay, NoReplay string
	// Metrics is the URL of the metrics page, empty where there is none. Rank
	// says whose share of it the member is, -1 for the only one. Members with a
	// Problem can have a page too.
	Metrics string
	Rank    int
	// User and Password are for PLAIN, both empty without.
	User, Password string
	// Facts are what was learned of it beside its metrics.
	Facts wire.Facts
	// Buffer, HWM and Queue are the publisher's own buffer_steps, hwm and
	// max_queue_size, in batches, 0 if unknown.
	Buffer, HWM, Queue int
	// Problem says in one sentence with the fix why the member cannot be
	// tapped; empty if it can.
	Problem string
	// Found says where it was learned of, for people, such as "dns vllm.svc".
	Found string
}

// Spec says where to look for replicas: any number of each.
type Spec struct {
	Replicas   []Replica    `yaml:"replicas"`
	DNS        []DNS        `yaml:"dns"`
	Dynamo     []Dynamo     `yaml:"dynamo"`
	Kubernetes []Kubernetes `yaml:"kubernetes"`
	// Refresh is how often all is looked at again: 1 s to 1 h, 10 s if zero.
	Refresh time.Duration `yaml:"refresh"`
}

// Replica is one engine, by what is known of it. Events or Engine is needed.
type Replica struct {
	// Name is what to call it; the host and port of its address if empty.
	Name string `yaml:"name"`
	// Engine is the base URL of the engine's HTTP server, such as
	// http://10.0.0.5:8000. What is not given below is asked of it there:
	// /kv_event_sources (vLLM from 0.31 on), /server_info (SGLang), /metrics.
	Engine string `yaml:"engine"`
	// Events is the event socket, tcp://host:port or ipc://path. With Bind it
	// is listened on, for an engine that dials out.
	Events string `yaml:"events"`
	Bind   bool   `yaml:"bind"`
	// Replay is the replay socket; what the engine says, or none, if empty.
	Replay string `yaml:"replay"`
	// Topics are prefixes of topics; all if empty.
	Topics []string `yaml:"topics"`
	// Metrics is the URL of the metrics page; Engine's /metrics if empty.
	Metrics string `yaml:"metrics"`
	// Ranks is the number of data-parallel ranks, 1 to 1024: rank r publishes
	// and replays at the ports given plus r. Zero is as many as the engine says,
	// or 1.
	Ranks int `yaml:"ranks"`
	// User and Password are for PLAIN, at most 255 bytes each.
	User     string `yaml:"user"`
	Password string `yaml:"password"`
}

// Ports are where the engines found by DNS or Kubernetes listen, 1 to 65535.
type Ports struct {
	// HTTP is the engine's HTTP server, 0 for none; it is asked as
	// Replica.Engine is.
	HTTP int `yaml:"http"`
	// Events is the event socket, and Replay the replay socket, 0 for what the
	// engine says, or none.
	Events int      `yaml:"events"`
	Replay int      `yaml:"replay"`
	Topics []string `yaml:"topics"`
	Ranks  int      `yaml:"ranks"`
}

// DNS is a name with an address for each engine, such as a headless service.
// Where it has IPv4 addresses, those of IPv6 are taken for the same hosts.
type DNS struct {
	Name  string `yaml:"name"`
	Ports `yaml:",inline"`
}

// Dynamo is a fleet of Dynamo's, by the directory of its file discovery
// (DYN_FILE_KV, the folder that holds v1), in which the event plane's sockets
// are listed.
type Dynamo struct {
	Dir string `yaml:"dir"`
	// Host replaces the host of the addresses listed, empty to keep them.
	Host string `yaml:"host"`
}

// Kubernetes is the EndpointSlices of one service, read with the pod's own
// service account.
type Kubernetes struct {
	// Namespace is the pod's own if empty.
	Namespace string `yaml:"namespace"`
	Service   string `yaml:"service"`
	Ports     `yaml:",inline"`
}
