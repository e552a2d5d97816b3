package ledger

import (
	"errors"
	"fmt"
	"sort"

	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// past describes the closed periods to a view. The view has all records after the horizon; of those
// up to it all, some or none. What later records need of them comes from the base.
type past struct {
	tables.Horizon
	r store.Reader
}

// base returns the state after the horizon.
func (p past) base() tables.Base { return tables.BaseAt(p.r, p.Generation) }

// closed returns a *ClosedError for the seq of a record in a closed period.
func (p past) closed(seq uint64) error {
	if !p.Below(seq) {
		return nil
	}
	return p.period(func(s *record.Statement) bool { return seq <= s.ToSeq })
}

// closedBatch returns a *ClosedError for the number of a batch in a closed period.
func (p past) closedBatch(no uint64) error {
	if !p.BelowBatch(no) {
		return nil
	}
	return p.period(func(s *record.Statement) bool { return no <= s.ToBatch })
}

// period returns the *ClosedError of the first period that reaches to what was asked for. The last
// one does.
func (p past) period(reaches func(*record.Statement) bool) error {
	_, s := p.around(reaches)
	return p.told(s.Period)
}

// around returns the statement of the first period that reaches to what was asked for, and the one
// before. The last one does.
func (p past) around(reaches func(*record.Statement) bool) (before, first record.Statement) {
	n := sort.Search(int(p.Period)-1, func(i int) bool {
		s := tables.StatementOf(p.r, uint64(i)+1)
		return reaches(&s)
	})
	return tables.StatementOf(p.r, uint64(n)), tables.StatementOf(p.r, uint64(n)+1)
}

// told returns what callers are told of a closed period.
func (p past) told(n uint64) *ClosedError {
	s := tables.StatementOf(p.r, n)
	row, _ := tables.GetPeriod(p.r, n)
	return &ClosedError{Period: n, ToSeq: s.ToSeq, ToAt: s.ToAt, File: row.File, FirstSeq: p.Seq + 1}
}

// bound returns the closed period that has bound a reference with the row o, or nil. It returns
// errStale if the view is older than the row.
func (p past) bound(o *tables.Once) (closed *ClosedError, err error) {
	switch {
	case o.Period > p.Period:
		return nil, errStale
	case o.Period != 0:
		closed = p.told(o.Period)
	case o.Seq != 0:
		errors.As(p.closed(o.Seq), &closed)
	}
	return closed, nil
}

// lacksBase ends the command or the view if a row of the base is not there.
func lacksBase(format string, args ...any) {
	panic(&store.RowError{Bucket: "ledger/base", Cause: fmt.Errorf(format+" is not there", args...)})
}

// hold reads the record that made a hold. It reports false if there is no such record, or if the
// hold had ended when its period was closed.
func (p past) hold(seq uint64) (rec record.Record, known bool) {
	if !p.Below(seq) {
		return tables.Record(p.r, seq)
	}
	row, known := p.base().Hold(seq)
	if !known {
		return rec, false
	}
	if err := rec.Decode(row.Record); err != nil || rec.Seq != seq {
		panic(&store.RowError{Bucket: "ledger/base", Cause: fmt.Errorf("the record of hold %d: %w", seq, err)})
	}
	return rec, true
}

// given is the record of the id of a hold below the horizon. It returns ErrNotFound if another id
// was given to that record, and a *ClosedError unless the hold was open at the horizon.
func (p past) given(id record.TxID) (record.Record, error) {
	rec, known := p.hold(id.Seq())
	switch {
	case !known:
		return rec, p.closed(id.Seq())
	case rec.TxID() != id:
		return rec, ErrNotFound
	}
	return rec, nil
}

// ended returns the id of the hold that a record ends.
func (p past) ended(rec *record.Record) (record.TxID, error) {
	hold, known := p.hold(rec.Hold)
	if known {
		return hold.TxID(), nil
	}
	if err := p.closed(rec.Seq); err != nil { // by a horizon that was published after the record was read
		return record.TxID{}, err
	}
	if p.Below(rec.Hold) {
		lacksBase("hold %d", rec.Hold)
	}
	return record.TxID{}, ErrNotFound
}

// Past returns what proofs in the log of the first batches need of closed periods.
func (p past) Past(batches uint64) record.Past {
	if p.Period == 0 {
		return nil
	}
	_, seq := p.Closing()
	if tables.MustRecord(p.r, seq).Batch > batches {
		return nil
	}
	return p
}

// Closing returns the text of the newest statement, and the seq of the record that closed its
// period.
func (p past) Closing() (statement string, seq uint64) {
	s := tables.StatementOf(p.r, p.Period)
	row, _ := tables.GetPeriod(p.r, p.Period)
	return s.Text(), row.CloseSeq
}

// Name returns a name of a closed period with its place in the log of names: each period has added
// its accounts, then its assets.
func (p past) Name(asset bool, ref uint64) (n record.NameProof, err error) {
	n = record.NameProof{Asset: asset, Ref: ref}
	before, s := p.around(func(s *record.Statement) bool {
		return asset && ref <= uint64(s.Assets) || !asset && ref <= s.Accounts
	})
	var known bool
	if asset {
		n.Index = s.Accounts + ref - 1
		n.Name, known = tables.AssetName(p.r, uint32(ref))
	} else {
		n.Index = uint64(before.Assets) + ref - 1
		n.Name, known = tables.Name(p.r, ref)
	}
	if !known {
		return n, &store.RowError{Bucket: "ledger/refs", Cause: fmt.Errorf("ref %d is not there", ref)}
	}
	n.Path, err = merkle.LogInclusion(p.Names(), n.Index, tables.NameNodes(p.r))
	return n, err
}

// Hold returns the place of the record of a hold that was open at the horizon.
func (p past) Hold(seq uint64) (record.Inclusion, error) {
	h, known := p.base().Hold(seq)
	if !known {
		lacksBase("hold %d", seq)
	}
	return h.Inclusion, nil
}

// openedAt returns when an account was opened, Unix ns. seq is that of the record.
func (p past) openedAt(account, seq uint64) int64 {
	if !p.Below(seq) {
		return tables.MustRecord(p.r, seq).At
	}
	a, known := p.base().Account(account)
	if !known {
		lacksBase("account %d", account)
	}
	return a.OpenedAt
}

// lastTx returns the id of the record seq, which used the last nonce of an account. It is zero if
// there is no such record, or if a later one has used a nonce.
func (p past) lastTx(account, seq uint64) record.TxID {
	if !p.Below(seq) {
		rec, known := tables.Record(p.r, seq)
		if !known {
			return record.TxID{}
		}
		return rec.TxID()
	}
	a, known := p.base().Account(account)
	switch {
	case seq == 0:
		return record.TxID{}
	case !known:
		lacksBase("account %d", account)
	case a.LastNonceSeq != seq:
		return record.TxID{}
	}
	return a.LastTx
}

// declaredAt returns when an asset was declared, Unix ns.
func (p past) declaredAt(a *asset) int64 {
	if !p.Below(a.seq) {
		return tables.MustRecord(p.r, a.seq).At
	}
	row, known := p.base().Asset(a.ref)
	if !known {
		lacksBase("asset %d", a.ref)
	}
	return row.DeclaredAt
}

// doneInPeriod returns the outcome of an op that a record of a closed period has done. A settlement
// counts as done; of another op the words are not known any more.
func doneInPeriod(settle bool, c *ClosedError) Outcome {
	if settle {
		return Outcome{Replayed: true, Batch: true, Atomic: true, Period: c.Period}
	}
	return Outcome{Reject: periodClosed(c)}
}

// floor is where the statement of a balance ends: the balance as the last closed period left it.
type floor struct {
	tables.Horizon
	balance tables.Balance
}

// floor reads the floor of the statement that q asks for. It returns a *ClosedError if all of the
// time that q asks for is closed.
func (p past) floor(of tables.StateKey, q *HistoryQuery) (f floor, err error) {
	f.Horizon = p.Horizon
	f.balance, _ = p.base().Balance(of)
	if f.balance.Postings == 0 || q.Until == 0 || q.Until > p.At {
		return f, nil
	}
	return f, p.period(func(s *record.Statement) bool { return q.Until <= s.ToAt })
}

// opening returns the balance below the oldest entry of a query if its page ends there, else nil.
// next is the cursor of the page that follows.
func (f *floor) opening(q *HistoryQuery, next string) *Opening {
	if f.balance.Postings == 0 || q.Since > f.At || q.NewestFirst && next != "" || !q.NewestFirst && q.Cursor != "" {
		return nil
	}
	o := &Opening{Period: f.Period, At: f.At, Postings: f.balance.Postings}
	o.Posted, _ = f.balance.State.Balance()
	o.Available, _ = f.balance.State.Available()
	return o
}

// checkHorizon returns an error unless the statement of h says the same, follows those of the
// periods before, and the journal has the record that closed the period.
func checkHorizon(r store.Reader, h tables.Horizon) error {
	var last record.Statement
	for n := uint64(1); n <= h.Period; n++ {
		s := tables.StatementOf(r, n)
		if err := s.Follows(&last); err != nil {
			return damage("%w", err)
		}
		last = s
	}
	for n := range tables.Periods(r, h.Period+1) {
		return damage("there is a statement of period %d, and period %d was closed last", n, h.Period)
	}
	if h.Period == 0 {
		return nil
	}
	if h.Seq != last.ToSeq || h.Batch != last.ToBatch || h.At != last.ToAt || h.LastRoot != last.LastRoot ||
		h.Accounts != last.Accounts || h.Assets != last.Assets || h.Statement != last.Digest() {
		return damage("the horizon is not the end of period %d", h.Period)
	}
	row, _ := tables.GetPeriod(r, h.Period)
	rec, known := tables.Record(r, row.CloseSeq)
	if want := record.NewClose(&last); !known || row.CloseSeq <= h.Seq || rec.Op != want.Op ||
		rec.Amount != want.Amount || rec.Dedupe != want.Dedupe {
		return damage("record %d does not close period %d", row.CloseSeq, h.Period)
	}
	return nil
}
