// Package index is the shadow prefix index: which replica holds which block of
// which prefix, told from cache events alone.
//
// A block's name is its content: the rolling hash of all tokens up to its end
// (Dynamo's recipe, see package blockhash). Engine hashes differ between
// replicas, so they serve only as handles, in a table for each replica, for
// parent links and removals. Residency is a count for each (block, replica,
// group, tier), because engines store a block twice and remove the copies one
// by one.
//
// Blocks (nodes) and residencies (slots) live in two arrays and name each
// other by place, not by pointer.
//
// One goroutine owns an Index; it does no I/O and has no clock.
package index
