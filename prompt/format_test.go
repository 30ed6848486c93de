package prompt

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/refdata"
)

// The expected values are those of vLLM's rule on the syntax tree that Python's
// jinja2 makes of these templates.
func TestWantsItems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		template string
		want     bool
	}{
		{"{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}", true},
		{"{%- for m in messages -%}{%- for c in m['content'] | list -%}{{ c.text }}{%- endfor -%}{%- endfor -%}", true},
		{`{% set loop_messages = messages[1:] %}{% for message in loop_messages %}{% for c in message["content"] if c.type == 'text' %}{{ c.text }}{% endfor %}{% endfor %}`, true},
		{"{% for m in messages %}{{ m.content }}{% endfor %}", false},
		{"{# {% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %} #}{{ messages[0].content }}", false},
		{"{% macro r(content) %}{% for item in content %}{{ item.text }}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(m.content) }}{% endfor %}", true},
		{"{% for m in messages %}{% set c = m.content %}{% for x in c %}{{ x }}{% endfor %}{% endfor %}", false},
		{"{% set a = messages if messages else [] %}{% for m in a %}{% for c in m.content %}{% endfor %}{% endfor %}", false},
		{"{% set a = messages | selectattr('role', 'equalto', 'user') | list %}{% for m in a %}{% for c in m.content %}{% endfor %}{% endfor %}", true},
		{"{% for m in messages %}{% for i, c in m.content | items %}{% endfor %}{% endfor %}", false},
		{"{% for tool in tools %}{% for c in tool.content %}{% endfor %}{% endfor %}", false},
		{"{% for m in messages %}{% if m.content is string %}{{ '{% for c in m.content %}' }}{% endif %}{% endfor %}", false},
		{"{% for m in messages[::-1] %}{% for c in m.content[:3] %}{% endfor %}{% endfor %}", true},
		{"{% set a = messages %}{% set b = a %}{% set a = b %}{% for m in b %}{% for c in m.content recursive %}{% endfor %}{% endfor %}", true},
		{"{% raw %}{% for m in messages %}{% for c in m.content %}{% endraw %}", false},
	} {
		if got := wantsItems(c.template); got != c.want {
			t.Errorf("lists %v for %s", got, c.template)
		}
	}
}

func TestWantsItemsIsQuick(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{"{%", "{{ '", "{% set a = messages %}", "{# ", "{% for x in messages[:] | f %}"} {
		wantsItems(strings.Repeat(piece, 1<<14/len(piece)))
	}
}

func TestOracleContentFormat(t *testing.T) {
	t.Parallel()
	n := 0
	for name, want := range map[string]bool{"qwen3": false, "llama3": false, "llama3_1": false, "deepseek_v3": false, "gemma3": true} {
		raw, err := os.ReadFile(filepath.Join(refdata.Tokenizer(t, name), "tokenizer_config.json"))
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			Template string `json:"chat_template"`
		}
		if err := json.Unmarshal(raw, &config); err != nil || config.Template == "" {
			t.Fatalf("%s: no template (%v)", name, err)
		}
		if got := wantsItems(config.Template); got != want {
			t.Errorf("%s: lists %v", name, got)
		}
		n++
	}
	t.Logf("%d templates of real models", n)
}
