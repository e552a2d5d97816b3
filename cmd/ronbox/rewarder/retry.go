package rewarder

import (
	"context"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/rewarder"
	rewarderapi "ronbox/httpapi/wire/rewarder"
)

func (a app) retryCmd() *cobra.Command {
	var skip bool
	cmd := &cobra.Command{
		Use: "retry EPOCH", Short: "Resume a paused payment, and pay parked payees",
		Long: `Resume the payment of a paused run, and pay its parked payees. Each payee is paid once,
however often this is repeated. A frozen account must be unfrozen first.

Exit 20: the payment is paused again, or the run is not payable. Exit 22: payees are still
parked.`,
		Example: "  ronbox wallet unfreeze mallory\n  ronbox rewarder retry 2008",
		Args:    cli.Exactly(1, "one epoch"),
	}
	cmd.Flags().BoolVar(&skip, "skip-refused", false, "park payees that the ledger refuses, and pay the others")
	cmd.RunE = a.online(func(ctx context.Context, c rewarderapi.Client, args []string) error {
		repeat := a.Repeater()
		return repeat.Repeat(ctx, "retry", func() error { return a.retry(ctx, c, args[0], skip) })
	})
	return cmd
}

// retry emits a run that is paused, and then again if it has parked payees.
func (a app) retry(ctx context.Context, c rewarderapi.Client, epoch string, skip bool) error {
	r, err := c.Epoch(ctx, epoch)
	if err == nil && isPaused(&r) {
		r, err = a.emit(ctx, c, epoch, skip)
	}
	if err == nil && r.State != rewarder.Quarantined && r.Parked > 0 {
		r, err = a.emit(ctx, c, epoch, skip)
	}
	if err != nil {
		return err
	}
	if r.State != rewarder.Settled && r.State != rewarder.Quarantined { // in progress
		if r, err = a.follow(ctx, c, epoch); err != nil {
			return err
		}
	}
	return a.ended(ctx, c, &r, "")
}

// emit calls Emit and waits for the end of the payment.
func (a app) emit(ctx context.Context, c rewarderapi.Client, epoch string, skip bool) (r rewarder.Run, err error) {
	if _, err = c.Emit(ctx, epoch, skip); err != nil {
		return r, err
	}
	return a.follow(ctx, c, epoch)
}

// parkedPayees reads the payees of a run that are still parked, at most [rewarder.MaxPage].
func parkedPayees(ctx context.Context, c rewarderapi.Client, r *rewarder.Run) (all []rewarder.Parked, err error) {
	want := min(r.Parked, rewarder.MaxPage)
	for from := uint64(0); uint64(len(all)) < want; {
		page, err := c.Parked(ctx, r.Epoch, from, rewarder.MaxPage)
		if err != nil {
			return nil, err
		}
		for _, one := range page.Parked {
			if one.Result == rewarder.IntentParked && uint64(len(all)) < want {
				all = append(all, one)
			}
		}
		if from = page.Next; from == 0 {
			break
		}
	}
	return all, nil
}
