package doctor

import (
	"time"

	"github.com/kvscope/kvscope/wire"
)

// Status says how a check turned out.
type Status uint8

// The statuses, from best to worst.
const (
	// Skipped: nothing could be said, and the sentence says why.
	Skipped Status = iota
	OK
	Warning
	Error
)

var statusNames = [...]string{"skipped", "ok", "warning", "error"}

func (s Status) String() string { return statusNames[min(int(s), len(statusNames)-1)] }

// MarshalText writes the word.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Result is how one check turned out.
type Result struct {
	// Code names the check.
	Code   string `json:"code"`
	Status Status `json:"status"`
	// Text is one sentence, and Fix what to do about it, "" where nothing is to
	// be done or Text says it.
	Text string `json:"text"`
	Fix  string `json:"fix"`
}

// Member is how all checks of one member turned out.
type Member struct {
	Replica wire.Replica `json:"replica"`
	Kind    string       `json:"kind"`
	Events  string       `json:"events"`
	Found   string       `json:"found"`
	Checks  []Result     `json:"checks"`
}

// Report is what Run saw.
type Report struct {
	// At is when it began, Waited how long it listened.
	At      wire.Time
	Waited  time.Duration
	Members []Member
	// Fleet are the checks of all members together.
	Fleet []Result
	// Problems are what discovery could not find out, in a sentence each. Run
	// leaves them to its caller.
	Problems []string
}

// Count counts the results of a status.
func (r *Report) Count(status Status) int {
	n := 0
	count := func(results []Result) {
		for i := range results {
			if results[i].Status == status {
				n++
			}
		}
	}
	for i := range r.Members {
		count(r.Members[i].Checks)
	}
	count(r.Fleet)
	return n
}

// report runs all checks.
func report(seen []*sight, began, until wire.Time) Report {
	r := Report{At: began, Waited: time.Duration(until - began)}
	for _, s := range seen {
		m := Member{Replica: s.Name, Kind: kindNames[min(int(s.Kind), len(kindNames)-1)], Events: s.Events, Found: s.Found}
		for _, c := range checks {
			if res := c.run(s); res.Text != "" {
				res.Code = c.code
				m.Checks = append(m.Checks, res)
			}
		}
		r.Members = append(r.Members, m)
	}
	for _, c := range fleetChecks {
		res := c.run(seen)
		res.Code = c.code
		r.Fleet = append(r.Fleet, res)
	}
	return r
}

var kindNames = [...]string{"engine", "plane", "load"}
