package kvscope_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/kvscope/kvscope"

// row is what a package may import of ours, and why no more.
type row struct {
	may []string
	why string
}

// allowed is the dependency table: what a package may import directly. Since
// every package has a row, what it reaches through others is bounded too.
// "cmd" stands for all programs, which may import everything.
var allowed = map[string]row{
	"": {nil, "the root package is documentation"},
	"wire": {
		nil,
		"it is the vocabulary of all others: a pure leaf that is fuzzed alone",
	},
	"blockhash": {
		nil,
		"hash recipes are checked against digests of real engines, without anything else of ours",
	},
	"hashtable": {nil, "a table of numbers knows nothing of what they name"},
	"clock":     {nil, "who waits for time shares no more than how"},
	"web":       {nil, "who asks HTTP servers shares no more than addresses and words"},
	"docs":      {nil, "it holds pages; who shows them is cmd's business"},
	"fixtures":  {nil, "every package's tests read it, so it would close a cycle"},
	"refdata":   {nil, "tests of the leaves read real data with it"},
	"stream":    {leaf(), "it orders records; what the blocks mean is the index's business"},
	"index":     {leaf("hashtable"), "it takes batches from anywhere, so it knows no stream, link or file"},
	"capture":   {leaf(), "a recording is bytes as received; whoever reads it may decode better"},
	"fleet":     {leaf("clock", "web"), "it says who is there, and what others do with that is theirs"},
	"tap":       {leaf("clock"), "it carries records and wants; it must not judge what it carries"},
	"prompt":    {leaf("prompt/template", "prompt/tokenizer"), "prompts become tokens without knowing any fleet"},
	"prompt/template": {
		nil,
		"a template knows text and values, no requests",
	},
	"prompt/tokenizer": {
		[]string{"wire"},
		"it is held against other tokenizers, without anything else of ours",
	},
	"prompt/hf": {
		leaf("prompt", "prompt/tokenizer"),
		"an optional tokenizer that needs cgo: cmd injects it, so nobody else links it",
	},
	"prompt/remote": {
		leaf("prompt", "prompt/tokenizer", "web"),
		"it asks an engine over the network: cmd injects it, so nobody does so unasked",
	},
	"route": {leaf("hashtable"), "the routers' rules are pure functions of loads and matches"},
	"route/remote": {
		leaf("route", "web"),
		"it asks routers over the network: cmd injects it, so nobody does so unasked",
	},
	"explain": {explain("explain/diff"), "it joins index, prompt and route, and sees no stream"},
	"explain/diff": {
		leaf("prompt", "prompt/tokenizer"),
		"two prompts are compared without knowing any fleet",
	},
	"diagnose": {
		explain("explain", "explain/diff", "stream"),
		"checks read what is known; they reach no fleet and draw no screen",
	},
	"observe": {
		leaf("stream", "index", "explain", "diagnose"),
		"Sources, prompt backends and clocks are injected by cmd, so that live, recorded and simulated run alike",
	},
	"sim/lab": {
		leaf("hashtable", "route"),
		"its caches and its router's index are its own, and it opens no socket",
	},
	"report": {append(view(), "sim/lab"), "it is a view of a Snapshot, and of what the lab measured"},
	"tui":    {view(), "it is a view of a Snapshot"},
	"sim": {
		leaf("clock", "prompt", "prompt/tokenizer", "route"),
		"its truth is its own naive cache: with the index it would test the index against itself",
	},
	"doctor": {
		[]string{"wire", "clock", "fleet", "tap", "stream", "diagnose"},
		"it knows what can be known before events flow, so no index",
	},
}

func leaf(more ...string) []string {
	return append([]string{"wire", "blockhash"}, more...)
}

func explain(more ...string) []string {
	return append(leaf("index", "prompt", "route"), more...)
}

func view() []string {
	return []string{"wire", "observe", "diagnose", "explain", "explain/diff", "prompt", "route"}
}

// ban is a package that others must not reach.
type ban struct {
	who, what []string
	why       string
}

// neverReach bans our own packages, however many imports lie between.
var neverReach = []ban{
	{
		[]string{"observe", "report", "tui", "diagnose", "explain"},
		[]string{"tap", "fleet", "capture"},
		"what only looks must have no way to reach an engine or a file",
	},
	{[]string{"sim", "sim/lab"}, []string{"index"}, "its truth would be the thing under test"},
	{
		[]string{"prompt", "explain/diff", "explain", "diagnose", "observe", "report", "tui", "sim"},
		[]string{"prompt/hf", "prompt/remote"},
		"both are injected",
	},
	{[]string{"route", "explain", "diagnose", "observe", "report", "tui"}, []string{"route/remote"}, "it is injected"},
}

// neverImport bans the standard library's packages, with all below them, in
// direct imports.
var neverImport = []ban{
	{
		[]string{"wire", "blockhash", "stream", "index"},
		[]string{"net", "os", "time", "syscall", "io/ioutil"},
		"it is pure: no network, no files, no clock, so that a recording replays exactly",
	},
	{
		[]string{"sim/lab"},
		[]string{"net", "os", "time", "syscall", "io/ioutil"},
		"its time is simulated and its input handed in, so that a run repeats exactly",
	},
	{
		[]string{"report", "tui"},
		[]string{"net", "os", "syscall", "io/ioutil"},
		"what a view opens or writes, cmd hands in as a function",
	},
}

// pkg is a directory with Go files.
type pkg struct {
	imports map[string]string // by non-test files, whatever their build tags: import → file
	doc     bool
	source  bool // has non-test files
}

// load parses the imports of every package; "" is the root.
func load(t *testing.T, root fs.FS) map[string]*pkg {
	t.Helper()
	pkgs := map[string]*pkg{}
	for _, name := range tree(t, root) {
		if path.Ext(name) != ".go" {
			continue
		}
		dir := path.Dir(name)
		if dir == "." {
			dir = ""
		}
		p := pkgs[dir]
		if p == nil {
			p = &pkg{imports: map[string]string{}}
			pkgs[dir] = p
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		p.source = true
		text, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		p.doc = p.doc || hasDoc(f)
		for _, i := range f.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			p.imports[imported] = name
		}
	}
	return pkgs
}

func hasDoc(f *ast.File) bool { return strings.TrimSpace(f.Doc.Text()) != "" }

// ours gives the directory of an import of this module.
func ours(imported string) (string, bool) {
	if imported == module {
		return "", true
	}
	return strings.CutPrefix(imported, module+"/")
}

func isProgram(dir string) bool { return dir == "cmd" || strings.HasPrefix(dir, "cmd/") }

// violations holds the import graph against the tables.
func violations(pkgs map[string]*pkg) []string {
	var out []string
	for _, dir := range slices.Sorted(maps.Keys(pkgs)) {
		if isProgram(dir) || !pkgs[dir].source {
			continue
		}
		r, ok := allowed[dir]
		if !ok {
			out = append(out, fmt.Sprintf("%s has no row in the dependency table: say what it may import, and why", dir))
			continue
		}
		for _, imported := range slices.Sorted(maps.Keys(pkgs[dir].imports)) {
			file := pkgs[dir].imports[imported]
			if dep, ok := ours(imported); ok {
				if !slices.Contains(r.may, dep) {
					out = append(out, fmt.Sprintf("%s must not import %s (%s): %s", dir, dep, file, r.why))
				}
				continue
			}
			for _, b := range neverImport {
				if slices.Contains(b.who, dir) && below(imported, b.what) {
					out = append(out, fmt.Sprintf("%s must not import %s (%s): %s", dir, imported, file, b.why))
				}
			}
		}
		for _, b := range neverReach {
			if !slices.Contains(b.who, dir) {
				continue
			}
			for _, chain := range reach(pkgs, dir, b.what) {
				out = append(out, fmt.Sprintf("%s must not reach %s: %s", dir, strings.Join(chain, " → "), b.why))
			}
		}
	}
	return out
}

// below reports whether an import is one of the packages or below it.
func below(imported string, what []string) bool {
	return slices.ContainsFunc(what, func(w string) bool {
		return imported == w || strings.HasPrefix(imported, w+"/")
	})
}

// reach gives a shortest chain of imports to each of the targets that dir
// reaches, dir itself left out.
func reach(pkgs map[string]*pkg, dir string, targets []string) [][]string {
	var out [][]string
	from := map[string][]string{dir: nil}
	for queue := []string{dir}; len(queue) > 0; queue = queue[1:] {
		p := pkgs[queue[0]]
		if p == nil {
			continue
		}
		for _, imported := range slices.Sorted(maps.Keys(p.imports)) {
			dep, ok := ours(imported)
			if _, seen := from[dep]; !ok || seen {
				continue
			}
			from[dep] = append(slices.Clone(from[queue[0]]), dep)
			queue = append(queue, dep)
			if slices.Contains(targets, dep) {
				out = append(out, from[dep])
			}
		}
	}
	return out
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	for _, v := range violations(load(t, os.DirFS("."))) {
		t.Error(v)
	}
}

// The rule must be able to fail, for each way of breaking it.
func TestDependenciesCanFail(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		imports map[string][]string // by package
		want    string
	}{
		{
			"a leaf imports one of ours",
			map[string][]string{"wire": {module + "/stream"}},
			"wire must not import stream (wire/x.go): it is the vocabulary",
		},
		{
			"a clock",
			map[string][]string{"index": {"time"}},
			"index must not import time (index/x.go): it is pure",
		},
		{
			"below a banned package",
			map[string][]string{"tui": {"net/http"}},
			"tui must not import net/http",
		},
		{
			"a file behind a build tag",
			map[string][]string{"stream": {"os"}},
			"stream must not import os",
		},
		{
			"by a detour",
			map[string][]string{"observe": {module + "/diagnose"}, "diagnose": {module + "/tap"}},
			"observe must not reach diagnose → tap: what only looks",
		},
		{
			"no row",
			map[string][]string{"misc": {"fmt"}},
			"misc has no row",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := memory{}
			for dir, imports := range tt.imports {
				text := "//go:build plan9\n\npackage x\n"
				for _, i := range imports {
					text += "import _ " + strconv.Quote(i) + "\n"
				}
				root.add(dir+"/x.go", text)
			}
			got := strings.Join(violations(load(t, root.fs())), "\n")
			if !strings.Contains(got, tt.want) {
				t.Errorf("violations %q, want %q in them", got, tt.want)
			}
		})
	}
	fine := memory{}
	fine.add("wire/x.go", "package wire\nimport _ \"fmt\"\n")
	fine.add("wire/x_test.go", "package wire\nimport _ \"os\"\n")
	fine.add("cmd/kvscope/main.go", "package main\nimport _ \""+module+"/wire\"\n")
	if got := violations(load(t, fine.fs())); got != nil {
		t.Errorf("violations %q of what is allowed", got)
	}
}
