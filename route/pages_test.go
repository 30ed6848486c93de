package route

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestRouterPages holds the tables of settings of routers' pages against the
// program's.
func TestRouterPages(t *testing.T) {
	t.Parallel()
	for page, settings := range map[string][]setting{
		"ray":              slices.Concat(rayKVSettings[rayKVProgress:], rayPrefixSettings, rayHashSettings),
		"aibrix":           aibrixSettings,
		"production-stack": slices.Concat(stackKVSettings, stackPrefixSettings, stackSessionSettings),
	} {
		text, err := os.ReadFile("../docs/routers/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range settings {
			var from []string
			for _, word := range append([]string{s.flag}, s.vars...) {
				if word != "" {
					from = append(from, "`"+word+"`")
				}
			}
			row := strings.ReplaceAll(fmt.Sprintf("| `%s` | %s | %s |", s.name, strings.Join(from, ", "), s.def), "|  |", "| |")
			if !strings.Contains(string(text), strings.ReplaceAll(row, "|  |", "| |")) {
				t.Errorf("%s.md has not\n%s", page, row)
			}
		}
	}
}
