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
	"ronbox/httpapi/wire"
	rewarderapi "ronbox/httpapi/wire/rewarder"
)

const (
	maxPolicy   = 256 << 10
	maxPart     = 1 << 20                // bytes of rows per part
	followEvery = 100 * time.Millisecond // period of polls if the node does not let a call wait
	// wait for the files of a finished run: the node writes them in any case, but a full disk may
	// delay them
	filesFor = 5 * time.Second
)

// sources names the input files and parameters of a run.
type sources struct {
	usage, policy, pool, epoch string
	keys                       []string // key files
	skip                       bool     // park payees that the ledger refuses
	emptyOK                    bool     // accept a run that pays no actor
}

func (s *sources) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.policy, "policy", "", "policy `file`")
	cmd.Flags().StringVar(&s.pool, "pool", "", "the pool to share, in `minor` units")
	cli.Require(cmd, "policy", "pool")
}

// signatures signs the policy with each key.
func (s *sources) signatures(p *rverify.Policy) (all []record.Signature, err error) {
	for _, file := range s.keys {
		raw, err := cli.ReadFile(file, maxPolicy)
		if err != nil {
			return nil, fmt.Errorf("key file: %w", err)
		}
		key, err := record.ParseKey(raw)
		if err != nil {
			return nil, cli.Fail(cli.ExitFailed, "malformed", "`ronbox rewarder keygen` makes a key file",
				"%s is not the key file of a signer: %w", file, err)
		}
		all = append(all, key.Sign(p.CID()))
	}
	return all, nil
}

// prepare reads the sources and computes everything that needs no node.
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
	defer func() { _ = usage.Close() }() // opened for reading only
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

// badFile adds the name of the file to a fault.
func badFile(file string, err error) error {
	if _, ok := errors.AsType[*rverify.FieldError](err); ok {
		return cli.Fail(cli.ExitFailed, "malformed", "correct the named field", "%s: %w", file, err)
	}
	return err
}

func (a app) runCmd() *cobra.Command {
	var s sources
	cmd := &cobra.Command{
		Use:   "run EPOCH USAGE.csv --policy FILE --pool N",
		Short: "Share a pool by the usage of an epoch: seal, compute and pay it once",
		Long: `Share a pool by the usage of an epoch. If the policy is new, it is signed with
--key-file and added. The usage is sealed, the shares are computed, the ledger
pays every actor, and the sums are printed. The first line of USAGE.csv names the
columns actor, metric, qty and, if rows have some, content; "-" is stdin.
Rows of one actor, metric and content are added up.

A run that would pay no actor is refused before anything is sent: no usage, a pool of 0,
or a guarantee that the pool cannot pay. --empty-ok accepts it if the usage or the pool is
empty.

The command can be repeated after any interruption: the same usage, policy and pool are
paid once, and others are refused for the same epoch. If the ledger refuses a payment or
does not answer, the payment is paused and the refused account is named; the same command
resumes it. With --skip-refused, refused payees are parked until
` + "`ronbox rewarder retry`" + ` pays them, and all others are paid.

A key is a file of one line, ronbox-policy-key-1: and 64 random hex digits. A node trusts
the keys in its rewarder.policy_trust_keys.

Exit 20: the run is quarantined; some or all actors are not paid. Exit 21: the epoch, or
the id of the policy, is taken by something else. Exit 22: payees are parked.`,
		Example: "  ronbox rewarder run 2008 usage.csv --policy policy.json --key-file policy.key --pool 1000000\n" +
			"  ronbox rewarder run 2008 usage.csv --policy policy.json --pool 1000000 --json | jq -r .commitment",
		Args: cli.Exactly(2, "an epoch and a usage file"),
	}
	s.flags(cmd)
	cmd.Flags().BoolVar(&s.skip, "skip-refused", false, "park payees that the ledger refuses, and pay the others")
	cmd.Flags().BoolVar(&s.emptyOK, "empty-ok", false, "accept a run that pays no actor, which uses up the epoch")
	cmd.Flags().StringArrayVar(&s.keys, "key-file", nil,
		"key `file` that signs the policy if it is new; may be repeated, for a quorum")
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

// run computes and pays the epoch, or finds that this was done. The node compares the request with
// the existing run and refuses a different one.
func (a app) run(
	ctx context.Context,
	c rewarderapi.Client,
	s *sources,
	in *rverify.Inputs,
	sigs []record.Signature,
) error {
	ask := rewarder.ComputeRequest{
		PolicyID:    in.Policy.ID,
		PolicyHash:  in.Policy.CID(),
		SkipRefused: s.skip,
		EmptyOK:     s.emptyOK,
	}
	stands, err := c.Epoch(ctx, s.epoch)
	switch {
	case err != nil && !isNone(err):
		return err
	case err != nil || stands.State == rewarder.Failed:
		if err = s.checkPays(in); err == nil {
			err = addPolicy(ctx, c, &in.Policy, sigs)
		}
		if err == nil {
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
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.Reason == "quarantined" &&
		p.Details["kind"] == rewarder.KindEgress {
		done, err = c.Emit(ctx, s.epoch, s.skip)
	}
	if err != nil {
		return err
	}
	run, err := a.follow(ctx, c, s.epoch)
	if err == nil && s.skip && isPaused(&run) && !run.SkipRefused { // the run was accepted without it
		if _, err = c.Emit(ctx, s.epoch, true); err == nil {
			run, err = a.follow(ctx, c, s.epoch)
		}
	}
	if err != nil {
		return err
	}
	run.Replayed = done.Replayed
	return a.ended(ctx, c, &run, in.Snapshot.Pool.String())
}

// checkPays computes a run before anything is sent, and refuses one that would pay no actor or be
// quarantined, since it would use up the epoch. A million rows take about 3 s and 300 MiB.
func (s *sources) checkPays(in *rverify.Inputs) error {
	refuse := func(why string) error {
		return cli.Fail(cli.ExitFailed, "pays_nobody",
			"correct the usage, the pool or the policy; --empty-ok accepts an empty run",
			"%s: no actor would be paid, and nothing was sent", why)
	}
	switch {
	case in.Snapshot.Pool.Sign() == 0:
		if s.emptyOK {
			return nil
		}
		return refuse("the pool is 0")
	case len(in.Usage) == 0:
		if s.emptyOK {
			return nil
		}
		return refuse(s.usage + " has no rows")
	}
	r, err := rverify.Recompute(*in)
	switch {
	case err != nil:
		return badFile(s.usage, err)
	case r.Reason != "":
		return refuse("by this usage, pool and policy the run is quarantined (" + r.Reason + ")")
	case r.Payout.Sign() == 0 && !s.emptyOK:
		return refuse("by this usage and policy every share is 0")
	}
	return nil
}

// isPaused reports whether the payment of a run waits for a retry.
func isPaused(r *rewarder.Run) bool {
	return r.State == rewarder.Quarantined && r.Quarantine != nil && r.Quarantine.Kind == rewarder.KindEgress
}

// isNone reports whether the node answered "not found".
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

// seal uploads the missing parts of the usage and seals it. It refuses a pool that the funding
// account does not have: the run would be quarantined and use up the epoch.
func (a app) seal(
	ctx context.Context,
	c rewarderapi.Client,
	s *sources,
	in *rverify.Inputs,
) (inputsCID b3.Digest, err error) {
	p := &in.Policy
	pool, _ := engines.ParseAmount(s.pool) // checked by prepare
	u, err := c.Open(ctx, rewarder.OpenInput{
		EpochID:   s.epoch,
		Asset:     p.Asset,
		PoolMinor: pool,
		Metrics:   append([]string{}, in.Snapshot.Metrics...),
		Account:   p.Account,
		Expect:    in.Snapshot.CID(),
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
		return inputsCID, fmt.Errorf("ledger ref of the node: %w", err)
	}
	if ledger.Available.Cmp(in.Snapshot.Pool) < 0 && ledger.Available.Cmp(p.PoolMax) < 0 {
		return inputsCID, cli.Fail(cli.ExitFailed, "unfunded",
			"pay into it first: `ronbox wallet issue "+p.Account+" AMOUNT`",
			"%s has %s %s, and the pool is %s: nothing was computed",
			p.Account, ledger.Available, p.Asset, s.pool)
	}
	return sealed.InputsCID, nil
}

// follow waits until the run is paid and its files are written, or until either has failed.
func (a app) follow(ctx context.Context, c rewarderapi.Client, epoch string) (rewarder.Run, error) {
	bar := a.Progress(cli.Count, "compute")
	defer bar.End()
	var seen string
	var ended time.Time
	for {
		r, err := c.Follow(ctx, epoch, seen)
		if err != nil {
			return r, err
		}
		end := r.State == rewarder.Settled || r.State == rewarder.Quarantined
		if end && ended.IsZero() {
			ended = time.Now()
		}
		switch {
		case r.State == rewarder.Failed:
			return r, cli.Fail(cli.ExitFailed, "failed", "run it again", "the run failed: %s; no actor was paid",
				r.Reason)
		case end && (r.Artifact != rewarder.ArtifactPending || time.Since(ended) > filesFor):
			return r, nil
		case r.State == rewarder.Sealed, r.State == rewarder.Settling:
			bar.Stage("pay, transactions")
			bar.At(int64(r.Acked), int64(r.Transactions))
		}
		if r.Mark == seen {
			if err := a.Repeater().Sleep(ctx, followEvery); err != nil {
				return r, err
			}
		}
		seen = r.Mark
	}
}

// ended prints a run that is paid or quarantined.
func (a app) ended(ctx context.Context, c rewarderapi.Client, r *rewarder.Run, requested string) error {
	payees, err := parkedPayees(ctx, c, r)
	if err != nil {
		return err
	}
	if q := r.Quarantine; q != nil {
		a.Exit = rewarderapi.ExitQuarantined
		a.Say("quarantined, %s: %s %s", q.Kind, q.Reason, q.Account)
	}
	switch {
	case isPaused(r):
		a.Say("remove the cause, then `ronbox rewarder retry %s`; with --skip-refused the other payees are paid",
			r.Epoch)
	case r.Parked > 0:
		a.Exit = exitParked
		a.Say("parked payees: %d; `ronbox rewarder retry %s` pays them once the ledger accepts payments to them",
			r.Parked, r.Epoch)
	}
	doc := runDocOf(r, payees)
	doc.Requested = requested
	return a.Show(doc, doc.table)
}
