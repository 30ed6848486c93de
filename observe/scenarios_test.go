package observe

import (
	"errors"
	"regexp"
	"slices"
	"testing"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/wire"
)

// A scenario is a stream that fires a check, and a twin of it that is as like as can
// be and does not. Each file scenario_*_test.go adds those of some checks.
type scenario struct {
	name string
	// code is the check's; a check can have several scenarios.
	code string
	// facts and load are what every metrics page says, if it is no loadPage.
	facts wire.Facts
	load  wire.Load
	// router is the router's configuration, and twinRouter that of the twin.
	router, twinRouter *diagnose.Router
	// scrape, if any, reads them instead.
	scrape func(text string, rank int) (wire.Facts, wire.Load, error)
	// page reads the pages of routers.
	page func(text string) (diagnose.RouterPage, error)
	// belief, if any, is what the router's index holds at the end, and decisions what it
	// went by.
	belief    *Belief
	decisions []Decision
	// speech spells tokens, and requests are a log's, and those of the twin.
	speech                 explain.Speech
	requests, twinRequests func(t *testing.T) []explain.Request
	// fault and twin give the records.
	fault, twin func(t *testing.T) []wire.Record
	// want is held against the finding that the fault must give; the first of the
	// check's.
	want func(t *testing.T, f *diagnose.Finding)
}

var scenarios = slices.Concat(streamScenarios, identityScenarios, beliefScenarios, routingScenarios, shiftScenarios, divergenceScenarios, plateauScenarios, tokenScenarios)

// watched follows records to their end.
func (s *scenario) watched(records []wire.Record, router *diagnose.Router, requests ...explain.Request) *Snapshot {
	scrape := s.scrape
	if scrape == nil {
		scrape = s.read
	}
	o := New(Options{Scrape: scrape, Router: router, RouterPage: s.page, Decisions: s.decisions, Speech: s.speech, Requests: requests})
	for _, rec := range records {
		o.Push(rec)
	}
	_, err := o.Decided()
	if s.belief != nil {
		err = errors.Join(err, o.Believe(*s.belief))
	}
	if err != nil {
		panic(err) // the scenario is wrong
	}
	o.Audit() // if there are requests
	return o.Snapshot()
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		t.Run(s.code+"/"+s.name, func(t *testing.T) {
			t.Parallel()
			log := func(make func(*testing.T) []explain.Request) []explain.Request {
				if make == nil {
					return nil
				}
				return make(t)
			}
			of := func(records []wire.Record, router *diagnose.Router, requests []explain.Request) (found []diagnose.Finding) {
				for _, f := range s.watched(records, router, requests...).Findings {
					if f.Code == s.code {
						found = append(found, f)
					}
				}
				return found
			}
			found := of(s.fault(t), s.router, log(s.requests))
			if len(found) == 0 {
				t.Fatalf("nothing found; findings of other checks: %s", inWords(s.watched(s.fault(t), s.router, log(s.requests)...).Findings))
			}
			f := &found[0]
			if f.Title == "" || f.Next == "" || f.Subject == "" || f.Kind == "" || f.Since == 0 {
				t.Errorf("incomplete: %+v", f)
			}
			if jsonWithSpace.MatchString(f.Next) {
				t.Errorf("what to paste is not one word, so Markdown breaks it: %s", f.Next)
			}
			if s.want != nil {
				s.want(t, f)
			}
			if found := of(s.twin(t), s.twinRouter, log(s.twinRequests)); found != nil {
				t.Errorf("the healthy twin has it too: %s", inWords(found))
			}
		})
	}
}

var jsonWithSpace = regexp.MustCompile(`'\{[^']*\s[^']*\}'`)

func inWords(findings []diagnose.Finding) string {
	out := ""
	for i := range findings {
		f := &findings[i]
		out += f.Severity.String() + " " + f.Code + " " + f.Subject + ": " + f.Title + "; "
	}
	return out
}

// TestEveryCheckHasAScenario: a check that nothing fires is no check.
func TestEveryCheckHasAScenario(t *testing.T) {
	t.Parallel()
	for _, c := range diagnose.Checks {
		if !slices.ContainsFunc(scenarios, func(s scenario) bool { return s.code == c.Code && s.twin != nil }) {
			t.Errorf("%s has no scenario", c.Code)
		}
	}
	for _, s := range scenarios {
		if !slices.ContainsFunc(diagnose.Checks, func(c diagnose.Check) bool { return s.code == c.Code }) {
			t.Errorf("there is no check %s", s.code)
		}
	}
}
