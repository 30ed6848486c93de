package fleet

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// engine is one replica that is asked or given, and what came of it before.
type engine struct {
	target
	// last are its members of the last round in which it answered.
	last []Member
	// said is a digest of its description then, and facts what its metrics page
	// said; with stale it is read again.
	said  [sha256.Size]byte
	facts map[int]wire.Facts
	stale bool
}

// look gives the engine's members. With an error they are those of before, or
// stand for an engine that was never reached.
func (e *engine) look(ctx context.Context, p *Prober) ([]Member, error) {
	var desc description
	var err error
	if e.Engine != "" {
		desc, err = p.describe(ctx, e.Engine)
	}
	silent := errors.Is(err, errSilent)
	switch {
	case err != nil && !silent && e.last != nil:
		return e.last, fmt.Errorf("%w: its %d members of before are kept", err, len(e.last))
	case err != nil && !silent && e.Events != "":
		return e.given(desc), fmt.Errorf("%w: what the configuration gives is used alone", err)
	case e.Events != "":
		e.last = e.given(desc)
		e.learn(ctx, p, desc, e.last)
		return e.last, nil
	case silent:
		return []Member{e.without(err.Error())}, nil
	case err != nil:
		problem := fmt.Sprintf("%v: start the engine, or correct its address", err)
		var status *StatusError
		var answer answerError
		switch {
		case errors.As(err, &status):
			problem = fmt.Sprintf("%v: it does not tell its event socket, so give events", err)
		case errors.As(err, &answer):
			problem = fmt.Sprintf("%v: give events, or the address of an engine", err)
		}
		return []Member{e.without(problem)}, err
	}
	e.last = e.described(desc)
	e.learn(ctx, p, desc, e.last)
	return e.last, nil
}

// given makes the members of an address that was given, with what the engine
// says beside it.
func (e *engine) given(desc description) []Member {
	base, err := parseAddress(e.Events)
	if err != nil { // it was checked
		return []Member{e.without(err.Error())}
	}
	ranks := e.Ranks
	if ranks == 0 && base.path == "" {
		ranks = len(desc.publishers)
	}
	ranks = max(1, ranks)
	members := make([]Member, ranks)
	for rank := range members {
		m := e.member(rank, ranks)
		var p publisher
		// By place and not by rank: an engine of a larger group can have a
		// higher rank than 0, and the address that was given is its own.
		described := rank < len(desc.publishers)
		if described {
			p = desc.publishers[rank]
		}
		m.Facts, m.Bind = desc.facts, e.Bind
		m.Buffer, m.HWM, m.Queue = p.buffer, p.hwm, p.queue
		p.rank = rank
		p.events, err = base.rank(rank)
		if err == nil {
			err = e.reach(&m, p)
		}
		switch {
		case err != nil:
			m.fail(err.Error())
		case desc.off != "":
			m.fail(desc.off)
		case described:
			m.heard(p.topic)
		}
		members[rank] = m
	}
	return members
}

// reach fills in a publisher's addresses; a replay socket that was given goes
// before one that the engine named.
func (e *engine) reach(m *Member, p publisher) error {
	m.Events = p.events.String()
	if e.Replay != "" {
		base, err := parseAddress(e.Replay)
		if err == nil {
			p.replay, err = base.rank(p.rank)
		}
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		p.noReplay = ""
	}
	m.NoReplay = p.noReplay
	if p.replay != (address{}) {
		m.Replay = p.replay.String()
	}
	return nil
}

// fail says why a member cannot be tapped.
func (m *Member) fail(problem string) {
	m.Events, m.Replay, m.NoReplay, m.Bind, m.Problem = "", "", "", false, problem
}

// heard holds the topic that the publisher uses against those wanted.
func (m *Member) heard(topic string) {
	for _, want := range m.Topics {
		if strings.HasPrefix(topic, want) {
			return
		}
	}
	if len(m.Topics) > 0 {
		m.fail(fmt.Sprintf("its topic is %q, which none of the topics %q is a prefix of: correct topics, or leave it out", topic, m.Topics))
	}
}

// described makes the members of what an engine says.
func (e *engine) described(desc description) []Member {
	if desc.off != "" {
		m := e.without(desc.off)
		m.Facts = desc.facts
		return []Member{m}
	}
	var members []Member
	add := func(kind Kind, list []publisher) {
		for _, p := range list {
			m := e.member(p.rank, len(list))
			m.Kind, m.Facts = kind, desc.facts
			m.Buffer, m.HWM, m.Queue = p.buffer, p.hwm, p.queue
			switch err := e.reach(&m, p); {
			case p.problem != "":
				m.fail(p.problem)
			case kind == LoadOnly:
				m.Replay, m.NoReplay, m.Metrics, m.Topics = "", "", "", []string{p.topic}
			case err != nil:
				m.fail(err.Error())
			default:
				m.heard(p.topic)
			}
			members = append(members, m)
		}
	}
	add(Engine, desc.publishers)
	add(LoadOnly, desc.loads)
	return members
}

// learn adds what the metrics page of a vLLM server says: its description
// lacks the model and whether prefix caching is on. The page is read when the
// description changes, and as long as it is not to be had or caching is off.
func (e *engine) learn(ctx context.Context, p *Prober, desc description, members []Member) {
	if !desc.onPage || desc.off != "" {
		return
	}
	if e.said != desc.digest {
		e.said, e.facts = desc.digest, nil
	}
	if e.facts == nil || e.stale {
		page, err := p.Probe(ctx, members[0].Metrics)
		switch {
		case err == nil:
			e.facts = factsOf(string(page.Body), members)
		case e.facts == nil:
			return
		}
	}
	e.stale = len(e.facts) == 0
	for i := range members {
		m := &members[i]
		m.Facts = e.facts[m.Rank]
		if on := m.Facts.PrefixCaching; on != nil && !*on && m.Problem == "" {
			m.fail("prefix caching is off, so there are no cache events: start it with --enable-prefix-caching")
			e.stale = true
		}
	}
}

// factsOf reads what a page says of members, by rank. It parses the share of
// each rank once, and what several have in common once for all of them.
func factsOf(text string, members []Member) map[int]wire.Facts {
	facts := map[int]wire.Facts{}
	parts, ok := share(text, ranksWanted(members), false)
	if !ok {
		return facts
	}
	var common wire.Facts
	var commonErr error
	for i, seen := 0, false; i < len(members); i++ {
		rank := members[i].Rank
		f, err := common, commonErr
		if own, ok := parts.apart[rank]; ok {
			f, _, err = ParseMetrics(own, -1)
		} else if !seen {
			f, _, err = ParseMetrics(parts.rest, rank)
			common, commonErr, seen = f, err, true
		}
		if err == nil {
			f.Started = 0 // of this process alone, and the next says the same of its sockets
			facts[rank] = f
		}
	}
	return facts
}

// member is the engine's member of a rank, out of as many.
func (e *engine) member(rank, ranks int) Member {
	m := Member{
		Name: wire.Replica(e.name()), Topics: e.Topics, Metrics: e.metrics(), Rank: -1,
		User: e.User, Password: e.Password, Found: e.found,
	}
	if ranks > 1 {
		m.Name += wire.Replica("/" + strconv.Itoa(rank))
		m.Rank = rank
	}
	return m
}

// without is the engine where it has no socket that can be tapped.
func (e *engine) without(problem string) Member {
	m := e.member(0, 1)
	m.fail(problem)
	return m
}

// key tells engines apart from round to round.
func (e *engine) key() string { return e.name() + " " + e.Engine + " " + e.Events }

// name is what a replica is called, by the place of its address unless told.
func (r *Replica) name() string {
	if r.Name != "" {
		return r.Name
	}
	if u, err := url.Parse(r.Engine); err == nil && u.Host != "" {
		return u.Host
	}
	_, place, _ := strings.Cut(r.Events, "://")
	return place
}

func (e *engine) metrics() string {
	if e.Metrics != "" || e.Engine == "" {
		return e.Metrics
	}
	u, err := url.Parse(e.Engine)
	if err != nil { // it was checked
		return ""
	}
	return u.JoinPath("metrics").String()
}
