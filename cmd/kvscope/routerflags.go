package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// routerFlags say how a router chooses.
type routerFlags struct{ policy, flags, file, pool string }

func (f *routerFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.policy, "policy", "", "router's rule (default that of --router-config, else dynamo): "+strings.Join(route.Policies(), ", "))
	fl.StringVar(&f.flags, "router-flags", "", "router's command line, or its flags, in one argument")
	fl.StringVar(&f.file, "router-config", "", "router's policy file, YAML (default $DYN_ROUTER_POLICY_CONFIG)")
	fl.StringVar(&f.pool, "pool", "aggregated", "pool that the prompt is routed in: "+strings.Join(poolNames(), ", "))
}

var pools = map[string]route.Pool{
	"aggregated": route.Aggregated, "prefill": route.Prefill, "decode": route.Decode, "encode": route.Encode,
}

func poolNames() []string {
	return slices.SortedFunc(maps.Keys(pools), func(a, b string) int { return int(pools[a]) - int(pools[b]) })
}

// The names of what is read of a router beside its settings.
const (
	fileVariable = "DYN_ROUTER_POLICY_CONFIG"
	fileFlag     = "--router-policy-config"
	modeFlag     = "--router-mode"
)

// allPolicies is the name that stands for every policy.
const allPolicies = "all"

func (f *routerFlags) all() bool { return f.policy == allPolicies }

// others configures every policy, the router's own with all that is known of it.
func (f *routerFlags) others(getenv func(string) string) ([]*route.Config, error) {
	own, _, err := f.config(getenv)
	if err != nil {
		return nil, err
	}
	var out []*route.Config
	for _, name := range route.Policies() {
		if name == own.Policy().Name {
			out = append(out, &own)
			continue
		}
		p, err := route.Named(name)
		if err != nil {
			return nil, err
		}
		cfg, err := p.Configure(route.Sources{})
		if err != nil {
			return nil, err
		}
		out = append(out, &cfg)
	}
	return out, nil
}

// config joins all that is known of a router's configuration.
func (f *routerFlags) config(getenv func(string) string) (cfg route.Config, pool route.Pool, err error) {
	fail := func(err error) (route.Config, route.Pool, error) { return route.Config{}, 0, err }
	pool, ok := pools[f.pool]
	if !ok {
		return fail(fmt.Errorf("--pool %q: give one of %s", f.pool, strings.Join(poolNames(), ", ")))
	}
	name, path, from := f.policy, f.file, "--router-config"
	if f.all() {
		name = "" // the router's own comes first, and the others beside it
	}
	if path == "" {
		path, from = getenv(fileVariable), fileVariable
	}
	args := route.SplitCommand(f.flags)
	if err := f.check(args, path); err != nil {
		return fail(err)
	}
	var src route.Sources
	if path != "" {
		text, err := readPrompt(path)
		if err != nil {
			return fail(fmt.Errorf("%s: %w", from, err))
		}
		p, settings, err := route.ReadPolicyFile(text, pool, path)
		switch {
		case err != nil:
			return fail(fmt.Errorf("%s: %w", from, err))
		case name == "":
			name = p.Name
		case name != p.Name:
			return fail(fmt.Errorf("--policy %s, and %s (%s) says %s: leave one of them out", wire.Printable(name), path, from, p.Name))
		}
		src.File = settings
	}
	if name == "" {
		name = route.Policies()[0]
	}
	p, err := route.Named(name)
	if err != nil {
		return fail(fmt.Errorf("--policy: %w", err))
	}
	src.Env = p.FromEnv(getenv)
	if src.Flags, err = p.FromFlags(args); err != nil {
		return fail(fmt.Errorf("--router-flags: %w", err))
	}
	cfg, err = p.Configure(src)
	return cfg, pool, err
}

// known is the router where flags say anything of it, else nil: the variables alone
// may be those of any program.
func (f *routerFlags) known(getenv func(string) string) (*diagnose.Router, error) {
	switch {
	case f.all():
		return nil, errors.New("--policy all: name the one of the router that is there")
	case f.policy+f.flags+f.file == "":
		return nil, nil
	}
	cfg, _, err := f.config(getenv)
	return &diagnose.Router{Config: cfg}, err
}

// check refuses flags that say that another rule is in force than the one that
// would be reckoned with.
func (f *routerFlags) check(args []string, path string) error {
	for i, arg := range args {
		flag, value, joined := strings.Cut(arg, "=")
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		switch {
		case flag == modeFlag && value != "kv" && f.policy == "":
			return fmt.Errorf("--router-flags: with %s %s the router looks at no cache: name the rule with --policy", modeFlag, wire.Printable(value))
		case flag == fileFlag && path == "":
			return fmt.Errorf("--router-flags: %s wins over the other flags: give the file with --router-config too", fileFlag)
		}
	}
	return nil
}
