package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/kvscope/kvscope/web"
)

// dnsTargets looks a name up and makes an engine of each address.
func dnsTargets(d DNS) func(context.Context, *Prober) ([]target, error) {
	return func(ctx context.Context, p *Prober) ([]target, error) {
		ctx, cancel := context.WithTimeout(ctx, p.opt.Timeout)
		defer cancel()
		addresses, err := p.opt.LookupHost(ctx, d.Name)
		var notFound *net.DNSError
		switch {
		case errors.As(err, &notFound) && notFound.IsNotFound:
			return nil, fmt.Errorf("dns %s: there is no such name: correct it, or start an engine behind it", d.Name)
		case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &notFound) && notFound.IsTimeout:
			return nil, fmt.Errorf("dns %s: no answer within %s", d.Name, p.opt.Timeout)
		case err != nil:
			return nil, fmt.Errorf("dns %s: %w", d.Name, web.Cause(err))
		}
		addresses = oneFamily(addresses)
		targets := make([]target, len(addresses))
		for i, a := range addresses {
			targets[i] = target{d.at("", a), "dns " + d.Name}
		}
		return targets, nil
	}
}

// oneFamily gives the IPv4 addresses in order, or the IPv6 ones where there is
// no other: the same hosts have both, and a ZMQ wildcard listens on IPv4.
func oneFamily(addresses []string) []string {
	var v4, v6 []netip.Addr
	for _, s := range addresses {
		a, err := netip.ParseAddr(s)
		switch {
		case err != nil: // a resolver gives nothing else
		case a.Unmap().Is4():
			v4 = append(v4, a.Unmap())
		default:
			v6 = append(v6, a)
		}
	}
	if len(v4) == 0 {
		v4 = v6
	}
	slices.SortFunc(v4, netip.Addr.Compare)
	var out []string
	for _, a := range slices.Compact(v4) {
		out = append(out, a.String())
	}
	return out
}

// at is the engine at a host, with these ports.
func (p Ports) at(name, host string) Replica {
	r := Replica{Name: name, Topics: p.Topics, Ranks: p.Ranks}
	if p.HTTP != 0 {
		r.Engine = "http://" + net.JoinHostPort(host, strconv.Itoa(p.HTTP))
	}
	if p.Events != 0 {
		r.Events = address{host: host, port: p.Events}.String()
	}
	if p.Replay != 0 {
		r.Replay = address{host: host, port: p.Replay}.String()
	}
	return r
}
