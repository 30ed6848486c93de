package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

func page(t *testing.T, s *observe.Snapshot, damage string) string {
	t.Helper()
	var out bytes.Buffer
	if err := FindingsMarkdown(&out, s, damage, Made{At: 1e18, Tool: "kvscope test"}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// shapes counts what a page is made of, as GitHub's dialect has it.
func shapes(md string) map[string]int {
	got := map[string]int{}
	src := []byte(md)
	doc := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(src))
	_ = ast.Walk(doc, func(n ast.Node, in bool) (ast.WalkStatus, error) {
		if in {
			kind := n.Kind().String()
			if n.Kind() == east.KindTableRow {
				kind = fmt.Sprintf("%s of %d", kind, n.ChildCount())
			}
			got[kind]++
		}
		return ast.WalkContinue, nil
	})
	return got
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	got := page(t, recorded(t, "d_restart"), "")
	for _, want := range []string{
		"## kvscope: 1 warning and 2 notes open: `dead-replica-blocks`\n", "**b has lost its link",
		"| `b` | STALE(link-lost, late-join) | ≤ 132 (66.3 %) | about 67 / 199 |", "| `c` | EXACT | 0 |",
		"### INFO `late-join`: `b` and `a`\n", "- evidence: replica b, batches 0–279; replica a, batches 0–216\n",
		"; `a` 121 blocks, 3 872 tokens", "- **next**: fetch", "`docs/checks/late-join.md`",
		"<summary>Over: 3 findings</summary>", "- 2026-11-30 04:19:21.688Z warning `replica-restart`, `c`: restarted",
		"From `d_restart`, 2026-11-30 04:13:53.652Z to", "Made 2001-09-09 01:46:40.000Z by kvscope test.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if well := page(t, recorded(t, "a_fleet"), "cut off"); !strings.Contains(well, "no open finding") || !strings.Contains(well, "INCOMPLETE: cut off") {
		t.Errorf("%s", well)
	}
}

// evil are names and texts that try to be more than text.
var evil = []string{
	"a|b|c", "|", `a\|b`, `\`, "`", "``` x", "`](http://evil.example)", "[x](http://evil.example)", "![x](http://evil.example/p.png)",
	"http://evil.example", "HTTPS://evil.example/", "www.evil.example", "evil@evil.example", "mailto:evil@evil.example", "xmpp:a@b.c",
	"<script>alert(1)</script>", "<!-- x", "</details>", "<b", "&lt;b&gt;", "&#91;", "@channel", "#17", "*bold*", "__x__", "~~x~~", "$x$",
	"# x", "- x", "1. x", "+ x", "> x", "===", "---", "a\n\n# x", "a\r\n| x", "\x1b[31mred", "\u202eevil", "\u00ad", "\u061cx", "",
	"   ", "[^1]", "[x]: http://evil.example", "- [ ] x", ":smile:", "a.b.c", "10.0.0.5:5557", "\xff\xfe", "**", "x**", "2)", "{{x}}",
	strings.Repeat("a|", 3000), "http：//evil.example", "ftp://evil.example", "a\u2028b",
}

// TestMarkdownIsSafe: whatever the names and texts are, a page is made of the same
// parts, and of no link, image or HTML but ours. The parser is not ours.
func TestMarkdownIsSafe(t *testing.T) {
	t.Parallel()
	snapshot := func(word string) *observe.Snapshot {
		until := wire.Time(9e9)
		s := &observe.Snapshot{Source: word, Until: 1e10, Replicas: []diagnose.Replica{
			{State: stream.State{Replica: wire.Replica(word), Trust: stream.Trust{Word: stream.Degraded, Reasons: []stream.Reason{stream.GapOpen}}, Epoch: 1}, Doubt: 1},
			{State: stream.State{Replica: "other", Trust: stream.Trust{Word: stream.Exact}, Epoch: 1}},
		}}
		for _, end := range []*wire.Time{nil, &until} {
			s.Findings = append(s.Findings, diagnose.Finding{
				Code: "seq-gap", Severity: diagnose.Error, Subject: word, Until: end, Title: word + " x " + word, Next: "see " + word,
				Counterfactual: "of " + word, Evidence: diagnose.Evidence{Replica: wire.Replica("r" + word), Span: &word},
			})
		}
		return s
	}
	count := func(md string) map[string]int {
		got := shapes(md)
		for _, varies := range []string{"Text", "CodeSpan"} {
			delete(got, varies)
		}
		return got
	}
	plain := page(t, snapshot("sim-0"), "at sim-0")
	want := count(plain)
	if want["Table"] != 1 || want["TableRow of 6"] != 2 || want["HTMLBlock"] != 2 || want["Heading"] != 2 {
		t.Fatalf("%v in\n%s", want, plain)
	}
	for _, word := range evil {
		md := page(t, snapshot(word), "at "+word)
		if got := count(md); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%.60q makes\n%v, want\n%v in\n%s", word, got, want, md)
		}
		if i := strings.IndexFunc(md, func(r rune) bool {
			return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp)
		}); i >= 0 {
			t.Errorf("%.60q leaves %q", word, md[i:i+4])
		}
		if len(md) > 20000 {
			t.Errorf("%.60q makes %d bytes", word, len(md))
		}
	}
}

// FuzzProse holds single texts against the same parser.
func FuzzProse(f *testing.F) {
	for _, word := range evil {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := shapes("x: " + prose(s) + " " + code(s) + "\n")
		for kind := range got {
			if !slices.Contains([]string{"Document", "Paragraph", "Text", "CodeSpan"}, kind) {
				t.Errorf("%q makes a %s", s, kind)
			}
		}
	})
}

// TestMarkdownIsBounded: a large fleet with many findings is still a page.
func TestMarkdownIsBounded(t *testing.T) {
	t.Parallel()
	s := &observe.Snapshot{}
	for i := range 300 {
		name := wire.Replica(fmt.Sprintf("replica-%d", i))
		s.Replicas = append(s.Replicas, diagnose.Replica{State: stream.State{Replica: name, Epoch: 1, Trust: stream.Trust{Word: stream.Exact}}})
		for n := range 30 {
			s.Findings = append(s.Findings, diagnose.Finding{
				Code: fmt.Sprint("check-", n), Subject: string(name), Title: fmt.Sprintf("%d of it", i), Evidence: diagnose.Evidence{Replica: name},
			})
		}
	}
	got := page(t, s, "")
	for _, want := range []string{"… and 280 replicas more, 280 of them EXACT", "`replica-0`, `replica-1`", " and 292 more\n", "and 10 findings more"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%.3000s", want, got)
		}
	}
	if len(got) > 40000 {
		t.Errorf("%d bytes", len(got))
	}
}
