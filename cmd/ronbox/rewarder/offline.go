package rewarder

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/rewarder/record"
	"ronbox/engines/rewarder/rverify"
)

// offlineDoc is what was computed here, as run prints it.
func offlineDoc(r *rverify.Run) runDoc {
	n := len(r.Allocations)
	doc := runDoc{
		Epoch: r.Epoch, RunKey: r.RunKey, Commitment: r.Commitment, State: "computed", Pool: r.Pool.String(), Payout: r.Payout.String(),
		Residual: r.Residual.String(), Actors: uint64(n), Transactions: uint32((n + record.ChunkRows - 1) / record.ChunkRows),
	}
	if r.Reason != "" {
		doc.State = "quarantined"
	}
	return doc
}

func (a app) recomputeCmd() *cobra.Command {
	var s sources
	var ledger, out string
	cmd := &cobra.Command{
		Use:   "recompute --usage FILE --policy FILE --pool N --epoch EPOCH --out DIR",
		Short: "Compute a run without a node, and write its files",
		Long: `Compute a run without a node, by other code than the node's, and write its files into a
new folder: policy.json snapshot.json rows.ndjson ledger.json run.json commitment.txt.
With the run's own ledger.json the commitment is the node's; without it the pool is taken
to be there, which shows what everybody would get.`,
		Example: "  ronbox rewarder recompute --usage usage.csv --policy policy.json --pool 1000000 --epoch 2008 --out dry",
	}
	s.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&s.usage, "usage", "", "`file` of usage, as run takes it")
	f.StringVar(&s.epoch, "epoch", "", "`name` of the epoch")
	f.StringVar(&ledger, "ledger", "", "ledger.json `file` of the run (default: as if the ledger had the pool)")
	f.StringVar(&out, "out", "", "new `folder` for the files")
	cli.Require(cmd, "usage", "epoch", "out")
	cmd.RunE = a.Verb(func(context.Context, []string) error {
		in, err := a.prepare(&s)
		if err == nil && ledger != "" {
			var raw []byte
			if raw, err = cli.ReadFile(ledger, maxPolicy); err == nil {
				in.Ledger, err = rverify.ParseLedger(raw)
				err = badFile(ledger, err)
			}
		}
		if err != nil {
			return err
		}
		r, err := rverify.Recompute(in)
		if err != nil {
			return badFile(s.usage, err)
		}
		if err := r.Write(out); err != nil {
			return err
		}
		doc := offlineDoc(&r)
		return a.Show(doc, doc.table)
	})
	return cmd
}

// checkedDoc is the output of verify.
type checkedDoc struct {
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitzero"`
	runDoc
}

func (a app) verifyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "verify DIR", Short: "Check the files of a run without a node: compute it again, compare every byte",
		Long: `Check the files of a run, as the node or recompute has written them, without a node: it is
computed again, by other code than the node's, and every byte compared.

Exit 0: sound, and the commitment is printed. Exit 3: bad; what differs first is named.`,
		Example: "  ronbox rewarder verify testdata/rewarder/w1",
		Args:    cli.Exactly(1, "one folder"),
		RunE: a.Verb(func(_ context.Context, args []string) error {
			if _, err := os.Stat(args[0]); err != nil {
				return err
			}
			r, err := rverify.Verify(args[0])
			bad, wrong := errors.AsType[*rverify.FieldError](err)
			if wrong {
				return a.bad(checkedDoc{Problem: bad.Error()}, bad.Error())
			}
			if err != nil {
				return err
			}
			doc := checkedDoc{OK: true, runDoc: offlineDoc(&r)}
			return a.Show(doc, func(t cli.Table) {
				t.Row("sound", "every byte is what the usage, the policy and the ledger give")
				doc.table(t)
			})
		}),
	}
}

// bad prints a document that tells what is wrong, and ends the verb.
func (a app) bad(doc any, problem string) error {
	if err := a.Show(doc, func(t cli.Table) { t.Row("BAD", problem) }); err != nil {
		return err
	}
	return a.FoundBad(problem, "")
}

// provenDoc is the output of verify-proof.
type provenDoc struct {
	rverify.Proven
	Problem string `json:"problem,omitzero"`
}

func (a app) verifyProofCmd() *cobra.Command {
	var commitment string
	cmd := &cobra.Command{
		Use: "verify-proof FILE --commitment b3:…", Short: "Check a proof without a node: what an actor gets in a run, or that it gets nothing",
		Long: `Check a proof without a node, "-" being stdin: every hash on the way from the allocation
to the commitment of the run. That the commitment is the run's is for you to know.

Exit 0: proven. Exit 3: not.`,
		Example: "  ronbox rewarder verify-proof proof.json --commitment b3:c1ce…",
		Args:    cli.Exactly(1, "one proof file"),
	}
	cmd.Flags().StringVar(&commitment, "commitment", "", "of the run")
	cli.Require(cmd, "commitment")
	cmd.RunE = a.Verb(func(_ context.Context, args []string) error {
		of, err := b3.Parse(commitment)
		if err != nil {
			return cli.Usage("--commitment: %w", err)
		}
		raw, err := a.ReadInput(args[0], maxPart)
		if err != nil {
			return err
		}
		p, err := rverify.VerifyProof(raw, of)
		if err != nil {
			return a.bad(provenDoc{Problem: err.Error()}, err.Error())
		}
		return a.Show(provenDoc{Proven: p}, func(t cli.Table) {
			if p.Absent {
				t.Row("proven", p.Actor+" gets nothing in epoch "+p.Epoch)
			} else {
				t.Row("proven", p.Actor+" gets "+p.Amount+" in epoch "+p.Epoch+", for a score of "+p.Score)
			}
		})
	})
	return cmd
}
