package doctor

import (
	"regexp"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// foreign are the checks whose sentences can end, behind a colon, in words of an
// engine, a page or a configuration.
var foreign = map[string]bool{
	"address": true, "connects": true, "handshake": true, "topic": true, "frames": true,
	"replay": true, "metrics": true, "hash": true,
}

// known are endings that are nobody's words but the system's or ours.
var known = regexp.MustCompile(`^(connection refused|connection reset by peer|no route to host|network is unreachable|i/o timeout|no such host|no answer within [0-9a-zµ.]+|` + staysLost + `)$`)

// Redacted is a copy without words of engines, pages and configurations. hide, if
// not nil, stands for each name, and addresses are left out then too.
func (r *Report) Redacted(hide func(wire.Replica) wire.Replica) Report {
	out := Report{At: r.At, Waited: r.Waited}
	clean := func(text string) string { return text }
	if hide != nil {
		clean = r.hiding(hide)
	}
	for _, m := range r.Members {
		m.Checks = redactedResults(m.Checks, clean)
		if hide != nil {
			m.Replica, m.Events, m.Found = hide(m.Replica), "", ""
		}
		out.Members = append(out.Members, m)
	}
	out.Fleet = redactedResults(r.Fleet, clean)
	for range r.Problems {
		out.Problems = append(out.Problems, "(left out)")
	}
	return out
}

func redactedResults(in []Result, clean func(string) string) []Result {
	out := make([]Result, 0, len(in))
	for _, c := range in {
		if before, after, ok := strings.Cut(c.Text, ": "); ok && foreign[c.Code] && !known.MatchString(after) {
			c.Text = before + ": (left out)"
		}
		// A problem of discovery is one sentence of any form.
		if c.Code == "address" && c.Status != OK && !strings.Contains(c.Text, ": ") {
			c.Text = "(left out)"
		}
		if strings.Contains(c.Text, `"`) {
			c.Text = quotes.ReplaceAllString(c.Text, `"…"`)
		}
		c.Text = clean(c.Text)
		out = append(out, c)
	}
	return out
}

// What in a sentence is quoted, and what is an address or the name of a host.
var (
	quotes    = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	addresses = regexp.MustCompile(`[a-z]+://[^\s,;]*[^\s,;:]|\d+\.\d+\.\d+\.\d+(?::\d+)?|\[?[0-9a-fA-F]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*\]?(?::\d+)?|[\w-]+(?:\.[\w-]+)*:\d+`)
)

// hiding gives what replaces all names and addresses in a text.
func (r *Report) hiding(hide func(wire.Replica) wire.Replica) func(string) string {
	names := map[string]string{}
	for _, m := range r.Members {
		names[string(m.Replica)] = string(hide(m.Replica))
		_, rest, _ := strings.Cut(m.Events, "://")
		host := rest
		if i := strings.LastIndexByte(rest, ':'); i >= 0 {
			host = rest[:i]
		}
		names[host] = "(host)"
	}
	return func(text string) string {
		text = addresses.ReplaceAllStringFunc(text, func(s string) string {
			if name, ok := names[s]; ok { // an address is a replica's usual name
				return name
			}
			return "(address)"
		})
		words := strings.Split(text, " ")
		for i, word := range words {
			bare := strings.Trim(word, ".,;:()")
			if name, ok := names[bare]; ok && bare != "" {
				words[i] = strings.Replace(word, bare, name, 1)
			}
		}
		return strings.Join(words, " ")
	}
}
