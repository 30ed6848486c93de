package blockhash

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/kvscope/kvscope/refdata"
)

// Property tests draw the same cases each time, unless -rapid.seed says other.
func init() {
	if err := flag.Set("rapid.seed", "1"); err != nil {
		panic(err)
	}
}

// eachLine decodes every line of every file that the pattern names, and fails
// where there is none. The file's name is for messages only.
func eachLine[R any](t *testing.T, pattern string, line func(file string, r R)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	for _, file := range files {
		refdata.Each(t, file, func(_ int, r R) { line(file, r) })
	}
}
