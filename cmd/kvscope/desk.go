package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/kvscope/kvscope/tui"
)

// writeNew writes a file that did not exist: under the name asked for, or with
// a number behind it. It is for the user alone, since it can hold prompts.
func writeNew(name string, data []byte) (string, error) {
	const most = 1000
	ext := filepath.Ext(name)
	base := strings.TrimSuffix(name, ext)
	for i := 1; i <= most; i++ {
		path := name
		if i > 1 {
			path = fmt.Sprintf("%s-%d%s", base, i, ext)
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(data)
		return path, errors.Join(err, f.Close())
	}
	return "", fmt.Errorf("%s and %d names like it are taken", name, most)
}

// clipboards are the tools that fill this machine's clipboard, with the
// variable that must be set for them to work, if any.
var clipboards = []struct {
	needs string
	args  []string
}{
	{"WAYLAND_DISPLAY", []string{"wl-copy"}},
	{"DISPLAY", []string{"xclip", "-selection", "clipboard"}},
	{"DISPLAY", []string{"xsel", "--clipboard", "--input"}},
	{"", []string{"pbcopy"}},
}

// clipTimeout is how long a clipboard tool may take.
const clipTimeout = 2 * time.Second

// nativeClipboard finds a tool for this machine's clipboard; nil if there is
// none, or if the user sits at another machine.
func nativeClipboard(remote bool) func(string) (string, error) {
	if remote {
		return nil
	}
	for _, c := range clipboards {
		if c.needs != "" && os.Getenv(c.needs) == "" {
			continue
		}
		if _, err := exec.LookPath(c.args[0]); err != nil {
			continue
		}
		return func(text string) (string, error) {
			ctx, cancel := context.WithTimeout(context.Background(), clipTimeout)
			defer cancel()
			cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
			cmd.Stdin = strings.NewReader(text)
			return c.args[0], cmd.Run()
		}
	}
	return nil
}

// editor lets the user edit a text in $VISUAL or $EDITOR. The text lives in a
// file for the user alone, which is removed afterwards.
func editor(initial string) tea.Cmd {
	return func() tea.Msg {
		dir, err := os.MkdirTemp("", "kvscope-")
		if err != nil {
			return tui.Edited{Err: err}
		}
		path := filepath.Join(dir, "prompt.txt")
		if err := os.WriteFile(path, []byte(initial), 0o600); err != nil {
			return tui.Edited{Err: errors.Join(err, os.RemoveAll(dir))}
		}
		words := strings.Fields(firstOf(strings.TrimSpace(os.Getenv("VISUAL")), strings.TrimSpace(os.Getenv("EDITOR")), "vi"))
		return tea.ExecProcess(exec.Command(words[0], append(words[1:], path)...), func(err error) tea.Msg {
			text, readErr := readPrompt(path)
			if err == nil {
				err = readErr
			}
			return tui.Edited{Text: string(text), Err: errors.Join(err, os.RemoveAll(dir))}
		})()
	}
}

// firstOf gives the first text that is not empty.
func firstOf(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}
