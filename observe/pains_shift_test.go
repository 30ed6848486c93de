package observe

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/prompt/tokenizer"
	"github.com/kvscope/kvscope/wire"
)

// promptPain is a case of the pain log that is seen in the event stream.
type promptPain struct {
	id, code, what string
	before         string // what stands in front of the first token that differs, if it is the same for all
	// text gives request n of six, or of four pairs where before is empty.
	text func(n int) string
}

// found gives the finding, which must be about what and in its place.
func (p *promptPain) found(t *testing.T, words small) *diagnose.Finding {
	t.Helper()
	n := 6
	if p.before == "" {
		n = 8
	}
	var prompts [][]wire.Token
	for i := range n {
		prompts = append(prompts, words.tokens(t, p.text(i)))
	}
	o := New(Options{Speech: words})
	for _, rec := range asked(t, -1, prompts...) {
		o.Push(rec)
	}
	found := shiftsIn(o.Snapshot().Findings)
	i := slices.IndexFunc(found, func(f diagnose.Finding) bool { return f.Code == p.code })
	if i < 0 {
		t.Fatalf("found %s", inWords(found))
	}
	f := &found[i]
	t.Log(f.Title, "·", f.Counterfactual)
	if !strings.Contains(f.Title, p.what) || f.Severity != diagnose.Warning {
		t.Errorf("%s: %s", f.Severity, f.Title)
	}
	if p.before != "" && *f.Evidence.Token != len(words.tokens(t, p.before)) {
		t.Errorf("token %d, want %d", *f.Evidence.Token, len(words.tokens(t, p.before)))
	}
	return f
}

// TestPainsOfPromptsReuse: of these cases, which explain/diff knows of two prompts, the
// stream also tells how many requests are of it and what each lost.
func TestPainsOfPromptsReuse(t *testing.T) {
	t.Parallel()
	tok, err := tokenizer.Load(mustRead(t, "tokenizer/tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	words := small{tok}
	chat := func(turns ...string) string {
		out := ""
		for i, text := range turns {
			role := "system"
			if i > 0 {
				role = []string{"assistant", "user"}[i%2]
			}
			out += "<|im_start|>" + role + "\n" + text + "<|im_end|>\n"
		}
		return out + "<|im_start|>assistant\n"
	}
	// own is what only one chat says.
	own := func(n int) (out string) {
		rng := rand.New(rand.NewPCG(uint64(n), 5))
		for range 40 {
			out += string(rune('a'+rng.IntN(26))) + string(rune('a'+rng.IntN(26))) + " "
		}
		return out
	}
	const question, head = "Where is my parcel?", "<|im_start|>system\n"
	order := func(n int) string { return instructions + fmt.Sprint("Order ", 1042+31*n) }
	files := [][]string{
		{"a.go", "b.go", "cmd/c.go"},
		{"a.go", "cmd/c.go", "cmd/d.go", "web/e.ts"},
		{"a.go", "b.go"},
		{"a.go", "b.go", "web/e.ts", "web/f.ts"},
		{"b.go", "cmd/c.go"},
		{"a.go", "web/e.ts"},
	}
	listing := func(n int) string { return "  " + strings.Join(files[n], "\n  ") + "\n" }
	date := func(n int) string { return fmt.Sprintf("Tue Jun 1%d 2026", n+2) }
	status := func(n int) string {
		return " M src/app.ts\n" + strings.Repeat(" M src/lib.ts\n", n%2) + fmt.Sprintf("?? notes%d.md\n", n)
	}
	tasks := []string{"login bug", "parser", "server", "driver", "build", "docs"}
	const think = "<think>\n\n</think>\n\n"
	// only writes a text into the first of each pair.
	only := func(n int, text string) string { return strings.Repeat(text, 1-n%2) }

	for _, p := range []struct {
		promptPain
		requests string
		losers   int
		// mended is the text of request n with what changes last, or written alike.
		mended func(n int) string
	}{
		{promptPain{"P05", "boundary-shift", "date (day)", head + instructions + "Current date: ", func(n int) string {
			return chat(instructions+fmt.Sprintf("Current date: 2026-09-1%d", n+4), own(0), own(1), question)
		}}, "6 of 6", 5, func(n int) string {
			return chat(instructions+"Current date: ", own(0), own(1), question) + fmt.Sprintf("2026-09-1%d", n+4)
		}},
		{promptPain{"P07", "boundary-shift", "git status", head + "Status:\n", func(n int) string {
			return chat("Status:\n"+status(n)+"\n"+instructions, question)
		}}, "6 of 6", 5, func(n int) string { return chat("Status:\n\n"+instructions, question) + status(n) }},
		{promptPain{"P08", "boundary-shift", "file list (4 lines, then 2) and date", head + "<files>\n", func(n int) string {
			return chat("<files>\n"+listing(n)+"</files>\nToday's date: "+date(n)+"\n"+instructions, question)
		}}, "6 of 6", 5, func(n int) string {
			return chat("<files>\n</files>\nToday's date: \n"+instructions, question) + listing(n) + date(n)
		}},
		// That what is edited is the user's message needs messages: kvscope diff says it.
		{promptPain{"P09", "boundary-shift", "edit", head + "Follow <behavioral_directive>fix the", func(n int) string {
			return chat("Follow <behavioral_directive>fix the "+tasks[n]+"</behavioral_directive>\n"+instructions, "fix the "+tasks[n])
		}}, "6 of 6", 5, func(n int) string {
			return chat("Follow <behavioral_directive>fix the </behavioral_directive>\n"+instructions, "fix the ") + tasks[n]
		}},
		{promptPain{"P11", "boundary-shift", "deletion", "", func(n int) string {
			reminder := "<system-reminder>" + strings.Repeat("Do not say what stands here. ", 20) + "</system-reminder>\n"
			return chat(instructions, only(n, reminder)+own(n/2), own(100+n/2), own(200+n/2))
		}}, "5 of 8", 4, func(n int) string { return chat(instructions, own(n/2), own(100+n/2), own(200+n/2)) }},
		{promptPain{"P18", "order-shift", "json spacing", "", func(n int) string {
			call := `{"a": 1, "b": [2, 3], "parcel": ` + fmt.Sprint(42+n/2) + `}`
			if n%2 == 1 {
				call = strings.ReplaceAll(call, " ", "")
			}
			return chat(order(n/2), question, "<tool_call>"+call+"</tool_call>", own(n/2))
		}}, "4 of 8", 4, func(n int) string {
			return chat(order(n/2), question, `<tool_call>{"a": 1, "b": [2, 3], "parcel": `+fmt.Sprint(42+n/2)+`}</tool_call>`, own(n/2))
		}},
		{promptPain{"P21", "template-drift", "think block (empty in the older)", "", func(n int) string {
			return chat(order(n/2), question, only(n, think)+`<tool_call>{"parcel": `+fmt.Sprint(42+n/2)+`}</tool_call>`, own(n/2))
		}}, "4 of 8", 4, func(n int) string {
			return chat(order(n/2), question, think+`<tool_call>{"parcel": `+fmt.Sprint(42+n/2)+`}</tool_call>`, own(n/2))
		}},
	} {
		t.Run(p.id, func(t *testing.T) {
			t.Parallel()
			f := p.found(t, words)
			same := func(text func(int) string) int {
				return prefixOf(words.tokens(t, text(0)), words.tokens(t, text(1))) / 4
			}
			now, can := same(p.text), same(p.mended)
			_, told, _ := strings.Cut(f.Counterfactual, ", ")
			var gotNow, gotCan, of int
			if _, err := fmt.Sscanf(told, "%d of %d blocks of such a request are reused, now %d", &gotCan, &of, &gotNow); err != nil {
				t.Fatal(err)
			}
			if gotNow != now || gotCan < can-2 || gotCan > can+2 {
				t.Errorf("%d blocks reused, and %d if it were mended; want %d, %d", gotNow, gotCan, now, can)
			}
			// The last tokens of a prompt are in no block, so that a little less is known.
			if each := float64(*f.Effect.Blocks) / float64(p.losers) / float64(can-now); each < 0.9 || each > 1.05 {
				t.Errorf("%d blocks computed again by %d requests, want about %d each", *f.Effect.Blocks, p.losers, can-now)
			}
			if !strings.HasPrefix(f.Title, p.requests+" requests") {
				t.Errorf("want %s requests: %s", p.requests, f.Title)
			}
		})
	}
}

func prefixOf(a, b []wire.Token) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
