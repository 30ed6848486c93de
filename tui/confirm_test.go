package tui

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// TestOfferReplay: the offer says what would be sent, and only enter sends it.
func TestOfferReplay(t *testing.T) {
	t.Parallel()
	p := loadFixture(t, "d_restart")
	type asked struct {
		replica wire.Replica
		first   uint64
	}
	var offers, sent []asked
	x := newHarnessOn(t, Options{
		Feed: p, Look: lookOf(noColour),
		Recent: func(r wire.Replica, first uint64) (string, func(), error) {
			if r == "c" {
				return "", nil, errors.New("c has no replay socket")
			}
			offers = append(offers, asked{r, first})
			return "one request to tcp://10.0.0.5:5558", func() { sent = append(sent, asked{r, first}) }, nil
		},
	}, 120, 40)
	x.press("R")
	if got := x.text(); !strings.Contains(got, "one request to tcp://10.0.0.5:5558") {
		t.Errorf("no offer:\n%s", got)
	}
	x.press("esc")
	if len(sent) != 0 {
		t.Fatalf("esc sent %v", sent)
	}
	x.press("R", "enter")
	want := asked{"b", 280}
	if len(offers) != 2 || offers[1] != want || len(sent) != 1 || sent[0] != want {
		t.Errorf("offered %v, sent %v, want %v", offers, sent, want)
	}
	if got := x.text(); !strings.Contains(got, "asked: the answer shows as REPLAYING") {
		t.Errorf("nothing is said:\n%s", got)
	}
	x.press("G", "R") // c, which was joined at its beginning
	if got := x.text(); len(offers) != 2 || !strings.Contains(got, "c was joined at its first batch") {
		t.Errorf("offered %v:\n%s", offers, got)
	}
}

// TestNoOffer: a recording cannot be asked.
func TestNoOffer(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "d_restart", 120, 40, noColour)
	if got := x.press("R").text(); !strings.Contains(got, "only a running fleet can be asked for a replay") {
		t.Errorf("the screen is:\n%s", got)
	}
}

// fixedFeed gives what it holds.
type fixedFeed struct {
	Feed
	snap *observe.Snapshot
}

func (f *fixedFeed) Snapshot() *observe.Snapshot { return f.snap }

// TestReplayWords: what was asked is on the screen, with what still may be.
func TestReplayWords(t *testing.T) {
	t.Parallel()
	p := loadFixture(t, "d_restart")
	snap := *p.Snapshot()
	snap.Replay = map[wire.Replica]observe.Replay{
		"b": {Address: "tcp://h:1", Policy: "gaps", Requests: 2, Left: 10, Batches: 1234, Last: "the answer stopped"},
	}
	snap.Notes = []observe.Note{{Replica: "b", Text: "dropped 7 messages"}}
	f := &fixedFeed{p, &snap}
	x := newHarnessOn(t, Options{Feed: f, Look: lookOf(noColour)}, 160, 40)
	x.send(tickMsg{&snap})
	got := x.text()
	for _, want := range []string{
		"policy gaps, 2 requests sent, 10 left this minute, 1 234 batches received; the last one: the answer stopped",
		"b: dropped 7 messages",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not on the screen:\n%s", want, got)
		}
	}
}
