// Package template renders chat templates, which are Jinja templates in the
// dialect of HuggingFace's transformers.
package template
