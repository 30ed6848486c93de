package tap

import "testing"

func TestParsePolicy(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", "gaps"},
		{"never", "never"},
		{"gaps", "gaps"},
		{"recent", "recent:1000"},
		{"recent:1", "recent:1"},
		{"recent:100000", "recent:100000"},
		{"full", "full"},
		{"none", `replay policy "none": want never, gaps, recent, recent:N or full`},
		{"full:5", `replay policy "full:5": only recent takes a number`},
		{":5", `replay policy ":5": only recent takes a number`},
		{"recent:", `replay policy "recent:": want a number of batches from 1 to 100000 after recent`},
		{"recent:0", `replay policy "recent:0": want a number of batches from 1 to 100000 after recent`},
		{"recent:-1", `replay policy "recent:-1": want a number of batches from 1 to 100000 after recent`},
		{"recent:100001", `replay policy "recent:100001": want a number of batches from 1 to 100000 after recent`},
	}
	for _, tt := range tests {
		p, err := ParsePolicy(tt.in)
		got := p.String()
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%q: %s, want %s", tt.in, got, tt.want)
		}
		if again, err2 := ParsePolicy(p.String()); err == nil && (again != p || err2 != nil) {
			t.Errorf("%q does not read back what it prints: %v, %v", tt.in, again, err2)
		}
	}
	if got := (Policy{}).String(); got != "gaps" {
		t.Errorf("the zero policy is %s", got)
	}
}
