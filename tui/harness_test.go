package tui

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/kvscope/kvscope/fixtures"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// update writes the golden screens anew: go test ./tui -update.
var update = flag.Bool("update", false, "write the golden screens anew")

// The modes in which screens are stored. Escapes are part of the colour ones
// only; the others must have no colour at all.
const (
	inColour = "colour"
	noColour = "none"
	inASCII  = "ascii"
)

var (
	modes = []string{inColour, noColour, inASCII}
	sizes = [][2]int{{40, 12}, {80, 24}, {120, 40}, {200, 60}}
)

func lookOf(mode string) Look {
	return map[string]Look{
		inColour: {Theme: "dark"}, noColour: {Theme: "none"}, inASCII: {Theme: "none", ASCII: true},
	}[mode]
}

// loadFixture gives a recording of package fixtures, at its end, with the
// metrics pages beside it.
func loadFixture(t testing.TB, name string) *observe.Player {
	t.Helper()
	var sources []wire.Source
	for _, file := range []string{name + "/events.jsonl.gz", name + "/metrics.jsonl.gz"} {
		f, err := fixtures.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		sources = append(sources, wire.NewJSONL(f, file))
	}
	p, err := observe.Load(context.Background(), wire.Merge(sources...), observe.Options{Name: name, Scrape: fleet.ParseMetrics}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// harness drives a model without a terminal: commands run at once, and what
// would wait never comes.
type harness struct {
	t testing.TB
	m *model
	// raw is what was written past the screen.
	raw []string
	// files are what was exported, by name.
	files map[string]string
	now   time.Time
	quit  bool
}

// loaded are the fixtures at their ends, which nobody moves.
var loaded sync.Map

// recorded is a recording that is loaded once for all tests and again only for
// one that moves in it.
type recorded struct {
	*observe.Player
	t     testing.TB
	name  string
	moved bool
}

func recording(t testing.TB, name string) *recorded {
	t.Helper()
	once, _ := loaded.LoadOrStore(name, sync.OnceValue(func() *observe.Player { return loadFixture(t, name) }))
	return &recorded{Player: once.(func() *observe.Player)(), t: t, name: name}
}

func (r *recorded) own() *observe.Player {
	if !r.moved {
		r.Player, r.moved = loadFixture(r.t, r.name), true
	}
	return r.Player
}

func (r *recorded) SeekRecord(ctx context.Context, n int) (*observe.Snapshot, error) {
	return r.own().SeekRecord(ctx, n)
}

func (r *recorded) SeekTime(ctx context.Context, t wire.Time) (*observe.Snapshot, error) {
	return r.own().SeekTime(ctx, t)
}

func (r *recorded) Step(ctx context.Context, n int) (*observe.Snapshot, error) {
	return r.own().Step(ctx, n)
}

func (r *recorded) Jump(ctx context.Context, back bool) (*observe.Snapshot, error) {
	return r.own().Jump(ctx, back)
}

// newHarness shows a recording at its end.
func newHarness(t testing.TB, fixture string, w, h int, mode string) *harness {
	t.Helper()
	p := recording(t, fixture)
	return newHarnessOn(t, Options{Feed: p, Player: p, Look: lookOf(mode)}, w, h)
}

func newHarnessOn(t testing.TB, opt Options, w, h int) *harness {
	t.Helper()
	x := &harness{t: t, files: map[string]string{}, now: time.Unix(1796000000, 0)}
	if opt.Clock == nil {
		opt.Clock = func() time.Time { return x.now }
	}
	if opt.WriteFile == nil {
		opt.WriteFile = func(name string, data []byte) (string, error) {
			x.files[name] = string(data)
			return name, nil
		}
	}
	x.m = newModel(context.Background(), opt)
	x.m.after = func(time.Duration, tea.Msg) tea.Cmd { return nil }
	x.run(x.m.Init())
	x.send(tea.WindowSizeMsg{Width: w, Height: h})
	return x
}

// send gives the model a message and runs what comes of it.
func (x *harness) send(msg tea.Msg) {
	x.t.Helper()
	_, cmd := x.m.Update(msg)
	x.run(cmd)
}

func (x *harness) run(cmd tea.Cmd) {
	x.t.Helper()
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case nil:
	case tea.BatchMsg:
		for _, c := range msg {
			x.run(c)
		}
	case tea.QuitMsg:
		x.quit = true
	case tea.RawMsg:
		x.raw = append(x.raw, fmt.Sprint(msg.Msg))
	default:
		x.send(msg)
	}
}

// press sends keys as Bubble Tea names them.
func (x *harness) press(keys ...string) *harness {
	x.t.Helper()
	for _, k := range keys {
		x.send(keyPress(x.t, k))
	}
	return x
}

// write types a text.
func (x *harness) write(text string) *harness {
	x.t.Helper()
	for _, r := range text {
		k := string(r)
		if r == ' ' {
			k = "space"
		}
		x.press(k)
	}
	return x
}

// named are the keys that are no text.
var named = map[string]tea.Key{
	"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "tab": {Code: tea.KeyTab},
	"shift+tab": {Code: tea.KeyTab, Mod: tea.ModShift}, "space": {Code: tea.KeySpace, Text: " "},
	"backspace": {Code: tea.KeyBackspace}, "up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown},
	"left": {Code: tea.KeyLeft}, "right": {Code: tea.KeyRight}, "home": {Code: tea.KeyHome},
	"end": {Code: tea.KeyEnd}, "pgup": {Code: tea.KeyPgUp}, "pgdown": {Code: tea.KeyPgDown},
	"f1": {Code: tea.KeyF1},
}

func keyPress(t testing.TB, name string) tea.KeyPressMsg {
	t.Helper()
	k, ok := named[name]
	switch {
	case ok:
	case strings.HasPrefix(name, "ctrl+"):
		k = tea.Key{Code: rune(name[5]), Mod: tea.ModCtrl}
	case len([]rune(name)) == 1:
		k = tea.Key{Code: []rune(name)[0], Text: name}
	default:
		t.Fatalf("no key %q", name)
	}
	msg := tea.KeyPressMsg(k)
	if msg.String() != name {
		t.Fatalf("key %q says it is %q", name, msg.String())
	}
	return msg
}

// frame gives the screen as it is written, and fails if it does not fit.
func (x *harness) frame() string {
	x.t.Helper()
	got := x.m.View().Content
	lines := strings.Split(got, "\n")
	if len(lines) > x.m.h {
		x.t.Errorf("%d×%d: %d lines", x.m.w, x.m.h, len(lines))
	}
	for i, l := range lines {
		if n := ansi.StringWidth(l); n > x.m.w {
			x.t.Errorf("%d×%d: line %d has %d cells: %q", x.m.w, x.m.h, i+1, n, ansi.Strip(l))
		}
	}
	if x.m.theme.ascii && strings.ContainsFunc(got, func(r rune) bool { return r >= 0x80 }) {
		x.t.Errorf("not ASCII: %q", got)
	}
	if x.m.theme.name == "none" {
		for _, sgr := range colourSGR.FindAllString(got, -1) {
			x.t.Errorf("a colour where there should be none: %q", sgr)
		}
	}
	return got
}

// colourSGR finds escapes that set a colour and not only bold, faint,
// underline or reverse.
var colourSGR = regexp.MustCompile(`\x1b\[[0-9;]*\b(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])\b[0-9;]*m`)

// text gives the screen without styles and without blanks at line ends.
func (x *harness) text() string {
	x.t.Helper()
	lines := strings.Split(ansi.Strip(x.frame()), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// golden holds the screen against testdata/screens/<name>.txt. Screens in
// colour keep their escapes, made visible as ␛.
func (x *harness) golden(name string) {
	x.t.Helper()
	got := x.text()
	if x.m.theme.name != "none" {
		lines := strings.Split(x.frame(), "\n")
		for i, l := range lines {
			lines[i] = strings.TrimRight(strings.ReplaceAll(l, "\x1b", "␛"), " ")
		}
		got = strings.Join(lines, "\n") + "\n"
	}
	golden(x.t, name, got)
}

func golden(t testing.TB, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "screens", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Errorf("%v: go test ./tui -update writes it; now it would be\n%s", err, got)
		return
	}
	if d := lineDiff(string(want), got); d != "" {
		t.Errorf("%s differs (- is wanted, + is shown; go test ./tui -update accepts):\n%s", path, d)
	}
}

// lineDiff shows how two screens differ, line by line.
func lineDiff(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	var out strings.Builder
	for i := range max(len(a), len(b)) {
		x, y := at(a, i), at(b, i)
		if x == y {
			continue
		}
		if x != "" || i < len(a) {
			fmt.Fprintf(&out, "%3d - %s\n", i+1, x)
		}
		if y != "" || i < len(b) {
			fmt.Fprintf(&out, "%3d + %s\n", i+1, y)
		}
	}
	return out.String()
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

// screen holds a view of a fixture, after keys, against its golden screen.
func screen(t *testing.T, fixture, view string, w, h int, mode string, keys ...string) {
	t.Helper()
	x := newHarness(t, fixture, w, h, mode)
	if !x.m.show(view) {
		t.Fatalf("no view %q", view)
	}
	x.m.dirty = true
	x.press(keys...)
	x.golden(fmt.Sprintf("%s_%s_%dx%d_%s", view, fixture, w, h, mode))
}

// eachSize runs a test for each size and mode of the golden screens.
func eachSize(t *testing.T, test func(t *testing.T, w, h int, mode string)) {
	t.Helper()
	for _, size := range sizes {
		for _, mode := range modes {
			t.Run(fmt.Sprintf("%dx%d_%s", size[0], size[1], mode), func(t *testing.T) {
				t.Parallel()
				test(t, size[0], size[1], mode)
			})
		}
	}
}

// TestLineDiff keeps the harness itself honest.
func TestLineDiff(t *testing.T) {
	t.Parallel()
	if d := lineDiff("a\nb\nc", "a\nx\nc"); d != "  2 - b\n  2 + x\n" {
		t.Errorf("%q", d)
	}
	if d := lineDiff("a", "a"); d != "" {
		t.Errorf("%q", d)
	}
	if !slices.Contains(colourSGR.FindAllString("\x1b[38;2;1;2;3mx", -1), "\x1b[38;2;1;2;3m") {
		t.Error("a colour is not found")
	}
	if found := colourSGR.FindAllString("\x1b[1;7mx\x1b[m", -1); found != nil {
		t.Errorf("found %q", found)
	}
}
