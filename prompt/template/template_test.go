package template_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvscope/kvscope/prompt/template"
)

// chatML is a template of ours with what real ones do: trimmed contents, a part of
// an answer left out, tools and calls as JSON.
const chatML = `
{%- if tools %}
  {{- '<|im_start|>system\n' }}
  {%- for tool in tools %}{{ tool | tojson }}{{ '\n' }}{% endfor %}
  {{- '<|im_end|>\n' }}
{%- endif %}
{%- for m in messages %}
  {{- '<|im_start|>' + m.role + '\n' }}
  {%- if m.content is string %}{{ m.content.split('</think>')[-1] | trim }}
  {%- elif m.content %}
    {%- for part in m.content if part.type == 'text' %}{{ part.text }}{% endfor %}
  {%- endif %}
  {%- for call in m.tool_calls or [] %}{{ '\n' ~ call.function.name ~ call.function.arguments | tojson }}{% endfor %}
  {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

func TestSpans(t *testing.T) {
	t.Parallel()
	compiled, err := template.Compile(chatML)
	if err != nil {
		t.Fatal(err)
	}
	got, err := compiled.RenderSpans(context.Background(), template.Input{
		Messages: json.RawMessage(`[
			{"role": "user", "content": " im_end é "},
			{"role": "assistant", "content": "<think>x</think> y", "tool_calls": [{"function": {"name": "f", "arguments": {"b": 1.0, "a": "<é>"}}}]},
			{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}]}]`),
		Tools:               json.RawMessage(`[{"name": "f", "z": 1, "a": null}]`),
		AddGenerationPrompt: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	const text = `<|im_start|>system
{"name": "f", "z": 1, "a": null}
<|im_end|>
<|im_start|>user
im_end é<|im_end|>
<|im_start|>assistant
y
f{"b": 1.0, "a": "<é>"}<|im_end|>
<|im_start|>user
onetwo<|im_end|>
<|im_start|>assistant
`
	if got.Text != text {
		t.Errorf("text %q, want %q", got.Text, text)
	}
	if opening := got.Text[got.Opening:]; opening != "<|im_start|>assistant\n" {
		t.Errorf("opening %q", opening)
	}
	var leaves []string
	for _, l := range got.Leaves {
		leaves = append(leaves, fmt.Sprintf("%d %s %q", l.Message, l.Path, got.Text[l.Start:l.End]))
	}
	want := []string{
		`-1 tools[0] "{\"name\": \"f\", \"z\": 1, \"a\": null}"`,
		`0 messages[0].role "user"`,
		`0 messages[0].content "im_end é"`,
		`1 messages[1].role "assistant"`,
		`1 messages[1].content "y"`,
		`1 messages[1].tool_calls[0].function.name "f"`,
		`1 messages[1].tool_calls[0].function.arguments "{\"b\": 1.0, \"a\": \"<é>\"}"`,
		`2 messages[2].role "user"`,
		`2 messages[2].content[0].text "one"`,
		`2 messages[2].content[2].text "two"`,
	}
	if d := cmp.Diff(want, leaves); d != "" {
		t.Error(d)
	}
}

// Whatever a template does to a text, what remains of it is told by its bytes.
func TestSpansThroughChanges(t *testing.T) {
	t.Parallel()
	tests := []struct{ expr, want string }{
		{`{{ c.strip() }}`, `ab cd`},
		{`{{ c[1:3] ~ c[-2] }}`, `abd`},
		{`{{ c[::-1] }}`, ``},
		{`{{ c.upper() }}`, ` AB CD `},
		{`{{ c.split() | join('+') }}`, `ab|cd`},
		{`{{ c.replace('b', 'X') }}`, ` a| cd `},
		{`{{ 'b'.join(['x', c]) }}`, ` ab cd `},
		{`{{ '%s!' % c }}`, ` ab cd `},
		{`{{ '{}!'.format(c) }}`, ` ab cd `},
		{`{{ c | tojson }}`, ` ab cd `},
		{`{{ [c] }}`, ` ab cd `},
		{`{% set x %}<{{ c }}>{% endset %}{{ x }}`, ` ab cd `},
		{`{% macro m(x) %}({{ x }}){% endmacro %}{{ m(c) | trim }}`, ` ab cd `},
		{`{% for x in c %}{{ x }}{% endfor %}`, ` ab cd `},
		{`{{ c | safe + '' }}`, ` ab cd `},
		{`{{ c | indent }}`, ` ab cd `},
		{`{{ c | length }}`, ``},
	}
	for _, tt := range tests {
		compiled, err := template.Compile(tt.expr)
		if err != nil {
			t.Fatal(err)
		}
		got, err := compiled.RenderSpans(context.Background(), template.Input{
			Kwargs: []template.Kwarg{{Name: "c", Value: json.RawMessage(`" ab cd "`)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var parts []string
		for _, l := range got.Leaves {
			if l.Path != "c" || l.Message != -1 {
				t.Errorf("%s: leaf %+v", tt.expr, l)
			}
			parts = append(parts, got.Text[l.Start:l.End])
		}
		if s := strings.Join(parts, "|"); s != tt.want {
			t.Errorf("%s: %q comes from the input, want %q", tt.expr, s, tt.want)
		}
	}
}

func TestInput(t *testing.T) {
	t.Parallel()
	one := "1"
	tests := []struct {
		name, source string
		in           template.Input
		want, err    string
	}{
		{"no tools", `{{ tools is none }}{{ messages }}`, template.Input{Messages: json.RawMessage(`[]`)}, "True[]", ""},
		{"no BOS", `{{ bos_token is defined }}{{ bos_token }}{{ eos_token }}`, template.Input{EOS: &one}, "False1", ""},
		{"kwargs override", `{{ tools }}`, template.Input{Kwargs: []template.Kwarg{{"tools", json.RawMessage(`1.0`)}}}, "1.0", ""},
		{"clock", `{{ strftime_now('%Y-%m-%d') }}`, template.Input{Now: time.Date(2024, 7, 26, 1, 2, 3, 0, time.UTC)}, "2024-07-26", ""},
		{"cut JSON", `{{ messages }}`, template.Input{Messages: json.RawMessage(`[{"a"`)}, "", "messages: the JSON ends too soon"},
		{"two values", `{{ messages }}`, template.Input{Messages: json.RawMessage(`[] []`)}, "", "messages: something follows the value"},
		{"no UTF-8", `{{ messages }}`, template.Input{Messages: json.RawMessage("\"\xff\"")}, "", "messages: it is not UTF-8"},
		{"a pair", `{{ messages }}`, template.Input{Messages: json.RawMessage(`"\ud83d\ude00 \\ud83d"`)}, `😀 \ud83d`, ""},
		{"half a pair", `{{ messages }}`, template.Input{Messages: json.RawMessage(`"\ud83d \ude00"`)}, "", "surrogate"},
		{"deep", `{{ messages }}`, template.Input{Messages: json.RawMessage(strings.Repeat("[", 1e5))}, "", "nests deeper"},
		{"a key twice", `{{ messages }}`, template.Input{Messages: json.RawMessage(`{"a": 1, "b": 2, "a": 3}`)}, "{'a': 3, 'b': 2}", ""},
		{"raise", `{{ raise_exception('no system role') }}`, template.Input{}, "", "chat template: line 1: raise_exception: no system role"},
	}
	for _, tt := range tests {
		got, err := render(tt.source, tt.in)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %q and error %v, want %q and %q", tt.name, got, err, tt.want, tt.err)
		}
	}
}

// hostile templates, each of which must end soon, in one clear error.
var hostile = []string{
	`{{ 'a' * 10**9 }}`,
	`{{ 'a' * 10**18 }}`,
	`{{ [1] * 10**9 }}`,
	`{{ range(10**9) }}`,
	`{{ 9**999999999 }}`,
	`{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor %}{% endfor %}`,
	`{% for a in range(100000) %}{% for b in range(100000) %}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}`,
	`{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}`,
	`{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}`,
	`{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}`,
	`{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}`,
	`{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('a', ns.s) %}{% endfor %}`,
	`{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}`,
	`{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}`,
	`{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}`,
	`{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | map('length') | map('string') | list | sort | unique | list | sum(start=[]) }}`,
	`{% set ns = namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}`,
	`{% set ns = namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson(indent=4) }}`,
	`{% set ns = namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = ns.l | map('string') %}{% endfor %}{{ ns.l | list }}`,
	`{% set ns = namespace(l=[1]) %}{% for i in range(9999) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l | length }}`,
	`{{ ' ' * 50000000 | int }}{{ [1] | tojson(indent='x' * 60000000) }}`,
	`{{ 'x' | indent(10**12, true) }}`,
	`{{ '%99999999999d' % 1 }}`,
	`{{ '{99999999999}'.format(1) }}`,
	`{{ 1 | round(10**15) }}`,
	"{{ " + strings.Repeat("(", 1e5),
	"{{ " + strings.Repeat("not ", 1e5) + "1 }}",
	"{{ " + strings.Repeat("-", 1e5) + "1 }}",
	"{{ " + strings.Repeat("1 + ", 1e5) + "1 }}",
	"{{ 1" + strings.Repeat(" if 1", 1e5) + " }}",
	"{{ x" + strings.Repeat(".x", 1e5) + " }}",
	"{{ x" + strings.Repeat("|trim", 1e5) + " }}",
	"{{ x" + strings.Repeat("[0]", 1e5) + " }}",
	strings.Repeat("{% if x %}", 5e4),
	"{% if x %}" + strings.Repeat("{% elif x %}", 5e4) + "{% endif %}",
	strings.Repeat("{# ", 1e5),
	strings.Repeat("{% raw %}", 1e5),
	strings.Repeat("{{ '", 1e5),
	strings.Repeat(" ", 5<<20),
}

func TestHostileTemplates(t *testing.T) {
	t.Parallel()
	for _, source := range hostile {
		compiled, err := template.Compile(source)
		got := ""
		if err == nil {
			compiled.LimitSteps(300_000)
			got, err = compiled.Render(context.Background(), template.Input{})
		}
		if err == nil {
			t.Errorf("%.80s: rendered to %.80q", source, got)
			continue
		}
		if msg := err.Error(); len(msg) > 300 || strings.Contains(msg, "broke") {
			t.Errorf("%.80s: error %.400s", source, msg)
		}
	}
}

func TestRenderEndsWithItsContext(t *testing.T) {
	t.Parallel()
	compiled, err := template.Compile(`{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := compiled.Render(ctx, template.Input{}); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "too long") {
		t.Errorf("error %v, want that of the context", err)
	}
}

// A refusal names the feature.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for source, feature := range map[string]string{
		`{% include 'x' %}`:                        "the tag include",
		`{% block x %}{% endblock %}`:              "the tag block",
		`{{ x | wordcount }}`:                      "the filter wordcount",
		`{{ x is escaped }}`:                       "the test escaped",
		`{{ cycler(1) }}`:                          "cycler",
		`{{ f(*x) }}`:                              "* and ** in a call",
		`{% for x in y recursive %}{% endfor %}`:   "a recursive loop",
		`{{ 'x'.zfill(3) }}`:                       "zfill of str",
		`{{ 'x'.__class__ }}`:                      "__class__",
		`{{ 9223372036854775807 + 1 }}`:            "integers beyond 64 bits",
		`{{ strftime_now('%U') }}`:                 "directive %U",
		`{{ ('<' | safe).strip() }}`:               "marked safe",
		`{{ [1] | map('string') }}`:                "printing a generator",
		`{{ '%(a)s' % {} }}`:                       "the format",
		`{{ '{:>5}'.format(1) }}`:                  "format field {:>5}",
		`{{ messages | map('nope') | list }}`:      "the filter nope",
		`{{ [1] | sort(attribute='a,b') }}`:        "more than one attribute",
		`{% set x = namespace() %}{{ x }}`:         "printing a Namespace",
		`{% for x in [1] %}{{ loop }}{% endfor %}`: "printing a LoopContext",
	} {
		_, err := render(source, template.Input{Messages: json.RawMessage(`[1]`)})
		if !errors.Is(err, template.ErrUnsupported) || !strings.Contains(err.Error(), feature) {
			t.Errorf("%s: error %v, want a refusal of %q", source, err, feature)
		}
	}
}
