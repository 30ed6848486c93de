package tap

import (
	"fmt"
	"sync"
)

// spare is what a connection may hold of one message at any time, in bytes. What
// a message has beyond it is taken from the budget of all.
const spare = 1 << 20

// largeBudget bounds, over all connections of a Tap, what large messages hold
// from their first byte until they wait in the queue or are gone: a thousand
// publishers dialling in could otherwise each have one of MaxMessage on its way.
// A nil budget has no bound.
type largeBudget struct {
	most int

	mu   sync.Mutex
	used int
}

// take adds n bytes to those that a connection holds already, and reports false
// if others hold too many. A connection alone is bounded by MaxMessage.
func (b *largeBudget) take(held, n int) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used > held && b.used+n > b.most {
		return false
	}
	b.used += n
	return true
}

func (b *largeBudget) give(n int) {
	if b == nil || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

// hold is one connection's part of a budget.
type hold struct {
	of *largeBudget
	// message is what the message holds that is being read or passed on, and
	// taken how much of that is from the budget.
	message, taken int
}

// grow is called before a message takes n bytes more.
func (h *hold) grow(n int) error {
	h.message += n
	more := h.message - spare - h.taken
	if more <= 0 {
		return nil
	}
	if !h.of.take(h.taken, more) {
		return fmt.Errorf("no room for a message of %d bytes or more: other large messages are on their way, of %d bytes together at the most", h.message, h.of.most)
	}
	h.taken += more
	return nil
}

// release is called once the message is passed on, or the connection ends.
func (h *hold) release() {
	h.of.give(h.taken)
	h.message, h.taken = 0, 0
}
