// Package blockhash names KV-cache blocks the way the systems around them do.
//
// Two kinds of name live here. The content hash ([Local], [Next]) is our own
// name for a block and follows Dynamo's router: it depends on tokens and on
// what else makes the content, never on the engine. The engine's own hash is a
// handle, valid within one [Recipe]: an algorithm together with the root that
// its chains start from. [Identify] finds the recipe of a replica from one
// store that begins at the root, and [Chain] then computes the handles that
// this replica would give to any other tokens. Names that a router gives are of
// neither kind: [LLMDKeys].
//
// Everything is pure and bounded by the length of its input; no input panics.
package blockhash
