package ledger

import (
	"context"
	"errors"
	"fmt"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// closePeriod is the command that closes the period of the closing under way: from its sync on, its
// records are below the horizon.
type closePeriod struct {
	period uint64
	seed   uint64
}

var _ store.Command[tables.Horizon] = closePeriod{}

// Kind names the command.
func (closePeriod) Kind() string { return "ledger.close/1" }

// ErrKeys is returned for a period that may be closed later.
var ErrKeys = errors.New("idempotency keys count for its records, or the clock cannot tell yet: " +
	"see `ronbox clock status`")

var errNotClosing = errors.New("ledger: the closing is not under way, or not that far")

// Apply writes the record that closes the period, the row of the period and the horizon.
func (c closePeriod) Apply(r store.Reader, at store.Stamp, w *store.Writes) (h tables.Horizon, err error) {
	b := store.GroupOf[*books](r)
	closing := tables.GetClosing(r)
	if closing.Step != tables.Sealing || closing.Period != c.period {
		return h, errNotClosing
	}
	x, err := b.start(r, at, w, c.seed)
	if err != nil {
		return h, err
	}
	s, err := b.closes(r, &closing, x.at)
	if err != nil {
		return h, err
	}
	rec := x.record(record.OpClose)
	amount := record.NewClose(&s)
	rec.Amount, rec.Dedupe = amount.Amount, amount.Dedupe
	row := closing.File
	row.CloseSeq, row.ClosedAt = x.append(rec), x.at
	x.seal()
	h = tables.Horizon{
		Period: s.Period, Seq: s.ToSeq, Batch: s.ToBatch, At: s.ToAt, LastRoot: s.LastRoot, Accounts: s.Accounts,
		Assets: s.Assets, Generation: s.Period, Statement: s.Digest(),
	}
	tables.PutPeriod(w, s.Period, row)
	tables.PutHorizon(w, h)
	tables.PutFormatClosed(w)
	left := uint64(closing.Reclaimable()) // of the periods before
	closing.Bytes = left + closing.OwnBytes
	closing.Rows = closing.Rows - min(closing.Rows, closing.Dropped.Rows) + closing.OwnRows
	closing.OwnBytes, closing.OwnRows = 0, 0
	closing.Step, closing.Dropped = tables.Dropping, tables.DropPlace{}
	tables.PutClosing(w, closing)
	w.Audit(store.Event{
		Event: "ledger.closed", Decision: "allow", Principal: closing.By,
		Detail: map[string]string{
			"period": fmt.Sprint(s.Period), "to_seq": fmt.Sprint(s.ToSeq), "statement": h.Statement.String(),
		},
	})
	b.cur.horizon = h
	w.Then(b.keep)
	return h, nil
}

// closes returns the statement of the closing, if its period may be closed at a time, Unix ns.
func (b *books) closes(r store.Reader, c *tables.Closing, at int64) (s record.Statement, err error) {
	if s, err = record.ParseStatement(c.File.Statement); err != nil {
		return s, err
	}
	before := tables.StatementOf(r, b.cur.horizon.Period)
	if err := s.Follows(&before); err != nil {
		return s, err
	}
	head, known := tables.Batch(r, s.ToBatch)
	switch {
	case s.Period != c.Period || s.ToSeq != c.Seq || s.ToBatch != c.Batch:
		return s, fmt.Errorf("ledger: the statement is not that of the closing of period %d", c.Period)
	case s.ToSeq > b.cur.hand.low.Seq:
		return s, fmt.Errorf("ledger: record %d is not flushed", s.ToSeq)
	case b.idem.Leads(at-b.told.keyLife(), s.ToSeq, s.ToAt):
		return s, ErrKeys
	case !known || head.Last() != s.ToSeq || head.Root() != s.LastRoot:
		return s, fmt.Errorf("ledger: record %d does not end batch %d, or its root is not that of the statement",
			s.ToSeq, s.ToBatch)
	}
	return s, nil
}

// ClosePeriod closes the period of the closing under way in the ledger of s, which runs, once its
// base is complete; see package period. A full store takes it too. It returns ErrKeys if the clock
// went back since, or is not settled.
func ClosePeriod(ctx context.Context, s *store.Store, n uint64) (tables.Horizon, error) {
	c := closePeriod{n, newSeed()}
	h, err := store.Commit(ctx, s, store.Bulk, c)
	if errors.Is(err, store.ErrFull) {
		h, err = store.Commit(ctx, s, store.Control, c)
	}
	return h, err
}
