// Package doctor looks at each member of a fleet once, before anybody relies on
// its events, and says in one sentence each what is well and what is not, with
// the fix.
//
// Run connects to the event sockets by package tap, listens for a while, reads
// each metrics page at the beginning and at the end, and resolves names. What
// it sends is what a tap sends, and one replay request for each replay socket:
// it asks for what comes after the highest sequence number there is, so that
// the engine answers with its end marker alone and reads nothing of its buffer.
// The policy never leaves that out too.
//
// The checks are a table of pure functions of what was seen. A Report is plain
// data; Run may be called from any goroutine.
package doctor
