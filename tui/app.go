package tui

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// Options of the UI. Whatever reaches outside of it comes in as a function,
// which is called from commands only.
type Options struct {
	Feed Feed
	// Player is set when Feed is a recording, and is the same thing.
	Player Player
	Look   Look
	Clock  func() time.Time
	// WriteFile creates a file that does not exist yet under this name or one
	// made from it, and gives its path. It never overwrites.
	WriteFile func(name string, data []byte) (path string, err error)
	// CopyNative puts text on the local clipboard and names the tool that did
	// it; nil where there is none, as over SSH.
	CopyNative func(text string) (tool string, err error)
	OpenFile   func(path string) ([]byte, error)
	// Editor gives a command that lets the user edit a text; it ends with an
	// Edited message.
	Editor func(initial string) tea.Cmd
	// Words turn prompts into tokens and back; without them token ids are all that
	// is understood. Read is called from commands only.
	Words Words
	// Page gives the page of a check, in Markdown.
	Page func(code string) (string, bool)
	// Audit is how requests turned out over the whole recording, nil if that is
	// not known.
	Audit *explain.Audit
	// Recent offers a replay of batches before first, the first one of a replica
	// that was joined late: offer says in words what would be sent, send sends
	// it. The error says why nothing can be asked. It is nil where nobody can be.
	Recent func(r wire.Replica, first uint64) (offer string, send func(), err error)
	// Prompt is what What-if is asked about at the start, empty for nothing.
	Prompt string
	// Notice is a line to show at the start, such as what could not be read.
	Notice string
}

// Edited is what came out of Options.Editor.
type Edited struct {
	Text string
	Err  error
}

// refresh is how often a newer snapshot is looked for: the most redraws there
// are of what the user did not ask for.
const refresh = 100 * time.Millisecond

// toastTime is how long a toast stays.
const toastTime = 6 * time.Second

// model is the one Bubble Tea model. It is used by one goroutine; what its
// commands do comes back as messages.
type model struct {
	opt   Options
	ctx   context.Context
	stop  context.CancelFunc
	theme *theme
	// after delays a message; tests put their own in its place.
	after func(time.Duration, tea.Msg) tea.Cmd

	actions map[string]func(*model) tea.Cmd

	w, h    int
	views   []view
	now     int   // the view shown
	trail   []int // views to return to
	filters map[string]*filter

	snap, newest *observe.Snapshot
	end          *observe.Snapshot
	frozen       bool
	frozenAt     time.Time
	frozenFor    int // seconds, as last shown
	relative     bool
	maximised    bool
	play         playing

	overlay overlay
	prompt  *prompt
	toast   string
	toastID int
	note    observe.Note // the newest one said
	// state is how far the tokenizer was when last looked at, and spells says that
	// it is looked at again.
	state  string
	spells bool

	// followedTo is what the view shown was last told of.
	followedTo struct {
		snap *observe.Snapshot
		view int
	}

	frame  string
	cursor *tea.Cursor
	dirty  bool
	redraw int // frames drawn, for tests and the benchmark
}

// The messages of the model's own commands.
type (
	tickMsg   struct{ snap *observe.Snapshot }
	toastOver struct{ id int }
	toastMsg  struct{ text string }
	resultMsg struct {
		view  string
		value any
	}
)

// newModel makes the model. ctx ends what its commands do.
func newModel(ctx context.Context, opt Options) *model {
	ctx, stop := context.WithCancel(ctx)
	m := &model{
		opt: opt, ctx: ctx, stop: stop, theme: newTheme(opt.Look.Theme, opt.Look.ASCII),
		actions: actions(), views: newViews(), filters: map[string]*filter{}, dirty: true,
		after: func(d time.Duration, msg tea.Msg) tea.Cmd {
			return tea.Tick(d, func(time.Time) tea.Msg { return msg })
		},
	}
	if opt.Clock == nil {
		m.opt.Clock = time.Now
	}
	m.snap = opt.Feed.Snapshot() // before the first frame nothing waits for it
	if m.snap == nil {
		m.snap = &observe.Snapshot{}
	}
	m.play.speed = normalSpeed
	if opt.Player != nil {
		m.end = opt.Player.End()
		m.play.at, m.play.of = opt.Player.Position()
	}
	return m
}

func (m *model) view() view { return m.views[m.now] }

// scene is what the view may see now.
func (m *model) scene() *scene {
	return &scene{
		audit: m.opt.Audit, words: m.opt.Words, state: m.state,
		snap: m.snap, theme: m.theme, filter: m.filters[m.view().name()], feed: m.opt.Feed,
		recording: m.opt.Player != nil, frozen: m.frozen, relative: m.relative,
		end: m.end, maximised: m.maximised, asks: m.opt.Recent != nil,
	}
}

// Init starts looking for newer snapshots.
func (m *model) Init() tea.Cmd {
	var cmds []tea.Cmd
	if m.opt.Player == nil {
		cmds = append(cmds, m.tick())
	}
	if m.opt.Look.Auto {
		cmds = append(cmds, tea.RequestBackgroundColor)
	}
	if m.opt.Prompt != "" {
		v := m.whatIf()
		cmds = append(cmds, m.do(v, v.paste(m.scene(), m.opt.Prompt)))
	}
	cmds = append(cmds, m.spell())
	if m.opt.Notice != "" {
		cmds = append(cmds, m.say(m.opt.Notice))
	}
	return tea.Batch(cmds...)
}

// tick fetches the newest snapshot after a while.
func (m *model) tick() tea.Cmd {
	wait := m.after(refresh, nil)
	if wait == nil {
		return nil
	}
	return func() tea.Msg {
		wait()
		return tickMsg{m.opt.Feed.Snapshot()}
	}
}

// Update takes a message. It does no I/O.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if tick, ok := msg.(tickMsg); ok {
		// Nothing else changed, so a snapshot that did not either costs no redraw.
		changed := m.take(tick.snap)
		m.dirty = m.dirty || changed || m.frozenClock()
		return m, tea.Batch(m.tick(), m.followed(), m.noted())
	}
	if _, ok := msg.(spellMsg); ok {
		return m, m.spell()
	}
	m.dirty = true
	cmd := m.update(msg)
	return m, tea.Batch(cmd, m.followed())
}

// followed tells the view shown that there is another snapshot, or that it is
// shown again, once for each.
func (m *model) followed() tea.Cmd {
	if m.followedTo.snap == m.snap && m.followedTo.view == m.now {
		return nil
	}
	m.followedTo.snap, m.followedTo.view = m.snap, m.now
	return m.do(m.view(), m.follow())
}

// noted says the source's newest note, once each time that it is said.
func (m *model) noted() tea.Cmd {
	notes := m.snap.Notes
	if len(notes) == 0 || notes[len(notes)-1] == m.note {
		return nil
	}
	m.note = notes[len(notes)-1]
	m.dirty = true
	text := m.note.Text
	if m.note.Replica != "" {
		text = string(m.note.Replica) + ": " + text
	}
	return m.say(text)
}

func (m *model) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.w, m.h = msg.Width, msg.Height
	case tea.BackgroundColorMsg:
		if m.opt.Look.Auto {
			m.theme = newTheme(map[bool]string{true: "dark", false: "light"}[msg.IsDark()], m.theme.ascii)
		}
	case tea.KeyPressMsg:
		return m.key(msg)
	case tea.PasteMsg:
		return m.paste(msg.Content)
	case playedMsg:
		return m.played(msg)
	case playTick:
		return m.playOn()
	case toastMsg:
		return m.say(msg.text)
	case toastOver:
		if msg.id == m.toastID {
			m.toast = ""
		}
	case Edited:
		if msg.Err != nil {
			return m.say("the editor failed: " + msg.Err.Error())
		}
		return m.pasteText(msg.Text, "took "+wire.Counted(len(msg.Text), "byte")+" of the editor")
	case openedMsg:
		return m.opened(msg)
	case resultMsg:
		for _, v := range m.views {
			if r, ok := v.(receiver); ok && v.name() == msg.view {
				return m.do(v, r.receive(m.scene(), msg.value))
			}
		}
	}
	return nil
}

// frozenClock reports whether the time since the screen froze reads different
// now: it is shown in seconds.
func (m *model) frozenClock() bool {
	if !m.frozen {
		return false
	}
	was := m.frozenFor
	m.frozenFor = int(m.opt.Clock().Sub(m.frozenAt) / time.Second)
	return was != m.frozenFor
}

// take shows a newer snapshot, or keeps it for later while the screen is
// frozen. It reports whether what is shown has changed.
func (m *model) take(s *observe.Snapshot) bool {
	if s == nil || s == m.newest {
		return false
	}
	m.newest = s
	if m.frozen {
		return false
	}
	m.snap = s
	return true
}

// say shows a line for a while.
func (m *model) say(text string) tea.Cmd {
	m.toast = clean(text)
	m.toastID++
	return m.after(toastTime, toastOver{m.toastID})
}

// key handles a key: the prompt first, then what lies over the view, then the
// view's own bindings, then the global ones.
func (m *model) key(msg tea.KeyPressMsg) tea.Cmd {
	if m.prompt != nil {
		return m.promptKey(msg)
	}
	key := msg.String()
	own := m.view().bindings()
	if m.overlay != nil {
		own = m.overlay.bindings()
	}
	b := find(key, own, globals, m.viewBindings())
	if b == nil {
		return nil
	}
	return m.press(*b)
}

// press carries out a binding, or says why it cannot be.
func (m *model) press(b binding) tea.Cmd {
	if b.off != nil && m.overlay == nil {
		if why := b.off(m.scene()); why != "" {
			return m.say(keyName(b.keys[0]) + ": " + why)
		}
	}
	return m.act(b.action)
}

// do carries out what a view asks for.
func (m *model) do(v view, e effect) tea.Cmd {
	var cmds []tea.Cmd
	if e.maximise {
		m.maximised = !m.maximised
	}
	if e.goTo != "" {
		m.show(e.goTo)
	}
	if e.goTo != "" || e.replica != "" || e.seq != nil || e.block != nil {
		if s, ok := m.view().(selector); ok {
			s.selectAt(m.scene(), e)
		}
	}
	if e.toast != "" {
		cmds = append(cmds, m.say(e.toast))
	}
	if e.copy != "" {
		cmds = append(cmds, m.copy(e.copy))
	}
	if e.open != "" {
		cmds = append(cmds, m.open(e.open))
	}
	if e.recent != nil {
		cmds = append(cmds, m.offerReplay(*e.recent))
	}
	if e.run != nil {
		run, name, ctx := e.run, v.name(), m.ctx
		cmds = append(cmds, func() tea.Msg { return resultMsg{name, run(ctx)} })
	}
	return tea.Batch(cmds...)
}

// show goes to a view, and reports whether there is one of that name.
func (m *model) show(name string) bool {
	for i, v := range m.views {
		if v.name() != name {
			continue
		}
		if i != m.now {
			m.trail = append(m.trail, m.now)
			m.now = i
		}
		m.overlay = nil
		return true
	}
	return false
}

// View draws the screen if anything has changed since the last time.
func (m *model) View() tea.View {
	if m.dirty {
		m.frame = m.draw()
		m.dirty = false
		m.redraw++
	}
	v := tea.NewView(m.frame)
	v.AltScreen = true
	v.WindowTitle = "kvscope " + clean(m.snap.Source)
	v.Cursor = m.cursor
	return v
}
