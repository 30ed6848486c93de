// Package prompt turns what a client sends, in any of the forms that engines
// take, into messages, rendered text and token ids, with a way back from every
// token to its span of text and its message.
package prompt
