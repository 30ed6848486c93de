// Package template renders chat templates, which are Jinja templates in the
// dialect of HuggingFace's transformers: Jinja 3.1 in an immutable sandbox with
// trim_blocks, lstrip_blocks, loop controls, the tag generation, and a tojson,
// raise_exception and strftime_now of its own.
//
// The text is what Python gives, byte for byte, or there is an error. What Python
// refuses is refused; what is not implemented is refused by name, at Compile where
// the source tells, and at Render where only values do; such errors wrap
// ErrUnsupported. Templates are hostile input: what they may take is bounded in
// run.go, and a render ends soon after its context does. It starts no goroutine.
//
// Texts remember which of their bytes come from which part of the input, through
// whatever a template does to them; RenderSpans tells.
//
// It is safe for concurrent use.
package template
