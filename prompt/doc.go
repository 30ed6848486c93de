// Package prompt turns what a client sends, in any of the forms that engines
// take, into messages, rendered text and token ids, with a way back from every
// token to its span of text and its message.
//
// A Model is safe for concurrent use, as far as its Encoder is. Requests and
// prompts are plain values.
package prompt
