package tap

import (
	"slices"
	"sync"
	"time"

	"github.com/kvscope/kvscope/wire"
)

// account is what was asked of a replica's replay socket. It belongs to the name
// and outlives Remove, so that an endpoint that comes and goes is not asked more
// than one that stays.
type account struct {
	mu sync.Mutex
	// sent are the times of the requests of the last minute.
	sent []time.Time
	// at are the addresses that what follows is about. asked says that the one
	// replay for a late join was asked for, and none is sent before notBefore,
	// as the newest failed.
	at        addresses
	asked     bool
	notBefore wire.Time
	retry     backoff
}

type addresses struct{ events, replay string }

// open begins with an endpoint: another address is another engine.
func (a *account) open(ep Endpoint) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at := (addresses{ep.Address, ep.Replay}); a.at != at {
		a.at, a.asked, a.notBefore = at, false, 0
		a.retry.reset()
	}
}

// left is how many of the requests of a minute are still allowed.
func (a *account) left(now time.Time, perMinute int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rest(now, perMinute)
}

// rest is left with a.mu held.
func (a *account) rest(now time.Time, perMinute int) int {
	a.sent = slices.DeleteFunc(a.sent, func(at time.Time) bool { return now.Sub(at) >= time.Minute })
	return perMinute - len(a.sent)
}

// spend takes one request, and reports false if there is none.
func (a *account) spend(now time.Time, perMinute int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rest(now, perMinute) <= 0 {
		return false
	}
	a.sent = append(a.sent, now)
	return true
}

// once reports true the first time.
func (a *account) once() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := !a.asked
	a.asked = true
	return first
}

// ended notes how a want ended.
func (a *account) ended(now wire.Time, failed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if failed {
		a.notBefore = now + wire.Time(a.retry.next())
	} else {
		a.notBefore = 0
		a.retry.reset()
	}
}

func (a *account) until() wire.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notBefore
}

// account gives the account of an endpoint that has a replay socket. It is
// called with t.mu held.
func (t *Tap) account(ep Endpoint) *account {
	a := t.accounts[ep.Name]
	if a == nil {
		a = &account{retry: backoff{min: retryMin, max: retryMax, rand: t.opt.Rand}}
	}
	a.open(ep)
	if ep.Replay == "" {
		return a
	}
	if len(t.accounts) >= maxAccounts {
		t.forget()
	}
	t.accounts[ep.Name] = a
	return a
}

// maxAccounts bounds the accounts that are kept: as many again as there can be
// members.
const maxAccounts = 2 * maxMembers

// forget drops accounts of those that went, first those of whom nothing is left
// within the minute. It is called with t.mu held.
func (t *Tap) forget() {
	now := t.opt.Clock.Now()
	for _, idle := range []bool{true, false} {
		for name, a := range t.accounts {
			if t.members[name] == nil && (!idle || a.left(now, 0) == 0) {
				delete(t.accounts, name)
			}
		}
		if len(t.accounts) < maxAccounts {
			return
		}
	}
}
