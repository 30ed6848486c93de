package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// speeds are the choices of how fast a recording plays.
var speeds = []struct {
	word   string
	factor float64
}{
	{"0.1", 0.1},
	{"0.25", 0.25},
	{"0.5", 0.5},
	{"1", 1},
	{"2", 2},
	{"5", 5},
	{"10", 10},
	{"30", 30},
	{"60", 60},
	{"300", 300},
	{"1000", 1000},
}

const normalSpeed = 3

// playing is where in a recording the screen is and what moves it. One move
// runs at a time: while it does, the newest wish waits and steps add up, so
// that a held key does not queue work for minutes.
type playing struct {
	at, of  int // records
	playing bool
	speed   int
	// from and since are the recording's time and the wall's when playing
	// began or its speed changed.
	from  wire.Time
	since time.Time

	busy   bool
	cancel context.CancelFunc
	next   *move
}

// move is a wish to be elsewhere.
type move struct {
	step int // batches, if not 0
	run  func(context.Context, Player) (*observe.Snapshot, error)
	said string // for the toast once there
	play bool   // asked for by playing, not by the user
	jump bool   // to a finding or mark, which is named once there
}

type (
	playTick  struct{}
	playedMsg struct {
		snap   *observe.Snapshot
		err    error
		at, of int
		said   string
		jumped bool
	}
)

func seekTime(t wire.Time) move {
	return move{run: func(ctx context.Context, p Player) (*observe.Snapshot, error) { return p.SeekTime(ctx, t) }}
}

func stepBy(n int) move { return move{step: n} }

func jump(back bool) move {
	return move{jump: true, run: func(ctx context.Context, p Player) (*observe.Snapshot, error) { return p.Jump(ctx, back) }}
}

// jumpWords say what a mark is where its kind is no verb.
var jumpWords = map[string]string{
	"join": "was joined", "gap": "lost batches", "restart": "restarted", "link-down": "lost its link", "link-up": "has its link again",
	"undecodable": "sent what cannot be read", "replay-begin": "began a replay", "replay-end": "ended a replay",
}

func orWord(words map[string]string, word string) string {
	if w, ok := words[word]; ok {
		return w
	}
	return word
}

// eventWords says what happened at the moment shown.
func (m *model) eventWords() string {
	now := m.snap.Until
	var said []string
	for i := range m.end.Findings {
		f := &m.end.Findings[i]
		switch {
		case f.Since == now:
			said = append(said, fmt.Sprintf("%s %s: %s", f.Code, f.Subject, f.Title))
		case f.Until != nil && *f.Until == now:
			said = append(said, fmt.Sprintf("over: %s %s", f.Code, f.Subject))
		}
	}
	if said == nil {
		for i := range m.end.Replicas {
			for _, mark := range m.end.Replicas[i].Marks {
				if mark.At == now {
					said = append(said, fmt.Sprintf("%s %s %s", m.end.Replicas[i].Replica, orWord(jumpWords, string(mark.Kind)), mark.Text))
				}
			}
		}
	}
	return clock(now) + " " + strings.TrimSpace(strings.Join(said, "; "))
}

// move starts a move, or leaves it for when the running one is done.
func (m *model) move(w move) tea.Cmd {
	p := &m.play
	if m.opt.Player == nil {
		return m.say("only a recording has other moments")
	}
	if !w.play && p.playing {
		p.playing = false // whoever moves by hand wants to look
	}
	if p.busy {
		if p.next != nil && p.next.step != 0 && w.step != 0 {
			if w.step += p.next.step; w.step == 0 { // there and back again
				p.next = nil
				return nil
			}
		} else if w.step == 0 && !w.play {
			p.cancel() // where it was going is of no interest any more
		}
		p.next = &w
		return nil
	}
	ctx, cancel := context.WithCancel(m.ctx)
	p.busy, p.cancel = true, cancel
	player := m.opt.Player
	return func() tea.Msg {
		run := w.run
		if w.step != 0 {
			run = func(ctx context.Context, p Player) (*observe.Snapshot, error) { return p.Step(ctx, w.step) }
		}
		snap, err := run(ctx, player)
		at, of := player.Position()
		return playedMsg{snap, err, at, of, w.said, w.jump}
	}
}

// played takes the end of a move.
func (m *model) played(msg playedMsg) tea.Cmd {
	p := &m.play
	p.busy = false
	p.cancel()
	stayed := p.at == msg.at
	p.at, p.of = msg.at, msg.of
	m.take(msg.snap)
	var cmds []tea.Cmd
	switch {
	case msg.err != nil && !errors.Is(msg.err, context.Canceled):
		cmds = append(cmds, m.say(msg.err.Error()))
	case msg.jumped && stayed:
		cmds = append(cmds, m.say("no further finding, gap or restart that way"))
	case msg.jumped:
		cmds = append(cmds, m.say(m.eventWords()))
	case msg.said != "":
		cmds = append(cmds, m.say(msg.said))
	}
	if next := p.next; next != nil {
		p.next = nil
		if next.play == p.playing || !next.play {
			cmds = append(cmds, m.move(*next))
		}
	}
	if p.playing && p.at >= p.of {
		p.playing = false
		cmds = append(cmds, m.say("the end of the recording; space plays it from the start"))
	}
	return tea.Batch(cmds...)
}

// freeze holds the screen, or plays and pauses a recording.
func (m *model) freeze() tea.Cmd {
	if m.opt.Player == nil {
		m.frozen = !m.frozen
		m.frozenAt = m.opt.Clock()
		if !m.frozen && m.newest != nil {
			m.snap = m.newest
		}
		return nil
	}
	p := &m.play
	p.playing = !p.playing
	if !p.playing {
		return nil
	}
	if p.at >= p.of { // at the end: from the start
		p.rebase(m.end.From, m.opt.Clock())
	} else {
		p.rebase(m.snap.Until, m.opt.Clock())
	}
	return m.after(refresh, playTick{})
}

func (p *playing) rebase(from wire.Time, now time.Time) { p.from, p.since = from, now }

// target is the moment that playing has come to.
func (p *playing) target(now time.Time) wire.Time {
	return p.from + wire.Time(float64(now.Sub(p.since))*speeds[p.speed].factor)
}

// playOn moves to where playing has come by now.
func (m *model) playOn() tea.Cmd {
	p := &m.play
	if !p.playing {
		return nil
	}
	next := m.after(refresh, playTick{})
	if p.busy {
		return next
	}
	w := seekTime(p.target(m.opt.Clock()))
	w.play = true
	return tea.Batch(m.move(w), next)
}

// faster changes the speed by so many choices.
func (m *model) faster(by int) tea.Cmd {
	return m.setSpeed(min(max(m.play.speed+by, 0), len(speeds)-1))
}

func (m *model) setSpeed(i int) tea.Cmd {
	p := &m.play
	now := m.opt.Clock()
	from := p.target(now)
	p.speed = i
	p.rebase(from, now)
	return m.say(fmt.Sprintf("speed %s×", speeds[i].word))
}
