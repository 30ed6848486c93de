package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWriteNew never overwrites.
func TestWriteNew(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "view.csv")
	for i, want := range []string{"view.csv", "view-2.csv", "view-3.csv"} {
		path, err := writeNew(name, []byte{byte('0' + i)})
		if err != nil || filepath.Base(path) != want {
			t.Fatalf("%q, %v, want %s", path, err, want)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info.Mode(), err)
		}
	}
	if data, err := os.ReadFile(name); err != nil || string(data) != "0" {
		t.Errorf("the first file holds %q, %v", data, err)
	}
	if _, err := writeNew(filepath.Join(t.TempDir(), "no", "such", "folder.csv"), nil); err == nil {
		t.Error("no error for a folder that does not exist")
	}
}
