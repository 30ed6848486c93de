package report

import (
	"encoding/json"
	"io"

	"github.com/kvscope/kvscope/diagnose"
	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/wire"
)

// The schemas. A field once given keeps its meaning; new ones may come.
const (
	ReportSchema   = "kvscope.report/1"
	FindingsSchema = "kvscope.findings/1"
	AuditSchema    = "kvscope.audit/1"
)

type jsonReport struct {
	Schema   string             `json:"schema"`
	Source   string             `json:"source"`
	From     wire.Time          `json:"from"`
	Until    wire.Time          `json:"until"`
	Records  uint64             `json:"records"`
	Damage   string             `json:"damage,omitempty"`
	Headline string             `json:"headline"`
	Notes    []jsonNote         `json:"notes"`
	Blocks   jsonFleetBlocks    `json:"blocks"`
	Stores   jsonStores         `json:"stores"`
	Replicas []jsonReplica      `json:"replicas"`
	Findings []diagnose.Finding `json:"findings"`
}

type jsonNote struct {
	At      wire.Time    `json:"at"`
	Replica wire.Replica `json:"replica"`
	Text    string       `json:"text"`
	Times   int          `json:"times"`
}

type jsonFleetBlocks struct {
	// Known blocks are remembered, Resident somewhere now, Shared on more
	// than one replica.
	Known    int `json:"known"`
	Resident int `json:"resident"`
	Shared   int `json:"shared"`
}

type jsonReplica struct {
	Replica         wire.Replica `json:"replica"`
	Model           string       `json:"model"`
	Dialect         string       `json:"dialect"`
	BlockSize       int          `json:"block_size"`
	Epoch           int          `json:"epoch"`
	FirstSeq        *uint64      `json:"first_seq"`
	LastSeq         *uint64      `json:"last_seq"`
	Batches         uint64       `json:"batches"`
	Gaps            []jsonGap    `json:"gaps"`
	GapsDropped     int          `json:"gaps_dropped"`
	Restarts        int          `json:"restarts"`
	Events          jsonEvents   `json:"events"`
	Undecodable     uint64       `json:"undecodable"`
	LastError       string       `json:"last_error"`
	DuplicateBatch  uint64       `json:"duplicate_batches"`
	Reordered       uint64       `json:"reordered_batches"`
	DuplicateStores uint64       `json:"duplicate_stores"`
	UnknownRemovals uint64       `json:"unknown_removals"`
	Misaligned      uint64       `json:"misaligned_stores"`
	OrphanBlocks    int          `json:"orphan_blocks"`
	ProvedBlocks    int          `json:"proved_blocks"`
	DoubtBlocks     *int         `json:"doubt_blocks"`
	CapacityBlocks  *int         `json:"capacity_blocks"`
	Copies          int          `json:"copies"`
	Blocks          jsonTiers    `json:"blocks"`
	Stores          jsonStores   `json:"stores"`
	Recipe          string       `json:"recipe"`
	Groups          []jsonGroup  `json:"groups"`
	Trust           string       `json:"trust"`
	Reasons         []string     `json:"reasons"`
	Link            string       `json:"link"`
	LinkError       string       `json:"link_error"`
	LagSeconds      *float64     `json:"lag_seconds"`
	Load            *jsonLoad    `json:"load"`
	ScrapeError     string       `json:"scrape_error"`
	Replay          *jsonReplay  `json:"replay"`
}

// jsonReplay is what was asked of a replica's replay socket; null where nobody
// can be asked.
type jsonReplay struct {
	Address  string `json:"address"`
	Policy   string `json:"policy"`
	Requests uint64 `json:"requests"`
	Left     int    `json:"requests_left"`
	Batches  uint64 `json:"batches"`
	Bytes    uint64 `json:"bytes"`
	Last     string `json:"last"`
}

type jsonGap struct {
	From   uint64    `json:"from"`
	To     uint64    `json:"to"`
	Healed bool      `json:"healed"`
	Reason string    `json:"reason"`
	Epoch  int       `json:"epoch"`
	Seen   wire.Time `json:"seen"`
}

type jsonEvents struct {
	Stored  uint64 `json:"stored"`
	Removed uint64 `json:"removed"`
	Cleared uint64 `json:"cleared"`
	Unknown uint64 `json:"unknown"`
}

type jsonTiers struct {
	Device   int `json:"device"`
	Host     int `json:"host"`
	Disk     int `json:"disk"`
	External int `json:"external"`
}

type jsonStores struct {
	First            uint64 `json:"first"`
	Elsewhere        uint64 `json:"elsewhere"`
	EvictedHere      uint64 `json:"evicted_here"`
	EvictedElsewhere uint64 `json:"evicted_elsewhere"`
	Duplicate        uint64 `json:"duplicate"`
	Unattached       uint64 `json:"unattached"`
}

type jsonGroup struct {
	Group  int    `json:"group"`
	Spec   string `json:"spec"`
	Window int    `json:"window"`
}

type jsonLoad struct {
	At      wire.Time `json:"at"`
	Running float64   `json:"running"`
	Waiting float64   `json:"waiting"`
	KVUsage float64   `json:"kv_usage"`
	HitRate *float64  `json:"hit_rate"`
}

func write(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// JSON writes a snapshot as kvscope.report/1. damage, if not empty, says what
// could not be read.
func JSON(w io.Writer, s *observe.Snapshot, damage string) error {
	r := jsonReport{
		Schema: ReportSchema, Source: s.Source, From: s.From, Until: s.Until, Records: s.Records, Damage: damage,
		Headline: diagnose.Headline(diagnose.View{Now: s.Until, Replicas: s.Replicas}, s.Findings),
		Blocks:   jsonFleetBlocks{s.Blocks.Known, s.Blocks.Resident, s.Blocks.Shared},
		Stores:   jsonStores(s.Ledger),
		Replicas: []jsonReplica{}, Findings: findings(s.Findings), Notes: []jsonNote{},
	}
	for _, n := range s.Notes {
		r.Notes = append(r.Notes, jsonNote(n))
	}
	for i := range s.Replicas {
		j := replicaJSON(&s.Replicas[i])
		if a, ok := s.Replay[s.Replicas[i].Replica]; ok {
			j.Replay = &jsonReplay{a.Address, a.Policy, a.Requests, a.Left, a.Batches, a.Bytes, a.Last}
		}
		r.Replicas = append(r.Replicas, j)
	}
	return write(w, r)
}

func findings(f []diagnose.Finding) []diagnose.Finding {
	if f == nil {
		return []diagnose.Finding{}
	}
	return f
}

func replicaJSON(r *diagnose.Replica) jsonReplica {
	x := &r.Index
	j := jsonReplica{
		Replica: r.Replica, Model: r.Model, Dialect: r.Dialect, BlockSize: x.BlockSize, Epoch: r.Epoch,
		Batches: r.Batches, Gaps: []jsonGap{}, GapsDropped: r.GapsLost, Restarts: r.Restarts,
		Events:      jsonEvents{r.Events.Stored, r.Events.Removed, r.Events.Cleared, r.Events.Unknown},
		Undecodable: r.Undecodable, LastError: r.LastError, DuplicateBatch: r.Duplicates, Reordered: r.Reordered,
		DuplicateStores: x.Duplicates, UnknownRemovals: x.UnknownRemovals, Misaligned: x.Misaligned,
		OrphanBlocks: x.Orphans, ProvedBlocks: x.Implied, Copies: x.Copies,
		Blocks: jsonTiers{
			x.Resident[wire.Device], x.Resident[wire.Host], x.Resident[wire.Disk], x.Resident[wire.External],
		},
		Stores: jsonStores(x.Ledger), Recipe: x.Recipe, Groups: []jsonGroup{},
		Trust: string(r.Trust.Word), Reasons: []string{}, Link: r.Link.String(), ScrapeError: r.ScrapeError,
	}
	if r.Link != wire.LinkUp && r.LinkText != r.Link.String() {
		j.LinkError = r.LinkText
	}
	if r.Heard {
		j.FirstSeq, j.LastSeq = &r.First, &r.Last
	}
	if r.Doubt >= 0 {
		j.DoubtBlocks = &r.Doubt
	}
	if r.Facts.Capacity > 0 {
		j.CapacityBlocks = &r.Facts.Capacity
	}
	if r.LastBatch > 0 && r.Lag != 0 {
		lag := float64(r.Lag/1e3) / 1e6
		j.LagSeconds = &lag
	}
	for _, g := range r.Gaps {
		j.Gaps = append(j.Gaps, jsonGap{g.From, g.To, g.Healed, g.Reason, g.Epoch, g.Seen})
	}
	for _, g := range x.Groups {
		j.Groups = append(j.Groups, jsonGroup{g.ID, g.Spec, g.Window})
	}
	for _, reason := range r.Trust.Reasons {
		j.Reasons = append(j.Reasons, string(reason))
	}
	if l := r.Load; l.Known {
		j.Load = &jsonLoad{At: l.At, Running: l.Running, Waiting: l.Waiting, KVUsage: l.KVUsage}
		if rate, ok := l.HitRate(); ok {
			j.Load.HitRate = &rate
		}
	}
	return j
}

// FindingsJSON writes findings as kvscope.findings/1; damage as for JSON.
func FindingsJSON(w io.Writer, f []diagnose.Finding, damage string) error {
	return write(w, struct {
		Schema   string             `json:"schema"`
		Damage   string             `json:"damage,omitempty"`
		Findings []diagnose.Finding `json:"findings"`
	}{FindingsSchema, damage, findings(f)})
}

type jsonAudit struct {
	Schema        string             `json:"schema"`
	Damage        string             `json:"damage,omitempty"`
	Requests      int                `json:"requests"`
	Agree         int                `json:"agree"`
	Over          int                `json:"over"`
	Under         int                `json:"under"`
	Unverifiable  int                `json:"unverifiable"`
	Excluded      int                `json:"excluded"`
	Bounds        int                `json:"bounds"`
	BoundsTight   int                `json:"bounds_tight"`
	RightAtStart  int                `json:"right_at_start"`
	Funnel        explain.Funnel     `json:"funnel"`
	PerReplica    []jsonReplicaAudit `json:"per_replica"`
	Disagreements []jsonVerdict      `json:"disagreements"`
	Exclusions    []jsonVerdict      `json:"exclusions"`
}

type jsonReplicaAudit struct {
	Log          string         `json:"log"`
	Replicas     []wire.Replica `json:"replicas"`
	Requests     int            `json:"requests"`
	Agree        int            `json:"agree"`
	Over         int            `json:"over"`
	Under        int            `json:"under"`
	Unverifiable int            `json:"unverifiable"`
	Excluded     int            `json:"excluded"`
	Bounds       int            `json:"bounds"`
	BoundsTight  int            `json:"bounds_tight"`
	Predicted    int            `json:"predicted_tokens_at_start"`
	Cached       int            `json:"cached_tokens"`
}

type jsonVerdict struct {
	Start     wire.Time    `json:"t_start"`
	Replica   wire.Replica `json:"replica"`
	Predicted int          `json:"predicted"`
	Low       int          `json:"predicted_least"`
	High      int          `json:"predicted_most"`
	Actual    int          `json:"actual"`
	Why       string       `json:"why"`
}

// AuditJSON writes an audit as kvscope.audit/1; damage as for JSON. Predictions
// are in tokens.
func AuditJSON(w io.Writer, a *explain.Audit, damage string) error {
	j := jsonAudit{
		Schema: AuditSchema, Damage: damage, Requests: a.Requests, Agree: a.Agree, Over: a.Over, Under: a.Under,
		Unverifiable: a.Unverifiable, Excluded: a.Excluded, Bounds: a.Bounds, BoundsTight: a.Tight,
		RightAtStart: a.AtStart, Funnel: a.Funnel, PerReplica: []jsonReplicaAudit{},
		Disagreements: verdicts(a.Disagreements), Exclusions: verdicts(a.Exclusions),
	}
	for _, r := range a.PerReplica {
		j.PerReplica = append(j.PerReplica, jsonReplicaAudit(r))
	}
	return write(w, j)
}

func verdicts(in []explain.Verdict) []jsonVerdict {
	out := []jsonVerdict{}
	for _, v := range in {
		out = append(out, jsonVerdict{v.Start, v.Replica, v.Predicted, v.Low, v.High, v.Actual, v.Why})
	}
	return out
}
