package tui

import (
	"context"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// whatIf is the view of what every replica holds of a prompt, and of where a
// router would send it.
type whatIf struct {
	list list
	rule rule
	// prompt is what is asked about, nil before there is any, and trouble why there
	// is none or no newer one.
	prompt  *script
	trouble string
	text    textPane
	answer  *observe.Answer
	// why says where the prompt goes, nil where whyNot says why that is not known.
	why    *explain.Answer
	whyNot string
	// edits are those that the answer takes into account.
	edits []explain.Edit
	// serial numbers the questions: only the newest one's answer counts.
	serial int
	// busy says that an answer is on its way, and reading that it is to a new
	// prompt.
	busy, reading bool
	// asked is the snapshot that was shown when the newest question was asked.
	asked *observe.Snapshot
	// stale says that the question was changed since it was asked.
	stale bool
	// joined are all rows of the answers in joinedOf.
	joined   []*whatIfRow
	joinedOf [2]any
}

// follower is a view that wants to know when another snapshot is shown.
type follower interface {
	follow(s *scene) effect
}

// The actions of this view alone.
const (
	actPaste  = "paste"
	actFile   = "file"
	actEditor = "editor"
	actAsk    = "ask"
	actPolicy = "policy"
	actLoad   = "edit-load"
	actUndo   = "undo-edits"
	actText   = "text"
)

// answered is the result of a run.
type answered struct {
	serial int
	prompt *script
	answer *observe.Answer
	why    *explain.Answer
	whyNot error
	edits  []explain.Edit
	err    error
	// again says that the prompt was not new.
	again bool
}

// divergence is where the prompt leaves every stored chain, nil if nowhere.
func (a *answered) divergence() *explain.Divergence {
	if a.why == nil {
		return nil
	}
	return a.why.Divergence
}

func newWhatIf() *whatIf { return &whatIf{rule: newRule(), text: textPane{w: 72}} }

func (v *whatIf) name() string { return "what-if" }
func (v *whatIf) digit() rune  { return '4' }

func (v *whatIf) bindings() []binding {
	out := []binding{
		{keys: []string{"p"}, action: actPaste, help: "paste a prompt: text, a request body, a curl command or token ids", short: "paste", rank: 5},
		{keys: []string{"f"}, action: actFile, help: "open a file with a prompt", short: "file", rank: 9},
		{keys: []string{"E"}, action: actEditor, help: "write a prompt in $EDITOR", short: "editor", rank: 10},
		{keys: []string{"P"}, action: actPolicy, help: "choose the router's rule", short: "policy", rank: 6},
		{keys: []string{"L"}, action: actLoad, help: "edit the selected candidate's load", short: "load", rank: 8, off: v.noCandidate},
		{keys: []string{"u"}, action: actUndo, help: "undo all edits", off: v.noEdits},
		{keys: []string{"r"}, action: actAsk, help: "ask again", off: v.noPrompt},
		{keys: []string{"left", "h"}, action: actLeft, help: "block before, in the prompt's text", off: v.noText},
		{keys: []string{"right", "l"}, action: actRight, help: "next block, in the prompt's text", off: v.noText},
		{keys: []string{"T"}, action: actText, help: "show the prompt's text, or hide it", off: v.noAnswer},
	}
	if v.text.focus {
		return append(out,
			binding{keys: []string{"tab", "shift+tab"}, action: actNextPane, help: "to the replicas", short: "replicas", rank: 2},
			binding{keys: []string{"e"}, action: actMaximise, help: "the text alone, again to restore", short: "maximise", rank: 3},
			binding{keys: []string{"y"}, action: actCopy, help: "copy the block's text", short: "copy", rank: 4, off: v.noText},
			binding{keys: []string{"Y"}, action: actCopyRow, help: "copy the block as JSON: its tokens and text", off: v.noText},
			binding{keys: []string{"esc"}, action: actShallower, help: "back to the replicas"},
		)
	}
	return append(out,
		binding{keys: []string{"tab", "shift+tab"}, action: actNextPane, help: "to the prompt's text", short: "text", rank: 7, off: v.noAnswer},
		binding{keys: []string{"enter"}, action: actOpen, help: "the replica's stream", short: "stream", rank: 20, off: v.noAnswer},
		binding{keys: []string{"y"}, action: actCopy, help: "copy the replica's name", off: v.noAnswer},
		binding{keys: []string{"Y"}, action: actCopyRow, help: "copy the row as JSON", off: v.noAnswer},
	)
}

func (v *whatIf) noPrompt(*scene) string {
	if v.prompt == nil {
		return "there is no prompt yet: p pastes one"
	}
	return ""
}

func (v *whatIf) noAnswer(s *scene) string {
	if len(v.rows(s)) == 0 {
		return "there is no answer yet: p pastes a prompt"
	}
	return ""
}

func (v *whatIf) noCandidate(s *scene) string {
	if v.why == nil {
		return "there is no candidate yet: p pastes a prompt"
	}
	return v.noAnswer(s)
}

// paste asks about a pasted text. It is read in the command, because a big one
// takes a while, and one that needs a tokenizer can have to wait for it.
func (v *whatIf) paste(s *scene, text string) effect {
	words := s.speech()
	return v.ask(s, false, func(ctx context.Context) (*script, error) {
		p, err := words.Read(ctx, text)
		if err != nil {
			return nil, err
		}
		return newScript(p), nil
	})
}

// ask asks the feed about the prompt that read gives.
func (v *whatIf) ask(s *scene, again bool, read func(context.Context) (*script, error)) effect {
	v.serial++
	v.busy, v.reading, v.asked, v.stale = true, !again, s.snap, false
	serial, feed, words, before := v.serial, s.feed, s.speech(), v.divergence()
	q := explain.Query{Config: v.rule.cfg, Model: v.rule.model, Edits: v.rule.inForce(s.snap)}
	return effect{run: func(ctx context.Context) any {
		a := answered{serial: serial, again: again, edits: q.Edits}
		if a.prompt, a.err = read(ctx); a.err != nil {
			return a
		}
		q.Tokens, q.Named, q.LoRA, q.Salt = a.prompt.Tokens, a.prompt.Model, a.prompt.LoRA, a.prompt.Salt
		if a.answer, a.err = feed.Ask(ctx, observe.Question{Tokens: q.Tokens, Model: q.Model, LoRA: q.LoRA, Salt: q.Salt}); a.err == nil {
			a.why, a.whyNot = feed.Explain(ctx, q)
		}
		if d := a.divergence(); d != nil && !(again && d.Resume(before)) {
			a.err = d.Compare(ctx, a.prompt.Prompt, words)
		}
		return a
	}}
}

// waits says that a prompt is being read.
func (v *whatIf) waits() bool { return v.busy && v.reading }

func (v *whatIf) again(s *scene) effect {
	if v.prompt == nil {
		return effect{}
	}
	prompt := v.prompt
	return v.ask(s, true, func(context.Context) (*script, error) { return prompt, nil })
}

// receive takes an answer, unless something else was asked since.
func (v *whatIf) receive(s *scene, result any) effect {
	a, ok := result.(answered)
	if !ok || a.serial != v.serial {
		return effect{}
	}
	v.busy = false
	switch {
	case a.err != nil && a.again:
		v.trouble = a.err.Error()
		return v.follow(s)
	case a.err != nil:
		v.trouble, v.asked = a.err.Error(), nil // the prompt before, if any, goes on
		return v.follow(s)
	case !a.again:
		v.trouble = ""
	}
	v.prompt, v.answer, v.why, v.edits, v.whyNot = a.prompt, a.answer, a.why, a.edits, ""
	if a.whyNot != nil {
		v.why, v.whyNot = nil, a.whyNot.Error()
	}
	return v.follow(s)
}

// follow asks again when another snapshot is shown than at the last question, or
// the question was changed.
// The question that is on its way is waited for: its receive comes back here.
func (v *whatIf) follow(s *scene) effect {
	if v.busy || !v.stale && (s.frozen || s.snap == v.asked) {
		return effect{}
	}
	return v.again(s)
}

func (v *whatIf) handle(s *scene, action string) effect {
	switch action {
	case actPaste, actFile, actEditor, actPolicy:
		return effect{open: action}
	case actUndo:
		return v.undo(s)
	case actAsk:
		return v.again(s)
	case actText:
		v.toggleText()
		return effect{}
	case actNextPane, actPrevPane:
		v.focusText()
		return effect{}
	case actShallower:
		v.text.focus = false
		return effect{}
	}
	rows := v.rows(s)
	if e, ok := v.handleText(s, rows, action); ok {
		return e
	}
	name := func(i int) string { return string(rows[i].Replica) }
	if v.list.move(action, len(rows), name) || len(rows) == 0 {
		return effect{}
	}
	v.list.sync(len(rows), v.list.height, name)
	row := rows[v.list.cursor]
	switch action {
	case actOpen:
		return effect{goTo: "streams", replica: row.Replica}
	case actLoad:
		return v.editLoad(row)
	case actCopy:
		return effect{copy: string(row.Replica)}
	case actCopyRow:
		return effect{copy: rowJSON(v.exportColumns(), v.row(row))}
	}
	return effect{}
}

func (v *whatIf) selectAt(_ *scene, e effect) {
	if e.replica != "" {
		v.list.selected = string(e.replica)
	}
}

var whatIfFields = []string{
	"replica", "rank", "trust", "blocks", "device", "host", "disk", "external", "certain", "cached_tokens", "share",
	"load", "load_from", "chance", "cost",
}

// exportColumns are the fields, the terms of the cost, and the block strip, which
// no filter tests: it can have a quarter of a million places.
func (v *whatIf) exportColumns() []string {
	out := slices.Clone(whatIfFields)
	for _, t := range v.terms() {
		out = append(out, t.Name)
	}
	return append(out, "strip")
}

// terms are those of the rule, with one candidate's values.
func (v *whatIf) terms() []route.Term {
	if v.why == nil || len(v.why.Candidates) == 0 {
		return nil
	}
	return v.why.Candidates[0].Terms // those taken out, without terms, come last
}

func (v *whatIf) filterFields() []string { return whatIfFields }

func (v *whatIf) cells(r *whatIfRow) []string {
	return []string{
		clean(string(r.Replica)), r.rank(), r.Trust.String(), wire.Grouped(r.Blocks), wire.Grouped(r.tier(0)), wire.Grouped(r.tier(1)), wire.Grouped(r.tier(2)),
		wire.Grouped(r.tier(3)), wire.Grouped(r.Certain), wire.Grouped(r.cached()), v.share(r), r.load(), r.loadFrom(), r.chance(), r.cost(),
	}
}

// row is cells with the terms, and the strip as wide as a wide screen shows it.
func (v *whatIf) row(r *whatIfRow) []string {
	const wide = 200
	out := v.cells(r)
	for i := range v.terms() {
		out = append(out, r.term(i))
	}
	var strip strings.Builder
	for _, k := range blockStrip(r.Cells, wide) {
		strip.WriteString(cellKinds[k].ascii)
	}
	return append(out, strip.String())
}

// share is the part of the prompt that would not be computed.
func (v *whatIf) share(r *whatIfRow) string {
	return about(r.Row) + percent(float64(r.cached()), float64(v.answer.Tokens))
}

// about is the mark before each number of a replica that is not EXACT.
func about(r *observe.Row) string {
	if r.Trust.Exact() {
		return ""
	}
	return glyphApprox
}

// rows lists the replicas that the filter lets through, the best candidate first.
func (v *whatIf) rows(s *scene) []*whatIfRow {
	all := v.all(s)
	if !s.filter.active() {
		return all
	}
	var out []*whatIfRow
	for _, r := range all {
		if s.filter.match(whatIfFields, v.cells(r)) {
			out = append(out, r)
		}
	}
	return out
}

func (v *whatIf) count(s *scene) (shown, all int) {
	if v.answer == nil {
		return 0, 0
	}
	return len(v.rows(s)), len(v.all(s))
}

// export gives the rows, or the blocks where the text has the focus.
func (v *whatIf) export(s *scene) table {
	if rows := v.rows(s); v.text.focus && len(rows) > 0 {
		v.cutFor(v.selected(rows))
		return v.exportText(s)
	}
	t := table{columns: v.exportColumns()}
	for _, r := range v.rows(s) {
		t.rows = append(t.rows, v.row(r))
	}
	return t
}
