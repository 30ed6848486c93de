package tui

// layout says which lines of the screen hold what. It depends on the size
// alone, so that a screen can be tested for every size there is.
type layout struct {
	w, h int
	// minimal is a terminal below 40×10: one line per replica and no frame.
	minimal bool
	// headline and counters are the most lines that each may take.
	headline, counters int
	// status is the rule above the footer, which also shows toasts; rule the
	// one below the header.
	status, rule, footer bool
}

// Below this size there is no room for a frame.
const (
	minimalWidth  = 40
	minimalHeight = 10
)

// heights lists what the frame gets from a height on, tallest first.
var heights = []struct {
	from               int
	headline, counters int
	rule, status       bool
}{
	{22, 3, 2, true, true},
	{16, 2, 1, false, true},
	{12, 1, 1, false, true},
	{0, 1, 0, false, false},
}

// layoutOf divides a screen. A maximised pane keeps only the first line and
// the footer.
func layoutOf(w, h int, maximised bool) layout {
	l := layout{w: max(w, 1), h: max(h, 1)}
	if l.w < minimalWidth || l.h < minimalHeight {
		l.minimal = true
		return l
	}
	l.footer = true
	if maximised {
		l.status = true
		return l
	}
	for _, x := range heights {
		if l.h >= x.from {
			l.headline, l.counters, l.rule, l.status = x.headline, x.counters, x.rule, x.status
			break
		}
	}
	return l
}
