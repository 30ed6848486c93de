package wire

// CommonPrefix counts the leading elements that two sequences share.
func CommonPrefix[E comparable](a, b []E) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
