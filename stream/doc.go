// Package stream turns the records of many replicas into ordered batches: it
// numbers epochs, finds gaps and heals them from replayed batches, tells a
// restart from a duplicate, asks for replays, and says of every replica how
// far its state can be trusted. It is pure: it does no I/O and has no clock.
//
// A Tracker belongs to one goroutine; a State that it hands out is a copy.
package stream
