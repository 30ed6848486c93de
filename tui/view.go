package tui

import (
	"context"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// Feed is where snapshots come from. A live fleet is a Feed too.
type Feed interface {
	// Snapshot is cheap and gives the newest one.
	Snapshot() *observe.Snapshot
	// Ask may take a while.
	Ask(context.Context, observe.Question) (*observe.Answer, error)
	// Explain says where a prompt would go; it may take a while too.
	Explain(context.Context, explain.Query) (*explain.Answer, error)
}

// Player is a Feed that can be at any moment of a recording; see
// observe.Player. All methods but Position may take a while.
type Player interface {
	Feed
	End() *observe.Snapshot
	Position() (at, of int)
	SeekRecord(context.Context, int) (*observe.Snapshot, error)
	SeekTime(context.Context, wire.Time) (*observe.Snapshot, error)
	Step(context.Context, int) (*observe.Snapshot, error)
	Jump(ctx context.Context, back bool) (*observe.Snapshot, error)
}

// view is one of the numbered screens. Views keep their own selection, scroll
// and sort, by identity and not by row number, so that they survive a new
// snapshot and a visit to another view.
type view interface {
	// name is its word for `:name`, the header and exports; digit its key.
	name() string
	digit() rune
	// draw gives the view's body: at most h lines of at most w cells each,
	// styles included. It must not keep s.
	draw(s *scene, w, h int) []string
	// bindings lists the actions that the view adds to the global ones.
	bindings() []binding
	// handle carries out one of its actions.
	handle(s *scene, action string) effect
	// filterFields names what /field:value can test here, and match tests a
	// row for the current filter; views call s.filter.
	filterFields() []string
	// export gives the rows as they are shown now: filtered, sorted, with the
	// columns chosen.
	export(s *scene) table
}

// scene is what a view may look at while it draws or handles an action.
type scene struct {
	snap   *observe.Snapshot
	theme  *theme
	filter *filter
	// feed is asked from commands only.
	feed Feed
	// recording says that there is a Player; frozen that newer snapshots wait.
	recording, frozen bool
	// relative shows times as ages before the snapshot's newest record.
	relative bool
	// end is the whole recording's last snapshot, nil for a live fleet: what
	// is known to come, for drawing what lies ahead.
	end *observe.Snapshot
	// audit is how requests turned out over the whole recording, or nil.
	audit *explain.Audit
	// maximised says that the focused pane has the whole body.
	maximised bool
	// asks says that replays can be asked for.
	asks bool
	// words give the text of tokens, nil where nobody can; state says how far their
	// tokenizer is, nothing where it is ready.
	words Words
	state string
}

// binding is one key with its action. The help, the footer and the handling
// are all made from this table.
type binding struct {
	keys   []string // as Bubble Tea names them, the first one is shown
	action string
	help   string
	// short is the footer's word, "" to leave it out; rank orders the footer,
	// lower first.
	short string
	rank  int
	// off says why the action cannot be used now, "" if it can.
	off func(*scene) string
}

// effect is what an action asks the model for; the zero effect is nothing.
type effect struct {
	// goTo names a view to show; with replica, seq or block it selects there.
	goTo    string
	replica wire.Replica
	seq     *uint64
	block   *int
	// run does work outside Update; its result comes back as a message.
	run func(context.Context) any
	// toast is a line to show for a while.
	toast string
	// copy is text for the clipboard.
	copy string
	// open asks for a dialog: "paste", "file", "editor", "policy", "page:<code>",
	// or the command line with a text to begin from: "command:<text>".
	open string
	// recent asks for the offer of a replay for a replica that was joined late.
	recent *lateJoin
	// maximise toggles the focused pane.
	maximise bool
}

// lateJoin is a replica and the first batch that was seen of it.
type lateJoin struct {
	replica wire.Replica
	first   uint64
}

// receiver is a view that takes the result of its own run.
type receiver interface {
	receive(s *scene, result any) effect
}

// paster is a view that takes pasted text, and what a file or the editor holds.
type paster interface {
	paste(s *scene, text string) effect
}

// sorter is a view that can be sorted by a named column.
type sorter interface {
	sortNames() []string
	sortBy(name string)
}

// counter is a view that can say how many of its rows the filter lets through
// without formatting all of them.
type counter interface {
	count(s *scene) (shown, all int)
}

// columned is a view whose columns can be chosen.
type columned interface {
	columnNames() (names []string, on []bool)
	setColumn(name string, on bool)
}

// selector is a view that can select what another view points at.
type selector interface {
	selectAt(s *scene, e effect)
}

// table is what an export holds, cells as text and without styles.
type table struct {
	columns []string
	rows    [][]string
}
