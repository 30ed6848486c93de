package tap

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
	"github.com/go-zeromq/zmq4/security/plain"

	"github.com/kvscope/kvscope/wire"
)

// Endpoint is a publisher to connect to, or an address that publishers dial.
type Endpoint struct {
	// Name is the replica's. Publishers that dial a bound endpoint are
	// name/topic, or name alone where their topic is empty; those that come over
	// NATS are worker/rank (see wire.PlaneSender).
	Name wire.Replica
	// Address is tcp://host:port or ipc://path; tcp://*:port only to bind.
	// nats://host:port is a NATS server with Dynamo's event plane.
	Address string
	// Bind listens, for engines that dial out, instead of connecting.
	Bind bool
	// Topics are prefixes of the topics wanted; none means all. On NATS they are
	// subjects, and none means the events and the load of all namespaces.
	Topics []string
	// Replay is the address of the publisher's replay socket, if it has one.
	Replay string
	// Mechanism is NULL or PLAIN; empty means PLAIN where User is set.
	Mechanism string
	// User and Password are for PLAIN, of at most 255 bytes each, or for NATS.
	User, Password string
}

// String leaves the password out.
func (e Endpoint) String() string { return string(e.Name) + " " + e.Address }

// maxTopic bounds a topic, in bytes. libzmq has no bound, but we keep topics.
const maxTopic = 1 << 10

// noCurve is what there is to say about CURVE.
const noCurve = "kvscope does not speak CURVE, only NULL and PLAIN; use an address of the publisher that has no encryption"

// check gives what is wrong with an endpoint, in one sentence.
func (e Endpoint) check() error {
	if e.Name == "" {
		return fmt.Errorf("the endpoint %s has no name", e.Address)
	}
	if e.isNATS() {
		return e.checkNATS()
	}
	if _, _, err := parseAddress(e.Address, e.Bind); err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	if e.Replay != "" {
		if _, _, err := parseAddress(e.Replay, false); err != nil {
			return fmt.Errorf("%s: replay: %w", e.Name, err)
		}
	}
	for _, topic := range e.Topics {
		if len(topic) > maxTopic {
			return fmt.Errorf("%s: a topic of %d bytes, and the limit is %d", e.Name, len(topic), maxTopic)
		}
	}
	switch e.mechanism() {
	case zmq4.NullSecurity:
		if e.User != "" || e.Password != "" {
			return fmt.Errorf("%s: a user or password is of no use with NULL; say PLAIN", e.Name)
		}
	case zmq4.PlainSecurity:
		switch {
		case e.Bind:
			return fmt.Errorf("%s: PLAIN works only when connecting, and this endpoint is bound", e.Name)
		case e.User == "":
			return fmt.Errorf("%s: PLAIN needs a user", e.Name)
		case len(e.User) > 255 || len(e.Password) > 255:
			return fmt.Errorf("%s: user and password can have at most 255 bytes each", e.Name)
		}
	case zmq4.CurveSecurity:
		return fmt.Errorf("%s: %s", e.Name, noCurve)
	default:
		return fmt.Errorf("%s: there is no mechanism %q, only NULL and PLAIN", e.Name, e.Mechanism)
	}
	return nil
}

func (e Endpoint) mechanism() zmq4.SecurityType {
	switch {
	case e.Mechanism != "":
		return zmq4.SecurityType(strings.ToUpper(e.Mechanism))
	case e.User != "":
		return zmq4.PlainSecurity
	}
	return zmq4.NullSecurity
}

// security is made anew for every connection: the library's PLAIN forgets the
// password after one.
func (e Endpoint) security() zmq4.Security {
	if e.mechanism() == zmq4.PlainSecurity {
		return plain.Security(e.User, e.Password)
	}
	return null.Security()
}

func (e Endpoint) topics() []string {
	if len(e.Topics) == 0 {
		return []string{""}
	}
	return e.Topics
}

// parseAddress gives the network and address for package net.
func parseAddress(s string, bind bool) (network, address string, err error) {
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case !ok || rest == "":
		return "", "", fmt.Errorf("%q is no address: want tcp://host:port or ipc://path", s)
	case scheme == "ipc":
		return "unix", rest, nil
	case scheme == "inproc":
		return "", "", errors.New("inproc addresses reach only within the engine's own process")
	case scheme != "tcp":
		return "", "", fmt.Errorf("%q: %s is not supported, only tcp and ipc", s, scheme)
	}
	return parseHostPort(s, rest, bind)
}

// parseHostPort reads the host and the port of the address s.
func parseHostPort(s, rest string, bind bool) (network, address string, err error) {
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		scheme, _, _ := strings.Cut(s, "://")
		return "", "", fmt.Errorf("%q: want %s://host:port", s, scheme)
	}
	n, err := strconv.ParseUint(port, 10, 32)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("%q: %q is no port number", s, port)
	case n > 65535:
		return "", "", fmt.Errorf("%q: port %d is above 65535", s, n)
	case n == 0 && !bind:
		return "", "", fmt.Errorf("%q: port 0 cannot be connected to", s)
	}
	if host == "*" {
		host = ""
	}
	if host == "" && !bind {
		return "", "", fmt.Errorf("%q: an address to connect to needs the name of a host", s)
	}
	return "tcp", net.JoinHostPort(host, port), nil
}
