package route

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/kvscope/kvscope/wire"
)

// Setting is one configured value and where it came from.
type Setting struct{ Name, Value, Origin string }

// setting is a row of a policy's table of settings.
type setting struct {
	name string
	// flag turns it on or takes its value, and off turns it off. The first of
	// vars that is set counts.
	flag, off string
	vars      []string
	def       string
	kind      kind
	words     []string // of kind word
	// moves says that flag and vars are deprecated in favour of the policy file.
	moves bool
	// weight says that it is a number that can turn the choice.
	weight bool
}

// kind is the form of a setting's value.
type kind uint8

const (
	number0  kind = iota // from 0
	fraction             // 0 to 1
	ratio                // from 1
	whole                // a whole number from 0
	optional             // a whole number from 0, or nothing
	anyReal              // from 0, or nothing
	onOff
	word
	free // any text
)

// bound is the range of a number.
type bound struct {
	low, high float64
	whole     bool
	empty     bool
	says      string
}

// bounds are those of the numbers.
var bounds = [...]bound{
	number0:  {0, maxCount, false, false, "a number from 0"},
	fraction: {0, 1, false, false, "a number from 0 to 1"},
	ratio:    {1, maxCount, false, false, "a number from 1"},
	whole:    {0, maxCount, true, false, "a whole number from 0"},
	optional: {0, maxCount, true, true, "a whole number from 0, or nothing"},
	anyReal:  {0, maxCount, false, true, "a number from 0, or nothing"},
}

func (b *bound) read(text string) (float64, bool) {
	num, err := strconv.ParseFloat(text, 64)
	return num, err == nil && num >= b.low && num <= b.high && (!b.whole || num == math.Trunc(num))
}

// switches are the words for on and off that command lines and variables use.
var switches = map[string]bool{
	"true": true, "1": true, "yes": true, "on": true,
	"false": false, "0": false, "no": false, "off": false,
}

// maxValue bounds the text of a value, in bytes.
const maxValue = 4096

// value is a setting's value, read.
type value struct {
	text, origin string
	num          float64
	on           bool
}

func (s *setting) read(text, origin string) (value, error) {
	v := value{text: text, origin: origin}
	fail := func(want string) (value, error) {
		return value{}, fmt.Errorf("%s (%s): %q is not %s", s.name, wire.Printable(origin), wire.Printable(text), want)
	}
	switch s.kind {
	case onOff:
		on, ok := switches[strings.ToLower(text)]
		if !ok {
			return fail("true or false")
		}
		v.on, v.text = on, strconv.FormatBool(on)
	case word:
		if !slices.Contains(s.words, text) {
			return fail("one of " + strings.Join(s.words, ", "))
		}
	case free:
		if len(text) > maxValue {
			return fail(fmt.Sprintf("a text of at most %d bytes", maxValue))
		}
	default:
		b := bounds[s.kind]
		if b.empty && text == "" {
			return v, nil
		}
		num, ok := b.read(text)
		if !ok {
			return fail(b.says)
		}
		v.num = num
	}
	return v, nil
}

// Config is a policy with its settings. The zero Config is none; get one from
// Policy.Configure.
type Config struct {
	policy *Policy
	values []value // as policy.settings
}

// Policy gives the policy that is configured.
func (c *Config) Policy() *Policy { return c.policy }

func (c *Config) num(at int) float64 { return c.values[at].num }
func (c *Config) on(at int) bool     { return c.values[at].on }
func (c *Config) given(at int) bool  { return c.values[at].text != "" }

// Settings gives all values with their origins, in the table's order.
func (c *Config) Settings() []Setting {
	out := make([]Setting, len(c.values))
	for i, v := range c.values {
		out[i] = Setting{c.policy.settings[i].name, v.text, v.origin}
	}
	return out
}

// Sources are the places that settings come from.
type Sources struct {
	// Env and Flags are a router's variables and command line. A flag wins over a
	// variable.
	Env, Flags []Setting
	// File is its policy file, which wins over both.
	File []Setting
	// Set are values given by hand, which win over all, the last one of a name.
	Set []Setting
}

// OriginDefault is the origin of values that nobody gave.
const OriginDefault = "default"

// Configure joins settings from all sources.
func (p *Policy) Configure(from Sources) (Config, error) {
	c := Config{policy: p, values: make([]value, len(p.settings))}
	for i := range p.settings {
		v, err := p.settings[i].read(p.settings[i].def, OriginDefault)
		if err != nil {
			return Config{}, err
		}
		c.values[i] = v
	}
	layers := [][]Setting{slices.Concat(from.Env, from.Flags), from.File}
	for i := range from.Set {
		layers = append(layers, from.Set[i:i+1])
	}
	for _, layer := range layers {
		for _, s := range layer {
			if err := c.put(s); err != nil {
				return Config{}, err
			}
		}
		if p.infer != nil {
			p.infer(&c, layer)
		}
	}
	if p.finish != nil {
		p.finish(&c)
	}
	return c, nil
}

func (c *Config) put(s Setting) error {
	at := c.policy.setting(s.Name)
	if at < 0 {
		return fmt.Errorf("%s (%s) is no setting of the policy %s: it has %s",
			wire.Printable(s.Name), wire.Printable(s.Origin), c.policy.Name, c.policy.names())
	}
	v, err := c.policy.settings[at].read(s.Value, s.Origin)
	if err != nil {
		return err
	}
	c.values[at] = v
	return nil
}

func (p *Policy) setting(name string) int {
	return slices.IndexFunc(p.settings, func(s setting) bool { return s.name == name })
}

func (p *Policy) names() string {
	if len(p.settings) == 0 {
		return "none"
	}
	out := make([]string, len(p.settings))
	for i := range p.settings {
		out[i] = p.settings[i].name
	}
	return strings.Join(out, ", ")
}

// text writes a number so that it is read as the same again.
func text(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// FromFlags finds the settings of a policy on a router's command line, and
// leaves alone all other flags, of which a frontend has many.
func (p *Policy) FromFlags(args []string) ([]Setting, error) {
	var out []Setting
	for i := 0; i < len(args); i++ {
		flag, val, joined := strings.Cut(args[i], "=")
		at := slices.IndexFunc(p.settings, func(s setting) bool { return flag != "" && (s.flag == flag || s.off == flag) })
		if at < 0 {
			continue
		}
		s := &p.settings[at]
		switch {
		case s.kind == onOff && joined:
			return nil, fmt.Errorf("%s takes no value: leave out %q", flag, wire.Printable("="+val))
		case s.kind == onOff:
			val = strconv.FormatBool(flag == s.flag)
		case !joined && i+1 == len(args):
			return nil, fmt.Errorf("%s needs a value behind it", flag)
		case !joined:
			i++
			val = args[i]
		}
		out = append(out, Setting{s.name, val, flag})
	}
	return out, nil
}

// SplitCommand cuts a command line into arguments, as a shell does with spaces,
// quotes and backslashes and with nothing else.
func SplitCommand(line string) []string {
	var out []string
	var arg strings.Builder
	var quote rune
	begun, escaped := false, false
	for _, r := range line {
		switch {
		case escaped:
			escaped = false
			if r != '\n' { // a backslash joins lines
				arg.WriteRune(r)
				begun = true
			}
		case r == '\\' && quote != '\'':
			escaped = true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, begun = r, true
		case quote == 0 && unicode.IsSpace(r):
			if begun {
				out = append(out, arg.String())
			}
			arg.Reset()
			begun = false
		default:
			arg.WriteRune(r)
			begun = true
		}
	}
	if begun {
		out = append(out, arg.String())
	}
	return out
}

// FromEnv finds the settings of a policy among variables. An empty one counts as
// not set.
func (p *Policy) FromEnv(get func(name string) string) []Setting {
	var out []Setting
	for i := range p.settings {
		for _, name := range p.settings[i].vars {
			if val := get(name); val != "" {
				out = append(out, Setting{p.settings[i].name, val, name})
				break
			}
		}
	}
	return out
}
