package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Recover reads the file and completes the rows that were not flushed. Call it once, after the
// store is open and its committer runs. A damaged journal is not an error: it puts the ledger into
// safe mode.
func (l *Local) Recover(ctx context.Context) error {
	begun := time.Now()
	if err := l.recover(ctx); err != nil {
		if !damaged(err) {
			return fmt.Errorf("recover the ledger: %w", err)
		}
		l.enterSafeMode(err)
	}
	l.books.show()
	l.books.loaded.Store(true)
	l.wakeFlusher()
	v := l.books.view.Load()
	l.log.Info("recovery.done", "seq", v.Seq, "batches", v.Batches, "redone", v.Seq-min(v.Seq, v.hand.low.Seq), "dirty",
		l.books.dirty(), "latency_ms", time.Since(begun).Milliseconds())
	return nil
}

// damaged reports whether err is damage, which ends writing, and not a failure to read the file.
func damaged(err error) bool {
	var damage *damageError
	return errors.As(err, &damage) || errors.Is(err, store.ErrCorrupt)
}

// damageError says where the journal does not follow itself.
type damageError struct{ cause error }

func (e *damageError) Error() string { return "the journal does not check: " + e.cause.Error() }

// Unwrap returns the cause.
func (e *damageError) Unwrap() error { return e.cause }

func damage(format string, args ...any) error { return &damageError{fmt.Errorf(format, args...)} }

// recover takes all steps, after damage too: what can be read is served. The error is the first
// one, or one that ends the boot.
func (l *Local) recover(ctx context.Context) error {
	err := l.store.View(ctx, tables.CheckFormat)
	// damage of one hides no other
	for _, read := range []func(store.Reader) error{
		l.readDoubt, l.readKey, l.readHorizon, l.books.loadRecent, l.readAssets, l.readEnd, l.readHead,
	} {
		if err != nil && !damaged(err) {
			return err
		}
		if e := l.store.View(ctx, read); err == nil || e != nil && !damaged(e) {
			err = e
		}
	}
	if err == nil && l.keyed.Load() == nil {
		if err := l.found(ctx); err != nil {
			l.log.Warn("not_begun", "reason", err.Error()) // a file without room: the first write tries again
		}
	}
	var took [3]time.Duration
	for i, step := range []func(context.Context) error{l.redo, l.verify, l.loadKeys} {
		if err != nil && !damaged(err) {
			return err
		}
		begun := time.Now()
		if e := step(ctx); err == nil || e != nil && !damaged(e) {
			err = e
		}
		l.books.barred.Store(err != nil)
		took[i] = time.Since(begun)
	}
	l.m.redo(took[0].Seconds())
	l.log.Info("recovery.steps", "redo_ms", took[0].Milliseconds(), "verify_ms", took[1].Milliseconds(), "index_ms",
		took[2].Milliseconds())
	if err == nil {
		l.endDoubt(ctx)
	}
	if cur := &l.books.cur; l.books.rowsTo != cur.Seq {
		cur.lack = fmt.Errorf("%w: %w: balances are known up to record %d of %d", ErrSafeMode, store.ErrCorrupt,
			l.books.rowsTo, cur.Seq)
	}
	return err
}

// readKey takes over the key of the keys' hashes. Only a ledger that has not begun has none. If
// rows of ledger/meta are missing, a key that is not found is not known to be new.
func (l *Local) readKey(r store.Reader) error {
	if key, known := tables.GetStoreKey(r); known {
		l.useKey(key)
	}
	err := tables.CheckMeta(r)
	if err == nil {
		err = tables.CheckNames(r)
	}
	l.books.keysRead = err == nil
	return err
}

// readHorizon takes over where the last closed period ends.
func (l *Local) readHorizon(r store.Reader) error {
	l.books.cur.horizon = tables.GetHorizon(r)
	return checkHorizon(r, l.books.cur.horizon)
}

// readEnd takes over where journal and rows end, as far as it can be told without the head.
func (l *Local) readEnd(r store.Reader) error {
	b := l.books
	b.cur.Seq = tables.LastSeq(r)
	b.cur.hand.low = tables.GetFlushed(r)
	b.cur.log.base = merkle.LogCount(b.cur.hand.low.Batches)
	b.rowsTo = b.cur.hand.low.Seq
	return nil
}

// readHead takes over where the file says that the journal ends.
func (l *Local) readHead(r store.Reader) error {
	b := l.books
	b.cur.Head, _ = tables.GetHead(r)
	if seq, no := tables.LastSeq(r), tables.LastBatch(r); seq != b.cur.Seq || no != b.cur.Batches {
		err := damage("it ends with record %d and batch %d, its head says %d and %d", seq, no, b.cur.Seq, b.cur.Batches)
		b.cur.Seq, b.cur.Batches = seq, no
		b.cur.headless = fmt.Errorf("%w: %w: %w", ErrSafeMode, store.ErrCorrupt, err)
		return err
	}
	if low := b.cur.hand.low; low.Seq > b.cur.Seq || low.Batches > b.cur.Batches {
		return damage("rows were written up to record %d, it ends with %d", low.Seq, b.cur.Seq)
	}
	if h, known := tables.Batch(r, b.cur.Batches); b.cur.Batches != 0 && (!known || h.Root() != b.cur.LastRoot) {
		return damage("the root of batch %d is not the one of its head", b.cur.Batches)
	}
	return nil
}

// readAssets reads the flushed assets. The record that declares an asset follows the one that opens
// its issuance account. If that account is not in the file yet, redo adds the asset and all later
// ones. If the row of the account is damaged, the seq of the declaration is unknown; balances can
// still be read.
func (l *Local) readAssets(r store.Reader) error {
	for ref, name := range tables.Assets(r) {
		issuer, known := tables.Ref(r, engines.IssuanceAccount(name))
		opened := l.books.opened(r, issuer)
		if !known || opened == 0 && l.books.broken[tables.StateKey{Account: issuer}] == nil {
			return nil
		}
		if err := l.books.cur.assets.follows(ref); err != nil {
			return err
		}
		seq := opened + 1
		if opened == 0 {
			seq = 0
		}
		declared := newAsset(ref, name, issuer, seq)
		declared.scale, _ = tables.GetScale(r, ref)
		l.books.cur.assets = l.books.cur.assets.with(declared)
	}
	return nil
}

func (l *Local) useKey(key tables.StoreKey) {
	l.keyed.Store(&hashKey{key, b3.Keyed([b3.Size]byte(key))})
}

// genesis is the command that writes the hash key of a new ledger.
type genesis struct{ key tables.StoreKey }

// Kind names the command.
func (genesis) Kind() string { return "ledger.begin/1" }

// Apply answers the key in force: the first one that came.
func (c genesis) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (tables.StoreKey, error) {
	if err := tables.CheckMeta(r); err != nil {
		return c.key, err
	}
	if key, known := tables.GetStoreKey(r); known {
		return key, nil
	}
	tables.PutGenesis(w, c.key)
	return c.key, nil
}

// found begins a ledger.
func (l *Local) found(ctx context.Context) error {
	var c genesis
	_, _ = rand.Read(c.key[:]) // never fails
	key, err := store.Commit(ctx, l.store, store.Work, c)
	if err == nil {
		l.useKey(key)
	}
	return err
}

// keysSlice is how many records one view of the boot reads for their keys.
const keysSlice = 8192

// keysAhead is how many records the disk is asked for before they are read: some 10 MB.
const keysAhead = 4 * keysSlice

// loadKeys reads the idempotency index: the sealed runs, then the keys of the records after them
// that may still count.
func (l *Local) loadKeys(ctx context.Context) error {
	b := l.books
	b.show() // a command that fails restores the published tip
	loader := b.idem.Loader()
	for done := false; !done; {
		if err := l.store.View(ctx, func(r store.Reader) error { done = loader.Step(r); return nil }); err != nil {
			return err
		}
	}
	for _, first := range loader.Half() {
		if b.barred.Load() {
			break // a damaged ledger is not written
		}
		if _, err := store.Commit(ctx, l.store, store.Bulk, drop{first}); err != nil {
			l.log.Warn("half_sealed", "first_seq", first, "reason", err.Error()) // sealing it anew drops it too
		}
	}
	at, end := loader.From(), b.cur.Seq+1
	var err error
	// after a run no record is skipped: an older use of a key, sealed in the run, must not be found
	// in place of a newer one
	if at == 1 {
		err = l.store.View(ctx, func(r store.Reader) error { at = l.firstKey(r); return nil })
	}
	at = max(at, b.cur.horizon.Seq+1) // no key of a closed period counts
	for warm := at; err == nil && at < end; {
		l.progress("read idempotency keys", int64(at), int64(end))
		err = l.store.View(ctx, func(r store.Reader) error {
			tables.WarmRecords(r, warm, min(at+keysAhead, end))
			warm = min(at+keysAhead, end)
			at = b.idem.Read(r, at, end, keysSlice)
			return nil
		})
		if err == nil && b.idem.Closed() > 1 && !b.barred.Load() {
			if e := l.seal(ctx); e != nil {
				l.log.Warn("not_sealed", "reason", e.Error()) // they stay in memory; the sealer tries again
			}
		}
	}
	b.keysRead = b.keysRead && err == nil
	return err
}

// firstKey returns the seq from which the keys of a ledger without runs are read: that of the first
// record whose key may count by the ledger's time. A ledger whose time went ahead in a step has
// older keys that count; a slot has room for all of them, since it was never closed. A batch is
// read whole: the keys of a slot are those from a time on.
func (l *Local) firstKey(r store.Reader) uint64 {
	cur, cfg := &l.books.cur, l.reloaded.Load()
	first := tables.Since(r, cur.At-int64(cfg.KeyTTL))
	if slot := uint64(cfg.SlotMax); cur.Seq > slot {
		first = min(first, cur.Seq-slot)
		rec, known := tables.Record(r, first)
		for before := rec; known && before.At == rec.At; {
			if before, known = tables.Record(r, first-1); known && before.At == rec.At {
				first--
			}
		}
		return first
	}
	return 1
}

// redoSlice is how many records one view of a boot goes over: some 20 ms.
const redoSlice = 8192

// redo brings memory from where the rows in the file are to the end of the journal, and checks the
// journal on its way.
func (l *Local) redo(ctx context.Context) error {
	b := l.books
	low, h := b.cur.hand.low, b.cur.horizon
	walk := &journalWalk{next: low.Seq + 1, no: low.Batches + 1}
	switch {
	case low.Seq < h.Seq || low.Batches < h.Batch:
		return damage("rows were written up to record %d, and those up to %d are closed", low.Seq, h.Seq)
	case low.Batches == h.Batch:
		walk.prev = h.LastRoot
	}
	first := walk.next
	err := l.store.View(ctx, func(r store.Reader) error {
		tables.WarmRecords(r, first, min(first+redoMost, b.cur.Seq+1))
		b.warm(r, first, first+redoSlice)
		return nil
	})
	if err != nil {
		return err
	}
	for walk.no <= b.cur.Batches {
		l.progress("redo the ledger", int64(walk.next-first), int64(b.cur.Seq+1-first))
		ahead := walk.next + redoSlice
		err := flow.Fan(ctx, 2, func(ctx context.Context, i int) error {
			return l.store.View(ctx, func(r store.Reader) error {
				if i == 0 {
					return walk.step(r, b.cur.Batches, redoSlice, b.again)
				}
				b.warm(r, ahead, ahead+redoSlice)
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	if walk.next != b.cur.Seq+1 {
		return damage("its batches end with record %d, its head with %d", walk.next-1, b.cur.Seq)
	}
	if n := len(b.cur.assets.byRef); n != int(b.cur.Assets) {
		return damage("it declares %d assets, of which %d are known", b.cur.Assets, n)
	}
	return nil
}

// warm has the disk read the balances that records change and memory lacks, so that the redo of
// them does not wait for one page at a time.
func (b *books) warm(r store.Reader, from, to uint64) {
	if b.cur.Accounts < fewRows {
		return // they lie in few pages
	}
	var cold []tables.StateKey
	var rec record.Record
	for _, raw := range tables.Raws(r, from, to) {
		if rec.Decode(raw) != nil {
			return // the redo tells
		}
		for i := range rec.Images {
			if k := (tables.StateKey{Account: rec.Images[i].Account, Asset: rec.Images[i].Asset}); b.states.cell(
				k,
			) == nil {
				cold = append(cold, k)
			}
		}
	}
	tables.WarmStates(r, cold)
}

// again redoes one record, or the end of a batch.
func (b *books) again(r store.Reader, rec *record.Record, h *record.Batch) error {
	if h != nil {
		if err := b.cur.log.add(r, h.No-1, h.Root()); err != nil {
			return damage("the log of batch %d: %w", h.No, err)
		}
		for _, l := range b.layers {
			l.keep()
			l.publish()
		}
		b.soonest.ended()
		b.rowsTo = h.Last()
		return nil
	}
	now := current{b: b, r: r}
	if err := now.evolve(rec); err != nil {
		return damage("%w", err)
	}
	return nil
}
