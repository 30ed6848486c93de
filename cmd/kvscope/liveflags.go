package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kvscope/kvscope/fleet"
)

// liveFlags are the flags of every command that looks at a running fleet. Each
// can be given as a variable of the environment too; see variable.
type liveFlags struct {
	path, replay                                     string
	replicas, engines, dns, dynamo, kubernetes, nats []string
	maxIndex                                         int
	// from says for a flag's value from the environment which variable it was.
	from map[string]string
}

// placeFlags say where replicas are. A layer that gives any of them, be it the
// command line or the environment, stands in the place of all that the layers
// below say of it: nobody expects an address on the command line to be joined
// by those of a file.
var placeFlags = []string{"replica", "engine", "dns", "dynamo", "kubernetes", "nats"}

const ports = "[,http=PORT][,events=PORT][,replay=PORT][,topic=PREFIX][,ranks=N]"

// add defines the flags. A command that has --max-index keeps it.
func (l *liveFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.path, "config", "", "configuration file (default $XDG_CONFIG_HOME/kvscope/config.yaml; see kvscope init)")
	f.StringArrayVar(&l.replicas, "replica", nil, "engine: NAME=ADDRESS[,replay=ADDRESS][,metrics=URL][,topic=PREFIX][,ranks=N][,bind]")
	f.StringArrayVar(&l.engines, "engine", nil, "engine that says itself where its sockets are: URL of its HTTP server")
	f.StringArrayVar(&l.dns, "dns", nil, "name with an address for each engine: NAME"+ports)
	f.StringArrayVar(&l.dynamo, "dynamo", nil, "directory of Dynamo's file discovery: DIR[,host=HOST]")
	f.StringArrayVar(&l.kubernetes, "kubernetes", nil, "service, from within its cluster: [NAMESPACE/]SERVICE"+ports)
	f.StringArrayVar(&l.nats, "nats", nil, "server with Dynamo's event plane: URL[,subject=SUBJECT]")
	f.StringVar(&l.replay, "replay", "", "what may be asked of replay sockets: never, gaps, recent[:N] or full (default gaps)")
	if f.Lookup("max-index") == nil {
		maxIndexFlag(f, &l.maxIndex)
	}
}

// variable is the environment's name of a flag: KVSCOPE_MAX_INDEX for
// --max-index. White space separates the values of a flag that can be given
// several times.
func variable(flag string) string {
	return "KVSCOPE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// config gives what the file, the environment and the flags say, the later ones
// first.
func (l *liveFlags) config(cmd *cobra.Command, getenv func(string) string) (liveConfig, error) {
	f := cmd.Flags()
	if err := l.environment(f, getenv); err != nil {
		return liveConfig{}, err
	}
	file, path, err := readConfig(l.path, getenv)
	if err != nil {
		return liveConfig{}, usageError("%w", err)
	}
	if slices.ContainsFunc(placeFlags, f.Changed) {
		file.Replicas, file.DNS, file.Dynamo, file.Kubernetes, file.NATS = nil, nil, nil, nil, nil
		if err := l.places(&file); err != nil {
			return liveConfig{}, usageError("%w", err)
		}
	}
	if f.Changed("replay") {
		file.Replay.Policy = l.replay
	}
	if f.Changed("max-index") {
		if file.MaxIndex, err = f.GetInt("max-index"); err == nil {
			_, err = indexOptions(file.MaxIndex)
		}
		if err != nil {
			return liveConfig{}, err
		}
	}
	cfg, err := file.live(path)
	if err != nil {
		return liveConfig{}, usageError("%s: %w", l.named("replay"), err)
	}
	return cfg, nil
}

// environment sets the flags that were not given by their variables.
func (l *liveFlags) environment(f *pflag.FlagSet, getenv func(string) string) error {
	l.from = map[string]string{}
	placed := slices.ContainsFunc(placeFlags, f.Changed)
	for _, name := range append([]string{"config", "replay", "max-index"}, placeFlags...) {
		isPlace := slices.Contains(placeFlags, name)
		v := getenv(variable(name))
		if v == "" || f.Changed(name) || isPlace && placed {
			continue
		}
		values := []string{v}
		if isPlace {
			values = strings.Fields(v)
		}
		l.from[name] = variable(name)
		for _, v := range values {
			if err := f.Set(name, v); err != nil {
				if name == "max-index" { // pflag's own words speak of Go
					err = settingAt("max_index").check(v)
				}
				return usageError("%s: %w", l.from[name], err)
			}
		}
	}
	return nil
}

// named gives the name that a value came by.
func (l *liveFlags) named(flag string) string {
	if v := l.from[flag]; v != "" {
		return v
	}
	return "--" + flag
}

// places takes what the flags say of where replicas are.
func (l *liveFlags) places(c *config) error {
	for _, p := range []struct {
		flag   string
		values []string
		add    func(string) error
	}{
		{"replica", l.replicas, func(s string) error {
			var r fleet.Replica
			err := parseReplica(s, &r)
			c.Replicas = append(c.Replicas, r)
			return err
		}},
		{"engine", l.engines, func(s string) error {
			c.Replicas = append(c.Replicas, fleet.Replica{Engine: s})
			return settingAt("replicas", "engine").check(s)
		}},
		{"dns", l.dns, func(s string) error {
			var d fleet.DNS
			err := parseWords(s, wordText("dns", "name", &d.Name), portWords(&d.Ports))
			c.DNS = append(c.DNS, d)
			return needPort(&d.Ports, err)
		}},
		{"dynamo", l.dynamo, func(s string) error {
			var d fleet.Dynamo
			err := parseWords(s, wordText("dynamo", "dir", &d.Dir), map[string]word{"host": wordText("dynamo", "host", &d.Host)})
			c.Dynamo = append(c.Dynamo, d)
			return err
		}},
		{"kubernetes", l.kubernetes, func(s string) error {
			var k fleet.Kubernetes
			err := parseWords(s, func(s string) error {
				if namespace, service, ok := strings.Cut(s, "/"); ok {
					k.Namespace, s = namespace, service
				}
				return wordText("kubernetes", "service", &k.Service)(s)
			}, portWords(&k.Ports))
			c.Kubernetes = append(c.Kubernetes, k)
			return needPort(&k.Ports, err)
		}},
		{"nats", l.nats, func(s string) error {
			var n natsServer
			err := parseWords(s, wordText("nats", "url", &n.URL), map[string]word{"subject": wordList(&n.Subjects)})
			c.NATS = append(c.NATS, n)
			return err
		}},
	} {
		for _, s := range p.values {
			if err := p.add(s); err != nil {
				return fmt.Errorf("%s: %w", l.named(p.flag), err)
			}
		}
	}
	return nil
}

func parseReplica(s string, r *fleet.Replica) error {
	head := func(s string) error {
		name, address, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("%q: give NAME=ADDRESS, such as r1=tcp://10.0.0.5:5557", s)
		}
		if err := wordText("replicas", "name", &r.Name)(name); err != nil {
			return err
		}
		return wordText("replicas", "events", &r.Events)(address)
	}
	return parseWords(s, head, map[string]word{
		"replay":  wordText("replicas", "replay", &r.Replay),
		"metrics": wordText("replicas", "metrics", &r.Metrics),
		"topic":   wordList(&r.Topics),
		"ranks":   wordNumber(&ranksField, &r.Ranks),
		"bind": func(s string) error {
			r.Bind = true
			if s != "" {
				return fmt.Errorf("bind=%s: bind takes no value", s)
			}
			return nil
		},
	})
}

// needPort says that no port was given.
func needPort(p *fleet.Ports, err error) error {
	if err == nil && p.HTTP == 0 && p.Events == 0 {
		return errors.New("give events=PORT or http=PORT after the name")
	}
	return err
}

// word takes one word of a flag's value.
type word func(string) error

func portWords(p *fleet.Ports) map[string]word {
	out := map[string]word{"topic": wordList(&p.Topics), "ranks": wordNumber(&ranksField, &p.Ranks)}
	for key, to := range map[string]*int{"http": &p.HTTP, "events": &p.Events, "replay": &p.Replay} {
		out[key] = wordNumber(settingAt("dns", key), to)
	}
	return out
}

// parseWords takes a value of the form HEAD,key=value,… apart.
func parseWords(s string, head word, words map[string]word) error {
	parts := strings.Split(s, ",")
	if err := head(parts[0]); err != nil {
		return err
	}
	for _, part := range parts[1:] {
		key, value, _ := strings.Cut(part, "=")
		take := words[key]
		if take == nil {
			known := setting{}
			for key := range words {
				known.fields = append(known.fields, setting{key: key})
			}
			slices.SortFunc(known.fields, func(a, b setting) int { return strings.Compare(a.key, b.key) })
			return known.unknown(key)
		}
		if err := take(value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// wordText takes a text as the field of a list of the file takes it.
func wordText(list, key string, to *string) word {
	return func(s string) error {
		*to = s
		return settingAt(list, key).check(s)
	}
}

func wordNumber(f *setting, to *int) word {
	return func(s string) error {
		if err := f.check(s); err != nil {
			return err
		}
		n, err := strconv.Atoi(s)
		*to = n
		return err
	}
}

func wordList(to *[]string) word {
	return func(s string) error {
		*to = append(*to, s)
		return (&setting{kind: text, least: 1, most: maxTopic}).check(s)
	}
}
