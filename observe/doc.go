// Package observe is the loop: records in, a Snapshot of the fleet out. A live
// tap, a recording and standard input differ only in the Source they are.
//
// An Observer belongs to one goroutine. Snapshots are immutable and may be
// shared.
package observe
