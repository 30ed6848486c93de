package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/prompt/remote"
)

// promptFlags are those of commands that take a prompt.
type promptFlags struct {
	words      wordFlags
	plain      bool
	view       string
	cut        int
	lora, salt string
	errs       io.Writer
}

func (p *promptFlags) add(cmd *cobra.Command) {
	p.words.add(cmd)
	f := cmd.Flags()
	f.BoolVar(&p.plain, "text", false, "take the prompt as plain text, whatever it looks like")
	var views []string
	for _, v := range prompt.Views {
		views = append(views, v.Name)
	}
	f.StringVar(&p.view, "view", "", "what somebody other than the engine sees of it: "+strings.Join(views, ", "))
	f.IntVar(&p.cut, "cut", 0, "bytes of the body that --view cut keeps (default 8388608)")
	f.StringVar(&p.lora, "lora", "", "LoRA adapter that the prompt is for")
	f.StringVar(&p.salt, "salt", "", "cache salt, in place of the request's own")
}

// model loads what makes tokens, nil where nothing is given that does.
func (p *promptFlags) model(ctx context.Context) (*prompt.Model, error) {
	if !p.words.given() {
		return nil, nil
	}
	m, err := p.words.load(ctx, nil)
	if err == nil && p.words.dir != "" {
		err = m.Tokenizes()
	}
	if err != nil {
		return nil, inputError(err)
	}
	return m, nil
}

// read takes a request for what it is.
func (p *promptFlags) read(text []byte) (*prompt.Request, error) {
	if p.plain {
		return prompt.Text(text)
	}
	r, err := prompt.Parse(text)
	var file *prompt.FileError
	if errors.As(err, &file) {
		stop := waiting(p.errs, file.Name)
		body, err := readPrompt(file.Name)
		stop()
		if err != nil {
			return nil, fmt.Errorf("the body of the command: %w", err)
		}
		return file.Parse(body)
	}
	return r, err
}

// make turns a request into a prompt; m is nil without a tokenizer.
func (p *promptFlags) make(ctx context.Context, m *prompt.Model, r *prompt.Request) (*prompt.Prompt, error) {
	if p.salt != "" {
		r.Salt = p.salt
	}
	opt := prompt.RenderOptions{Now: time.Now(), LoRA: p.lora, Kwargs: rawArgs(p.words.args), Cut: p.cut}
	switch {
	case m == nil && p.view != "":
		return nil, errNoTokenizer
	case m == nil && (r.Tokens != nil || len(r.Messages) == 0):
		out := bare(r)
		out.LoRA = firstOf(p.lora, r.LoRA)
		if r.Tokens == nil {
			out.Text = r.Text
			out.Parts = []prompt.Part{{Span: prompt.Span{End: len(r.Text)}, Kind: prompt.Plain, Message: -1}}
		}
		return out, nil
	case m == nil:
		return nil, errNoTokenizer
	case p.view != "":
		return m.View(ctx, r, p.view, opt)
	}
	return m.Prompt(ctx, r, opt)
}

// onCommandLine is what a prompt is that was given as an argument.
const onCommandLine = "the prompt"

// argument reads what was given as TEXT, @FILE or -, and says what it was. taken
// says that standard input brings something else.
func (p *promptFlags) argument(arg string, stdin io.Reader, taken bool) (text []byte, what string, err error) {
	file, isFile := strings.CutPrefix(arg, "@")
	switch {
	case arg == "-" && taken:
		return nil, "", usageError("only one thing can come from standard input")
	case arg == "-":
		what = "standard input"
		defer waiting(p.errs, what)()
		text, err = limited(stdin)
	case isFile:
		what = file
		defer waiting(p.errs, what)()
		text, err = readPrompt(file)
	default:
		return []byte(arg), onCommandLine, nil
	}
	if err != nil {
		return nil, "", inputError(fmt.Errorf("the prompt of %s: %w", what, err))
	}
	return text, what, nil
}

// prompt reads an argument and makes a prompt of it.
func (p *promptFlags) prompt(ctx context.Context, m *prompt.Model, text []byte, what string) (*prompt.Prompt, *prompt.Request, error) {
	r, err := p.read(text)
	if err != nil && what == onCommandLine {
		return nil, nil, usageError("%s: %w", what, err)
	}
	if err != nil {
		return nil, nil, inputError(fmt.Errorf("%s: %w", what, err))
	}
	out, err := p.make(ctx, m, r)
	var engine *remote.Error
	if errors.As(err, &engine) {
		return nil, nil, inputError(fmt.Errorf("%s: %w", what, err))
	}
	if err != nil {
		return nil, nil, usageError("%s: %w", what, err)
	}
	return out, r, nil
}

// settle is wordFlags.settle.
func (p *promptFlags) settle(cmd *cobra.Command) error {
	p.errs = cmd.ErrOrStderr()
	switch {
	case p.cut < 0:
		return usageError("--cut %d: give bytes, such as 8388608", p.cut)
	case p.cut > 0 && p.view != "cut":
		return usageError("--cut is for --view cut: give that too, or leave it out")
	}
	return p.words.settle(cmd, os.Getenv)
}
