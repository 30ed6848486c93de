package prompt

import (
	"regexp"
	"slices"
	"strings"
)

// Engines hand a message's content to a template as one text or as a list of
// parts. vLLM looks at the template: it gets a list if a loop runs over the
// content of a message. This follows vLLM's rule, which sees names and no scopes:
// variables that are set to messages, loops over them, and loops over the content
// of what those loops name, filters, tests and slices aside; since vLLM pull
// request 42660 also every loop over a variable called content.

var (
	// tag matches what a template has beside its text: a comment, a raw text, an
	// expression, or a statement, which alone is captured. Both of the latter may
	// hold the marks of others in a quoted text.
	tag = regexp.MustCompile(`(?s)\{#.*?#\}|\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\}|` +
		`\{\{(?:` + quoted + `)*?\}\}|\{%[-+]?\s*((?:` + quoted + `)*?)\s*[-+]?%\}`)
	loops    = regexp.MustCompile(`(?s)^for\s+(.+?)\s+in\s+(.+)$`)
	settings = regexp.MustCompile(`(?s)^set\s+([^=]+?)\s*=\s*(.+)$`)
	loopEnd  = regexp.MustCompile(`(?s)\s+(?:if\s.*|recursive\s*)$`)
	variable = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	content  = regexp.MustCompile(`^([A-Za-z_]\w*)\s*(?:\.\s*content|\[\s*(?:'content'|"content")\s*\])$`)

	// What may follow an access: a filter, a test, a slice.
	filter = regexp.MustCompile(`(?s)^(.*\S)\s*\|\s*[A-Za-z_][\w.]*\s*(?:\([^()]*\))?$`)
	test   = regexp.MustCompile(`(?s)^(.*\S)\s+is\s+(?:not\s+)?[A-Za-z_]\w*\s*(?:\([^()]*\))?$`)
	slice  = regexp.MustCompile(`(?s)^(.*\S)\s*\[[^\[\]]*:[^\[\]]*\]$`)
)

// quoted matches a quoted text or a character of none.
const quoted = `'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^'"]`

// assignment gives a value to a variable: of a set, or one by one in a loop.
type assignment struct{ target, value string }

// wantsItems tells that a template gets the content of messages as lists.
func wantsItems(template string) bool {
	var sets, fors []assignment
	for _, m := range tag.FindAllStringSubmatch(template, -1) {
		if s := loops.FindStringSubmatch(m[1]); s != nil {
			fors = append(fors, assignment{s[1], access(loopEnd.ReplaceAllString(s[2], ""))})
		} else if s := settings.FindStringSubmatch(m[1]); s != nil {
			sets = append(sets, assignment{s[1], access(s[2])})
		}
	}
	lists := []string{"messages"}
	for i := 0; i < len(lists); i++ {
		for _, a := range sets {
			if a.value == lists[i] && !slices.Contains(lists, a.target) {
				lists = append(lists, a.target)
			}
		}
	}
	var messages []string
	for _, a := range fors {
		if slices.Contains(lists, a.value) {
			messages = append(messages, a.target)
		}
	}
	return slices.ContainsFunc(fors, func(a assignment) bool {
		if !variable.MatchString(a.target) {
			return false
		}
		m := content.FindStringSubmatch(a.value)
		return a.value == "content" || m != nil && slices.Contains(messages, m[1])
	})
}

// access strips an expression of filters, tests and slices.
func access(expression string) string {
	const most = 32 // a longer chain is nobody's template
	expression = strings.TrimSpace(expression)
	for range most {
		m := slice.FindStringSubmatch(expression)
		if m == nil {
			m = filter.FindStringSubmatch(expression)
		}
		if m == nil {
			m = test.FindStringSubmatch(expression)
		}
		if m == nil {
			return expression
		}
		expression = strings.TrimSpace(m[1])
	}
	return expression
}
