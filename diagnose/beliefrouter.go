package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kvscope/kvscope/index"
	"github.com/kvscope/kvscope/stream"
	"github.com/kvscope/kvscope/wire"
)

func deprecatedKnob(v View, _ Memory) []Finding {
	if v.Router == nil {
		return nil
	}
	var out []Finding
	var moving []string
	for _, d := range v.Router.Config.Deprecated() {
		if d.Sets == "" {
			moving = append(moving, d.Origin)
			continue
		}
		f := Finding{Severity: Warning, Subject: "fleet", about: d.Name}
		f.Title = fmt.Sprintf("%s=%s does not weigh overlap any more: it overwrites %s", wire.Printable(d.Origin), wire.Printable(d.Value), d.Sets)
		if d.Value == "0" {
			f.Title += " and sets overlap_score_credit to 0"
		}
		f.Counterfactual = fmt.Sprintf("without it %s and the credit have the values that they are given themselves", d.Sets)
		f.Next = "leave it out, and give overlap_score_credit for the weight of hits and prefill_load_scale for that of prefill; kvscope explain shows what changes"
		out = append(out, f)
	}
	if len(moving) > 0 {
		f := Finding{Severity: Info, Subject: "fleet", about: "moving"}
		f.Title = fmt.Sprintf("deprecated in Dynamo 1.6, and from 1.7 on taken from the policy file alone: %s", wire.Printable(strings.Join(moving, ", ")))
		f.Counterfactual = "in a policy file the same values survive the upgrade"
		f.Next = "move them into the file of --router-policy-config"
		out = append(out, f)
	}
	return out
}

// shapes remembers what Dynamo's relay makes of each replica's batches. Not all are
// looked at: a second reading is dear, and what cannot be read is the same for most.
type shapes struct {
	of map[wire.Replica]shape
}

type shape struct {
	batches, judged, lost uint64
	since                 wire.Time
	seq                   uint64
	why                   string
}

// Of each replica the first batches with events are looked at, and then every so many.
const (
	judgeFirst = 16
	judgeEvery = 64
)

func newShapes() Memory { return &shapes{map[wire.Replica]shape{}} }

func (m *shapes) Clone() Memory { return &shapes{maps.Clone(m.of)} }

func (m *shapes) Step(s *stream.Step, _ *index.Index) {
	switch {
	case s.Kind == stream.Drop:
		delete(m.of, s.Replica)
		return
	case s.Kind != stream.Apply || len(s.Batch.Events) == 0 || s.Batch.Events[0].Plane:
		return
	case slices.ContainsFunc(s.Batch.Events, func(e wire.Event) bool { return e.Kind == wire.Bad }):
		return // nobody can read that
	}
	sh, known := m.of[s.Replica]
	if !known && len(m.of) >= maxRemembered {
		return
	}
	if sh.batches++; sh.batches <= judgeFirst || sh.batches%judgeEvery == 0 {
		sh.judged++
		var relay wire.DynamoRelay
		if v := relay.Judge(s.Payload); v.Lost != "" {
			if sh.lost++; sh.lost == 1 {
				sh.since, sh.seq = s.At, s.Batch.Seq
			}
			sh.why = v.Lost
		}
	}
	m.of[s.Replica] = sh
}

func unsupportedShape(v View, mem Memory) []Finding {
	var out []Finding
	for i := range v.Replicas {
		r := &v.Replicas[i]
		sh := mem.(*shapes).of[r.Replica]
		if sh.lost == 0 || r.Link == wire.LinkGone {
			continue
		}
		f := about(r, Info, sh.since)
		if v.Router != nil && strings.HasPrefix(v.Router.Config.Policy().Name, "dynamo") {
			f.Severity = Warning
		}
		f.Evidence.SeqFrom = p(sh.seq)
		f.Effect.Blocks = p(r.Index.Copies)
		f.Title = fmt.Sprintf("Dynamo's relay cannot read %d of %s looked at, and drops each whole: %s", sh.lost, count(sh.judged, "batch"), wire.Printable(sh.why))
		f.Counterfactual = "with events that it reads a Dynamo router would know of these blocks"
		f.Next = "with a Dynamo router: have the engine send hashes as integers, and arrays or maps as vLLM does; other consumers may read it (kvscope does)"
		out = append(out, f)
	}
	return out
}
