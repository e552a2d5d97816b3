package period

import (
	"context"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Listed is a closed period: its statement, and what else its row has.
type Listed struct {
	record.Statement
	Row tables.Period
}

// Horizon is the end of the last closed period, and how far rows up to there are dropped.
type Horizon struct {
	tables.Horizon
	DropSeq uint64 // records up to this are dropped
	Reclaim int64  // bytes that are still to be dropped, about
}

// Horizon returns the end of the last closed period; Period 0: there is none.
func (c *Closer) Horizon(ctx context.Context) (out Horizon, err error) {
	err = c.d.Store.View(ctx, func(r store.Reader) error {
		closing := tables.GetClosing(r)
		out = Horizon{Horizon: tables.GetHorizon(r), Reclaim: closing.Reclaimable()}
		out.DropSeq = out.Seq
		for seq := range tables.Raws(r, 0, out.Seq+1) {
			out.DropSeq = seq - 1
			break
		}
		return nil
	})
	return out, err
}

// Periods returns up to n closed periods after one.
func (c *Closer) Periods(ctx context.Context, after uint64, n int) (list []Listed, err error) {
	err = c.d.Store.View(ctx, func(r store.Reader) error {
		list = nil
		for period, row := range tables.Periods(r, after+1) {
			if len(list) == n {
				break
			}
			list = append(list, Listed{tables.StatementOf(r, period), row})
		}
		return nil
	})
	return list, err
}
