// Package explain answers questions about single prompts: where one would go and
// why (Candidates), and the audit, which holds what the index promised for a
// request against what the engine reports as really cached.
//
// A question changes what it asks, as any question to the index does: it belongs
// to the goroutine that owns index and loads.
package explain
