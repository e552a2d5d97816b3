package ledger

import (
	"context"
	"errors"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

var (
	errStale    = errors.New("ledger: a row is neither in memory nor in the file")
	errNoHeader = errors.New("it is not there")
)

// staleTries bounds the attempts of a read.
const staleTries = 4

// view runs fn in a read transaction, again if a row went from memory into the file while fn looked
// for it. fn may run more than once. A row that does not decode puts the ledger into safe mode.
func (l *Local) view(ctx context.Context, fn func(store.Reader) error) error {
	var err error
	for range staleTries {
		if err = l.store.View(ctx, fn); !errors.Is(err, errStale) {
			break
		}
	}
	if errors.Is(err, errStale) { // every time: it is not there
		err = fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	if errors.Is(err, store.ErrCorrupt) {
		l.enterSafeMode(err)
	}
	return err
}

// errMoved ends a read in several views if a period was closed between two of them.
var errMoved = errors.New("ledger: a period was closed meanwhile")

// viewAt is view for a read in several views. It returns errMoved if the horizon is not that of a
// period.
func (l *Local) viewAt(ctx context.Context, period uint64, fn func(store.Reader) error) error {
	return l.view(ctx, func(r store.Reader) error {
		if l.past(r).Period != period {
			return errMoved
		}
		return fn(r)
	})
}

// Horizon returns the end of the last closed period. The zero Horizon is that of a ledger without
// closed periods.
func (l *Local) Horizon() tables.Horizon { return l.books.view.Load().horizon }

// past returns what a view knows of closed periods. The caller asks within the view: rows are
// dropped after their horizon was published, so a view that began before the first one lacks none.
func (l *Local) past(r store.Reader) past {
	if l.Horizon().Period == 0 && l.safe.Load() == nil {
		return past{r: r}
	}
	return past{tables.GetHorizon(r), r}
}

// closed returns a *ClosedError for the seq of a record in a closed period.
func (l *Local) closed(r store.Reader, seq uint64) error { return l.past(r).closed(seq) }

// readable says why nothing can be read, or nil.
func (l *Local) readable(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !l.books.loaded.Load() {
		return &UnavailableError{Cause: ErrLoading}
	}
	return nil
}

// Find returns the outcome of a dedupe key since notBefore; see Client.
func (l *Local) Find(
	ctx context.Context,
	k DedupeKey,
	fingerprint b3.Digest,
	notBefore int64,
) (out Outcome, found bool, err error) {
	if err := l.readable(ctx); err != nil {
		return out, false, err
	}
	key := l.keyed.Load()
	switch {
	case k.Key == "" || key == nil && l.books.keysRead:
		return out, false, nil
	case key == nil:
		return out, false, errKeys
	}
	hash := key.hash(k)
	seq, found, err := l.books.idem.Find(hash, notBefore,
		func(fn func(store.Reader) error) error { return l.view(ctx, fn) })
	if err == nil && !found && (!l.books.keysRead || l.SafeMode() != "") {
		err = errKeys
	}
	if err != nil || !found {
		return out, false, l.readError(err)
	}
	err = l.view(ctx, func(r store.Reader) (err error) {
		if l.past(r).Below(seq) {
			found = false // a key that counts leads to a later record
			return nil
		}
		rec, known := tables.Record(r, seq)
		mustLead(hash, seq, &rec, known)
		switch {
		case rec.At <= notBefore:
			found = false
			return nil
		case rec.Dedupe.Fingerprint != fingerprint:
			out = Outcome{Reject: refuse(record.IdemConflict)}
			return nil
		}
		out, err = l.outcomeAt(r, seq)
		out.replay()
		return err
	})
	return out, found, l.readError(err)
}

// errKeys says that a boot that met damage did not read all keys: one that is not found may have
// been used.
var errKeys = fmt.Errorf("%w: %w: not all idempotency keys could be read", ErrSafeMode, store.ErrCorrupt)

// readError converts an error of a view for callers: a damaged row is an ErrSafeMode. So is,
// in safe mode, the absence of a record: it may have been lost.
func (l *Local) readError(err error) error {
	var closed *ClosedError
	switch {
	case errors.As(err, &closed):
		l.m.closed[closedRecord](1)
	case errors.Is(err, store.ErrCorrupt) && !errors.Is(err, ErrSafeMode):
		return fmt.Errorf("%w: %w", ErrSafeMode, err)
	case l.SafeMode() != "" && (errors.Is(err, ErrNotFound) || errors.Is(err, ErrRange)):
		return errAbsent
	}
	return err
}

// Balance reads an account, from memory if it was changed lately, else from the file; see Client.
func (l *Local) Balance(ctx context.Context, account, asset string, minSeq uint64) (BalanceView, error) {
	if err := l.readable(ctx); err != nil {
		return BalanceView{}, err
	}
	l.expireFirst(ctx)
	if err := l.reach(ctx, minSeq); err != nil {
		return BalanceView{}, err
	}
	v := l.books.view.Load() // before the row: the row is at least as new
	if v.lack != nil {
		return BalanceView{}, v.lack
	}
	out := BalanceView{Account: account, Asset: asset, At: v.At, Seq: v.Seq}
	ref, err := l.lookUp(ctx, account)
	if err != nil || ref == 0 {
		return out, err
	}
	out.Known = true
	declared := v.assets.byName[asset]
	if declared == nil {
		return out, v.unread()
	}
	key := tables.StateKey{Account: ref, Asset: declared.ref}
	state, warm := l.books.states.read(key)
	if out.Cold = !warm; out.Cold {
		state, err = l.balanceOf(ctx, key)
	}
	out.show(&state.State)
	return out, err
}

// reach waits until the record seq was published.
func (l *Local) reach(ctx context.Context, seq uint64) error {
	if l.books.view.Load().Seq >= seq {
		return nil
	}
	if l.safe.Load() != nil {
		return ErrSafeMode // it will not come
	}
	for {
		_, moved := l.reached.Load() // before the head is read: a later publication closes moved
		if l.books.view.Load().Seq >= seq {
			return nil
		}
		if l.following.CompareAndSwap(false, true) {
			return l.follow(ctx, seq)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-moved:
		}
	}
}

// follow waits for the record seq at the bus, and tells the other readers of every head. One reader
// at a time does: the committer, which publishes between its sync and its answers, so wakes one of
// them, however many there are.
func (l *Local) follow(ctx context.Context, seq uint64) error {
	news := l.bus.Subscribe("balance")
	defer func() {
		news.Close()
		l.following.Store(false)
		l.reached.Store(l.books.view.Load().Seq) // another reader follows from here on
	}()
	for {
		head := l.books.view.Load().Seq
		l.reached.Store(head)
		if head >= seq {
			return nil
		}
		if _, _, err := news.Recv(ctx); err != nil {
			return err
		}
	}
}

// show fills in the amounts of a state.
func (v *BalanceView) show(s *record.State) {
	v.Held = s.DebitsHeld
	posted, ok := s.Balance()
	if !ok {
		v.Issued, _ = s.DebitsPosted.Sub(s.CreditsPosted)
		return
	}
	v.Posted = posted
	v.Available, _ = s.Available()
}

func (l *Local) balanceOf(ctx context.Context, k tables.StateKey) (b tables.Balance, err error) {
	if b, ok := l.books.states.read(k); ok {
		return b, nil
	}
	err = l.view(ctx, func(r store.Reader) error {
		b = l.books.fileBalance(r, k)
		return nil
	})
	return b, l.readError(err)
}

func (l *Local) accountOf(ctx context.Context, ref uint64) (a tables.Account, err error) {
	if a, ok := l.books.accounts.read(ref); ok {
		return a, nil
	}
	err = l.view(ctx, func(r store.Reader) error {
		a = l.books.fileAccount(r, ref)
		return nil
	})
	return a, l.readError(err)
}

// Account reads what an account has besides balances.
func (l *Local) Account(ctx context.Context, account string) (AccountView, error) {
	out := AccountView{Account: account}
	if err := l.readable(ctx); err != nil {
		return out, err
	}
	if err := l.books.view.Load().lack; err != nil {
		return out, err
	}
	ref, err := l.lookUp(ctx, account)
	if err != nil || ref == 0 {
		return out, err
	}
	a, err := l.accountOf(ctx, ref)
	if err != nil {
		return out, err
	}
	if err := l.reach(ctx, a.LastSeq); err != nil {
		return out, err
	}
	out.Known, out.LastNonce, out.Flags, out.OpenedSeq = true, a.LastNonce, a.Flags, a.OpenedSeq
	err = l.view(ctx, func(r store.Reader) error {
		past := l.past(r)
		out.OpenedAt, out.LastTx = past.openedAt(ref, a.OpenedSeq), past.lastTx(ref, a.LastNonceSeq)
		return nil
	})
	return out, l.readError(err)
}

// Assets lists the declared assets, in order.
func (l *Local) Assets(ctx context.Context) ([]AssetView, error) {
	if err := l.readable(ctx); err != nil {
		return nil, err
	}
	var out []AssetView
	now := l.books.view.Load()
	if err := now.unread(); err != nil {
		return nil, err
	}
	for _, a := range now.assets.byRef {
		if a.seq == 0 {
			return nil, fmt.Errorf("%w: %w: nobody knows which record declared %s", ErrSafeMode, store.ErrCorrupt,
				a.name)
		}
		state, err := l.balanceOf(ctx, tables.StateKey{Account: a.issuer, Asset: a.ref})
		if err != nil {
			return nil, err
		}
		v := AssetView{Asset: a.name, Seq: a.seq, Decimals: a.scale.Decimals, Scaled: a.scale.Seq != 0}
		v.Issued, _ = state.State.DebitsPosted.Sub(state.State.CreditsPosted)
		err = l.view(ctx, func(r store.Reader) error {
			if a.seq != 0 {
				v.DeclaredAt = l.past(r).declaredAt(a)
			}
			return nil
		})
		if err != nil {
			return nil, l.readError(err)
		}
		out = append(out, v)
	}
	return out, nil
}

// Tx reads one record's outcome; see Client.
func (l *Local) Tx(ctx context.Context, id record.TxID) (out Outcome, err error) {
	if err := l.readable(ctx); err != nil {
		return out, err
	}
	err = l.view(ctx, func(r store.Reader) (err error) {
		if _, err = l.given(r, id); err == nil {
			out, err = l.outcomeAt(r, id.Seq())
		}
		return err
	})
	return out, l.readError(err)
}

// given is the record of an id. It returns ErrNotFound for an id that was not given out, and a
// *ClosedError if it may be that of a record in a closed period.
func (l *Local) given(r store.Reader, id record.TxID) (record.Record, error) {
	seq := id.Seq()
	if seq == 0 || seq > l.books.view.Load().Seq {
		return record.Record{}, ErrNotFound // a view may see unsynced records after the published head
	}
	if err := l.closed(r, seq); err != nil {
		return record.Record{}, err
	}
	rec := tables.MustRecord(r, seq)
	if rec.TxID() != id {
		return record.Record{}, ErrNotFound
	}
	return rec, nil
}

// warm is the command that brings a balance into memory. It writes nothing.
type warm struct{ key tables.StateKey }

// Kind names the command in metrics.
func (warm) Kind() string { return "ledger.warm/1" }

// errWarmed ends the command, so that it needs no sync.
var errWarmed = errors.New("ledger: a balance was brought into memory")

// Apply reads the row, unless memory has it.
func (c warm) Apply(r store.Reader, _ store.Stamp, _ *store.Writes) (struct{}, error) {
	b := store.GroupOf[*books](r)
	b.busy = true // the end of the group evicts, also if only rows are warmed
	b.state(r, c.key)
	return struct{}{}, errWarmed
}

// WarmBalance brings the balance of an account in an asset into memory, where it stays until rows
// that are used more often need the room. It waits for the committer until ctx ends.
func (l *Local) WarmBalance(ctx context.Context, account, asset string) error {
	if err := l.ready(); err != nil {
		return err
	}
	ref, err := l.lookUp(ctx, account)
	declared := l.books.view.Load().assets.byName[asset]
	if err != nil || ref == 0 || declared == nil {
		return err
	}
	_, err = store.Commit(ctx, l.store, store.Bulk, warm{tables.StateKey{Account: ref, Asset: declared.ref}})
	if err != nil && !errors.Is(err, errWarmed) {
		return l.unavailable(err)
	}
	return nil
}
