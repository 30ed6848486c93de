// Package remote asks an engine for the tokens of a prompt: vLLM's and SGLang's
// /tokenize. What the engine says is right by definition, also for the templates
// and tokenizers that we refuse. The price is that the prompt goes over the
// network, so an Engine is made on an explicit request only; it asks nothing but
// /tokenize, which runs no request.
//
// An Engine is safe for concurrent use.
package remote
