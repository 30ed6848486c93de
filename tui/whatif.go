package tui

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// whatIf is the view of what every replica holds of a prompt.
type whatIf struct {
	list list
	// prompt is what is asked about, nil before there is any; note says where in
	// the pasted text it was, and trouble why there is none.
	prompt        []wire.Token
	note, trouble string
	answer        *observe.Answer
	// serial numbers the questions: only the newest one's answer counts.
	serial int
	// busy says that an answer is on its way, and reading that it is to a new
	// prompt.
	busy, reading bool
	// asked is the snapshot that was shown when the newest question was asked.
	asked *observe.Snapshot
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
)

// answered is the result of a run.
type answered struct {
	serial int
	prompt []wire.Token
	note   string
	answer *observe.Answer
	err    error
	// again says that the prompt was not new.
	again bool
}

func newWhatIf() *whatIf { return &whatIf{} }

func (v *whatIf) name() string { return "what-if" }
func (v *whatIf) digit() rune  { return '4' }

func (v *whatIf) bindings() []binding {
	return []binding{
		{keys: []string{"p"}, action: actPaste, help: "paste a prompt's token ids", short: "paste", rank: 5},
		{keys: []string{"f"}, action: actFile, help: "open a file with token ids", short: "file", rank: 6},
		{keys: []string{"E"}, action: actEditor, help: "write token ids in $EDITOR", short: "editor", rank: 7},
		{keys: []string{"r"}, action: actAsk, help: "ask again", off: v.noPrompt},
		{keys: []string{"enter"}, action: actOpen, help: "the replica's stream", short: "stream", rank: 20, off: v.noAnswer},
		{keys: []string{"y"}, action: actCopy, help: "copy the replica's name", off: v.noAnswer},
		{keys: []string{"Y"}, action: actCopyRow, help: "copy the row as JSON", off: v.noAnswer},
	}
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

// paste asks about a pasted text. It is read in the command, because a big one
// takes a while.
func (v *whatIf) paste(s *scene, text string) effect {
	return v.ask(s, false, func() ([]wire.Token, string, error) { return explain.ParseTokens(text) })
}

// ask asks the feed about the prompt that read gives.
func (v *whatIf) ask(s *scene, again bool, read func() ([]wire.Token, string, error)) effect {
	v.serial++
	v.busy, v.reading, v.asked = true, !again, s.snap
	serial, feed := v.serial, s.feed
	return effect{run: func(ctx context.Context) any {
		a := answered{serial: serial, again: again}
		if a.prompt, a.note, a.err = read(); a.err == nil {
			a.answer, a.err = feed.Ask(ctx, observe.Question{Tokens: a.prompt})
		}
		return a
	}}
}

func (v *whatIf) again(s *scene) effect {
	if v.prompt == nil {
		return effect{}
	}
	prompt, note := v.prompt, v.note
	return v.ask(s, true, func() ([]wire.Token, string, error) { return prompt, note, nil })
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
		return effect{}
	case a.err != nil:
		v.trouble, v.asked = a.err.Error(), nil // the prompt before, if any, goes on
		return v.follow(s)
	case !a.again:
		v.trouble = ""
	}
	v.prompt, v.note, v.answer = a.prompt, a.note, a.answer
	return v.follow(s)
}

// follow asks again when another snapshot is shown than at the last question.
// The question that is on its way is waited for: its receive comes back here.
func (v *whatIf) follow(s *scene) effect {
	if v.busy || s.frozen || s.snap == v.asked {
		return effect{}
	}
	return v.again(s)
}

func (v *whatIf) handle(s *scene, action string) effect {
	switch action {
	case actPaste, actFile, actEditor:
		return effect{open: action}
	case actAsk:
		return v.again(s)
	}
	rows := v.rows(s)
	name := func(i int) string { return string(rows[i].Replica) }
	if v.list.move(action, len(rows), name) || len(rows) == 0 {
		return effect{}
	}
	v.list.sync(len(rows), v.list.height, name)
	row := rows[v.list.cursor]
	switch action {
	case actOpen:
		return effect{goTo: "streams", replica: row.Replica}
	case actCopy:
		return effect{copy: string(row.Replica)}
	case actCopyRow:
		return effect{copy: rowJSON(whatIfColumns, v.row(row))}
	}
	return effect{}
}

func (v *whatIf) selectAt(_ *scene, e effect) {
	if e.replica != "" {
		v.list.selected = string(e.replica)
	}
}

var whatIfFields = []string{
	"replica", "trust", "blocks", "device", "host", "disk", "external", "certain", "cached_tokens", "share",
}

// whatIfColumns are the fields and the block strip, which no filter tests: it
// can have a quarter of a million places.
var whatIfColumns = append(whatIfFields[:len(whatIfFields):len(whatIfFields)], "strip")

func (v *whatIf) filterFields() []string { return whatIfFields }

func (v *whatIf) cells(r *observe.Row) []string {
	return []string{
		clean(string(r.Replica)), r.Trust.String(), group(r.Blocks), group(r.Device), group(r.Host), group(r.Disk),
		group(r.External), group(r.Certain), group(r.CachedTokens), v.share(r),
	}
}

// row is cells with the strip, as wide as a wide screen shows it.
func (v *whatIf) row(r *observe.Row) []string {
	const wide = 200
	var strip strings.Builder
	for _, k := range blockStrip(r.Cells, wide) {
		strip.WriteString(cellKinds[k].ascii)
	}
	return append(v.cells(r), strip.String())
}

// share is the part of the prompt that would not be computed.
func (v *whatIf) share(r *observe.Row) string {
	return about(r) + percent(float64(r.CachedTokens), float64(v.answer.Tokens))
}

// about is the mark before each number of a replica that is not EXACT.
func about(r *observe.Row) string {
	if r.Trust.Exact() {
		return ""
	}
	return glyphApprox
}

// rows lists the replicas that the filter lets through, deepest match first.
func (v *whatIf) rows(s *scene) []*observe.Row {
	if v.answer == nil {
		return nil
	}
	var out []*observe.Row
	for i := range v.answer.Rows {
		r := &v.answer.Rows[i]
		if !s.filter.active() || s.filter.match(whatIfFields, v.cells(r)) {
			out = append(out, r)
		}
	}
	return out
}

func (v *whatIf) count(s *scene) (shown, all int) {
	if v.answer == nil {
		return 0, 0
	}
	return len(v.rows(s)), len(v.answer.Rows)
}

func (v *whatIf) export(s *scene) table {
	t := table{columns: whatIfColumns}
	for _, r := range v.rows(s) {
		t.rows = append(t.rows, v.row(r))
	}
	return t
}

// help is what the view says before there is a prompt.
var whatIfHelp = []string{
	"Which replica holds how much of a prompt?",
	"",
	"p pastes its token ids, f opens a file with them, E lets you write them in $EDITOR.",
	"Understood are",
	"  [151644, 8948, 198]  or  151644 8948 198",
	"  a JSON object with prompt_token_ids, token_ids or tokens: an engine's response, a /tokenize answer, a line of a truth log",
	"Prompts as text come later: they need the model's template and tokenizer.",
}

func (v *whatIf) draw(s *scene, w, h int) []string {
	if w <= 0 || h <= 0 {
		return nil
	}
	var out []string
	if v.trouble != "" {
		words := clean(v.trouble)
		if v.answer != nil {
			words += " (Below is still the prompt before.)"
		}
		for _, line := range wrap(words, w-2, 4) {
			out = append(out, " "+s.theme.fault.render(line))
		}
	}
	switch {
	case v.answer != nil:
		out = append(out, v.drawAnswer(s, w, h-len(out))...)
	case v.busy:
		out = append(out, cut(" reading the prompt …", w))
	default:
		for _, line := range whatIfHelp {
			indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
			for _, part := range wrap(strings.TrimSpace(line), w-2-len(indent), 4) {
				out = append(out, " "+indent+part)
			}
		}
	}
	return out[:min(len(out), h)]
}

// promptParts says what was asked and as of when.
func (v *whatIf) promptParts(s *scene) []string {
	var sizes []string
	for i := range v.answer.Rows {
		r := &v.answer.Rows[i]
		if r.BlockSize <= 0 {
			continue
		}
		if words := plural(r.Blocks, "block") + " of " + group(r.BlockSize); !slices.Contains(sizes, words) {
			sizes = append(sizes, words)
		}
	}
	parts := []string{s.theme.title.render("prompt " + plural(v.answer.Tokens, "token"))}
	if len(sizes) > 0 {
		parts = append(parts, strings.Join(sizes[:min(len(sizes), 3)], ", "))
	}
	now := "as of " + clock(v.answer.Now) + " UTC"
	if s.frozen && !s.recording {
		now = s.theme.warn.render("as of now, " + clock(v.answer.Now) + " UTC: the screen is frozen")
	}
	parts = append(parts, now)
	if v.busy && v.reading { // asking again goes on all the time in a live fleet
		parts = append(parts, "reading another prompt")
	}
	if v.note != "" {
		parts = append(parts, s.theme.dim.render("read from "+v.note))
	}
	for i := range parts[1:] {
		parts[i+1] = "· " + parts[i+1]
	}
	return parts
}

// verdict says in a sentence who holds most.
func (v *whatIf) verdict() string {
	if len(v.answer.Rows) == 0 {
		return "No replica has been seen."
	}
	best := &v.answer.Rows[0]
	for i := range v.answer.Rows {
		if r := &v.answer.Rows[i]; r.CachedTokens > best.CachedTokens {
			best = r
		}
	}
	if best.CachedTokens == 0 {
		return "No replica holds its beginning: it is computed from the first token, wherever it goes."
	}
	return fmt.Sprintf("%s holds most: %s of %s tokens (%s) would come from its cache.",
		nameOf(best.Replica), about(best)+group(best.CachedTokens), group(v.answer.Tokens), v.share(best))
}
