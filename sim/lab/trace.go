package lab

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/kvscope/kvscope/blockhash"
	"github.com/kvscope/kvscope/wire"
)

// TraceBlock is how many tokens a hash id of Mooncake's traces stands for.
const TraceBlock = 512

// traceRow is a line of a trace, in the form that the Mooncake paper's traces have
// and that Dynamo replays. Times are in milliseconds.
type traceRow struct {
	Timestamp *float64 `json:"timestamp"`
	// Delay is after the request before: of its session, or in the file.
	Delay   *float64 `json:"delay"`
	Input   int      `json:"input_length"`
	Output  int      `json:"output_length"`
	Hashes  []int64  `json:"hash_ids"`
	Session string   `json:"session_id"`
}

// maxTraceLine bounds a line of a trace, in bytes.
const maxTraceLine = 8 << 20

// ReadTrace reads a trace: JSON Lines, plain or gzip, with timestamp or delay in
// milliseconds, input_length and output_length in tokens, hash_ids, each of which
// stands for so many tokens of the prompt, and perhaps session_id. Equal ids at
// equal places behind equal ones are equal blocks. Rows with a session_id come
// after the one before of their session has ended; others come at their time.
//
// A hash id becomes as many blocks as fit into it. The answers have no ids, so no
// cache keeps them. An error names the line.
func ReadTrace(r io.Reader, name string, tokens, blockSize int) (*Workload, error) {
	fail := func(err error) (*Workload, error) {
		return nil, fmt.Errorf("trace %s: %w", wire.Printable(name), err)
	}
	if err := checkBlockSize(blockSize); err != nil {
		return fail(err)
	}
	if tokens < blockSize || tokens%blockSize != 0 || tokens > maxTokens {
		return fail(fmt.Errorf("hash ids for %d tokens each cannot be cut into blocks of %d: give a block size that divides them", tokens, blockSize))
	}
	br := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := br.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		zr, err := gzip.NewReader(br)
		if err != nil {
			return fail(err)
		}
		defer zr.Close()
		br = bufio.NewReaderSize(zr, 1<<16)
	}
	t := tracer{
		logger: newLogger(name, blockSize),
		tokens: tokens, open: map[string]int32{},
	}
	lines := bufio.NewScanner(br)
	lines.Buffer(make([]byte, 1<<16), maxTraceLine)
	n := 0
	for lines.Scan() {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var row traceRow
		err := json.Unmarshal(lines.Bytes(), &row)
		if err == nil {
			err = t.add(&row)
		}
		if damaged := lines.Err(); damaged != nil { // so the line is a part of one
			err = damaged
		}
		if err != nil {
			return fail(fmt.Errorf("line %d: %w", n, err))
		}
	}
	if err := lines.Err(); err != nil {
		return fail(fmt.Errorf("line %d: %w", n+1, err))
	}
	w, err := t.finish()
	if err != nil {
		return fail(err)
	}
	return w, nil
}

// tracer takes rows of a trace.
type tracer struct {
	logger
	tokens int
	// before is when the request before came, and open the last one of each session.
	before wire.Time
	open   map[string]int32
}

func (t *tracer) add(row *traceRow) error {
	switch {
	case row.Input < 1 || row.Input > maxTokens:
		return fmt.Errorf("an input_length of %d: give 1 to %d tokens", row.Input, maxTokens)
	case row.Output < 0 || row.Output > maxTokens:
		return fmt.Errorf("an output_length of %d: give 0 to %d tokens", row.Output, maxTokens)
	case len(row.Hashes) != (row.Input+t.tokens-1)/t.tokens:
		return fmt.Errorf("%d hash_ids for %d tokens, and with %d tokens each it takes %d: say how many tokens one stands for",
			len(row.Hashes), row.Input, t.tokens, (row.Input+t.tokens-1)/t.tokens)
	case (row.Timestamp == nil) == (row.Delay == nil):
		return fmt.Errorf("a row needs either timestamp or delay")
	}
	at, err := millis(cmp.Or(row.Timestamp, row.Delay))
	if err != nil {
		return err
	}
	own := t.w.BlockSize
	path := make([]block, 0, (row.Input+own-1)/own)
	parent := block(0)
	for _, id := range row.Hashes {
		for part := range t.tokens / own {
			if len(path) == cap(path) {
				break
			}
			symbol := id
			if part > 0 { // its further blocks are told apart by what is before them
				symbol = math.MinInt64
			}
			parent = t.names.next(parent, symbol)
			path = append(path, parent)
		}
	}
	r := request{at: at, prompt: int32(row.Input), output: int32(max(1, row.Output))}
	last, continues := t.open[row.Session]
	continues = continues && row.Session != ""
	if row.Delay != nil && !continues {
		r.at += t.before
	}
	if r.at > maxAt {
		return fmt.Errorf("it comes later than %d days after the start", maxAt/second/86400)
	}
	added, err := t.put(r, path, row.Session == "")
	if err != nil {
		return err
	}
	if continues {
		q := &t.w.requests[added]
		before := &t.w.requests[last]
		if row.Timestamp != nil { // its time is at least that, and it waits for the turn before
			q.at = 0
		}
		q.session, before.next = before.session, added
	} else {
		t.before = r.at
		t.begin(added, row.Session != "")
	}
	if row.Session != "" {
		t.open[row.Session] = added
	}
	return nil
}

func millis(ms *float64) (wire.Time, error) {
	if math.IsNaN(*ms) || *ms < 0 || *ms*1e6 > float64(maxAt) {
		return 0, fmt.Errorf("a time of %g ms: give 0 to %d days", *ms, maxAt/second/86400)
	}
	return wire.Time(math.Round(*ms * 1e6)), nil
}

// Logged is a request that a fleet has served.
type Logged struct {
	// At is when it began, on any clock, and Took how long it was.
	At, Took wire.Time
	Tokens   []wire.Token
	// LoRA and Salt part what would be equal otherwise.
	LoRA, Salt string
	// Cached is how many tokens came from the cache of the engine that served it, if
	// that is Known. What cannot be is not known.
	Cached int
	Known  bool
}

// FromLog makes a workload of requests that were served, in the order in which they
// began. A log tells no lengths of answers, so each request generates for as long
// as it took, at so many tokens a second.
func FromLog(name string, log []Logged, blockSize int, rate float64) (*Workload, error) {
	if err := checkBlockSize(blockSize); err != nil {
		return nil, err
	}
	if !(rate > 0) {
		return nil, fmt.Errorf("a decode rate of %g tokens a second: give more than 0", rate)
	}
	l := newLogger(name, blockSize)
	log = slices.Clone(log)
	asked, cached := 0, 0
	slices.SortStableFunc(log, func(a, b Logged) int { return cmp.Compare(a.At, b.At) })
	for i := range log {
		r := &log[i]
		if len(r.Tokens) == 0 || len(r.Tokens) > maxTokens {
			continue
		}
		at := r.At - log[0].At
		if at < 0 || at > maxAt {
			return nil, fmt.Errorf("%s: request %d comes more than %d days after the first", wire.Printable(name), i+1, maxAt/second/86400)
		}
		path := l.names.tokens(r.Tokens, blockSize, blockhash.NamespaceOf(r.LoRA, r.Salt))
		if len(r.Tokens)%blockSize != 0 {
			path = append(path, l.names.fresh()) // the incomplete one, which no cache keeps
		}
		output := min(maxTokens, max(1, r.Took.Seconds()*rate))
		added, err := l.put(request{at: at, prompt: int32(len(r.Tokens)), output: int32(output)}, path, true)
		if err != nil {
			return nil, err
		}
		l.begin(added, false)
		if !r.Known || r.Cached < 0 || r.Cached > len(r.Tokens) {
			l.w.Unknown++
			continue
		}
		l.w.Known++
		asked += len(r.Tokens)
		cached += r.Cached
	}
	l.w.Measured = ratio(cached, asked)
	return l.finish()
}

// logger collects requests that were served somewhere.
type logger struct {
	w     *Workload
	names *names
	// ends are the last complete blocks of requests that nothing continues yet, with
	// their sessions.
	ends map[block]int32
}

func newLogger(name string, blockSize int) logger {
	return logger{&Workload{Name: name, BlockSize: blockSize}, newNames(), map[block]int32{}}
}

// put adds a request, and finds its session where nobody tells it.
func (l *logger) put(r request, path []block, infer bool) (int32, error) {
	w := l.w
	if len(w.requests) >= maxRequests || l.names.last >= maxBlocks {
		return 0, fmt.Errorf("more than %d requests or %d different blocks: give a part of it, or a larger block size", maxRequests, maxBlocks)
	}
	at := int32(len(w.requests))
	r.path, r.next, r.session = at, -1, -1
	if infer {
		l.w.Inferred = true
		whole := path[:int(r.prompt)/w.BlockSize]
		for i := len(whole) - 1; i > 0 && r.session < 0; i-- {
			if s, ok := l.ends[whole[i]]; ok {
				r.session = s
				delete(l.ends, whole[i]) // another one that begins so is a branch
			}
		}
		if r.session < 0 {
			r.session = int32(w.sessions)
			w.sessions++
		}
		if len(whole) > 1 {
			l.ends[whole[len(whole)-1]] = r.session
		}
	}
	w.paths = append(w.paths, path)
	w.requests = append(w.requests, r)
	return at, nil
}

// begin says that a request follows no other; perhaps it opens a session.
func (l *logger) begin(at int32, session bool) {
	l.w.roots = append(l.w.roots, at)
	if session {
		l.w.requests[at].session = int32(l.w.sessions)
		l.w.sessions++
	}
}

func (l *logger) finish() (*Workload, error) {
	w := l.w
	if len(w.requests) == 0 {
		return nil, fmt.Errorf("it has no request")
	}
	slices.SortStableFunc(w.roots, func(a, b int32) int { return cmp.Compare(w.requests[a].at, w.requests[b].at) })
	w.last = l.names.last
	return w, nil
}
