package diagnose

import (
	"fmt"
	"testing"

	"github.com/kvscope/kvscope/wire"
)

// with makes a Watch whose only check is c.
func with(t *testing.T, c Check) *Watch {
	t.Helper()
	before := Checks
	Checks = []Check{c}
	t.Cleanup(func() { Checks = before })
	return NewWatch()
}

// TestEpisodes: when a finding opens, lasts and ends, second by second. It replaces
// the table of checks, so it does not run beside others.
func TestEpisodes(t *testing.T) {
	for name, tt := range map[string]struct {
		open, close int
		holds       string // a # for each second in which the condition holds
		want        string // since–until of all findings at the end
	}{
		"at once":              {0, 0, "..##..", "2–3 "},
		"not long enough":      {3, 0, ".##.##.", ""},
		"long enough":          {3, 0, ".####..", "1–4 "},
		"still on":             {3, 0, ".####", "1– "},
		"a break":              {0, 2, "#.##..#....", "0–6 "},
		"two":                  {0, 1, "##....#", "0–1 6– "},
		"flapping is one":      {2, 3, "#.#.#.#.#.#......", "0–10 "},
		"flapping, too seldom": {4, 1, "#...#...#...", ""},
	} {
		c := Check{Code: "x", Open: wire.Time(tt.open) * 1e9, Close: wire.Time(tt.close) * 1e9}
		holds := false
		c.Now = func(v View, _ Memory) []Finding {
			if !holds {
				return nil
			}
			return []Finding{{Subject: "fleet", Title: fmt.Sprint(v.Now)}}
		}
		w := with(t, c)
		var half *Watch
		for i, h := range tt.holds {
			holds = h == '#'
			w.Tick(View{Now: wire.Time(i) * 1e9})
			if i == len(tt.holds)/2 {
				half = w.Clone()
			}
		}
		said := func(w *Watch) string {
			var out string
			for _, f := range w.findings() {
				until := ""
				if f.Until != nil {
					until = fmt.Sprint(*f.Until / 1e9)
				}
				out += fmt.Sprintf("%d–%s ", f.Since/1e9, until)
			}
			return out
		}
		if got := said(w); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		for i, h := range tt.holds {
			if i > len(tt.holds)/2 {
				holds = h == '#'
				half.Tick(View{Now: wire.Time(i) * 1e9})
			}
		}
		if got := said(half); got != tt.want {
			t.Errorf("%s, from a copy: %q, want %q", name, got, tt.want)
		}
	}
}

// TestEpisodesAreBounded: subjects without end fill neither the open nor the ended.
func TestEpisodesAreBounded(t *testing.T) {
	n := 0
	w := with(t, Check{Code: "x", Now: func(View, Memory) []Finding {
		var out []Finding
		for i := range 1000 {
			out = append(out, Finding{Subject: fmt.Sprint(n*1000 + i)})
		}
		n++
		return out
	}})
	for i := range 20 {
		w.Tick(View{Now: wire.Time(i) * 1e9})
	}
	if len(w.episodes) > maxEpisodes || len(w.over) != maxOver {
		t.Errorf("%d episodes, %d over", len(w.episodes), len(w.over))
	}
}
