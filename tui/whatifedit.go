package tui

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// rule is the router that the prompt is asked about, with what the user changed.
type rule struct {
	cfg *route.Config
	// model is the one that the prompt is for, "" where all serve the same.
	model string
	// edits hold one value for each key. Settings of other policies wait until
	// their policy is chosen again.
	edits []explain.Edit
}

// configured gives a policy with its defaults.
func configured(policy string) (*route.Config, error) {
	p, err := route.Named(policy)
	if err != nil {
		return nil, err
	}
	cfg, err := p.Configure(route.Sources{})
	return &cfg, err
}

// newRule begins with the first policy, whose defaults are right as a test sees.
func newRule() rule {
	cfg, err := configured(route.Policies()[0])
	if err != nil {
		panic(err)
	}
	return rule{cfg: cfg}
}

// inForce are the edits that say something now: of a setting that the policy has,
// or of a replica that is there.
func (r *rule) inForce(snap *observe.Snapshot) []explain.Edit {
	has := map[string]bool{}
	for _, s := range r.cfg.Settings() {
		has[s.Name] = true
	}
	var out []explain.Edit
	for _, e := range r.edits {
		at := strings.LastIndexByte(e.Key, ':')
		if at < 0 && has[e.Key] || at >= 0 && slices.Contains(replicasOf(snap), wire.Replica(e.Key[:at])) {
			out = append(out, e)
		}
	}
	return out
}

func replicasOf(snap *observe.Snapshot) []wire.Replica {
	out := make([]wire.Replica, len(snap.Replicas))
	for i := range snap.Replicas {
		out[i] = snap.Replicas[i].Replica
	}
	return out
}

// set checks an edit and keeps it.
func (r *rule) set(snap *observe.Snapshot, text string) error {
	key, value, ok := strings.Cut(text, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	if !ok || key == "" {
		return errors.New("give SETTING=VALUE or REPLICA:FIELD=VALUE; tab lists them")
	}
	var cands []route.Candidate
	for _, name := range replicasOf(snap) {
		cands = append(cands, route.Candidate{Replica: name})
	}
	if _, _, err := route.Edit(r.cfg, cands, key, value); err != nil {
		return err
	}
	r.edits = slices.DeleteFunc(r.edits, func(e explain.Edit) bool { return e.Key == key })
	r.edits = append(r.edits, explain.Edit{Key: key, Value: value})
	return nil
}

// keys lists what can be set.
func (r *rule) keys(snap *observe.Snapshot) []string {
	var out []string
	for _, s := range r.cfg.Settings() {
		out = append(out, s.Name+"=")
	}
	for _, name := range replicasOf(snap) {
		for _, field := range route.EditFields() {
			out = append(out, string(name)+":"+field+"=")
		}
	}
	return out
}

// changed asks about the same prompt again, at once or after the answer that is
// on its way.
func (v *whatIf) changed(s *scene) effect {
	v.stale = true
	return v.follow(s)
}

func (v *whatIf) setPolicy(s *scene, name string) (effect, error) {
	cfg, err := configured(name)
	if err != nil {
		return effect{}, err
	}
	v.rule.cfg = cfg
	return v.changed(s), nil
}

func (v *whatIf) set(s *scene, text string) (effect, error) {
	if err := v.rule.set(s.snap, text); err != nil {
		return effect{}, err
	}
	return v.changed(s), nil
}

func (v *whatIf) undo(s *scene) effect {
	n := len(v.rule.edits)
	v.rule.edits = nil
	e := v.changed(s)
	e.toast = wire.Counted(n, "edit") + " undone"
	return e
}

func (v *whatIf) noEdits(*scene) string {
	if len(v.rule.edits) == 0 {
		return "nothing was edited: L edits a load, :set any value"
	}
	return ""
}

// editLoad opens the command line with the selected candidate's load: the prompt
// tokens that Dynamo's cost counts first, or the requests that all other rules do.
func (v *whatIf) editLoad(row *whatIfRow) effect {
	c := row.cand
	if c == nil {
		return effect{toast: nameOf(row.Replica) + " is no candidate"}
	}
	field, now := "active_requests", c.Load.Requests
	if v.why.Policy == route.Policies()[0] {
		field, now = "active_prefill_tokens", c.Load.PrefillTokens
	}
	return effect{open: fmt.Sprintf("%sset %s:%s=%d", commandPrefix, row.Replica, field, now)}
}

// policyDialog lets the user choose the rule.
func policyDialog(v *whatIf) *dialog {
	d := &dialog{title: "the router's rule", verb: "choose"}
	for _, name := range route.Policies() {
		p, err := route.Named(name)
		if err != nil {
			continue
		}
		on := v.rule.cfg.Policy().Name == name
		d.items = append(d.items, item{label: name, help: p.Rule, on: &on})
	}
	d.choose = func(m *model, i int) (bool, tea.Cmd) {
		e, err := v.setPolicy(m.scene(), d.items[i].label)
		if err != nil {
			return true, m.say(err.Error())
		}
		return true, m.do(v, e)
	}
	return d
}

// whatIf gives the view, and shows it: commands change it where that is seen.
func (m *model) whatIf() *whatIf {
	for _, v := range m.views {
		if w, ok := v.(*whatIf); ok {
			return w
		}
	}
	return newWhatIf()
}

// change carries out a command on the view, and shows what comes of it.
func (m *model) change(do func(*whatIf, *scene) (effect, error)) (tea.Cmd, error) {
	v := m.whatIf()
	e, err := do(v, m.scene())
	if err != nil {
		return nil, err
	}
	m.show(v.name())
	return m.do(v, e), nil
}

func policyNames(*model) []string { return route.Policies() }

func runPolicy(m *model, arg string) (tea.Cmd, error) {
	return m.change(func(v *whatIf, s *scene) (effect, error) { return v.setPolicy(s, arg) })
}

func setKeys(m *model) []string { return m.whatIf().rule.keys(m.snap) }

func runSet(m *model, arg string) (tea.Cmd, error) {
	return m.change(func(v *whatIf, s *scene) (effect, error) { return v.set(s, arg) })
}

// modelNames lists the models that are served.
func modelNames(m *model) []string {
	var out []string
	for i := range m.snap.Replicas {
		if name := m.snap.Replicas[i].Model; name != "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func runModel(m *model, arg string) (tea.Cmd, error) {
	if names := modelNames(m); !slices.Contains(names, arg) {
		return nil, fmt.Errorf("no replica serves %q: %s", arg, strings.Join(names, ", "))
	}
	return m.change(func(v *whatIf, s *scene) (effect, error) {
		v.rule.model = arg
		return v.changed(s), nil
	})
}
