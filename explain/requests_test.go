package explain

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
)

const full = `{"kind":"chat","replica":"a","status":200,"t_start":1,"t_end":2,"request":{"model":"m","cache_salt":"s"},"response":{"prompt_token_ids":[1,2,3],"usage":{"prompt_tokens_details":%s}}}`

func TestReadRequests(t *testing.T) {
	t.Parallel()
	text := strings.Join([]string{
		`{"kind":"note","t":1}`,
		`{"kind":"chat","replica":"a","status":200,"t_start":5,"t_end":6,"request":{"model":"m"},"response":{"prompt_token_ids":[7],"usage":{"prompt_tokens_details":null}}}`,
		fmt.Sprintf(full, `{"cached_tokens":2}`),
		`{"kind":"chat","replica":"a","status":400,"t_start":1,"t_end":2}`,
		`{"replica":"f","status":200,"t_start":3,"t_end":4,"token_ids":[8,9],"cached_tokens":1,"cache_salt":"x"}`,
		`{"kind":"completion","replica":"a","status":200,"t_start":2,"t_end":2.5,"request":{"model":"m","prompt_logprobs":1},"response":{"choices":[{"prompt_token_ids":[4]}]}}`,
	}, "\n")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, text)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]string{"plain": text, "gzip": packed.String()} {
		got, err := ReadRequests(strings.NewReader(in), name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(got) != 4 {
			t.Fatalf("%s: %d requests, want 4", name, len(got))
		}
		for i, want := range []struct {
			replica, salt string
			start         float64
			tokens        int
			cached        int
			excluded      bool
		}{{"a", "s", 1, 3, 2, false}, {"a", "", 2, 1, 0, true}, {"f", "x", 3, 2, 1, false}, {"a", "", 5, 1, 0, false}} {
			q := got[i]
			if q.Replica != want.replica || q.Salt != want.salt || q.Start.Seconds() != want.start ||
				len(q.Tokens) != want.tokens || q.Cached != want.cached || (q.Excluded != "") != want.excluded || !q.Known {
				t.Errorf("%s: request %d is %+v, want %+v", name, i, q, want)
			}
		}
	}
}

// TestNullDetails: where no response carries the details, nothing is known.
func TestNullDetails(t *testing.T) {
	t.Parallel()
	got, err := ReadRequests(strings.NewReader(fmt.Sprintf(full, "null")), "log")
	if err != nil || len(got) != 1 || got[0].Known {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDamagedLogs(t *testing.T) {
	t.Parallel()
	good := fmt.Sprintf(full, `{"cached_tokens":2}`)
	for name, c := range map[string]struct {
		in   string
		rows int
		say  string
	}{
		"a broken row":   {good + "\n{\"kind\":\n" + good, 2, "1 of 3 rows could not be read; first: line 2"},
		"no start":       {good + "\n" + `{"kind":"chat","status":200,"t_end":1}`, 1, "t_start or t_end is missing"},
		"far start":      {good + "\n" + `{"kind":"chat","status":200,"t_start":1e300,"t_end":1}`, 1, "t_start is out of range"},
		"empty":          {"", 0, "holds no served request"},
		"foreign":        {"hello\nworld\n", 0, "2 of 2 rows could not be read"},
		"negative token": {`{"kind":"chat","status":200,"t_start":1,"t_end":1,"response":{"prompt_token_ids":[-1]}}`, 0, "could not be read"},
	} {
		got, err := ReadRequests(strings.NewReader(c.in), "log")
		if len(got) != c.rows || err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %d rows, %v; want %d rows and %q", name, len(got), err, c.rows, c.say)
		}
	}
}

// TestCutGzipLog reads what comes before the cut.
func TestCutGzipLog(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for i := range 2000 {
		fmt.Fprintf(z, full+"\n", fmt.Sprintf(`{"cached_tokens":%d}`, i*7919%1000))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := ReadRequests(bytes.NewReader(packed.Bytes()[:packed.Len()/2]), "log")
	if len(got) == 0 || len(got) >= 2000 || err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("%d rows, %v", len(got), err)
	}
}
