// Package hf encodes with HuggingFace's own tokenizers, in Rust, through
// github.com/daulet/tokenizers. That needs cgo and an archive of the Rust code, so
// it is in programs built with the tag hftok alone (make hftok); in others Load
// says so. Cargo.toml here is what the archive is built by.
//
// It is the reference that the pure-Go engine is held against, and it knows the
// models that one refuses. What cannot be had through C is refused here: a text
// with a NUL byte, which would end there, and one that is not UTF-8, which would
// be changed. A file that makes the Rust code itself panic while it is loaded ends
// the program, so give it files that you trust.
//
// An Encoder is safe for concurrent use, Close included.
package hf
