package tui

// The actions that the model carries out itself.
const (
	actQuit      = "quit"
	actBack      = "back"
	actHelp      = "help"
	actCommand   = "command"
	actFilter    = "filter"
	actNextMatch = "next-match"
	actPrevMatch = "prev-match"
	actFreeze    = "freeze"
	actExport    = "export"
	actPrevEvent = "prev-moment"
	actNextEvent = "next-moment"
	actStepBack  = "step-back"
	actStepOn    = "step"
	actSlower    = "slower"
	actFaster    = "faster"
	actSeek      = "seek"
	actRelative  = "relative"
	actRedraw    = "redraw"
	actSuspend   = "suspend"
	actMaximise  = "maximise"
)

// The actions that a view carries out, or the dialog that lies over it.
const (
	actUp       = "up"
	actDown     = "down"
	actTop      = "top"
	actBottom   = "bottom"
	actHalfUp   = "half-up"
	actHalfDown = "half-down"
	actPageUp   = "page-up"
	actPageDown = "page-down"
	actLeft     = "left"
	actRight    = "right"
	actOpen     = "open"
	actNextPane = "next-pane"
	actPrevPane = "prev-pane"
	actSort     = "sort"
	actReverse  = "reverse"
	actColumns  = "columns"
	actCopy     = "copy"
	actCopyRow  = "copy-row"
	actRecent   = "recent"
)

// goPrefix begins the actions that show a view: "go:streams".
const goPrefix = "go:"

// globals are the keys of every view. One that a view lists in its own
// bindings, with the same action, gets that view's words; one whose action
// belongs to views and that this view does not know does nothing.
var globals = []binding{
	{keys: []string{"?", "f1"}, action: actHelp, help: "help: all keys that work here", short: "help", rank: 90},
	{keys: []string{"q", "ctrl+c"}, action: actQuit, help: "quit at once", short: "quit", rank: 95},
	{keys: []string{"esc"}, action: actBack, help: "back: close what is open, then clear the filter, then return to the view before"},
	{keys: []string{":"}, action: actCommand, help: "command line, tab completes", short: "command", rank: 80},
	{keys: []string{"/"}, action: actFilter, help: "filter: words, field:word, field>n, !not, /regexp/", short: "filter", rank: 30},
	{keys: []string{"n"}, action: actNextMatch, help: "next row that the filter lets through", off: needsFilter},
	{keys: []string{"N"}, action: actPrevMatch, help: "row before that the filter lets through", off: needsFilter},

	{keys: []string{"down", "j"}, action: actDown, help: "down"},
	{keys: []string{"up", "k"}, action: actUp, help: "up"},
	{keys: []string{"left", "h"}, action: actLeft, help: "left"},
	{keys: []string{"right", "l"}, action: actRight, help: "right"},
	{keys: []string{"g", "home"}, action: actTop, help: "to the first row"},
	{keys: []string{"G", "end"}, action: actBottom, help: "to the last row"},
	{keys: []string{"ctrl+d"}, action: actHalfDown, help: "half a page down"},
	{keys: []string{"ctrl+u"}, action: actHalfUp, help: "half a page up"},
	{keys: []string{"pgdown", "ctrl+f"}, action: actPageDown, help: "a page down"},
	{keys: []string{"pgup", "ctrl+b"}, action: actPageUp, help: "a page up"},
	{keys: []string{"enter"}, action: actOpen, help: "open the selected row", short: "open", rank: 20},
	{keys: []string{"tab"}, action: actNextPane, help: "next pane"},
	{keys: []string{"shift+tab"}, action: actPrevPane, help: "pane before"},
	{keys: []string{"s"}, action: actSort, help: "sort by the next column", short: "sort", rank: 40},
	{keys: []string{"S"}, action: actReverse, help: "sort the other way round"},
	{keys: []string{"o"}, action: actColumns, help: "choose columns"},
	{keys: []string{"e"}, action: actMaximise, help: "maximise the pane, again to restore"},
	{keys: []string{"y"}, action: actCopy, help: "copy the selected value"},
	{keys: []string{"Y"}, action: actCopyRow, help: "copy the selected row as JSON"},
	{keys: []string{"x"}, action: actExport, help: "export exactly this view: json, csv, md or txt", short: "export", rank: 60},

	{keys: []string{"space"}, action: actFreeze, help: "freeze the screen while input goes on; play and pause a recording"},
	{keys: []string{"]"}, action: actNextEvent, help: "to the next finding, gap or restart", off: needsRecording},
	{keys: []string{"["}, action: actPrevEvent, help: "to the finding, gap or restart before", off: needsRecording, short: "last event", rank: 25},
	{keys: []string{"."}, action: actStepOn, help: "one batch forward", off: needsRecording},
	{keys: []string{","}, action: actStepBack, help: "one batch back", off: needsRecording},
	{keys: []string{">"}, action: actFaster, help: "play faster", off: needsRecording},
	{keys: []string{"<"}, action: actSlower, help: "play slower", off: needsRecording},
	{keys: []string{"@"}, action: actSeek, help: "go to a time: 14:02:11, RFC 3339, Unix seconds, +90s or -10s from here", off: needsRecording},

	{keys: []string{"t"}, action: actRelative, help: "times of day, or ages"},
	{keys: []string{"ctrl+l"}, action: actRedraw, help: "draw the screen anew"},
	{keys: []string{"ctrl+z"}, action: actSuspend, help: "suspend; fg comes back"},
}

func needsRecording(s *scene) string {
	if s.recording {
		return ""
	}
	return "only a recording has other moments"
}

func needsFilter(s *scene) string {
	if s.filter.active() {
		return ""
	}
	return "no filter is set: / sets one"
}

// find gives the binding of a key: that of the view first.
func find(key string, tables ...[]binding) *binding {
	for _, t := range tables {
		for i := range t {
			for _, k := range t[i].keys {
				if k == key {
					return &t[i]
				}
			}
		}
	}
	return nil
}

// merged lists what works in a view: its own bindings, then the global ones
// whose keys it does not use itself.
func merged(own, others []binding) []binding {
	out := append([]binding(nil), own...)
	for _, b := range others {
		var keys []string
		for _, k := range b.keys {
			if find(k, own) == nil {
				keys = append(keys, k)
			}
		}
		if len(keys) > 0 {
			b.keys = keys
			out = append(out, b)
		}
	}
	return out
}

// keyNames are shown in place of Bubble Tea's where those are long.
var keyNames = map[string]string{
	"pgdown": "pgdn", "shift+tab": "shift-tab", "ctrl+c": "ctrl-c", "ctrl+d": "ctrl-d", "ctrl+u": "ctrl-u",
	"ctrl+l": "ctrl-l", "ctrl+z": "ctrl-z", "ctrl+f": "ctrl-f", "ctrl+b": "ctrl-b",
}

func keyName(k string) string {
	if n, ok := keyNames[k]; ok {
		return n
	}
	return k
}
