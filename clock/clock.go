// Package clock lets time be injected: whatever waits takes a Clock, which tests
// replace. Its values are safe for concurrent use.
package clock

import "time"

// Clock tells and waits for time.
type Clock interface {
	Now() time.Time
	// After gives a channel that receives once d has passed, and a function
	// that ends the wait early.
	After(d time.Duration) (fired <-chan time.Time, stop func())
}

// System is the machine's own clock.
type System struct{}

// Now is time.Now.
func (System) Now() time.Time { return time.Now() }

// After waits on a timer of its own.
func (System) After(d time.Duration) (fired <-chan time.Time, stop func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
