package fleet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// host is the one that an engine was asked at. What an engine's page names is
// connected to only there: whoever writes the page must not choose whom kvscope
// dials.
type host struct {
	name string
	// addresses gives what the name stands for.
	addresses func() []netip.Addr
}

// hostOf looks the name up when that is needed, and once.
func (p *Prober) hostOf(ctx context.Context, name string) host {
	return host{name, sync.OnceValue(func() []netip.Addr {
		all := []string{name}
		if _, err := netip.ParseAddr(name); err != nil {
			ctx, cancel := context.WithTimeout(ctx, p.opt.Timeout)
			defer cancel()
			all, _ = p.opt.LookupHost(ctx, name) // unknown, it has none
		}
		var out []netip.Addr
		for _, s := range all {
			if a, err := netip.ParseAddr(s); err == nil {
				out = append(out, a.Unmap())
			}
		}
		return out
	})}
}

// is reports whether a name or address is this host's. Loopback is everybody's
// own, so it is the engine's only where the engine was asked there.
func (h host) is(name string) bool {
	if strings.EqualFold(name, h.name) {
		return true
	}
	if isLoopback(name) || isLoopback(h.name) {
		return isLoopback(name) && isLoopback(h.name)
	}
	a, err := netip.ParseAddr(name)
	return err == nil && slices.Contains(h.addresses(), a.Unmap())
}

// has reports whether an address is at this host; a path is, since it was seen
// to be on this machine.
func (h host) has(a address) bool { return a.path != "" || h.is(a.host) }

// elsewhere says of a socket that listens at another host what to do about it.
func (h host) elsewhere(a address, what string) string {
	return fmt.Sprintf("it says that its %s socket is at %s, and %s, where it was asked, is another host: give %s: %s if that is right", what, a, h.name, what, a)
}
