package route

import (
	"fmt"
	"testing"
)

// TestDeprecated: what is given by a flag or variable that goes away, and not what
// something else implies.
func TestDeprecated(t *testing.T) {
	t.Parallel()
	p, err := Named("dynamo")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		src  Sources
		want string
	}{
		{Sources{}, ""},
		{Sources{Env: []Setting{{"overlap_score_weight", "0", "DYN_OVERLAP_SCORE_WEIGHT"}}}, "DYN_OVERLAP_SCORE_WEIGHT=0 sets prefill_load_scale; "},
		{Sources{Flags: []Setting{{"prefill_load_scale", "2", "--router-prefill-load-scale"}}}, "--router-prefill-load-scale=2 sets ; "},
		{Sources{File: []Setting{{"prefill_load_scale", "2", "policy.yaml"}}}, ""},
		{Sources{Flags: []Setting{{"host_cache_hit_weight", "1", "--router-host-cache-hit-weight"}}}, ""},
	} {
		c, err := p.Configure(tt.src)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, d := range c.Deprecated() {
			got += fmt.Sprintf("%s=%s sets %s; ", d.Origin, d.Value, d.Sets)
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.src, got, tt.want)
		}
	}
}
