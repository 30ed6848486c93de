package capture

import (
	"strconv"
	"strings"
)

// modelLabels name models, nameLabels pods and hosts. settings hold the
// engine's own words and numbers. Of all other labels only plain numbers and
// truth values are kept.
var (
	modelLabels = map[string]bool{"model_name": true, "served_model_name": true, "model": true}
	nameLabels  = map[string]bool{
		"pod": true, "instance": true, "host": true, "hostname": true, "node": true, "worker": true, "worker_id": true,
	}
	settings = map[string]bool{
		"engine": true, "dp_rank": true, "tp_rank": true, "pp_rank": true, "le": true, "quantile": true,
		"reason": true, "finished_reason": true, "generation": true, "sleep_state": true, "engine_type": true,
		"block_size": true, "page_size": true, "num_pages": true, "num_gpu_blocks": true, "num_cpu_blocks": true,
		"prefix_caching_hash_algo": true, "enable_prefix_caching": true, "cache_dtype": true,
		"gpu_memory_utilization": true, "implementation": true, "version": true, "major": true, "minor": true,
		"patchlevel": true, "method": true, "status": true, "priority": true, "source": true,
	}
)

// page writes the samples of a metrics page anew. Comments and lines that are
// no sample are left out and counted.
func (r *Redactor) page(text string) string {
	var b strings.Builder
	b.Grow(len(text) / 2)
	for line := range strings.Lines(text) {
		s := strings.TrimSpace(line)
		if s == "" {
			continue
		}
		if !r.sample(&b, s) {
			r.count.Lines++
		}
	}
	return b.String()
}

// sample writes the line name{label="value",...} value [time], and reports
// whether s was one; otherwise it writes nothing.
func (r *Redactor) sample(b *strings.Builder, s string) bool {
	end := strings.IndexAny(s, "{ \t")
	if end <= 0 || !isMetric(s[:end]) {
		return false
	}
	name, rest := s[:end], s[end:]
	labels := ""
	if rest[0] == '{' {
		var l strings.Builder
		var ok bool
		if rest, ok = r.labels(&l, rest[1:]); !ok {
			return false
		}
		labels = l.String()
	}
	numbers := strings.Fields(rest)
	if len(numbers) > 2 { // an exemplar, which is left out
		if numbers[1] != "#" && numbers[2] != "#" {
			return false
		}
		r.count.Fields++
		if numbers = numbers[:2]; numbers[1] == "#" {
			numbers = numbers[:1]
		}
	}
	if len(numbers) == 0 {
		return false
	}
	for _, n := range numbers {
		if _, err := strconv.ParseFloat(n, 64); err != nil || len(n) > 40 {
			return false
		}
	}
	b.WriteString(name)
	if labels != "" {
		b.WriteString("{" + labels + "}")
	}
	b.WriteString(" " + strings.Join(numbers, " ") + "\n")
	return true
}

// labels writes the labels up to the closing brace, and gives what follows it.
func (r *Redactor) labels(b *strings.Builder, s string) (rest string, ok bool) {
	for {
		s = strings.TrimLeft(s, " \t,")
		if rest, ok = strings.CutPrefix(s, "}"); ok {
			return rest, true
		}
		name, value, found := strings.Cut(s, "=")
		name = strings.TrimSpace(name)
		if value = strings.TrimLeft(value, " \t"); !found || !isMetric(name) || !strings.HasPrefix(value, `"`) {
			return "", false
		}
		end := 1
		for end < len(value) && value[end] != '"' {
			if value[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(value) {
			return "", false
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name + `="`)
		b.WriteString(escape.Replace(r.label(name, unescape.Replace(value[1:end]))))
		b.WriteByte('"')
		s = value[end+1:]
	}
}

var (
	escape   = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	unescape = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\"`, `"`)
)

func (r *Redactor) label(name, value string) string {
	switch {
	case modelLabels[name]:
		return r.model(value)
	case nameLabels[name]:
		return r.name(value)
	case strings.Contains(name, "lora"): // a name can be a number
	case settings[name] && plainWord.MatchString(value), isPlain(value):
		return value
	}
	return r.secret.text(value)
}

// isPlain reports whether a value tells nothing of anybody: a short number or
// a truth value.
func isPlain(v string) bool {
	switch v {
	case "", "None", "True", "False", "true", "false":
		return true
	}
	const longest = 8
	_, err := strconv.ParseFloat(v, 64)
	return err == nil && len(v) <= longest
}

func isMetric(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == ':', i > 0 && c >= '0' && c <= '9':
		default:
			return false
		}
	}
	return name != ""
}
