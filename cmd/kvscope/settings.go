package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/web"
)

// setting is a row of the table of what the configuration can say. The file is
// checked by it, and `kvscope init` writes it out.
type setting struct {
	key  string
	kind kind
	// least and most bound a number, a duration (in nanoseconds), or by most
	// alone the bytes of a text. For lists most bounds the elements.
	least, most int64
	// def is what holds where nothing is said.
	def  string
	help string
	// fields are those of a section, or of each element of a list.
	fields []setting
	// needs are groups of fields of which one each must be given.
	needs [][]string
	// example is what `kvscope init` writes, for the fields of the first level.
	example string
}

// kind says what a field takes.
type kind uint8

const (
	text kind = iota
	secret
	httpURL
	natsURL
	socket
	truth
	number
	port
	duration
	policy
	texts
	section
	sections
)

// kinds give each kind's words for what to write.
var kinds = [...]string{
	text: "text", secret: "text", httpURL: "http://host:port", natsURL: "nats://host:port",
	socket: "tcp://host:port or ipc://path", truth: "true or false", number: "a whole number",
	port: "a port", duration: "a duration", policy: "never, gaps, recent, recent:N or full",
	texts: "a list of texts", section: "a section", sections: "a list",
}

const (
	maxWord     = 255
	maxTopic    = 1 << 10
	maxTopics   = 64
	maxEntries  = 1 << 14
	maxRanks    = 1 << 10
	maxBlocks   = 1 << 30
	maxRequests = 600
)

// The defaults that are not zero.
const (
	defaultRefresh   = 10 * time.Second
	defaultPerMinute = 12
	defaultScrape    = 2 * time.Second
	defaultMaxIndex  = 8 << 20
)

var topicFields = setting{
	key: "topics", kind: texts, most: maxTopics, def: "all",
	help: "beginnings of the topics wanted, each of at most 1024 bytes",
}

var ranksField = setting{
	key: "ranks", kind: number, least: 1, most: maxRanks, def: "1",
	help: "data-parallel ranks; rank r publishes at the port of its sockets plus r",
}

var portFields = []setting{
	{key: "http", kind: port, least: 1, most: 65535, def: "none", help: "the engines' HTTP server, which is asked for what is not said here"},
	{key: "events", kind: port, least: 1, most: 65535, def: "what the engine says", help: "the event sockets"},
	{key: "replay", kind: port, least: 1, most: 65535, def: "what the engine says, or none", help: "the replay sockets"},
	topicFields,
	ranksField,
}

// settings are all fields, in the order in which they are written.
var settings = []setting{
	{key: "replicas", kind: sections, most: maxEntries, def: "none", help: "engines at fixed addresses", needs: [][]string{{"engine", "events"}}, fields: []setting{
		{key: "name", kind: text, most: maxWord, def: "host and port of its address", help: "what to call the replica"},
		{key: "engine", kind: httpURL, def: "none", help: "the engine's HTTP server; what is not said here is asked of it: /kv_event_sources (vLLM from 0.31 on), /server_info (SGLang), /metrics"},
		{key: "events", kind: socket, def: "what the engine says", help: "the event socket"},
		{key: "bind", kind: truth, def: "false", help: "listen at events for an engine that dials out, where no router listens there"},
		{key: "replay", kind: socket, def: "what the engine says, or none", help: "the replay socket"},
		topicFields,
		{key: "metrics", kind: httpURL, def: "engine's /metrics", help: "the metrics page"},
		ranksField,
		{key: "user", kind: text, most: maxWord, def: "none", help: "for sockets that demand PLAIN"},
		{key: "password", kind: secret, most: maxWord, def: "none", help: "for sockets that demand PLAIN"},
	}, example: `replicas:
  # vLLM from 0.31 on: it says itself where its sockets are.
  - engine: http://10.0.0.5:8000
  # vLLM of any version, started with --kv-events-config
  # '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557",
  # "replay_endpoint":"tcp://*:5558"}'
  - name: r2
    events: tcp://10.0.0.6:5557
    replay: tcp://10.0.0.6:5558
    metrics: http://10.0.0.6:8000/metrics
  # SGLang, started with --kv-events-config '{"publisher":"zmq","topic":"kv-events"}'
  # and --enable-metrics; two data-parallel ranks, at ports 5557 and 5558.
  - name: sglang
    engine: http://10.0.0.7:30000
    events: tcp://10.0.0.7:5557
    topics: [kv-events]
    ranks: 2
  # Engines that dial out: kvscope listens in the place of their router.
  - name: pods
    events: tcp://*:5557
    bind: true
  # A socket that demands PLAIN.
  - name: plain
    events: tcp://10.0.0.8:5557
    user: kvscope
    password: "in quotes"
`},
	{key: "dns", kind: sections, most: maxEntries, def: "none", help: "names with an address for each engine", needs: [][]string{{"name"}, {"http", "events"}}, fields: append([]setting{
		{key: "name", kind: text, least: 1, most: maxWord, def: "none", help: "a host or headless service"},
	}, portFields...), example: `dns:
  - name: vllm.default.svc.cluster.local
    http: 8000
    events: 5557
    replay: 5558
`},
	{key: "dynamo", kind: sections, most: maxEntries, def: "none", help: "fleets of Dynamo with file discovery", needs: [][]string{{"dir"}}, fields: []setting{
		{key: "dir", kind: text, least: 1, most: 4 << 10, def: "none", help: "the directory of the discovery (DYN_FILE_KV)"},
		{key: "host", kind: text, most: maxWord, def: "as listed", help: "a host in place of those listed"},
	}, example: `dynamo:
  - dir: /var/lib/dynamo/discovery
    host: 10.0.0.9
`},
	{key: "kubernetes", kind: sections, most: maxEntries, def: "none", help: "services whose EndpointSlices are read with the pod's own service account", needs: [][]string{{"service"}, {"http", "events"}}, fields: append([]setting{
		{key: "namespace", kind: text, most: maxWord, def: "the pod's own", help: "the service's namespace"},
		{key: "service", kind: text, least: 1, most: maxWord, def: "none", help: "the engines' service"},
	}, portFields...), example: `kubernetes:
  - namespace: inference
    service: vllm
    http: 8000
    events: 5557
`},
	{key: "refresh", kind: duration, least: int64(time.Second), most: int64(time.Hour), def: "10s", help: "how often all but fixed addresses are looked at again", example: "refresh: 10s\n"},
	{key: "nats", kind: sections, most: 64, def: "none", help: "servers that carry Dynamo's event plane", needs: [][]string{{"url"}}, fields: []setting{
		{key: "url", kind: natsURL, def: "none", help: "the server"},
		{key: "subjects", kind: texts, most: maxTopics, def: "cache events and load of every namespace", help: "what to subscribe to, each of at most 1024 bytes"},
	}, example: `nats:
  - url: nats://10.0.0.10:4222
    subjects: ["namespace.*.component.*.endpoint.*.kv-events"]
`},
	{key: "replay", kind: section, help: "what may be asked of replay sockets", fields: []setting{
		{key: "policy", kind: policy, def: "gaps", help: "what is asked: nothing (never); what is missing (gaps); that, and once the N batches before a late join (recent:N, 1000 without N); that, and once all that is kept (full)"},
		{key: "per_minute", kind: number, least: 1, most: maxRequests, def: strconv.Itoa(defaultPerMinute), help: "most requests to one replica in any minute"},
	}, example: `replay:
  policy: gaps
  per_minute: 12
`},
	{key: "scrape", kind: section, help: "the reading of metrics pages", fields: []setting{
		{key: "interval", kind: duration, least: int64(500 * time.Millisecond), most: int64(5 * time.Minute), def: defaultScrape.String(), help: "from one reading of a page to the next"},
		{key: "routers", kind: texts, most: 16, def: "none", help: "the URLs of the metrics pages of routers, which say what load they count and how long they take to choose"},
	}, example: `scrape:
  interval: 2s
  routers: ["http://10.0.0.20:8000/metrics"]
`},
	{key: "max_index", kind: number, least: 1, most: maxBlocks, def: strconv.Itoa(defaultMaxIndex), help: "most distinct blocks kept in the index, of about 1 KB of memory each", example: "max_index: 8388608\n"},
	{key: "tokenizer", kind: text, most: 4 << 10, def: "none, so prompts are token ids", help: "the model's folder with tokenizer.json and its chat template, or its name in HuggingFace's cache", example: "tokenizer: /models/qwen3\n"},
	{key: "chat_template", kind: text, most: 4 << 10, def: "the model's", help: "a file with the chat template", example: "chat_template: /models/qwen3/chat_template.jinja\n"},
}

// settingAt gives the row of a field by its keys, which are those of the table.
func settingAt(keys ...string) *setting {
	at := setting{fields: settings}
	for _, key := range keys {
		at = *at.field(key)
	}
	return &at
}

// field gives the field of a key, or nil.
func (f *setting) field(key string) *setting {
	for i := range f.fields {
		if f.fields[i].key == key {
			return &f.fields[i]
		}
	}
	return nil
}

// span says in words what a field takes, for people.
func (f *setting) span() string {
	switch f.kind {
	case text, secret:
		return fmt.Sprintf("%s of at most %d bytes", kinds[f.kind], f.most)
	case number, port:
		return fmt.Sprintf("%s from %d to %d", kinds[f.kind], f.least, f.most)
	case duration:
		return fmt.Sprintf("a duration from %s to %s", short(f.least), short(f.most))
	case texts:
		return fmt.Sprintf("%s, at most %d", kinds[f.kind], f.most)
	}
	return kinds[f.kind]
}

// short writes a duration without the zeros at its end.
func short(d int64) string {
	s := time.Duration(d).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = strings.TrimSuffix(s, zero[1:])
		}
	}
	return s
}

// check gives what is wrong with a value, as a sentence that says what to write.
// It repeats no value that can hold a password.
func (f *setting) check(s string) error {
	ok := true
	switch f.kind {
	case text, texts:
		ok = f.kind == texts || int64(len(s)) >= f.least && int64(len(s)) <= f.most
	case secret:
		ok = int64(len(s)) <= f.most
	case httpURL, natsURL:
		ok = isURL(s, f.kind)
	case socket:
		return checkSocket(s)
	case truth:
		ok = s == "true" || s == "false"
	case number, port:
		n, err := strconv.ParseInt(s, 10, 64)
		ok = err == nil && strconv.FormatInt(n, 10) == s && n >= f.least && n <= f.most
	case duration:
		d, err := time.ParseDuration(s)
		ok = err == nil && int64(d) >= f.least && int64(d) <= f.most
	case policy:
		_, err := tap.ParsePolicy(s)
		return err
	}
	switch {
	case ok:
		return nil
	case f.kind == natsURL && strings.HasPrefix(s, "tls://"):
		return errors.New("kvscope speaks no TLS to NATS: give a listener of the server without it, nats://host:port")
	case f.kind == secret || f.kind == httpURL || f.kind == natsURL || int64(len(s)) > maxWord:
		return fmt.Errorf("give %s", f.span())
	case s == "":
		return fmt.Errorf("this is empty: give %s", f.span())
	}
	return fmt.Errorf("%q: give %s", s, f.span())
}

func isURL(s string, k kind) bool {
	if k == httpURL {
		_, err := web.Parse(s)
		return err == nil
	}
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "nats" && u.Hostname() != "" && len(s) <= 2<<10
}

func checkSocket(s string) error {
	scheme, rest, _ := strings.Cut(s, "://")
	switch {
	case len(s) > maxTopic:
		return fmt.Errorf("an address of %d bytes: give at most %d", len(s), maxTopic)
	case scheme == "inproc":
		return fmt.Errorf("%q reaches only within the engine's own process: let it publish at tcp://*:5557", s)
	case scheme == "ipc" && rest != "":
		return nil
	case scheme != "tcp":
		return fmt.Errorf("%q: give tcp://host:port or ipc://path", s)
	}
	host, digits, err := net.SplitHostPort(rest)
	if err != nil || host == "" {
		return fmt.Errorf("%q: give tcp://host:port", s)
	}
	if n, err := strconv.Atoi(digits); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q: give a port from 1 to 65535", s)
	}
	return nil
}

// errSection says that a value stands where fields should.
var errSection = errors.New("give its fields below it, two spaces further in")
