package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/wire"
)

// requestFlags name a log of served requests.
type requestFlags struct {
	path   string
	rename []string
}

func (r *requestFlags) add(f *pflag.FlagSet, usage string) {
	f.StringVar(&r.path, "requests", "", usage)
	f.StringSliceVar(&r.rename, "map", nil, "names that differ from those here: THEIRS=REPLICA,…, such as WORKER/RANK=REPLICA")
}

// served are the requests of a log, with the log's names that are others here.
type served struct {
	path     string
	requests []explain.Request
	names    map[string]wire.Replica
}

// read reads the log, if one is named; model makes tokens of what it holds, and is nil
// without a tokenizer. damage is what could not be read beside the rest, err that
// there is nothing.
func (r *requestFlags) read(ctx context.Context, model explain.Renderer, args string) (log served, damage, err error) {
	log.path = r.path
	if log.names, err = parseMap(r.rename); err != nil || r.path == "" {
		return log, nil, err
	}
	f, err := os.Open(r.path)
	if err != nil {
		return log, nil, inputError(err)
	}
	defer f.Close()
	if model == nil {
		log.requests, damage = explain.ReadRequests(f, r.path)
	} else {
		speller := explain.NewSpeller(model, prompt.RenderOptions{Kwargs: rawArgs(args)})
		log.requests, damage = speller.ReadRequests(ctx, f, r.path)
	}
	if len(log.requests) == 0 {
		return log, nil, inputError(damage)
	}
	return log, damage, nil
}

// judged says how many requests were held against a recording, also where nothing was
// wrong. The error says why none was.
func (s *served) judged(w io.Writer, a *explain.Audit) error {
	judged, compared := a.Agree+a.Over+a.Under, 0
	for i := range a.Spelled {
		compared += a.Spelled[i].Compared
	}
	if judged+compared == 0 && a.Unverifiable > 0 {
		why := slices.IndexFunc(a.Exclusions, func(v explain.Verdict) bool { return v.Why != "" })
		return fmt.Errorf("requests log %s: none of its %s can be judged, the first of them as %s: is it the log of the recording's time and fleet?",
			s.path, wire.Counted(a.Requests, "request"), a.Exclusions[why].Why)
	}
	line := fmt.Sprintf("%s of %s of the log were held against the index, %s agree", wire.Grouped(judged), wire.Counted(a.Requests, "request"), wire.Grouped(a.Agree))
	if compared > 0 {
		line += fmt.Sprintf("; the tokens of %s were compared", wire.Grouped(compared))
	}
	_, err := fmt.Fprintln(w, line)
	return err
}
