package route

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kvscope/kvscope/wire"
)

// maxPolicyFile bounds a policy file, in bytes.
const maxPolicyFile = 1 << 20

// policyFile is a router's policy file (--router-policy-config) of Dynamo 1.6,
// as far as it says who is chosen. The classes of its queues say only when.
type policyFile struct {
	DefaultFamily yaml.Node `yaml:"default_policy_family"`
	Classes       yaml.Node `yaml:"policy_classes"`
	Buckets       yaml.Node `yaml:"uncached_isl_buckets"`
	Models        yaml.Node `yaml:"models"`
	Selection     struct {
		Aggregated string           `yaml:"aggregated"`
		Prefill    string           `yaml:"prefill"`
		Decode     string           `yaml:"decode"`
		Instances  []policyInstance `yaml:"instances"`
	} `yaml:"worker_selection"`
}

type policyInstance struct {
	Name       string               `yaml:"name"`
	Type       string               `yaml:"type"`
	Parameters map[string]yaml.Node `yaml:"parameters"`
}

// ReadPolicyFile finds, in the text of a policy file, the policy of a pool and
// its settings. origin is what the file is called.
func ReadPolicyFile(text []byte, pool Pool, origin string) (p *Policy, settings []Setting, err error) {
	fail := func(err error) (*Policy, []Setting, error) {
		return nil, nil, fmt.Errorf("the policy file %s: %w", wire.Printable(origin), err)
	}
	if len(text) > maxPolicyFile {
		return fail(fmt.Errorf("%d bytes, and at most %d are read", len(text), maxPolicyFile))
	}
	var f policyFile
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	switch err := dec.Decode(&f); {
	case errors.Is(err, io.EOF):
		return fail(errors.New("it is empty: it needs worker_selection or the classes of queues"))
	case err != nil:
		// The library's words, without the name of our type.
		says, _, _ := strings.Cut(err.Error(), " in type ")
		return fail(errors.New(wire.Printable(strings.TrimPrefix(says, "yaml: unmarshal errors:\n  "))))
	}
	use := map[Pool]string{Prefill: f.Selection.Prefill, Decode: f.Selection.Decode}[pool]
	if pool == Aggregated || pool == Encode {
		use = f.Selection.Aggregated
	}
	if use == "" || use == "default" {
		p, err = Named(policyTypes["default"])
		return p, nil, err
	}
	at := slices.IndexFunc(f.Selection.Instances, func(i policyInstance) bool { return i.Name == use })
	if at < 0 {
		return fail(fmt.Errorf("worker_selection names %s, which is none of its instances", wire.Printable(use)))
	}
	i := f.Selection.Instances[at]
	name, ok := policyTypes[i.Type]
	if !ok {
		return fail(fmt.Errorf("the policy type %s of %s is not one that kvscope knows", wire.Printable(i.Type), wire.Printable(use)))
	}
	if p, err = Named(name); err != nil {
		return fail(err)
	}
	for name, node := range i.Parameters {
		if node.Kind != yaml.ScalarNode {
			return fail(fmt.Errorf("the parameter %s is no single value", wire.Printable(name)))
		}
		settings = append(settings, Setting{name, node.Value, origin})
	}
	slices.SortFunc(settings, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) })
	return p, settings, nil
}
