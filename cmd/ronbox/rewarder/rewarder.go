package rewarder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/rewarder"
	rewarderapi "ronbox/httpapi/rewarder"
	"ronbox/httpapi/wire"
)

// Outcomes of run, beside those of every verb.
const (
	exitQuarantined = 20
	exitConflict    = 21
)

// app is the run of the command with the verbs of this package.
type app struct{ *cli.App }

// online makes RunE of a verb that asks the node.
func (a app) online(run func(ctx context.Context, c rewarderapi.Client, args []string) error) cli.RunE {
	return cli.Online(a.App, rewarderapi.NewClient, run)
}

// Command is the group of verbs of the rewarder.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	a.Advise(hint)
	return cli.Group("rewarder", "Share a pool by usage: compute, pay, prove, recompute",
		a.runCmd(), a.inputsCmd(), a.showCmd(), a.proofCmd(), a.recomputeCmd(), a.verifyCmd(), a.verifyProofCmd(),
	)
}

// hint refines the outcome of refusals of the rewarder.
func hint(err error, o *cli.Outcome) {
	p, ok := errors.AsType[*wire.Problem](err)
	switch {
	case !ok || p.Service != "rewarder":
	case p.Reason == "quota":
		o.Next = "`ronbox rewarder inputs ls` lists the uploads, `ronbox rewarder inputs rm UPLOAD` drops one"
	case p.Reason == "conflict" && p.Details["what"] == "upload":
		o.Code, o.Next = exitConflict, "`ronbox rewarder inputs ls` shows what uploads are used for"
	case p.Reason == "not_found":
		o.Next = "check the epoch: `ronbox rewarder run EPOCH …` makes one"
	case p.Reason == "malformed" && strings.HasPrefix(p.Detail, "signatures"):
		o.Next = "sign the policy with --key: with a key whose public half is in rewarder.policy_trust_keys of the node"
	case p.Reason == "quarantined":
		o.Code, o.Next = exitQuarantined, "`ronbox rewarder show EPOCH` tells what has failed: no such run is ever paid"
	case p.Reason == "conflict" && p.Details["what"] == "epoch":
		o.Code, o.Next = exitConflict, "`ronbox rewarder show EPOCH` shows the run that stands; other usage, policy or pool needs an epoch of another name"
	case p.Reason == "conflict":
		o.Code, o.Next = exitConflict, "an id stands for one content for ever: choose another"
	}
}

func (a app) showCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show EPOCH", Short: "Show the run of an epoch: its state, its sums, its manifest",
		Long:    "Show the run of an epoch: its state and its sums; with --json the manifest too, which the\ncommitment is made over.",
		Example: "  ronbox rewarder show 2008\n  ronbox rewarder show 2008 --json | jq -r .commitment",
		Args:    cli.Exactly(1, "one epoch"),
		RunE: a.online(func(ctx context.Context, c rewarderapi.Client, args []string) error {
			e, err := c.Epoch(ctx, args[0])
			if err != nil {
				return err
			}
			return a.Show(e, func(t cli.Table) {
				doc := runDocOf(&e)
				doc.table(t)
				t.Row("progress", fmt.Sprintf("%d of %d transactions", e.Acked, e.Transactions))
				t.Row("policy", e.PolicyID+", "+e.PolicyHash.String())
				t.Row("inputs", e.InputsCID)
				t.Opt("files", e.Artifact)
				t.Opt("failed", e.Reason)
				if q := e.Quarantine; q != nil {
					t.Row("quarantined", q.Kind+": "+q.Reason+" "+q.Has+" "+q.Need)
				}
			})
		}),
	}
}

func (a app) proofCmd() *cobra.Command {
	return &cobra.Command{
		Use: "proof EPOCH ACTOR", Short: "Print the proof of what an actor gets, or that it gets nothing",
		Long: `Print the proof of what an actor gets in an epoch, or that it gets nothing. Kept in a file
it convinces whoever knows the commitment of the run, without the node: see
` + "`ronbox rewarder verify-proof`" + `.`,
		Example: "  ronbox rewarder proof 2008 airport/ATL > proof.json",
		Args:    cli.Exactly(2, "an epoch and an actor"),
		RunE: a.online(func(ctx context.Context, c rewarderapi.Client, args []string) error {
			raw, err := c.Proof(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			return a.Print(append(bytes.TrimRight(raw, "\n"), '\n'))
		}),
	}
}

// runDoc is the output of run, and of what computes one without a node.
type runDoc struct {
	Epoch        string         `json:"epoch"`
	RunKey       b3.Digest      `json:"run_key"`
	Commitment   b3.Digest      `json:"commitment"`
	State        rewarder.State `json:"state"`
	Pool         string         `json:"pool_minor"`
	Payout       string         `json:"payout_minor"`
	Residual     string         `json:"residual_minor"`
	Actors       uint64         `json:"actors"`
	Transactions uint32         `json:"transactions"`
	Replayed     bool           `json:"replayed"`
}

func runDocOf(r *rewarder.Run) runDoc {
	return runDoc{r.Epoch, r.RunKey, r.Commitment, r.State, r.PoolMinor, r.PayoutMinor, r.ResidualMinor, r.Actors, r.Transactions, r.Replayed}
}

func (d *runDoc) table(t cli.Table) {
	t.Row("epoch", d.Epoch)
	if d.Replayed && d.State == rewarder.Settled {
		t.Row("state", "settled: paid before, nothing moves")
	} else {
		t.Row("state", d.State)
	}
	t.Row("run key", d.RunKey)
	if d.Pool == "" {
		return // it is computed
	}
	t.Row("commitment", d.Commitment)
	t.Row("pool", d.Pool)
	t.Row("paid", fmt.Sprintf("%s to %d actors, transactions: %d", d.Payout, d.Actors, d.Transactions))
	t.Row("residual", d.Residual)
}
