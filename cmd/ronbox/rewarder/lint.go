package rewarder

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines"
	"ronbox/engines/rewarder/record"
	"ronbox/engines/rewarder/rverify"
)

// lintNote is a fault or a warning of a policy.
type lintNote struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

func (n lintNote) String() string { return n.Field + ": " + n.Reason }

// lintDoc is the output of policy lint.
type lintDoc struct {
	OK       bool       `json:"ok"`
	ID       string     `json:"id,omitzero"`
	Hash     *b3.Digest `json:"hash,omitzero"`
	Faults   []lintNote `json:"faults"`
	Warnings []lintNote `json:"warnings"`
}

func (a app) policyLintCmd() *cobra.Command {
	return &cobra.Command{
		Use: "lint POLICY", Short: "Check a policy file without a node, and list every fault",
		Long: `Check a policy file without a node; "-" is stdin. Each fault is listed with its field and
the reason. A policy without faults may still pay no actor, which is a warning.

Exit 0: a node accepts the policy once it is signed. Exit 3: a node refuses it.`,
		Example: `  ronbox rewarder policy lint policy.json`,
		Args:    cli.Exactly(1, "one policy file"),
		RunE: a.Verb(func(_ context.Context, args []string) error {
			raw, err := a.ReadInput(args[0], maxPolicy)
			if err != nil {
				return err
			}
			doc := lint(raw)
			if err := a.Show(doc, doc.table); err != nil || doc.OK {
				return err
			}
			return a.FoundBad(fmt.Sprintf("%s: %d faults", args[0], len(doc.Faults)), "")
		}),
	}
}

func lint(raw []byte) lintDoc {
	doc := lintDoc{Faults: policyFaults(raw), Warnings: []lintNote{}}
	doc.OK = len(doc.Faults) == 0
	if doc.OK {
		p, _ := record.ParsePolicy(raw) // cannot fail: the policy has no faults
		hash := p.Hash()
		doc.ID, doc.Hash, doc.Warnings = p.ID, &hash, policyWarnings(&p)
	}
	return doc
}

func (d *lintDoc) table(t cli.Table) {
	for _, n := range d.Faults {
		t.Row("FAULT", n.Field, n.Reason)
	}
	for _, n := range d.Warnings {
		t.Row(cli.Warn("warn"), n.Field, n.Reason)
	}
	if d.OK {
		t.Row("good", d.ID, d.Hash)
	}
}

// policyFaults returns the faults for which the node refuses a policy, and those for which rverify
// refuses it.
func policyFaults(raw []byte) []lintNote {
	all := []lintNote{}
	for _, f := range record.PolicyFaults(raw) {
		all = append(all, lintNote{f.Field, f.Reason})
	}
	if len(all) > 0 {
		return all
	}
	_, err := rverify.ParsePolicy(raw)
	if f, ok := errors.AsType[*rverify.FieldError](err); ok {
		all = append(all, lintNote{f.Field, f.Reason})
	}
	return all
}

// policyWarnings lists reasons for which a valid policy pays no actor.
func policyWarnings(p *record.Policy) []lintNote {
	all := []lintNote{}
	warn := func(is bool, field, reason string) {
		if is {
			all = append(all, lintNote{field, reason})
		}
	}
	weighs := false
	for _, w := range p.Metrics {
		weighs = weighs || w.Num > 0
	}
	warn(p.PoolMax == engines.Amount{}, "caps.pool_max_minor", "is 0: no run shares anything")
	warn(!weighs, "metrics", "every num is 0: no actor has a score, and no run pays anything")
	warn(p.PoolMax.Less(p.Guarantee), "floors.guarantee_minor",
		"is above caps.pool_max_minor: every run with an actor is quarantined")
	warn(p.PoolMax.Less(p.Dust), "floors.dust_minor",
		"is above caps.pool_max_minor: every amount is dust, and no run pays anything")
	return all
}
