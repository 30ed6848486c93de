package wire

// wordTable maps short words to values. There are few of each length, so
// comparing with those takes less time than hashing, and every field of every
// event is looked up here.
type wordTable[V any] struct {
	byLength [longestWord + 1][]wordEntry[V]
}

const longestWord = 31

type wordEntry[V any] struct {
	word  string
	value V
}

func (t *wordTable[V]) add(word string, value V) {
	at := &t.byLength[len(word)]
	*at = append(*at, wordEntry[V]{word, value})
}

func (t *wordTable[V]) get(word []byte) (value V, ok bool) {
	if len(word) > longestWord {
		return value, false
	}
	for i := range t.byLength[len(word)] {
		if e := &t.byLength[len(word)][i]; e.word == string(word) {
			return e.value, true
		}
	}
	return value, false
}
