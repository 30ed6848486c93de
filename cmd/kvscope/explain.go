package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/prompt"
	"github.com/kvscope/kvscope/report"
	"github.com/kvscope/kvscope/route"
	"github.com/kvscope/kvscope/wire"
)

// explainFlags are those of the command explain, but for its source.
type explainFlags struct {
	prompt                promptFlags
	tokenIDs, model, page string
	router                routerFlags
	ask                   askFlags
	set                   []string
	rate                  float64
	blockSize             int
	session               string
}

func newExplain() *cobra.Command {
	var in input
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain [TEXT|@FILE|-]",
		Short: "Say where a prompt would go, why, and what would change that",
		Long: `explain says where a router would send a prompt, with the cost of every candidate,
the term that decides, the smallest changes that flip the choice, and where the
prompt leaves what is cached, and what is written there that parts it. The prompt is
plain text, a request body (OpenAI chat completions, completions or responses,
Anthropic messages), a whole curl command, or token ids such as [151644, 8948, 198].
Text needs the model's tokenizer: --tokenizer DIR.

The fleet is that of a recording (--from FILE), or the running one, which it
listens to for --for (10 s). The policy is Dynamo's default one, set as
DYN_ROUTER_ variables of this environment, --router-flags and --router-config
say, each of which wins over those before; --set wins over all:

  --set router_temperature=0.5          a setting
  --set REPLICA:active_requests=3       a load: active_prefill_tokens,
                                        active_decode_blocks, active_requests,
                                        waiting_requests, kv_cache_usage
  --set REPLICA:matched_blocks=12       what it holds of the prompt

--policy all puts the prompt to every router's rule at once: where each would send
it, why, and how many tokens would be computed anew.

With --ask-router, --ask-indexer, --ask-selector and --trace the answers of a running
router stand beside ours, and why they differ. Its workers are joined with replicas
by their names on the event plane (worker/rank), by the event sockets that the
indexer names, or by --map.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := f.query(cmd, &in)
			if err != nil {
				return err
			}
			about, err := f.read(cmd, args, in.from == "-", &q)
			if err != nil {
				return err
			}
			var a *explain.Answer
			var pageErr, askErr, routerErr error
			s, err := in.look(cmd, func(s seen, members []fleet.Member) {
				if f.page != "" {
					q.Page, pageErr = routerPage(cmd.Context(), f.page)
				}
				if a, askErr = s.Explain(cmd.Context(), q); askErr == nil {
					routerErr = f.ask.ask(cmd.Context(), s, members, q, a, about)
				}
			})
			if s == nil {
				return err
			}
			if pageErr != nil || routerErr != nil {
				err = inputError(together(err, pageErr, routerErr))
			}
			switch {
			case errors.Is(askErr, explain.ErrNobody):
				return inputError(together(err, askErr))
			case askErr != nil:
				return usageError("%w", askErr)
			}
			if a.Divergence != nil {
				if err := a.Divergence.Compare(cmd.Context(), about.prompt, about.speech()); err != nil {
					return err
				}
			}
			a.Notes = append(a.Notes, about.prompt.Notes...)
			write := report.ExplainText
			if in.json {
				write = report.ExplainJSON
			}
			return first(write(cmd.OutOrStdout(), a, about.prompt, sentence(err)), err)
		},
	}
	in.flags(cmd)
	jsonFlag(cmd, &in.json)
	f.prompt.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.tokenIDs, "token-ids", "", "file with the prompt's token ids, or - for standard input")
	fl.StringVar(&f.model, "model", "", "model that the prompt is for; needed where the fleet serves several")
	fl.IntVar(&f.blockSize, "block-size", 0, "router's block size in tokens (default that of most replicas); needed where no replica tells its own")
	f.router.add(fl)
	fl.Lookup("policy").Usage += "; all asks every one, each with its own defaults but that of --router-flags"
	fl.StringVar(&f.session, "session", "", "key that holds the conversation to a replica, for policies that go by one")
	fl.StringArrayVar(&f.set, "set", nil, "change a value: SETTING=VALUE or REPLICA:FIELD=VALUE; may be repeated")
	fl.StringVar(&f.page, "router-metrics", "", "router's metrics page with the loads that it booked: URL, which is fetched once, or file")
	f.ask.add(fl)
	fl.Float64Var(&f.rate, "prefill-rate", 0, "prompt tokens that a replica computes in a second; gives times in milliseconds")
	return cmd
}

// query checks all that can be checked before the fleet is looked at.
func (f *explainFlags) query(cmd *cobra.Command, in *input) (explain.Query, error) {
	fail := func(format string, args ...any) (explain.Query, error) {
		return explain.Query{}, usageError(format, args...)
	}
	if f.rate != 0 && !(f.rate >= 1e-3 && f.rate <= 1e12) {
		return fail("--prefill-rate %v: give tokens in a second, such as 12000", f.rate)
	}
	if f.blockSize < 0 {
		return fail("--block-size %d: give tokens, such as 16", f.blockSize)
	}
	if err := f.ask.check(); err != nil {
		return explain.Query{}, err
	}
	cfg, pool, err := f.router.config(os.Getenv)
	if err != nil {
		return fail("%w", err)
	}
	q := explain.Query{Model: f.model, BlockSize: f.blockSize, Config: &cfg, Pool: pool, PrefillRate: f.rate, Session: f.session}
	if f.router.all() {
		if q.Others, err = f.router.others(os.Getenv); err != nil {
			return fail("%w", err)
		}
	}
	for _, s := range f.set {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return fail("--set %q: give SETTING=VALUE or REPLICA:FIELD=VALUE", s)
		}
		q.Edits = append(q.Edits, explain.Edit{Key: key, Value: value})
		if strings.Contains(key, ":") {
			continue // who is there is not known yet
		}
		if _, _, err := route.Edit(&cfg, nil, key, value); err != nil {
			return fail("--set: %w", err)
		}
	}
	return q, nil
}

// question is what one is about: the request, nil for token ids, and what was made of
// it by a model, nil where token ids suffice.
type question struct {
	request *prompt.Request
	prompt  *prompt.Prompt
	model   *prompt.Model
}

// speech spells tokens, and is nil where nothing does.
func (a *question) speech() explain.Speech {
	if a.model == nil || a.model.Tokenizer == nil {
		return nil
	}
	return speech{a.model}
}

// read reads the prompt, and makes tokens of it.
func (f *explainFlags) read(cmd *cobra.Command, args []string, taken bool, q *explain.Query) (out question, err error) {
	if (len(args) == 1) == (f.tokenIDs != "") {
		return out, usageError("give one prompt: text, @FILE or - after explain, or --token-ids FILE")
	}
	if err := f.prompt.settle(cmd); err != nil {
		return out, err
	}
	arg := "-"
	switch {
	case len(args) == 1:
		arg = args[0]
	case f.tokenIDs != "-":
		arg = "@" + f.tokenIDs
	}
	text, what, err := f.prompt.argument(arg, cmd.InOrStdin(), taken)
	if err != nil {
		return out, err
	}
	if out.model, err = f.prompt.model(cmd.Context()); err != nil {
		return out, err
	}
	if f.tokenIDs != "" {
		tokens, _, err := prompt.ParseTokens(string(text))
		if err != nil {
			return out, usageError("%s: %w", what, err)
		}
		q.Tokens, q.LoRA, q.Salt = tokens, f.prompt.lora, f.prompt.salt
		out.prompt = &prompt.Prompt{Tokens: tokens, LoRA: q.LoRA, Salt: q.Salt}
		return out, f.sends(&out)
	}
	p, r, err := f.prompt.prompt(cmd.Context(), out.model, text, what)
	switch {
	case err != nil:
		return out, err
	case p.Tokens == nil && out.model == nil:
		return out, usageError("%s: %w", what, errNoTokenizer)
	case p.Tokens == nil:
		return out, usageError("%s: there is nothing to look for: %s", what, firstOf(strings.Join(p.Notes, "; "), "it is empty"))
	}
	q.Tokens, q.Named, q.LoRA, q.Salt, q.Contents = p.Tokens, r.Model, p.LoRA, p.Salt, r.Contents()
	out.request, out.prompt = r, p
	return out, f.sends(&out)
}

// sends refuses to send a chat where there is none.
func (f *explainFlags) sends(a *question) error {
	if f.ask.chat && f.prompt.salt+f.prompt.lora != "" {
		return usageError("--ask-chat sends the chat as it is: give the salt as its cache_salt, and the adapter as its model")
	}
	if f.ask.chat && (a.request == nil || a.request.Form != prompt.Chat || a.request.Body() == nil) {
		return usageError("--ask-chat sends a chat: give the request's body, with messages and model")
	}
	return nil
}

// routerPage gets the loads of a router's metrics page.
func routerPage(ctx context.Context, where string) (*explain.Page, error) {
	var text []byte
	page := &explain.Page{}
	if strings.HasPrefix(where, "http://") || strings.HasPrefix(where, "https://") {
		p, err := fleet.NewProber(fleet.Options{}).Probe(ctx, where)
		if err != nil {
			return nil, fmt.Errorf("the router's metrics: %w", err)
		}
		text, page.At = p.Body, p.Received
	} else {
		var err error
		if text, err = readPrompt(where); err != nil {
			return nil, fmt.Errorf("the router's metrics: %w", err)
		}
	}
	facts, err := fleet.ParseRouter(string(text))
	if err != nil {
		return nil, fmt.Errorf("the router's metrics of %s: %w", where, err)
	}
	for _, w := range facts.Workers {
		page.Workers = append(page.Workers, workerLoad(facts.Router, &w))
	}
	return page, nil
}

// workerLoad gives what a router's page says of a worker: Dynamo's says nothing
// of requests, and SGLang's nothing else.
func workerLoad(router string, w *fleet.RouterWorker) explain.WorkerLoad {
	if router == "dynamo" {
		return explain.WorkerLoad{
			Replica: wire.Replica(fmt.Sprintf("%s/%d", w.ID, max(0, w.Rank))), PrefillTokens: w.PrefillTokens, Blocks: w.Blocks, Requests: -1,
		}
	}
	name := w.ID
	if u, err := url.Parse(w.ID); err == nil && u.Host != "" {
		name = u.Host // as an engine is called that was not given a name
	}
	return explain.WorkerLoad{Replica: wire.Replica(name), PrefillTokens: -1, Blocks: -1, Requests: w.Active}
}
