package fleet

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kvscope/kvscope/web"
)

// Bounds of a Spec.
const (
	maxRanks  = 1 << 10
	maxWord   = 255 // user, password, name: bytes
	maxTopic  = 1 << 10
	maxTopics = 64
)

// check gives what is wrong with a Spec: an error for each mistake.
func (s *Spec) check() error {
	var errs []error
	in := func(list string, i int, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", list, i, err))
		}
	}
	named := map[string]int{}
	for i := range s.Replicas {
		r := &s.Replicas[i]
		if err := r.check(); err != nil {
			in("replicas", i, err)
			continue
		}
		if first, twice := named[r.name()]; twice {
			in("replicas", i, fmt.Errorf("it is called %s, as replicas[%d] is: give each a name of its own, or leave one out", r.name(), first))
			continue
		}
		named[r.name()] = i
	}
	for i := range s.DNS {
		in("dns", i, s.DNS[i].check())
	}
	for i, d := range s.Dynamo {
		if d.Dir == "" {
			in("dynamo", i, errors.New("give dir, the directory of Dynamo's file discovery (DYN_FILE_KV)"))
		}
	}
	for i := range s.Kubernetes {
		in("kubernetes", i, s.Kubernetes[i].check())
	}
	if len(s.Replicas)+len(s.DNS)+len(s.Dynamo)+len(s.Kubernetes) == 0 {
		errs = append(errs, errors.New("nothing says where replicas are: give replicas, dns, dynamo or kubernetes"))
	}
	if s.Refresh != 0 && (s.Refresh < time.Second || s.Refresh > time.Hour) {
		errs = append(errs, fmt.Errorf("refresh %s: give 1s to 1h", s.Refresh))
	}
	return errors.Join(errs...)
}

func (r *Replica) check() error {
	if r.Events == "" && r.Engine == "" {
		return errors.New("give events, the event socket, or engine, the URL of the HTTP server")
	}
	if len(r.Name) > maxWord {
		return fmt.Errorf("a name of %d bytes: the limit is %d", len(r.Name), maxWord)
	}
	if err := checkRanks(r.Ranks); err != nil {
		return err
	}
	for _, u := range []struct{ name, url string }{{"engine", r.Engine}, {"metrics", r.Metrics}} {
		if u.url == "" {
			continue
		}
		if _, err := web.Parse(u.url); err != nil {
			return fmt.Errorf("%s: %w", u.name, err)
		}
	}
	for _, socket := range []struct {
		name, addr string
		bind       bool
	}{{"events", r.Events, r.Bind}, {"replay", r.Replay, false}} {
		if socket.addr == "" {
			continue
		}
		a, err := parseAddress(socket.addr)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", socket.name, err)
		case a.path != "" && r.Ranks > 1:
			return fmt.Errorf("%s: %w", socket.name, errNoRank)
		case isWildcard(a.host) && !socket.bind:
			return fmt.Errorf("%s: %q is where an engine listens: give the engine's host in place of %s", socket.name, socket.addr, a.host)
		}
	}
	switch {
	case r.Bind && r.Events == "":
		return errors.New("bind: give events, the address to listen on")
	case r.Bind && r.User != "":
		return errors.New("user: PLAIN works only when connecting, so leave out user or bind")
	case r.User == "" && r.Password != "":
		return errors.New("password: PLAIN needs a user, so give user too")
	case len(r.User) > maxWord || len(r.Password) > maxWord:
		return fmt.Errorf("user, password: at most %d bytes each", maxWord)
	}
	return checkTopics(r.Topics)
}

func checkRanks(n int) error {
	if n < 0 || n > maxRanks {
		return fmt.Errorf("ranks %d: give 1 to %d", n, maxRanks)
	}
	return nil
}

func checkTopics(topics []string) error {
	if len(topics) > maxTopics {
		return fmt.Errorf("%d topics: give at most %d", len(topics), maxTopics)
	}
	for _, t := range topics {
		if len(t) > maxTopic {
			return fmt.Errorf("a topic of %d bytes: the limit is %d", len(t), maxTopic)
		}
	}
	return nil
}

func (d *DNS) check() error {
	if d.Name == "" || strings.ContainsAny(d.Name, "/: ") {
		return fmt.Errorf("name %q: give the name of a host or headless service, without port", d.Name)
	}
	return d.Ports.check()
}

func (k *Kubernetes) check() error {
	if k.Service == "" {
		return errors.New("give service, the name of the engines' service")
	}
	for _, n := range []struct{ field, name string }{{"service", k.Service}, {"namespace", k.Namespace}} {
		if !isLabel(n.name) {
			return fmt.Errorf("%s %q: give a name of Kubernetes: lower-case letters, digits and -", n.field, n.name)
		}
	}
	return k.Ports.check()
}

// isLabel reports whether s can be a name of Kubernetes, so that it needs no
// escaping in a URL; empty is one too.
func isLabel(s string) bool {
	return len(s) <= maxWord && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" && !strings.Contains(s, "..")
}

func (p *Ports) check() error {
	for _, port := range []struct {
		name string
		n    int
	}{{"http", p.HTTP}, {"events", p.Events}, {"replay", p.Replay}} {
		if port.n < 0 || port.n > maxPort {
			return fmt.Errorf("%s %d: give a port from 1 to %d", port.name, port.n, maxPort)
		}
	}
	if p.HTTP == 0 && p.Events == 0 {
		return errors.New("give events, the port of the event socket, or http, where engines say it")
	}
	if err := checkRanks(p.Ranks); err != nil {
		return err
	}
	return checkTopics(p.Topics)
}
