package wire

import (
	"testing"
	"time"
)

func TestDropped(t *testing.T) {
	t.Parallel()
	for note, want := range map[string]uint64{
		Dropped(812, 2*time.Second):                                                         812,
		"kvscope fell behind and left out 8 metrics pages or notes":                         0,
		"kvscope fell behind and dropped 99999999999999999999 messages of this link in 2 s": 0,
		"": 0,
	} {
		if n, ok := DroppedIn(note); n != want && ok || ok != (want > 0) {
			t.Errorf("%q: %d, %v", note, n, ok)
		}
	}
}
