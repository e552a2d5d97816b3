package ledgertest

import (
	"context"
	"errors"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Close closes a period with the last batch that ends with a record up to seq, and drops nothing.
// It writes no file. Rows up to seq must be flushed.
func Close(ctx context.Context, s *store.Store, seq uint64) (h tables.Horizon, err error) {
	var p period.Plan
	err = s.View(ctx, func(r store.Reader) (err error) {
		p, err = period.Next(r, 1<<62, seq, false)
		return err
	})
	if err == nil {
		err = period.Begin(ctx, s, p, period.Request{By: "test"})
	}
	if err == nil {
		err = period.Build(ctx, s, nil, nil)
	}
	if err == nil {
		err = period.Turn(ctx, s, p.Period, tables.Exporting, tables.Sealing, nil)
	}
	if err != nil {
		return h, err
	}
	return ledger.ClosePeriod(ctx, s, p.Period)
}

// Drop deletes up to commands times rows rows below the horizon, all if commands is 0. It reports
// whether none is left.
func Drop(ctx context.Context, s *store.Store, commands, rows int) (done bool, err error) {
	for n := 0; !done && err == nil && (commands == 0 || n < commands); n++ {
		done, err = period.Drop(ctx, s, rows)
	}
	if errors.Is(err, period.ErrNothing) {
		return true, nil
	}
	return done, err
}
