package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/tap"
)

// config is the configuration file; settings says what it can hold.
type config struct {
	fleet.Spec `yaml:",inline"`
	NATS       []natsServer `yaml:"nats"`
	Replay     struct {
		Policy    string `yaml:"policy"`
		PerMinute int    `yaml:"per_minute"`
	} `yaml:"replay"`
	Scrape struct {
		Interval time.Duration `yaml:"interval"`
		Routers  []string      `yaml:"routers"`
	} `yaml:"scrape"`
	MaxIndex     int    `yaml:"max_index"`
	Tokenizer    string `yaml:"tokenizer"`
	ChatTemplate string `yaml:"chat_template"`
}

// natsServer carries Dynamo's event plane.
type natsServer struct {
	URL string `yaml:"url"`
	// Subjects are what to subscribe to; empty means cache events and load of
	// every namespace.
	Subjects []string `yaml:"subjects"`
}

// liveConfig is what a command that looks at a running fleet needs to know:
// the file, KVSCOPE_ variables and flags, with all defaults filled in.
type liveConfig struct {
	// File is the configuration file that was read, "" if there was none.
	File  string
	Fleet fleet.Spec
	NATS  []natsServer
	// Replay says what may be asked of replay sockets, ReplayPerMinute how
	// often of each.
	Replay          tap.Policy
	ReplayPerMinute int
	// Scrape is the time from one reading of a metrics page to the next.
	Scrape time.Duration
	// Routers are the metrics pages of routers.
	Routers  []string
	MaxIndex int
}

// places reports whether anything is there to be found.
func (c *liveConfig) places() bool {
	f := &c.Fleet
	return len(f.Replicas)+len(f.DNS)+len(f.Dynamo)+len(f.Kubernetes) > 0
}

// check fails if nothing says where replicas are.
func (c *liveConfig) check() error {
	switch {
	case c.places() || len(c.NATS) > 0:
		return nil
	case c.File != "":
		return usageError("%s says nothing of where the fleet is yet: take the # away before what fits, or give --engine or another such flag, or --from FILE for a recording", c.File)
	}
	return usageError("%w", errNoFleet)
}

// errNoFleet says that nothing says where replicas are.
var errNoFleet = errors.New("nothing says what to look at: give --engine, --replica, --dns, --dynamo, --kubernetes or --nats for a running fleet (or write a configuration with kvscope init), or --from FILE for a recording")

// configPath is where the configuration is unless told otherwise.
func configPath(getenv func(string) string) (string, error) {
	dir := getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // as the specification has it
		home := getenv("HOME")
		if home == "" {
			return "", errors.New("neither XDG_CONFIG_HOME nor HOME says where the configuration is: name the file")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "kvscope", "config.yaml"), nil
}

// readConfig reads the file at path, or with an empty one the file at the usual
// place, which need not be there; file is what was read.
func readConfig(path string, getenv func(string) string) (cfg config, file string, err error) {
	asked := path != ""
	if !asked {
		if path, err = configPath(getenv); err != nil {
			return cfg, "", nil // there is no usual place, so nothing in it
		}
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !asked:
		return cfg, "", nil
	case err != nil:
		return cfg, "", fmt.Errorf("the configuration cannot be read: %w", err)
	}
	defer f.Close() // only read from
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	switch {
	case err != nil:
		return cfg, "", fmt.Errorf("the configuration cannot be read: %w", err)
	case len(data) > maxConfig:
		return cfg, "", fmt.Errorf("the configuration %s has more than %d bytes: is it the right file?", path, maxConfig)
	}
	cfg, err = parseConfig(data, path)
	return cfg, path, err
}

// live fills in the defaults.
func (c *config) live(file string) (liveConfig, error) {
	p, err := tap.ParsePolicy(c.Replay.Policy)
	if err != nil {
		return liveConfig{}, err
	}
	out := liveConfig{
		File: file, Fleet: c.Spec, NATS: c.NATS, Replay: p,
		ReplayPerMinute: c.Replay.PerMinute, Scrape: c.Scrape.Interval, Routers: c.Scrape.Routers, MaxIndex: c.MaxIndex,
	}
	if out.Fleet.Refresh == 0 {
		out.Fleet.Refresh = defaultRefresh
	}
	if out.ReplayPerMinute == 0 {
		out.ReplayPerMinute = defaultPerMinute
	}
	if out.Scrape == 0 {
		out.Scrape = defaultScrape
	}
	if out.MaxIndex == 0 {
		out.MaxIndex = defaultMaxIndex
	}
	return out, nil
}
