package doctor

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

// check is one row of the table of what is looked at for each member. Without a
// Text there is nothing to say.
type check struct {
	code string
	run  func(*sight) Result
}

// checks are in the order in which a connection comes about.
var checks = []check{
	{"address", address},
	{"resolves", resolves},
	{"connects", connects},
	{"handshake", handshake},
	{"topic", topic},
	{"first-batch", firstBatch},
	{"frames", frames},
	{"replay", replay},
	{"metrics", metrics},
	{"prefix-caching", prefixCaching},
	{"events", events},
	{"buffers", buffers},
	{"clock", skew},
	{"last-epoch", lastEpoch},
}

func skip(format string, args ...any) Result {
	return Result{Status: Skipped, Text: fmt.Sprintf(format, args...)}
}

func fine(format string, args ...any) Result {
	return Result{Status: OK, Text: fmt.Sprintf(format, args...)}
}

func warn(fix, format string, args ...any) Result {
	return Result{Status: Warning, Text: fmt.Sprintf(format, args...), Fix: fix}
}

func fail(fix, format string, args ...any) Result {
	return Result{Status: Error, Text: fmt.Sprintf(format, args...), Fix: fix}
}

// The fixes that several checks give.
const (
	startEvents = `start the engine with --kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557"}' (SGLang: without enable_kv_cache_events)`
	giveMetrics = "give metrics, or engine, the URL of the engine's HTTP server"
)

func address(s *sight) Result {
	switch {
	case s.Problem != "":
		return fail("", "%s", s.Problem)
	case s.Events == "":
		return fail("give events, the address of the event socket, or engine, which is asked for it", "where its event socket is is not known")
	case s.addErr != nil:
		fix := "correct the address in the configuration"
		if strings.Contains(s.addErr.Error(), "is above 65535") {
			fix = "the base port and the rank together pass 65535: give the engine a lower base port"
		}
		return fail(fix, "%s", s.addErr)
	}
	return fine("%s", s.Events)
}

func resolves(s *sight) Result {
	host := s.host()
	switch {
	case !s.tapped() || host == "":
		return Result{}
	case s.lookUpErr != nil:
		return fail("correct the name, or run kvscope where it is known: names of a cluster's services hold only inside it",
			"%s has no address: %s", host, short(s.lookUpErr))
	case len(s.addresses) > 1:
		return warn("give the replicas one by one, or as dns", "%s has %d addresses, and one connection reaches only one of them", host, len(s.addresses))
	case len(s.addresses) == 0:
		return skip("%s was not looked up in time", host)
	}
	return fine("%s is %s", host, s.addresses[0])
}

// short leaves out of an error what names the address again.
func short(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var call *os.SyscallError
	switch {
	case errors.As(err, &dns):
		return dns.Err
	case errors.As(err, &call):
		return call.Err.Error()
	case errors.As(err, &op):
		return op.Err.Error()
	}
	return err.Error()
}

// isUp reports whether a connection has come about.
func isUp(s *sight) bool { return s.tapped() && s.link.Connects > 0 }

func connects(s *sight) Result {
	switch {
	case !s.tapped():
		return Result{}
	case s.Bind && s.link.State != tap.Listening:
		return fail("only one can listen there: stop the router or collector that does, or tap the engines at sockets of their own",
			"it cannot be listened at %s: %s", s.Events, s.link.LastError)
	case s.Bind && s.link.Connects == 0 && s.link.LastError != "":
		return fail("look at what dials there", "what has dialled %s is no publisher: %s", s.Events, s.link.LastError)
	case s.Bind && s.link.Connects == 0:
		return fail("let the engines' endpoint in --kv-events-config name this machine and port",
			"no engine has dialled %s within %s", s.Events, seconds(s.waited))
	case s.Bind:
		return fine("%s dialled in", count(len(s.link.Publishers), "publisher"))
	case isUp(s):
		return fine("something listens")
	case s.dialled && s.dialErr == nil:
		return fine("something listens")
	case s.lookUpErr != nil:
		return skip("its name has no address")
	case s.dialErr != nil && s.isNATS():
		return fail("check host and port of the NATS server", "nothing can be reached at %s: %s", s.Events, short(s.dialErr))
	case s.dialErr != nil:
		return fail("check the port, and that the engine publishes there at all: "+startEvents+"; with a host in the place of * it dials out instead of listening",
			"nothing can be reached at %s: %s", s.Events, short(s.dialErr))
	}
	return fail("check the host and what lies between", "%s does not answer: %s", s.Events, s.link.LastError)
}

func handshake(s *sight) Result {
	switch {
	case !s.tapped() || s.Bind && !isUp(s):
		return Result{}
	case isUp(s) && s.link.LastError != "" && s.link.State != tap.Up && s.link.State != tap.Listening:
		return warn("look at the engine's log: it may be restarting", "the connection was lost again: %s", s.link.LastError)
	case isUp(s):
		return fine("the handshake is done")
	case !s.dialled || s.dialErr != nil:
		return Result{}
	}
	if s.isNATS() {
		return fail("look at the server's settings, and at those for it here", "the NATS server at %s lets nobody in: %s", s.Events, s.link.LastError)
	}
	return fail("give the event socket's port: the engine's HTTP server and its replay socket have others",
		"the handshake at %s fails: %s", s.Events, s.link.LastError)
}

func topic(s *sight) Result {
	switch {
	case !isUp(s) || len(s.Topics) == 0:
		return Result{}
	case s.messages > 0 && s.stray > 0:
		return fine("the topics wanted come; others do too, and are passed over")
	case s.messages > 0:
		return fine("the topics wanted come")
	case s.stray > 0:
		return fail("set topics to the beginning of one of those, or leave it out",
			"it publishes as %s, and none of the topics wanted, %s, begins that", quoted(s.topics), quoted(s.Topics))
	}
	return skip("it has published nothing, so its topic is not known")
}

func quoted(words []string) string {
	out := make([]string, 0, maxTopics)
	for i, w := range words {
		if i == maxTopics {
			out = append(out, "…")
			break
		}
		out = append(out, fmt.Sprintf("%q", w))
	}
	return strings.Join(out, ", ")
}

func firstBatch(s *sight) Result {
	switch {
	case !isUp(s) || s.stray > 0 && s.messages == 0:
		return Result{}
	case s.messages > 0:
		return fine("the first message came after %s", seconds(time.Duration(s.first-s.began)))
	}
	return warn("send it a prompt of several blocks that is new to it, and look again with a longer --for",
		"nothing came within %s; an idle engine publishes nothing", seconds(s.waited))
}

func frames(s *sight) Result {
	switch {
	case s.messages+s.stray == 0 || s.Kind == fleet.LoadOnly:
		return Result{}
	case s.broken > 0:
		return fail("what publishes there is no engine that kvscope knows: check the address",
			"its messages do not have the frames of cache events: %s", s.lastError)
	case s.bad > 0:
		return fail("kvscope may be older than the engine: update it, and look at docs/checks/undecodable-events.md",
			"%d batches or events cannot be read: %s", s.bad, s.lastError)
	}
	return fine("all messages can be read")
}

// staysLost is what it costs to have no replay socket.
const staysLost = "what is lost between engine and tap then stays lost"

func replay(s *sight) Result {
	switch {
	case !s.tapped() || s.Kind != fleet.Engine:
		return Result{}
	case s.Bind:
		return skip("engines that dial out do not say where their replay socket is: %s", staysLost)
	case s.Replay == "" && s.NoReplay != "":
		return warn("", "%s", s.NoReplay)
	case s.Replay == "":
		return warn(`add "replay_endpoint":"tcp://*:5558" to the engine's --kv-events-config, and give its address as replay`,
			"no replay socket is known: %s", staysLost)
	case !s.asked:
		return skip("the replay policy is %s, so %s was not asked", s.policy, s.Replay)
	case s.answered && s.answerErr == "":
		return fine("%s answers", s.Replay)
	}
	why := s.answerErr
	if !s.answered {
		why = "no answer within " + seconds(s.waited)
	}
	return fail("check the port of replay_endpoint in the engine's --kv-events-config; it is another than that of the events",
		"the replay socket %s does not answer: %s", s.Replay, why)
}

func metrics(s *sight) Result {
	p := s.pages[0]
	switch {
	case s.Kind == fleet.LoadOnly || s.isNATS():
		return Result{}
	case s.Metrics == "":
		return warn(giveMetrics, "no metrics page is known, so its load, capacity and restarts are not either")
	case !p.read:
		return skip("%s was not read", redacted(s.Metrics))
	case p.foreign:
		return fail(giveMetrics+"; SGLang needs --enable-metrics", "%s is no metrics page of an engine: %s", redacted(s.Metrics), p.err)
	case p.err != nil:
		return fail(giveMetrics+", and see that it can be reached from here", "the metrics page cannot be had or read: %s", p.err)
	}
	return fine("%s can be read", redacted(s.Metrics))
}

func prefixCaching(s *sight) Result {
	on := s.facts().PrefixCaching
	switch {
	case s.Kind != fleet.Engine:
		return Result{}
	case on != nil && !*on:
		return fail("start the engine without --no-enable-prefix-caching (SGLang: without --disable-radix-cache)",
			"prefix caching is off, so the engine reuses nothing and publishes nothing")
	case on != nil || len(s.sizes) > 0:
		return fine("prefix caching is on")
	}
	return skip("whether prefix caching is on is not known: the metrics do not say")
}

func events(s *sight) Result {
	n, known := s.served()
	on := s.facts().PrefixCaching
	switch {
	case s.Kind != fleet.Engine || s.Problem != "" || s.stray > 0 && s.messages == 0:
		return Result{}
	case s.messages > 0:
		return fine("%d messages came", s.messages)
	case on != nil && !*on:
		return Result{} // said above
	case !known:
		return skip("whether it serves is not known: there are no metrics to tell")
	case n == 0:
		return skip("no request finished meanwhile, so there may have been nothing to publish")
	case isUp(s):
		return fail(startEvents+"; where all prompts are shorter than a block there is nothing to publish",
			"it serves, and publishes nothing: %d requests finished within %s and no batch came", n, seconds(s.waited))
	}
	return fail(startEvents,
		"it serves (%d requests finished within %s), and its event socket cannot be reached: its events are off, or elsewhere", n, seconds(s.waited))
}

// buffers holds the publisher's bounds against its rate.
func buffers(s *sight) Result {
	bounds := []struct {
		name  string
		n     int
		least time.Duration
		why   string
	}{
		{"buffer_steps", s.Buffer, time.Minute, "a longer outage of the tap cannot be made good by a replay"},
		{"hwm", s.HWM, 5 * time.Second, "a subscriber that pauses longer loses batches"},
		{"max_queue_size", s.Queue, 5 * time.Second, "the engine itself stands still when its publisher pauses longer"},
	}
	rate, known := s.rate()
	var told []string
	for _, b := range bounds {
		if b.n <= 0 {
			continue
		}
		told = append(told, b.name)
		if !known {
			continue
		}
		if held := time.Duration(float64(b.n) / rate * 1e9); held < b.least {
			return warn(fmt.Sprintf("raise %s in --kv-events-config to %d or more", b.name, int(math.Ceil(rate*b.least.Seconds()))),
				"%s of %d holds %s at %.0f batches a second: %s", b.name, b.n, seconds(held), rate, b.why)
		}
	}
	switch {
	case s.Kind != fleet.Engine || !s.tapped():
		return Result{}
	case len(told) == 0:
		return skip("the engine does not say its buffer_steps and hwm")
	case !known:
		return skip("there were too few batches for a rate to hold %s against", strings.Join(told, ", "))
	}
	return fine("%s are enough for %.1f batches a second", strings.Join(told, ", "), rate)
}

// skew holds the engine's clock against ours: that of its HTTP server, which
// is told in whole seconds, and that of its batches.
func skew(s *sight) Result {
	const (
		fix = "let both machines keep their time by NTP: lag and ages are wrong by as much"
		// near is what no clock proves: batches take time, and are stamped at
		// the end of a step.
		near, far = wire.Time(250e6), wire.Time(5e9)
	)
	known := s.timed
	for _, p := range s.pages {
		least, most, ok := p.page.Ahead()
		if !p.read || !ok {
			continue
		}
		known = true
		switch {
		case least > time.Duration(near):
			return warn(fix, "its clock is at least %s ahead of ours", seconds(least))
		case most < time.Duration(-near):
			return warn(fix, "its clock is at least %s behind ours", seconds(-most))
		}
	}
	switch {
	case s.timed && s.fastest < -near:
		return warn(fix, "its batches are from %s in the future: its clock is ahead of ours", seconds(time.Duration(-s.fastest)))
	case s.timed && s.fastest > far:
		return warn(fix+", unless the publisher itself is that far behind",
			"its batches are %s old when they come, at best: its clock is behind ours, or the publisher is late", seconds(time.Duration(s.fastest)))
	case !known:
		return Result{}
	case s.timed:
		return fine("batches come %s after the engine's own time, at best", seconds(max(0, time.Duration(s.fastest))))
	}
	return fine("no difference shows")
}

// lastEpoch compares a process that restarted meanwhile with the one before.
func lastEpoch(s *sight) Result {
	if s.earlier == nil || s.messages == 0 {
		return Result{}
	}
	for _, a := range []struct{ what, was, is string }{
		{"block size", s.earlier.blockSizes(0), s.blockSizes(0)},
		{"dialect", s.earlier.dialect.String(), s.dialect.String()},
		{"form of hashes", s.earlier.form(), s.form()},
	} {
		if a.was != "" && a.is != "" && a.was != a.is {
			return warn("start it as it was before, or restart the others in the same way",
				"it restarted, and its %s is %s where it was %s", a.what, a.is, a.was)
		}
	}
	for content, hash := range s.roots {
		if was := s.earlier.roots[content]; was != "" && was != hash {
			return warn("set the same PYTHONHASHSEED at every start",
				"it restarted, and hashes the same tokens to something else than before")
		}
	}
	return fine("it restarted, and is what it was before")
}

// seconds writes a duration for people.
func seconds(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// redacted leaves a password out of a URL, and a query, which can hold a token.
func redacted(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return url
	}
	if end := strings.IndexAny(rest, "?#"); end >= 0 {
		rest = rest[:end]
	}
	return scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
}
