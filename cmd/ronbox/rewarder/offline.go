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

// offlineDoc returns the output for a run that was computed here, in the form of run.
func offlineDoc(r *rverify.Run) runDoc {
	n := r.Actors
	doc := runDoc{
		Epoch:        r.Epoch,
		RunKey:       r.RunKey,
		Commitment:   r.Commitment,
		State:        "computed",
		Pool:         r.Pool.String(),
		Payout:       r.Payout.String(),
		Residual:     r.Residual.String(),
		Actors:       n,
		Transactions: uint32((n + record.ChunkRows - 1) / record.ChunkRows),
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
		Use:   "recompute --usage FILE --policy FILE --pool N --epoch EPOCH --out-dir DIR",
		Short: "Compute a run without a node, and write its files",
		Long: `Compute a run without a node, by code that is independent of the node's, and write its
files into a new folder: policy.json snapshot.json rows.ndjson ledger.json run.json
commitment.txt. With the ledger.json of the run, the commitment equals the node's. Without
it the pool is assumed to be funded, which shows what each actor would get.`,
		Example: "  ronbox rewarder recompute --usage usage.csv --policy policy.json --pool 1000000 " +
			"--epoch 2008 --out-dir dry",
	}
	s.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&s.usage, "usage", "", "`file` of usage, as for run")
	f.StringVar(&s.epoch, "epoch", "", "`name` of the epoch")
	f.StringVar(&ledger, "ledger", "", "ledger.json `file` of the run (default: assume that the pool is funded)")
	f.StringVar(&out, "out-dir", "", "new `folder` for the files")
	cli.Require(cmd, "usage", "epoch", "out-dir")
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
		doc.Requested = in.Snapshot.Pool.String()
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
		Use: "verify DIR", Short: "Verify the files of a run without a node: recompute it and compare every byte",
		Long: `Verify the files of a run, as written by the node or by recompute, without a node: the run
is recomputed, by code that is independent of the node's, and every byte is compared.

Exit 0: sound, and the commitment is printed. Exit 3: bad, and the first difference is
named.`,
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
				t.Row(cli.OK("sound"), "every byte follows from the usage, the policy and the ledger")
				doc.table(t)
			})
		}),
	}
}

// bad prints a document that describes a problem, and returns the error of the verb.
func (a app) bad(doc any, problem string) error {
	if err := a.Show(doc, func(t cli.Table) { t.Row(cli.Bad("BAD"), problem) }); err != nil {
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
		Use:   "verify-proof FILE --commitment b3:…",
		Short: "Verify a proof of the allocation of an actor, or of its absence, without a node",
		Long: `Verify a proof without a node; "-" is stdin. Every hash from the allocation to the
commitment of the run is checked. You must know the commitment from a trusted source.

Exit 0: proven. Exit 3: not proven.`,
		Example: "  ronbox rewarder verify-proof proof.json --commitment b3:c1ce…",
		Args:    cli.Exactly(1, "one proof file"),
	}
	cmd.Flags().StringVar(&commitment, "commitment", "", "commitment of the run, a `hash`")
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
