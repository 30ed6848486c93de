package prompt

import (
	"errors"
	"strings"
	"testing"
)

func TestCurl(t *testing.T) {
	t.Parallel()
	chat := `[{"role":"user","content":"It's \"5\" $"}]`
	for _, c := range []struct {
		name, in string
		form     Form
		want     string // the text, or the messages as JSON
	}{
		{"single quotes", `curl http://h/v1/completions -d '{"prompt": "Hi"}'`, Completions, "Hi"},
		{"a shell's prompt", `$ curl -d '{"prompt": "Hi"}' h`, Completions, "Hi"},
		{"lines", "curl -s http://h:8000/v1/chat/completions \\\n  -H 'Content-Type: application/json' \\\r\n\t-H \"Authorization: Bearer $KEY\" \\\n" +
			`  --data-raw '{"messages": [{"role": "user", "content": "It'\''s \"5\" $"}]}' | jq .`, Chat, chat},
		{"lines from a terminal that sends CR", "curl -s h \\\r  -d '{\"prompt\":\\\r \"Hi\"}'", "", "the JSON breaks"},
		{"double quotes", `curl h --json "{\"messages\": [{\"role\": \"user\", \"content\": \"It's \\\"5\\\" \$\"}]}"`, Chat, chat},
		{"ANSI quotes", `curl h --data $'{"messages": [{"role": "user", "content": "It\'s \\"5\\" \x24"}]}'`, Chat, chat},
		{"escapes in ANSI quotes", `curl h --data $'{"prompt": "\u00e9\U0001f600\101\n"}'`, "", "the JSON breaks at character 16"},
		{"characters in ANSI quotes", `curl h --data $'{"prompt": "\u00e9\U0001f600\101\x41"}'`, Completions, "é😀AA"},
		{"joined values", `curl -XPOST -sSd'{"prompt": "Hi"}' --url=h/v1/completions`, Completions, "Hi"},
		{"a long option with =", `curl --data-binary='{"prompt": "Hi"}' h`, Completions, "Hi"},
		{"values that look like options", `curl -H '-d: x' -u d:@x -o -d h --data '{"prompt": "Hi"}'`, Completions, "Hi"},
		{"a here-document", "curl h/v1/completions -d @- <<'EOF'\n{\"prompt\": \"$Hi\"}\nEOF\necho done", Completions, "$Hi"},
		{"a here-document with tabs", "curl h -d @- <<-EOF | jq\n\t{\"prompt\":\n\t\"Hi\"}\n\tEOF\n", Completions, "Hi"},
		{"a here-string", `curl h -d @- <<< '{"prompt": "Hi"}'`, Completions, "Hi"},
		{"a second command", "curl h -d '{\"prompt\": \"Hi\"}'; curl h -d '{\"prompt\": \"Ho\"}'", Completions, "Hi"},
		{"Anthropic's path", `curl h/v1/messages?beta=true -d '{"messages": [{"role": "user", "content": "Hi"}]}'`, Anthropic, `[{"role":"user","content":"Hi"}]`},
		{"a path with nothing for it", `curl h/v1/completions -d '{"messages": [{"role": "user", "content": "SECRET"}]}'`, "", "text is nothing"},
		{"no body", `curl h/v1/models`, "", "has no body"},
		{"an empty body", `curl h -d ''`, "", "is empty"},
		{"two bodies", `curl h -d a -d b`, "", "two bodies"},
		{"a form", `curl h -F a=SECRET`, "", "sends a form"},
		{"an expansion", `curl h -d "{\"prompt\": \"$SECRET\"}"`, "", "quote it with '…'"},
		{"an expansion in a here-document", "curl h -d @- <<E\n{\"prompt\": \"$SECRET\"}\nE\n", "", "quote it with '…'"},
		{"standard input", `curl h -d @-`, "", "standard input"},
		{"a pipe's input", `curl h -d @- < SECRET`, "", "reads its input from a file"},
		{"an open quote", `curl h -d '{"SECRET`, "", "the single quote at character 11 of the command is not closed"},
		{"an open double quote", `curl h -d "SECRET`, "", "the double quote at character 11"},
		{"an open ANSI quote", `curl h -d $'SECRET`, "", "the $' quote at character 11"},
		{"a bad escape", `curl h -d $'\ud800'`, "", "the escape at character 13 of the command is no character"},
		{"a here-document without end", "curl h -d @- <<E\nSECRET", "", "has no end"},
		{"a stray bracket", `curl ( h`, "", "breaks at character 6"},
		{"an option without its value", `curl h -d`, "", "has no body"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, err := Parse([]byte(c.in))
			if c.form == "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "SECRET") {
					t.Fatalf("error %v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := r.Text
			if len(r.Messages) > 0 {
				got = encodeMessages(r, false)
			}
			if r.Form != c.form || got != c.want || r.From != "a curl command" {
				t.Errorf("%s from %q: %s", r.Form, r.From, got)
			}
		})
	}
}

func TestCurlWithFile(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte(`curl h/v1/messages -d @body.json`))
	var file *FileError
	if !errors.As(err, &file) || file.Name != "body.json" || strings.Contains(err.Error(), "body.json") {
		t.Fatalf("error %v", err)
	}
	r, err := file.Parse([]byte(`{"messages": [{"role": "user", "content": "Hi"}]}`))
	if err != nil || r.Form != Anthropic || r.From != "a curl command" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := file.Parse([]byte("\xff")); err == nil {
		t.Error("no UTF-8 is read")
	}
	r = parse(t, `curl h --data-raw '{"prompt": "@x"}'`)
	if r.Text != "@x" {
		t.Errorf("%+v", r)
	}
}
