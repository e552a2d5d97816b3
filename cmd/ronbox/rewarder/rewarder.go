package rewarder

import (
	"bytes"
	"context"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/rewarder"
	"ronbox/httpapi/client"
	rewarderapi "ronbox/httpapi/wire/rewarder"
)

// Command returns the command group of the rewarder.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	group := cli.Group("rewarder", "Share a pool by usage: compute, pay, prove, recompute", a.runCmd(), a.retryCmd(),
		a.inputsCmd(), a.showCmd(), a.proofCmd(), a.recomputeCmd(), a.verifyCmd(), a.verifyProofCmd(), a.keygenCmd(),
		a.policyCmd(), a.filesCmd(), a.collectCmd())
	a.Complete(group, map[string]cli.Names{"EPOCH": epochNames, "ACTOR": nil})
	return group
}

func epochNames(ctx context.Context, c *client.Client, typed string) (out []string, err error) {
	page, err := rewarderapi.NewClient(c).Epochs(ctx, typed, cli.MostNames)
	for _, e := range page.Epochs {
		out = append(out, e.Epoch)
	}
	return out, err
}

func (a app) showCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show EPOCH",
		Short: "Show the run of an epoch: its state, its sums, its manifest",
		Long: "Show the run of an epoch: its state and its sums. With --json, also the manifest, over\n" +
			"which the commitment is computed.",
		Example: "  ronbox rewarder show 2008\n  ronbox rewarder show 2008 --json | jq -r .commitment",
		Args:    cli.Exactly(1, "one epoch"),
		RunE: a.online(func(ctx context.Context, c rewarderapi.Client, args []string) error {
			e, err := c.Epoch(ctx, args[0])
			if err != nil {
				return err
			}
			payees, err := parkedPayees(ctx, c, &e)
			if err != nil {
				return err
			}
			shown := struct {
				rewarder.Run
				Payees []rewarder.Parked `json:"parked_payees,omitzero"`
			}{e, payees}
			return a.Show(shown, func(t cli.Table) {
				doc := runDocOf(&e, payees)
				doc.table(t)
				t.Row("policy", e.PolicyID+", "+e.PolicyHash.String())
				t.Row("inputs", e.InputsCID)
				t.Opt("files", e.Artifact)
				t.Opt("failed", e.Reason)
			})
		}),
	}
}

func (a app) proofCmd() *cobra.Command {
	return &cobra.Command{
		Use: "proof EPOCH ACTOR", Short: "Print the proof of the allocation of an actor, or of its absence",
		Long: `Print the proof of the allocation of an actor in an epoch, or of its absence. Anyone who
knows the commitment of the run can verify it without the node: see
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
