package rewarder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
	"ronbox/engines/rewarder/rverify"
	rewarderapi "ronbox/httpapi/rewarder"
	"ronbox/httpapi/wire"
)

const (
	maxPolicy   = 256 << 10
	maxPart     = 1 << 20 // bytes of rows that are sent at once
	followEvery = 100 * time.Millisecond
	filesFor    = 50 // looks at a paid run whose files are not written yet: they come in any case, and a full disk may keep them long
)

// sources are the files and figures that a run is made of.
type sources struct {
	usage, policy, pool, epoch string
	keys                       []string // files
}

func (s *sources) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.policy, "policy", "", "policy `file`")
	cmd.Flags().StringVar(&s.pool, "pool", "", "what is shared, in `minor` units")
	cli.Require(cmd, "policy", "pool")
}

// signatures are those of the keys.
func (s *sources) signatures(p *rverify.Policy) (all []record.Signature, err error) {
	for _, file := range s.keys {
		raw, err := cli.ReadFile(file, maxPolicy)
		if err != nil {
			return nil, fmt.Errorf("key file: %w", err)
		}
		key, err := record.ParseKey(raw)
		if err != nil {
			return nil, fmt.Errorf("key file %s: %w", file, err)
		}
		all = append(all, key.Sign(p.CID()))
	}
	return all, nil
}

// prepare reads the sources and computes what needs no node.
func (a app) prepare(s *sources) (in rverify.Inputs, err error) {
	raw, err := a.ReadInput(s.policy, maxPolicy)
	if err != nil {
		return in, err
	}
	if in.Policy, err = rverify.ParsePolicy(raw); err != nil {
		return in, badFile(s.policy, err)
	}
	usage := io.NopCloser(a.Stdin)
	if s.usage != "-" {
		if usage, err = os.Open(s.usage); err != nil {
			return in, err
		}
	}
	defer func() { _ = usage.Close() }() // only read
	if in.Usage, err = rverify.ReadCSV(usage); err != nil {
		return in, badFile(s.usage, err)
	}
	if _, err := engines.ParseAmount(s.pool); err != nil {
		return in, cli.Usage("--pool %q: %w", s.pool, err)
	}
	if err := record.CheckEpoch(s.epoch); err != nil {
		return in, cli.Usage("%q: %w", s.epoch, err)
	}
	if in.Snapshot, err = in.Usage.Snapshot(&in.Policy, s.epoch, s.pool); err == nil {
		in.Ledger, err = rverify.UnseenLedger(&in.Policy, s.pool)
	}
	return in, err
}

// badFile names the file of a fault.
func badFile(file string, err error) error {
	if _, ok := errors.AsType[*rverify.FieldError](err); ok {
		return cli.Fail(cli.ExitFailed, "malformed", "correct what is named", "%s: %w", file, err)
	}
	return err
}

func (a app) runCmd() *cobra.Command {
	var s sources
	cmd := &cobra.Command{
		Use:   "run EPOCH USAGE.csv --policy FILE --pool N",
		Short: "Share a pool by the usage of an epoch: seal, compute, pay, once",
		Long: `Share a pool by the usage of an epoch. The policy is signed with --key and added, if it is
new; the usage is sealed, the shares are computed, every actor is paid by the ledger, and
the sums are printed. USAGE.csv has a header actor,metric,qty[,content], "-" being stdin;
rows of one actor, metric and content are added up.

It is safe to repeat, whatever was interrupted: the same usage, policy and pool are paid
once, and others are refused for the same epoch. Where the ledger has refused or has not
answered, payment is paused: the same command again goes on with it.

A key is a file of one line, ronbox-policy-key-1: and 64 random hex digits; a node trusts
it whose rewarder.policy_trust_keys list its public key.

Exit 20: the run is quarantined; nobody, or not everybody, is paid. Exit 21: the epoch, or
the id of the policy, stands for something else.`,
		Example: "  ronbox rewarder run 2008 usage.csv --policy policy.json --key policy.key --pool 1000000\n" +
			"  ronbox rewarder run 2008 usage.csv --policy policy.json --pool 1000000 --json | jq -r .commitment",
		Args: cli.Exactly(2, "an epoch and a file of usage"),
	}
	s.flags(cmd)
	cmd.Flags().StringArrayVar(&s.keys, "key", nil, "key `file` that signs the policy, if it is new; may be repeated, for a quorum")
	cmd.RunE = a.online(func(ctx context.Context, c rewarderapi.Client, args []string) error {
		s.epoch, s.usage = args[0], args[1]
		in, err := a.prepare(&s)
		if err != nil {
			return err
		}
		sigs, err := s.signatures(&in.Policy)
		if err != nil {
			return err
		}
		repeat := a.Repeater()
		return repeat.Repeat(ctx, "run", func() error { return a.run(ctx, c, &s, &in, sigs) })
	})
	return cmd
}

// run has the epoch computed and paid, or finds that it was. The node compares what stands with what is asked, and refuses what is not the same.
func (a app) run(ctx context.Context, c rewarderapi.Client, s *sources, in *rverify.Inputs, sigs []record.Signature) error {
	ask := rewarder.ComputeRequest{PolicyID: in.Policy.ID, PolicyHash: in.Policy.CID()}
	stands, err := c.Epoch(ctx, s.epoch)
	switch {
	case err != nil && !isNone(err):
		return err
	case err != nil || stands.State == rewarder.Failed:
		if err = addPolicy(ctx, c, &in.Policy, sigs); err == nil {
			ask.InputsCID, err = a.seal(ctx, c, s, in)
		}
	case stands.AccountingCID == in.Snapshot.CID():
		ask.InputsCID = stands.InputsCID
	default:
		ask.InputsCID = rverify.InputsCID(in.Snapshot.CID(), in.Ledger.CID())
	}
	if err != nil {
		return err
	}
	done, err := c.Compute(ctx, s.epoch, ask)
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.Reason == "quarantined" && p.Details["kind"] == rewarder.KindEgress {
		done, err = c.Emit(ctx, s.epoch)
	}
	if err != nil {
		return err
	}
	return a.follow(ctx, c, s.epoch, done.Replayed)
}

// isNone reports whether the node has no such thing.
func isNone(err error) bool {
	p, ok := errors.AsType[*wire.Problem](err)
	return ok && p.Status == http.StatusNotFound
}

// addPolicy adds the policy, unless the node has it.
func addPolicy(ctx context.Context, c rewarderapi.Client, p *rverify.Policy, sigs []record.Signature) error {
	has, err := c.Policy(ctx, p.ID)
	if err == nil && has.Hash == p.CID() || err != nil && !isNone(err) {
		return err
	}
	_, err = c.PutPolicy(ctx, p.ID, rewarderapi.PolicyPut{Body: p.Bytes(), Signatures: sigs})
	return err
}

// seal uploads what the node lacks of the usage, and seals it. A pool that the funding account does not have is refused here: a run would be
// quarantined, and the name of the epoch spent.
func (a app) seal(ctx context.Context, c rewarderapi.Client, s *sources, in *rverify.Inputs) (inputsCID b3.Digest, err error) {
	p := &in.Policy
	pool, _ := engines.ParseAmount(s.pool) // prepare has read it
	u, err := c.Open(ctx, rewarder.OpenInput{
		EpochID: s.epoch, Asset: p.Asset, PoolMinor: pool, Metrics: append([]string{}, in.Snapshot.Metrics...), Account: p.Account,
		Expect: in.Snapshot.CID(),
	})
	if err != nil {
		return inputsCID, err
	}
	bar := a.Progress(cli.Count, "upload, rows")
	defer bar.End()
	var part []byte
	for i, n := 0, uint32(0); i < len(in.Usage); i++ {
		part = append(part, in.Usage[i].Line()...)
		if i+1 < len(in.Usage) && len(part)+len(in.Usage[i+1].Line()) <= maxPart {
			continue
		}
		if n >= u.Parts && u.Sealed.IsZero() {
			if _, err := c.PutPart(ctx, u.ID, n, part); err != nil {
				return inputsCID, err
			}
		}
		bar.At(int64(i), int64(len(in.Usage)))
		part, n = part[:0], n+1
	}
	sealed, err := c.Seal(ctx, u.ID)
	if err != nil {
		return inputsCID, err
	}
	ledger, err := rverify.ParseLedger(sealed.Ledger)
	if err != nil {
		return inputsCID, fmt.Errorf("the node's figure of the ledger: %w", err)
	}
	if ledger.Available.Cmp(in.Snapshot.Pool) < 0 && ledger.Available.Cmp(p.PoolMax) < 0 {
		return inputsCID, cli.Fail(cli.ExitFailed, "unfunded", "pay into it first: `ronbox wallet issue "+p.Account+" AMOUNT`",
			"%s has %s %s, and the pool is %s: nothing was computed", p.Account, ledger.Available, p.Asset, s.pool)
	}
	return sealed.InputsCID, nil
}

// follow waits until the run is paid and its files are written, or will not be, and prints it.
func (a app) follow(ctx context.Context, c rewarderapi.Client, epoch string, replayed bool) error {
	bar := a.Progress(cli.Count, "compute")
	defer bar.End()
	for files := 0; ; {
		r, err := c.Epoch(ctx, epoch)
		if err != nil {
			return err
		}
		if r.State == rewarder.Settled {
			files++
		}
		switch {
		case r.State == rewarder.Failed:
			return cli.Fail(cli.ExitFailed, "failed", "run it again", "the run failed: %s; nobody was paid", r.Reason)
		case r.State == rewarder.Quarantined, files > filesFor, files > 0 && r.Artifact != rewarder.ArtifactPending:
			bar.End()
			r.Replayed = replayed
			return a.ended(&r)
		case r.State == rewarder.Sealed, r.State == rewarder.Settling:
			bar.Stage("pay, transactions")
			bar.At(int64(r.Acked), int64(r.Transactions))
		}
		if err := a.Repeater().Sleep(ctx, followEvery); err != nil {
			return err
		}
	}
}

// ended prints a run that is paid or quarantined.
func (a app) ended(r *rewarder.Run) error {
	if q := r.Quarantine; q != nil {
		a.Exit = exitQuarantined
		a.Say("quarantined, %s: %s", q.Kind, q.Reason)
		if q.Kind == rewarder.KindEgress {
			a.Say("run it again to go on paying, once the ledger can")
		}
	}
	doc := runDocOf(r)
	return a.Show(doc, doc.table)
}
