package prompt

import (
	"errors"
	"fmt"
	"strings"
)

// FileError says that a request's body is in a file, which this package does not
// open. Whoever may open files reads it and calls Parse.
type FileError struct {
	// Name is the file's, as the command has it.
	Name string
	path string // of the URL
}

func (e *FileError) Error() string {
	return "the command reads its body from a file: give that file in its place"
}

// Parse reads the contents of the file as the command's body.
func (e *FileError) Parse(data []byte) (*Request, error) {
	if err := check(data); err != nil {
		return nil, err
	}
	return parseBody(string(data), "a curl command", e.path)
}

// isCurl tells that a text is a curl command, perhaps after a shell's prompt.
func isCurl(s string) bool {
	s = strings.TrimLeft(strings.TrimPrefix(s, "$ "), " \t")
	rest, ok := strings.CutPrefix(s, "curl")
	return ok && rest != "" && strings.ContainsRune(" \t\\", rune(rest[0]))
}

// valued are curl's options that take a value, those of a body aside: a value is
// passed over, since it may look like a URL or an option.
var valued = map[string]bool{
	"H": true, "X": true, "o": true, "u": true, "A": true, "e": true, "b": true, "c": true, "m": true, "w": true,
	"x": true, "K": true, "E": true, "r": true, "y": true, "Y": true, "z": true, "C": true, "D": true, "F": true, "T": true,
	"header": true, "request": true, "output": true, "user": true, "user-agent": true, "referer": true, "cookie": true,
	"cookie-jar": true, "max-time": true, "connect-timeout": true, "write-out": true, "proxy": true, "config": true,
	"cert": true, "key": true, "cacert": true, "capath": true, "retry": true, "retry-delay": true, "retry-max-time": true,
	"resolve": true, "connect-to": true, "interface": true, "form": true, "upload-file": true, "dump-header": true,
	"unix-socket": true, "oauth2-bearer": true, "limit-rate": true, "noproxy": true, "aws-sigv4": true,
}

// bodied are curl's options whose value is the body.
var bodied = map[string]bool{
	"d": true, "data": true, "data-raw": true, "data-binary": true, "data-ascii": true, "json": true,
}

// option is an option of a command line, or an argument, whose name is empty.
type option struct {
	name  string
	value *word
}

// options takes words apart: long options, and letters that share one dash.
func options(words []word) []option {
	var out []option
	next := func(i *int) *word {
		if *i+1 < len(words) {
			*i++
			return &words[*i]
		}
		return nil
	}
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case strings.HasPrefix(w.text, "--") && len(w.text) > 2:
			name, value, joined := strings.Cut(w.text[2:], "=")
			o := option{name: name}
			if joined {
				o.value = &word{value, w.expands}
			} else if valued[name] || bodied[name] || name == "url" || name == "data-urlencode" {
				o.value = next(&i)
			}
			out = append(out, o)
		case strings.HasPrefix(w.text, "-") && len(w.text) > 1:
			for j := 1; j < len(w.text); j++ {
				name := w.text[j : j+1]
				if !valued[name] && !bodied[name] {
					out = append(out, option{name: name})
					continue
				}
				o := option{name: name}
				if j+1 < len(w.text) {
					o.value = &word{w.text[j+1:], w.expands}
				} else {
					o.value = next(&i)
				}
				out = append(out, o)
				break
			}
		default:
			out = append(out, option{value: &w})
		}
	}
	return out
}

func parseCurl(s string) (*Request, error) {
	r, err := readCurl(s)
	if file := (*FileError)(nil); err != nil && !errors.As(err, &file) {
		err = fmt.Errorf("%w; if it is meant as plain text, say so (--text)", err)
	}
	return r, err
}

func readCurl(s string) (*Request, error) {
	sh := &shell{s: strings.TrimPrefix(s, "$ ")}
	c, err := sh.parse()
	if err != nil {
		return nil, err
	}
	if len(c.words) == 0 {
		return nil, errors.New("there is no curl command in it")
	}
	var body *option
	path := ""
	for _, o := range options(c.words[1:]) {
		switch {
		case o.value == nil:
		case o.name == "" || o.name == "url":
			path = urlPath(o.value.text)
		case o.name == "data-urlencode" || o.name == "F" || o.name == "form":
			return nil, errors.New("the command sends a form, and engines take JSON: give its body with --data or --json")
		case bodied[o.name] && body != nil:
			return nil, errors.New("the command has two bodies: give one --data or --json")
		case bodied[o.name]:
			body = &o
		}
	}
	if body == nil {
		return nil, errors.New("the curl command has no body (-d, --data, --data-raw, --data-binary or --json)")
	}
	w := *body.value
	if name, file := strings.CutPrefix(w.text, "@"); file && body.name != "data-raw" {
		if name != "-" && name != "" {
			return nil, &FileError{Name: name, path: path}
		}
		if c.here == nil {
			return nil, errors.New("the command reads its body from standard input, which is not in it: give the body")
		}
		w = *c.here
	}
	if w.expands {
		return nil, errors.New("the shell would put something in place of a $ or ` in the command's body: give the body as it is sent, or quote it with '…'")
	}
	if strings.TrimSpace(w.text) == "" {
		return nil, errors.New("the body of the curl command is empty")
	}
	return parseBody(w.text, "a curl command", path)
}

// urlPath gives the path of a URL without its query.
func urlPath(url string) string {
	if _, rest, ok := strings.Cut(url, "://"); ok {
		url = rest
	}
	if i := strings.IndexByte(url, '/'); i >= 0 {
		url = url[i:]
	} else {
		return ""
	}
	path, _, _ := strings.Cut(url, "?")
	return path
}
