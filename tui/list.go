package tui

// list is a window on rows of which only the visible ones are formatted. The
// selection is kept by the row's name, so that it stays on the same thing when
// rows come, go or change places.
type list struct {
	selected string
	cursor   int // where the selected row was last
	top      int
	height   int // rows that fit, as of the last draw
}

// sync finds the selection among n rows and keeps it in a window of h rows.
func (l *list) sync(n, h int, name func(int) string) {
	l.height = max(h, 1)
	if n == 0 {
		l.cursor, l.top = 0, 0
		return
	}
	l.cursor = min(max(l.cursor, 0), n-1)
	if l.selected == "" {
		l.selected = name(l.cursor)
	}
	if name(l.cursor) != l.selected {
		found := false
		for i := 0; i < n && !found; i++ {
			if name(i) == l.selected {
				l.cursor, found = i, true
			}
		}
		if !found {
			l.selected = name(l.cursor)
		}
	}
	if l.cursor < l.top {
		l.top = l.cursor
	}
	if l.cursor >= l.top+l.height {
		l.top = l.cursor - l.height + 1
	}
	l.top = min(l.top, max(0, n-l.height))
}

// moves says how far each action goes in a window of h rows.
var moves = map[string]func(cursor, n, h int) int{
	actUp:       func(c, _, _ int) int { return c - 1 },
	actDown:     func(c, _, _ int) int { return c + 1 },
	actTop:      func(_, _, _ int) int { return 0 },
	actBottom:   func(_, n, _ int) int { return n - 1 },
	actHalfUp:   func(c, _, h int) int { return c - max(1, h/2) },
	actHalfDown: func(c, _, h int) int { return c + max(1, h/2) },
	actPageUp:   func(c, _, h int) int { return c - h },
	actPageDown: func(c, _, h int) int { return c + h },
}

// move carries out an action among n rows, and reports whether it is one of
// movement.
func (l *list) move(action string, n int, name func(int) string) bool {
	to, ok := moves[action]
	if !ok {
		return false
	}
	l.sync(n, l.height, name)
	if n > 0 {
		l.cursor = min(max(to(l.cursor, n, l.height), 0), n-1)
		l.selected = name(l.cursor)
	}
	return true
}
