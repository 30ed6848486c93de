package fleet

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kvscope/kvscope/wire"
)

// Bounds of a metrics page. A page of a vLLM 0.32 server has 50 KB, of which
// the families read here are 3 KB for each data-parallel rank.
const (
	// MaxPage is the largest page that ParseMetrics accepts, in bytes.
	MaxPage = 16 << 20
	// MaxSamples is the largest number of samples of the families it reads.
	MaxSamples = 1 << 16
	// maxKept bounds the text of those samples, and so what the parser
	// allocates for labels.
	maxKept = 2 << 20
)

// ErrNoEngine says that a page is readable but holds no metric of a known
// engine: a wrong port, most often.
var ErrNoEngine = errors.New("no vLLM or SGLang metric on the page")

// ParseMetrics reads the Prometheus text page of a vLLM or SGLang server, also
// as Ray Serve renames it, or of a worker of Dynamo's.
//
// A page can speak for several data-parallel ranks (label engine for vLLM,
// dp_rank for SGLang). The series of rank are taken; where the page does not
// know that rank, or rank is negative, those of the only rank there is. With
// several to choose from it is an error, since adding them up or guessing
// would describe no replica.
//
// Zero values of the Facts and Load are unknown; Load.Known says that the page
// carried a load at all, and Load.At is left to the caller, who knows when the
// page was fetched. Values that are no finite, non-negative numbers are
// ignored. Lines of other families are not looked at, so whatever is wrong
// with them is no error; a malformed line of a family that is read is one.
func ParseMetrics(text string, rank int) (wire.Facts, wire.Load, error) {
	page, err := parse(text, func(name string) bool { return wanted[name] != nil })
	if err != nil {
		return wire.Facts{}, wire.Load{}, err
	}
	var r reading
	if err := r.choose(page, rank); err != nil {
		return wire.Facts{}, wire.Load{}, fmt.Errorf("metrics page: %w", err)
	}
	for i := range families {
		r.take(&families[i], page[families[i].name])
	}
	return r.result()
}

// parse reads the samples of the families that are wanted.
func parse(text string, wanted func(name string) bool) (map[string]*dto.MetricFamily, error) {
	if len(text) > MaxPage {
		return nil, fmt.Errorf("metrics page of %d bytes: more than %d", len(text), MaxPage)
	}
	kept, err := keep(text, wanted)
	if err != nil {
		return nil, fmt.Errorf("metrics page: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	page, err := parser.TextToMetricFamilies(strings.NewReader(kept))
	if err != nil {
		// The parser counts the lines that were kept, which would mislead.
		var pe expfmt.ParseError
		if errors.As(err, &pe) {
			err = errors.New(pe.Msg)
		}
		if !strings.HasSuffix(text, "\n") {
			err = fmt.Errorf("%w (the last line has no end: cut off?)", err)
		}
		return nil, fmt.Errorf("metrics page: %w", err)
	}
	return page, nil
}

// keep cuts a page down to the samples of families that are wanted. It drops
// comments too: a HELP text is never used, and without a TYPE every sample is
// one plain number, so a page cannot turn a gauge into a histogram.
func keep(text string, wanted func(name string) bool) (string, error) {
	var b strings.Builder
	samples := 0
	for line := range strings.Lines(text) {
		if name := nameOf(line); name == "" || !wanted(name) {
			continue
		}
		s := strings.TrimLeft(line, " \t")
		samples++
		if samples > MaxSamples || b.Len()+len(s) > maxKept {
			return "", fmt.Errorf("more than %d samples or %d bytes of them", MaxSamples, maxKept)
		}
		b.WriteString(s)
		if !strings.HasSuffix(s, "\n") {
			// Recordings of only the changed lines are joined this way. A page
			// that was cut off is for whoever fetched it to notice.
			b.WriteByte('\n')
		}
	}
	return b.String(), nil
}

// nameOf gives the name of a line's sample, or nothing where it has none.
func nameOf(line string) string {
	s := strings.TrimLeft(line, " \t")
	end := strings.IndexAny(s, "{ \t")
	if end <= 0 || s[0] == '#' {
		return ""
	}
	return s[:end]
}

// reading is a page on its way into Facts and Load.
type reading struct {
	facts wire.Facts
	load  wire.Load
	// rank is the label value of the chosen rank; alone says that the page
	// speaks for no other, so that series without a rank are this one's too.
	rank  string
	alone bool
	// engine says that some metric of a known engine was there.
	engine bool
	// poolTokens and pageTokens make SGLang's capacity.
	poolTokens, pageTokens int
}

// choose settles which rank's series are read.
func (r *reading) choose(page map[string]*dto.MetricFamily, rank int) error {
	ranks, replicas := map[string]bool{}, map[string]bool{}
	for _, f := range page {
		for _, m := range f.GetMetric() {
			if v := rankOf(m); v != "" {
				ranks[v] = true
			}
			if v := label(m, rayReplica); v != "" {
				replicas[v] = true
			}
		}
	}
	if len(replicas) > 1 {
		return fmt.Errorf("speaks for Ray replicas %q, which share a rank: give each a page of its own, or no metrics", some(replicas))
	}
	r.alone = len(ranks) <= 1
	if want := strconv.Itoa(rank); ranks[want] {
		r.rank = want
		return nil
	}
	if r.alone {
		for v := range ranks {
			r.rank = v
		}
		return nil
	}
	return fmt.Errorf("speaks for ranks %q, and rank %d is none of them", some(ranks), rank)
}

// some lists the first few of a set.
func some(set map[string]bool) []string {
	names := slices.Sorted(maps.Keys(set))
	const most = 8
	if len(names) > most {
		names = append(names[:most], "…")
	}
	return names
}

// take hands a family's samples of the chosen rank to its setters.
func (r *reading) take(f *family, samples *dto.MetricFamily) {
	var value float64
	found := false
	for _, m := range samples.GetMetric() {
		if f.endpoint != "" && label(m, "dynamo_endpoint") != f.endpoint {
			continue
		}
		rank := rankOf(m)
		if rank != r.rank && (rank != "" || !r.alone && !f.process) {
			continue
		}
		r.engine = r.engine || !f.process
		if name := label(m, "model_name"); name != "" && r.facts.Model == "" {
			r.facts.Model = name
		}
		if f.labels != nil {
			f.labels(r, m)
			continue
		}
		v := m.GetUntyped().GetValue()
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			continue
		}
		found = true
		if f.sum {
			value += v
		} else {
			value = max(value, v)
		}
	}
	if found && !math.IsInf(value, 0) {
		f.value(r, value)
	}
}

func (r *reading) result() (wire.Facts, wire.Load, error) {
	if !r.engine {
		return wire.Facts{}, wire.Load{}, fmt.Errorf("metrics page: %w", ErrNoEngine)
	}
	if r.facts.BlockSize == 0 {
		r.facts.BlockSize = r.pageTokens
	}
	if r.facts.Capacity == 0 && r.pageTokens > 0 {
		r.facts.Capacity = r.poolTokens / r.pageTokens
	}
	return r.facts, r.load, nil
}

func rankOf(m *dto.Metric) string {
	for _, l := range m.GetLabel() {
		if slices.Contains(rankLabels, l.GetName()) {
			return l.GetValue()
		}
	}
	return ""
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// count converts a non-negative gauge to an int, 0 where it does not fit.
func count(v float64) int {
	if v > 1<<31 {
		return 0
	}
	return int(v)
}

// countLabel reads a label that holds a count; engines write None for unset.
func countLabel(m *dto.Metric, name string) int {
	n, err := strconv.ParseUint(label(m, name), 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}
