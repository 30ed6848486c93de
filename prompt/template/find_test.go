package template_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kvscope/kvscope/prompt/template"
)

func TestFind(t *testing.T) {
	t.Parallel()
	type files map[string]string
	tests := []struct {
		name             string
		files            files
		text, tools      string
		from, bos, fails string
	}{
		{
			name:  "in the configuration",
			files: files{"tokenizer_config.json": `{"chat_template": "x", "bos_token": "<s>"}`},
			text:  "x", tools: "x", from: "chat template of tokenizer_config.json", bos: "<s>",
		},
		{
			name: "named",
			files: files{"tokenizer_config.json": `{"chat_template": [{"name": "default", "template": "x"}, {"name": "tool_use", "template": "y"}],
				"bos_token": {"content": "<b>", "lstrip": false}}`},
			text: "x", tools: "y", from: "chat template of tokenizer_config.json", bos: "<b>",
		},
		{
			name: "a file of its own goes first",
			files: files{
				"tokenizer_config.json": `{"chat_template": "x", "bos_token": null}`, "chat_template.jinja": "y\n",
				"chat_template.json": `{"chat_template": "z"}`,
			},
			text: "y\n", tools: "y\n", from: "chat template of chat_template.jinja",
		},
		{
			name:  "of a processor",
			files: files{"tokenizer_config.json": `{"chat_template": null}`, "chat_template.json": `{"chat_template": "z"}`},
			text:  "z", tools: "z", from: "chat template of chat_template.json",
		},
		{name: "none", files: files{"tokenizer_config.json": `{}`}, fails: "the model has no chat template"},
		{name: "no default", files: files{"tokenizer_config.json": `{"chat_template": [{"name": "rag", "template": "x"}]}`}, fails: "none of its templates is called default"},
		{name: "a wrong template", files: files{"tokenizer_config.json": `{"chat_template": 1}`}, fails: "tokenizer_config.json: chat_template is neither"},
		{name: "a wrong token", files: files{"tokenizer_config.json": `{"bos_token": 1}`}, fails: "tokenizer_config.json: a special token is neither"},
		{name: "cut JSON", files: files{"tokenizer_config.json": `{`}, fails: "tokenizer_config.json: unexpected end"},
	}
	for _, tt := range tests {
		dir := fstest.MapFS{}
		for name, text := range tt.files {
			dir[name] = &fstest.MapFile{Data: []byte(text)}
		}
		found, err := template.Find(dir)
		text := ""
		if err == nil {
			text, err = found.Text(false)
		}
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%s: error %v, want %q", tt.name, err, tt.fails)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		bos := ""
		if found.BOS != nil {
			bos = *found.BOS
		}
		tools, err := found.Text(true)
		if err != nil || text != tt.text || tools != tt.tools || found.From != tt.from || bos != tt.bos {
			t.Errorf("%s: %q and %q (%v) from %q with BOS %q", tt.name, text, tools, err, found.From, bos)
		}
	}
}
