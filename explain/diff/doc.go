// Package diff finds where two prompts part, what is written there, and how many
// blocks of cache that costs.
//
// # Spans
//
// The tokens of both prompts are aligned by what they share. Where they do not,
// there is a span: a stretch of A and the stretch of B in its place, one of them
// maybe empty. A table of recognisers looks at the text on both sides and widens
// the span to the whole of what differs: all of a timestamp, not its last digit.
//
// # Blocks
//
// With B the block size and common(x, y) the number of leading tokens that two
// sequences share, blocks are counted in full:
//
//	Now     = common(a, b) / B
//	Moved   = common(a', b') / B   with the remedy of each remedied span applied
//	Removed = common(a", b") / B   with the remedied spans cut out
//	Lost    = max(Moved − Now, 0)
//
// The remedy MoveLast cuts a span's text out of both prompts and appends it to
// their ends, in the order of the spans. SameForm writes into B what A has, as
// if both clients had kept to one order or one form; so it also does for Removed.
// Remedied are the first span and those that follow it, up to one whose class is
// Edit, Insertion or Deletion, or one to be moved that is Last already, with no
// content after it: what differs there stays, so no remedy behind it would help.
// With Options.Encode the changed texts are tokenized anew, else their tokens are
// cut and joined, which may be off by one where they meet.
//
// An engine recomputes the last token of every prompt, so of a prompt of n tokens
// it never reuses more than (n−1)/B blocks; these numbers do not take that off,
// because the prompt may go on.
//
// All functions are safe for concurrent use as long as nobody changes the prompts.
package diff
