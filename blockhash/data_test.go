package blockhash

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// Property tests draw the same cases each time, unless -rapid.seed says other.
func init() {
	if err := flag.Set("rapid.seed", "1"); err != nil {
		panic(err)
	}
}

// oracleDir is the folder of recordings of real systems; the test is skipped
// without it.
func oracleDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("KVSCOPE_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no reference data at %s (set KVSCOPE_DATA): %v", dir, err)
	}
	return dir
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
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for dec := json.NewDecoder(bufio.NewReader(z)); dec.More(); {
			var r R
			if err := dec.Decode(&r); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			line(file, r)
		}
	}
}
