package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kvscope/kvscope/explain"
	"github.com/kvscope/kvscope/wire"
)

// mostChoices is how many replicas of a draw are named.
const mostChoices = 3

// policyTable writes where every policy would send the prompt, and then why, in
// lines of their own: reasons are too long for a column.
func policyTable(b *strings.Builder, a *explain.Answer) {
	guessed, byNames := false, false
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "policy\tsticks by\tgoes to\tcomputes anew\t")
	for i := range a.ByPolicy {
		p := &a.ByPolicy[i]
		policy := p.Policy
		if p.Guessed {
			policy, guessed = policy+" *", true
		}
		if p.ByNames {
			policy, byNames = policy+" †", true
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", policy, p.Sticks, choices(p), anew(a, p))
	}
	t.Flush()
	if guessed {
		b.WriteString("* it goes by what it remembers of earlier prompts, which nobody can read from outside: what the replicas hold stands in for it\n")
	}
	if byNames {
		b.WriteString("† it hashes what replicas are called: this holds where the router calls them as they are called here\n")
	}
	b.WriteString("\nwhy\n")
	for i := range a.ByPolicy {
		p := &a.ByPolicy[i]
		fmt.Fprintf(b, "  %s (%s): %s\n", p.Policy, p.System, wire.Printable(p.Why))
	}
}

// choices names those that a policy can choose, with their chances where they differ.
func choices(p *explain.ByPolicy) string {
	n := len(p.Choice)
	if n == 0 {
		return "nobody"
	}
	if n == 1 {
		return name(p.Choice[0])
	}
	equal := slices.Max(p.Chances)-slices.Min(p.Chances) < 1e-9
	names := make([]string, 0, mostChoices+1)
	for i, r := range p.Choice[:min(n, mostChoices)] {
		if equal {
			names = append(names, name(r))
		} else {
			names = append(names, name(r)+" "+percent(p.Chances[i], 1))
		}
	}
	if more := n - mostChoices; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	if equal {
		return "any of " + strings.Join(names, ", ")
	}
	return strings.Join(names, ", ")
}

// anew is what a policy's choice has to compute, marked where one of it is not EXACT.
func anew(a *explain.Answer, p *explain.ByPolicy) string {
	if len(p.Choice) == 0 {
		return ""
	}
	mark := ""
	for i := range a.Candidates {
		c := &a.Candidates[i]
		for _, r := range p.Choice {
			if r == c.Replica && !c.Trust.Exact {
				mark = "~"
			}
		}
	}
	return fmt.Sprintf("%s%s (%s)", mark, wire.Counted(int(math.Round(p.Anew)), "token"), percent(p.Anew, float64(a.Tokens)))
}
