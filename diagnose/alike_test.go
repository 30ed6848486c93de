package diagnose

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

func TestCollapse(t *testing.T) {
	t.Parallel()
	on := func(code, subject, title string, s Severity, until *wire.Time) Finding {
		f := Finding{Code: code, Subject: subject, Title: title, Severity: s, Until: until, Next: "look"}
		if subject != "fleet" {
			f.Evidence.Replica = wire.Replica(subject)
		}
		return f
	}
	over := p(second)
	in := []Finding{
		on("seq-gap", "r1", "1 batch lost (5–5) of r1", Error, nil),
		on("seq-gap", "r2", "12 batches lost (7–18) of r2", Error, nil),
		on("seq-gap", "r2", "3 batches lost (1–3) of r2", Error, nil),
		on("seq-gap", "r6", "1 414 batches lost (5 000–6 413) of r6", Error, nil),
		on("seq-gap", "r3", "1 batch lost (5–5) of r3", Warning, nil),
		on("seq-gap", "r4", "1 batch lost (5–5) of r4", Error, over),
		on("seq-gap", "r5", "1 run lost (5–5) of r5", Error, nil),
		on("herding", "fleet", "one", Error, nil),
		on("herding", "fleet", "one", Error, nil),
		on("late-join", "r1", "joined late, says r1", Info, nil),
		on("late-join", "r2", "joined late, says r2", Info, nil),
	}
	words := func(got []Alike) string {
		var said []string
		for _, a := range got {
			said = append(said, fmt.Sprintf("%s %s %t", a[0].Code, strings.Join(a.Names(), ","), a.Same()))
		}
		return strings.Join(said, "; ")
	}
	want := "seq-gap r1,r2 ×2,r6 false; seq-gap r3 true; seq-gap r4 true; seq-gap r5 true; herding fleet true; herding fleet true; late-join r1,r2 true"
	if got := words(Collapse(in, true)); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	want = strings.Replace(want, "r1,r2 ×2,r6 false;", "r1,r2,r6 false; seq-gap r2 true;", 1)
	if got := words(Collapse(in, false)); got != want {
		t.Errorf("repeats apart:\n got %s\nwant %s", got, want)
	}
}

func TestWordsOfFindings(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]Evidence{
		"":                                 {},
		"replica r, batch 7":               {Replica: "r", SeqFrom: p(uint64(7)), SeqTo: p(uint64(7))},
		"batches 40 211–40 518":            {SeqFrom: p(uint64(40211)), SeqTo: p(uint64(40518))},
		"batch 0 after 91":                 {SeqFrom: p(uint64(91)), SeqTo: p(uint64(0))},
		"block 12, token 1 234, “the day”": {Block: p(12), Token: p(1234), Span: p("the day")},
	} {
		if got := e.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for n, want := range map[float64]string{0.5: "0", 1414.6: "1 415", 1e300: fmt.Sprintf("%.0f", 1e300), math.Inf(1): "+Inf"} {
		if got := rounded(n); got != want {
			t.Errorf("%g is written %q, want %q", n, got, want)
		}
	}
	for want, e := range map[string]Effect{
		"":                                     {},
		"1 block, 16 tokens":                   {Blocks: p(1), Tokens: p(16)},
		"2 000 blocks, 25.0 % of its capacity": {Blocks: p(2000), Share: p(0.25)},
	} {
		if got := e.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
