package fleet

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

const maxPort = 1<<16 - 1

// address is where a ZMQ socket is: tcp://host:port, or ipc://path with a port
// of 0.
type address struct {
	host string
	port int
	path string
}

func parseAddress(s string) (address, error) {
	const longest = 1 << 10
	if len(s) > longest {
		return address{}, fmt.Errorf("an address of %d bytes: the limit is %d", len(s), longest)
	}
	scheme, rest, _ := strings.Cut(s, "://")
	switch {
	case scheme == "inproc":
		return address{}, fmt.Errorf("%q reaches only within the engine's own process: give it tcp://*:port", s)
	case scheme == "ipc" && rest != "":
		return address{path: rest}, nil
	case scheme != "tcp":
		return address{}, fmt.Errorf("%q is no address: give tcp://host:port or ipc://path", s)
	}
	host, digits, err := net.SplitHostPort(rest)
	if err != nil || host == "" || strings.ContainsAny(host, " \t\r\n/") {
		return address{}, fmt.Errorf("%q is no address: give tcp://host:port", s)
	}
	port, err := strconv.Atoi(digits)
	if err != nil || port < 1 || port > maxPort {
		return address{}, fmt.Errorf("%q has no port from 1 to %d: give tcp://host:port", s, maxPort)
	}
	return address{host: host, port: port}, nil
}

func (a address) String() string {
	if a.path != "" {
		return "ipc://" + a.path
	}
	return "tcp://" + net.JoinHostPort(a.host, strconv.Itoa(a.port))
}

// errNoRank says that an address stands for one rank alone.
var errNoRank = errors.New("an ipc address has no port to add a rank to: give tcp://host:port, or one entry for each rank")

// rank gives the address of a data-parallel rank: engines add the rank to the
// port.
func (a address) rank(n int) (address, error) {
	switch {
	case n == 0:
		return a, nil
	case a.path != "":
		return a, fmt.Errorf("rank %d: %w", n, errNoRank)
	case a.port+n > maxPort:
		return a, fmt.Errorf("rank %d: port %d + %d is above %d: give the engine a lower port", n, a.port, n, maxPort)
	}
	a.port += n
	return a, nil
}

// isWildcard reports whether a host stands for all interfaces.
func isWildcard(host string) bool {
	switch host {
	case "*", "0.0.0.0", "::", "[::]":
		return true
	}
	return false
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
