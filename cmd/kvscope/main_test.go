package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kvscope": main})
}

// TestScripts drives the program as a user would.
func TestScripts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it starts a hundred programs, each slow under the race detector; what runs at once in them has tests of its own")
	}
	fixtures, err := filepath.Abs("../../fixtures")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("FIXTURES", fixtures)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"field":  field,
			"cutoff": cutoff,
		},
	})
}

// field checks a value of the JSON on standard output: field PATH WANT, where
// a number in PATH is an index and name=value picks an element of a list.
func field(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: field PATH WANT")
	}
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		ts.Fatalf("standard output is not JSON: %v", err)
	}
	for _, step := range strings.Split(args[0], ".") {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[step]
			if !ok {
				ts.Fatalf("%s: no field %q", args[0], step)
			}
			v = next
		case []any:
			v = element(ts, at, step)
		default:
			ts.Fatalf("%s: nothing below %v", args[0], v)
		}
	}
	got := fmt.Sprint(v)
	if list, ok := v.([]any); ok {
		got = fmt.Sprint(len(list), " elements")
	}
	if (got == args[1]) == neg {
		ts.Fatalf("%s is %s, want %s", args[0], got, args[1])
	}
}

func element(ts *testscript.TestScript, list []any, step string) any {
	key, want, ok := strings.Cut(step, "=")
	if !ok {
		var i int
		if _, err := fmt.Sscan(step, &i); err != nil || i >= len(list) {
			ts.Fatalf("no element %s of %d", step, len(list))
		}
		return list[i]
	}
	for _, e := range list {
		if m, ok := e.(map[string]any); ok && fmt.Sprint(m[key]) == want {
			return e
		}
	}
	ts.Fatalf("no element with %s", step)
	return nil
}

// cutoff writes the first part of a file: cutoff FROM TO PERCENT.
func cutoff(ts *testscript.TestScript, _ bool, args []string) {
	data, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	var percent int
	_, err = fmt.Sscan(args[2], &percent)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), data[:len(data)*percent/100], 0o600))
}

func TestMoments(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]moment{
		"":                            {},
		"1796011713":                  {true, false, 1796011713e9},
		"1796011713.5":                {true, false, 17960117135e8},
		"+90":                         {true, true, 90e9},
		"+1m30s":                      {true, true, 90e9},
		"2026-11-30T05:41:09Z":        {true, false, 1796017269e9},
		"2026-11-30T06:41:09.5+01:00": {true, false, 17960172695e8},
	} {
		if got, err := parseMoment(in); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"yesterday", "+", "nan", "+inf", "1e300"} {
		if got, err := parseMoment(in); err == nil {
			t.Errorf("%q: %+v without an error", in, got)
		}
	}
}

// TestStandardInput reads a recording from standard input.
func TestStandardInput(t *testing.T) {
	t.Parallel()
	f, err := os.Open("../../fixtures/c_reset/events.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out, errs bytes.Buffer
	if code := run(context.Background(), []string{"report", "--from", "-", "--json"}, f, &out, &errs); code != exitFine {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var got struct {
		Schema   string
		Replicas []struct{ Replica, Trust string }
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Schema != "kvscope.report/1" || len(got.Replicas) != 1 || got.Replicas[0].Trust != "EXACT" {
		t.Errorf("%+v", got)
	}
}
