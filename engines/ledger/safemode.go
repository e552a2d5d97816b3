package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/obs"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// enterSafeMode ends writing until the next start: the file contradicts itself, and only a
// verification can find out how far the journal is sound.
func (l *Local) enterSafeMode(cause error) {
	why := cause.Error()
	if !l.safe.CompareAndSwap(nil, &why) {
		return
	}
	l.wakeFlusher() // which notes it
	l.books.barred.Store(true)
	l.m.gaps(1)
	l.m.safeMode(1)
	l.log.Error("safe_mode", "reason", why)
	l.board.Set(service, keySafeMode, ErrSafeMode)
}

// SafeMode returns the reason for safe mode, "" if the ledger is not in safe mode.
func (l *Local) SafeMode() string {
	if why := l.safe.Load(); why != nil {
		return *why
	}
	return ""
}

// Readiness keys.
const (
	keyLoaded   = "loaded"    // the journal was read
	keySafeMode = "safe_mode" // it checked
)

// probeEvery is the least time between two looks at a readiness key.
const probeEvery = 250 * time.Millisecond

// probes returns the readiness probes. They are hard: writes need both.
func (l *Local) probes() []obs.Probe {
	return []obs.Probe{
		{
			Service: service,
			Key:     keyLoaded,
			Hard:    true,
			Plane:   obs.WritePlane,
			Every:   probeEvery,
			Bad:     1,
			Good:    1,
			Func: func() error {
				if !l.books.loaded.Load() {
					return ErrLoading
				}
				return nil
			},
		},
		{
			Service: service,
			Key:     keySafeMode,
			Hard:    true,
			Plane:   obs.WritePlane,
			Every:   probeEvery,
			Bad:     1,
			Good:    1,
			Func: func() error {
				if why := l.SafeMode(); why != "" {
					return errors.New(why)
				}
				return nil
			},
		},
	}
}

// The doubt command writes the reason for safe mode into the file. With "" it deletes the reason
// after a full verification. Without this note, the next start would write to a ledger with damage
// in parts that a start does not read.
type doubt struct{ why string }

// Kind implements store.Command.
func (doubt) Kind() string { return "ledger.doubt/1" }

// Apply writes the note.
func (c doubt) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	tables.PutDoubt(w, c.why)
	return struct{}{}, nil
}

// noteDoubt notes safe mode in the file, once. A store that takes nothing now is asked again at the
// next tick.
func (l *Local) noteDoubt(ctx context.Context) {
	why := l.SafeMode()
	if why == "" || l.noted.Load() {
		return
	}
	if _, err := store.Commit(ctx, l.store, store.Bulk, doubt{why}); err == nil {
		l.noted.Store(true)
	}
}

// readDoubt takes over the note of an earlier run.
func (l *Local) readDoubt(r store.Reader) error {
	l.doubt = tables.GetDoubt(r)
	l.noted.Store(l.doubt != "")
	return nil
}

// endDoubt takes the note out of a file that was verified as a whole and found sound.
func (l *Local) endDoubt(ctx context.Context) {
	if l.doubt == "" {
		return
	}
	if _, err := store.Commit(ctx, l.store, store.Bulk, doubt{}); err != nil {
		l.log.Warn("note_of_safe_mode_stays", "reason", err.Error()) // the next boot verifies everything once more
		return
	}
	l.noted.Store(false)
	l.log.Info("safe_mode_ended", "was", l.doubt)
}

// VerifyTail goes over this many of the newest batches, of these many records together at most: in
// a large ledger each may ask for four pages of the disk that are in no memory after a start, and a
// second should do. A ledger with fewer records is verified in full: only that finds a lost row of
// a derived table. After an election payments wait, and the other members have the same rows.
const (
	tailBatches    = 1024
	tailRecords    = 1 << 14
	electedBatches = tailBatches / 8
	electedRecords = tailRecords / 8
)

// verify checks the journal as the configuration asks: records, images, roots, chain; with
// VerifyFull, or in a small ledger, also the derived tables. A file with a note of safe mode is
// verified in full, unless the boot has found damage already.
func (l *Local) verify(ctx context.Context) error {
	var o lverify.Options
	how := l.boot.VerifyOnOpen
	if l.doubt != "" && !l.books.barred.Load() {
		l.log.Warn("verify_all", "reason", l.doubt)
		how = VerifyFull
	}
	switch how {
	case VerifyNone:
		return nil
	case VerifyTail:
		from, err := l.tail(ctx)
		if err != nil || from == 0 {
			return err
		}
		o.From = from
	}
	o.Progress = func(done, total uint64) { l.progress("verify the ledger", int64(done), int64(total)) }
	return l.store.View(ctx, func(r store.Reader) error {
		if o.From > 1 {
			l.books.warmTail(r, o.From)
		}
		rep, err := lverify.Verify(ctx, r, o)
		if err == nil && !rep.OK {
			return &damageError{rep.Err()}
		}
		return err
	})
}

// tail is the first batch of the tail, 0 for none. From 1 on everything is checked: what is after
// the horizon, and the rows of all accounts. The tail of a ledger with many accounts leaves out the
// first batch after the horizon, which would mean the same.
func (l *Local) tail(ctx context.Context) (from uint64, err error) {
	cur := &l.books.cur
	if cur.Batches == 0 {
		return 0, nil
	}
	batches, records := uint64(tailBatches), uint64(tailRecords)
	if l.elected {
		batches, records = electedBatches, electedRecords
	}
	past := &cur.horizon
	if cur.Seq-past.Seq <= records && (past.Period == 0 || cur.Accounts <= records) {
		return 1, nil
	}
	from = cur.Batches - min(cur.Batches, batches) + 1
	if past.Period != 0 {
		from = max(from, past.Batch+2)
	}
	err = l.store.View(ctx, func(r store.Reader) error {
		if rec, known := tables.Record(r, cur.Seq-min(cur.Seq, records)); known {
			from = max(from, min(rec.Batch+1, cur.Batches))
		}
		return nil
	})
	return from, err
}

// warmTail reads ahead the pages that a check from a batch on needs: the earlier records that
// images follow, and the rows of their balances.
func (b *books) warmTail(r store.Reader, batch uint64) {
	first, known := tables.Batch(r, batch)
	if !known || b.cur.Accounts < fewRows {
		return
	}
	var rows []tables.StateKey
	var past []uint64
	var rec record.Record
	for _, raw := range tables.Raws(r, first.First, b.cur.Seq+1) {
		if rec.Decode(raw) != nil {
			return // the check tells
		}
		for i := range rec.Images {
			if im := &rec.Images[i]; im.Prev != 0 && im.Prev < first.First {
				rows, past = append(rows, tables.StateKey{Account: im.Account, Asset: im.Asset}), append(past, im.Prev)
			}
		}
	}
	tables.WarmStates(r, rows)
	tables.WarmRecordsAt(r, past)
}

// Checks are what proves the ledger of a file: chain, roots, sums, and that the derived rows follow
// from the journal.
func Checks() []store.Check { return lverify.Checks() }

// unavailable words an error of the store for the ledger's callers.
func (l *Local) unavailable(err error) error {
	switch {
	case errors.Is(err, store.ErrFull):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case errors.Is(err, store.ErrRestored):
		return fmt.Errorf("%w: %w", ErrRestored, err)
	case errors.Is(err, ErrSafeMode):
		return ErrSafeMode
	case errors.Is(err, store.ErrUnknown):
		return &UnavailableError{Unknown: true, Cause: err}
	case errors.Is(err, store.ErrPoisoned): // no later call finds out what became of the keys that are on their way
		return &UnavailableError{Unknown: l.strays.len() > 0, Cause: err}
	case errors.Is(err, store.ErrCorrupt):
		l.enterSafeMode(err)
		return ErrSafeMode
	case errors.Is(err, store.ErrInternal):
		return err
	}
	return &UnavailableError{Cause: err}
}
