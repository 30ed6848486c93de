// Package refdata finds and reads the reference data, which real systems gave,
// for tests. Every clone has samples of it in testdata folders; the whole is
// where KVSCOPE_DATA says. What cannot be read ends the test.
//
// It is safe for concurrent use, as far as the test's own methods are.
package refdata

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Root is the folder of the whole reference data: $KVSCOPE_DATA, or shared/data
// beside the repository. It skips the test where there is none.
func Root(t testing.TB) string {
	t.Helper()
	top := "."
	for range 4 { // the folder of a test is at most so deep
		if _, err := os.Stat(filepath.Join(top, "go.mod")); err == nil {
			break
		}
		top = filepath.Join(top, "..")
	}
	root := cmp.Or(os.Getenv("KVSCOPE_DATA"), filepath.Join(top, "..", "shared", "data"))
	if _, err := os.Stat(root); err != nil {
		t.Skipf("no reference data: set KVSCOPE_DATA to its folder (%v)", err)
	}
	return root
}

// Files gives the files below root that match any of the patterns, which are
// slash-separated as in filepath.Glob. It skips the test where there is none.
func Files(t testing.TB, root string, patterns ...string) []string {
	t.Helper()
	var all []string
	for _, p := range patterns {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(p)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		t.Skipf("no file matches %s below %s", strings.Join(patterns, " or "), root)
	}
	return all
}

// Unpack gives the contents of a gzip file.
func Unpack(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // read only
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return b
}

// Each decodes the JSON values of a gzip file one after the other, each into a
// new T, numbers in untyped places as json.Number. They are counted from 1.
func Each[T any](t testing.TB, name string, do func(n int, v T)) {
	t.Helper()
	n := 0
	dec := json.NewDecoder(bytes.NewReader(Unpack(t, name)))
	dec.UseNumber()
	for {
		var v T
		switch err := dec.Decode(&v); {
		case err == io.EOF:
			return
		case err != nil:
			t.Fatalf("%s: record %d: %v", name, n+1, err)
		}
		n++
		do(n, v)
	}
}

// All gives the values that Each goes through.
func All[T any](t testing.TB, name string) []T {
	t.Helper()
	var all []T
	Each(t, name, func(_ int, v T) { all = append(all, v) })
	return all
}
