package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger/tables"
	"ronbox/engines/merkle"
	"ronbox/store"
)

// Recover reads the file and redoes what was not written behind. Call it once, after the store was opened and its committer runs. A journal
// that does not follow itself is no error: it puts the ledger into safe mode, in which it is read.
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
	v := l.books.view.Load()
	l.log.Info("recovery.done", "seq", v.Seq, "batches", v.Batches, "redone", v.Seq-min(v.Seq, v.hand.low.Seq), "dirty", l.books.dirty(),
		"latency_ms", time.Since(begun).Milliseconds())
	return nil
}

// damaged tells what of the journal's own state keeps a ledger from being written from what keeps it from being read.
func damaged(err error) bool {
	var damage *damageError
	return errors.As(err, &damage) || errors.Is(err, store.ErrCorrupt)
}

// damageError says where the journal does not follow itself.
type damageError struct{ cause error }

func (e *damageError) Error() string { return "the journal does not check: " + e.cause.Error() }

// Unwrap gives the cause.
func (e *damageError) Unwrap() error { return e.cause }

func damage(format string, args ...any) error { return &damageError{fmt.Errorf(format, args...)} }

// recover takes all steps, after damage too: what can be read is served. The error is the first one, or one that ends the boot.
func (l *Local) recover(ctx context.Context) error {
	err := l.store.View(ctx, tables.CheckFormat)
	for _, read := range []func(store.Reader) error{l.readDoubt, l.readKey, l.books.loadRecent, l.readAssets, l.readEnd, l.readHead} { // damage of one hides no other
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
	l.log.Info("recovery.steps", "redo_ms", took[0].Milliseconds(), "verify_ms", took[1].Milliseconds(), "index_ms", took[2].Milliseconds())
	if err == nil {
		l.endDoubt(ctx)
	}
	if cur := &l.books.cur; l.books.rowsTo != cur.Seq {
		cur.lack = fmt.Errorf("%w: %w: balances are known up to record %d of %d", ErrSafeMode, store.ErrCorrupt, l.books.rowsTo, cur.Seq)
	}
	return err
}

// readKey takes over the key of the keys' hashes. A ledger that has none, newly imported, has no keys either.
func (l *Local) readKey(r store.Reader) error {
	if key, known := tables.GetStoreKey(r); known {
		l.useKey(key)
	}
	l.books.keysRead = true
	return nil
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

// readAssets takes over the assets that were flushed; what declares an asset follows on what opens its issuance account. An asset whose
// account is not in the file yet is redone, and so is every one after it. Where the account's only row is damaged nobody knows what
// declared the asset, and its balances are read all the same.
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
		l.books.cur.assets = l.books.cur.assets.with(newAsset(ref, name, issuer, seq))
	}
	return nil
}

func (l *Local) useKey(key tables.StoreKey) {
	l.keyed.Store(&hashKey{key, b3.Keyed([b3.Size]byte(key))})
}

// genesis is the command that gives a ledger the key of its idempotency keys' hashes.
type genesis struct{ key tables.StoreKey }

// Kind names the command.
func (genesis) Kind() string { return "ledger.begin/1" }

// Apply answers the key in force: the first one that came.
func (c genesis) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (tables.StoreKey, error) {
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

// loadKeys reads the idempotency index: what is sealed, then the journal behind it as far as its keys may still count.
func (l *Local) loadKeys(ctx context.Context) error {
	b := l.books
	b.show() // a command that comes to nothing goes back to what is shown
	loader := b.idem.Loader()
	for done := false; !done; {
		if err := l.store.View(ctx, func(r store.Reader) error { done = loader.Step(r); return nil }); err != nil {
			return err
		}
	}
	for _, first := range loader.Half() {
		if b.barred.Load() {
			break // nothing is written to a ledger that does not check
		}
		if _, err := store.Commit(ctx, l.store, store.Bulk, drop{first}); err != nil {
			l.log.Warn("half_sealed", "first_seq", first, "reason", err.Error()) // sealing it anew drops it too
		}
	}
	oldest := b.cur.At - int64(l.live().KeyTTL) // by the ledger's own time: the wall clock may be wrong as yet
	at, end := loader.From(), b.cur.Seq+1
	var err error
	if at == 1 { // behind a run nothing is passed over: an older use of a key, sealed in it, must not be found in place of a newer one
		err = l.store.View(ctx, func(r store.Reader) error { at = tables.Since(r, oldest); return nil })
	}
	for warm := at; err == nil && at < end; {
		l.progress("read idempotency keys", int64(at), int64(end))
		err = l.store.View(ctx, func(r store.Reader) error {
			tables.WarmRecords(r, warm, min(at+keysAhead, end))
			warm = min(at+keysAhead, end)
			at = b.idem.Read(r, at, end, keysSlice, oldest)
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
