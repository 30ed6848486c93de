package wire

import (
	"fmt"
	"regexp"
	"strconv"
)

// Dropped words the Note with which a tap says that it dropped messages of a link
// because the program was slow.
func Dropped(messages uint64, in fmt.Stringer) string {
	return fmt.Sprintf("kvscope fell behind and dropped %d messages of this link in %s", messages, in)
}

var dropped = regexp.MustCompile(`^kvscope fell behind and dropped (\d+) messages of this link in `)

// DroppedIn reads the number of messages from such a Note, and reports false for any
// other.
func DroppedIn(note string) (messages uint64, ok bool) {
	m := dropped.FindStringSubmatch(note)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	return n, err == nil
}
