// Package docs holds the pages that the program itself can show. It is safe
// for concurrent use.
package docs

import "embed"

//go:embed checks/*.md
var pages embed.FS

// Page gives the page of a check in Markdown, and whether there is one.
func Page(code string) (string, bool) {
	text, err := pages.ReadFile("checks/" + code + ".md")
	return string(text), err == nil
}
