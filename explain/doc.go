// Package explain answers questions about single prompts: so far the audit,
// which holds what the index promised for a request against what the engine
// reports as really cached.
package explain
