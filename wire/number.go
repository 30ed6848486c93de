package wire

import (
	"strconv"
	"strings"
)

// Grouped writes a whole number with a space between thousands.
func Grouped[N ~int | ~uint64 | ~uint32 | ~int64](n N) string {
	s, sign := strconv.FormatUint(uint64(n), 10), ""
	if n < 0 {
		s, sign = strconv.FormatInt(int64(n), 10)[1:], "-"
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return sign + s
}

// Counted writes how many there are of something: 1 block, 1 024 blocks.
func Counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	if strings.HasSuffix(one, "ch") {
		one += "e"
	}
	return Grouped(n) + " " + one + "s"
}
