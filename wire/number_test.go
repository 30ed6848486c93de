package wire

import (
	"math"
	"testing"
)

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1 000", -1000: "-1 000", -999: "-999", 1234567: "1 234 567", math.MinInt64: "-9 223 372 036 854 775 808",
	} {
		if got := Grouped(n); got != want {
			t.Errorf("%d is written %q, want %q", n, got, want)
		}
	}
	if got := Grouped(uint64(math.MaxUint64)); got != "18 446 744 073 709 551 615" {
		t.Errorf("the largest number is written %q", got)
	}
	for want, got := range map[string]string{
		"1 block": Counted(1, "block"), "0 blocks": Counted(0, "block"), "2 batches": Counted(2, "batch"), "12 000 tokens": Counted(12000, "token"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
