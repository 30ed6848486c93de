// Package tokenizer is a pure-Go engine for the tokenizer.json of HuggingFace's
// tokenizers. What it does not implement it refuses by name; it never
// approximates.
//
// A Tokenizer is safe for concurrent use.
package tokenizer
