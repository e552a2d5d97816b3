package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// maxExpire is how many holds one command ends.
const maxExpire = 256

// expire is the command that ends overdue holds, in the order of their expiry.
type expire struct {
	holds   []record.TxID
	seed    uint64
	touched []Mark
}

// Kind names the command.
func (*expire) Kind() string { return "ledger.expire/1" }

// Size returns the weight of the command in its group, bytes.
func (c *expire) Size() int { return len(c.holds) * opSize }

// Apply ends the holds that are still open, and returns the number of records.
func (c *expire) Apply(r store.Reader, at store.Stamp, w *store.Writes) (int, error) {
	b := store.GroupOf[*books](r)
	x, err := b.start(r, at, w, c.seed)
	if err != nil {
		return 0, err
	}
	o := &Op{Code: record.OpExpire}
	var ended []record.TxID
	for _, id := range c.holds {
		if res := x.single(&action{op: o, hold: id.Seq()}, plain); res.code == record.Accepted {
			ended = append(ended, id)
		}
	}
	if len(x.raws) == 0 {
		return 0, refusal{&posted{}}
	}
	x.seal()
	b.event.Touched, b.event.Expired = c.touched, ended
	w.Then(b.keep)
	return len(x.raws), nil
}

// runExpirer ends overdue holds at each tick.
func (l *Local) runExpirer(ctx context.Context) error {
	defer l.expireTick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.expireTick.C():
		}
		for more := true; more && ctx.Err() == nil; {
			var err error
			more, err = l.expireDue(ctx)
			l.noticed(err)
		}
	}
}

// expireDue ends at most maxExpire holds, and reports whether more may be due.
func (l *Local) expireDue(ctx context.Context) (more bool, err error) {
	if l.ready() != nil || l.books.view.Load().OpenHolds == 0 {
		return false, nil
	}
	c := &expire{seed: newSeed()}
	if err := l.due(ctx, c); err != nil || len(c.holds) == 0 {
		return false, err
	}
	_, err = store.Commit(ctx, l.store, store.Bulk, c)
	var none refusal
	if errors.As(err, &none) {
		return false, nil
	}
	return err == nil && len(c.holds) == maxExpire, err
}

// due finds overdue holds, the earliest first. Flushed holds are in the file in that order, the
// others in memory.
func (l *Local) due(ctx context.Context, c *expire) error {
	now := l.now().UnixNano()
	var fresh []tables.HoldEnd
	for _, seq := range l.books.holds.pinnedKeys() {
		if h, _ := l.books.holds.read(seq); h.From != 0 && h.Open() && h.Expires <= now {
			fresh = append(fresh, tables.HoldEnd{Expires: h.Expires, Seq: seq})
		}
	}
	return l.view(ctx, func(r store.Reader) error {
		ends := append(slices.Clip(fresh), l.dueInFile(r, now)...)
		slices.SortFunc(ends, func(a, b tables.HoldEnd) int {
			return cmp.Or(cmp.Compare(a.Expires, b.Expires), cmp.Compare(a.Seq, b.Seq))
		})
		c.holds, c.touched = c.holds[:0], c.touched[:0]
		for _, end := range slices.Compact(ends) {
			if len(c.holds) == maxExpire {
				return nil
			}
			if err := l.touch(r, end.Seq, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// dueInFile finds overdue holds in the file, except those that are closed in memory.
func (l *Local) dueInFile(r store.Reader, now int64) (ends []tables.HoldEnd) {
	looked := 0
	for end := range tables.HoldEnds(r, tables.HoldEnd{}) {
		if looked++; end.Expires > now || len(ends) == maxExpire || looked > 16*maxExpire {
			break
		}
		if h, known := l.books.holds.read(end.Seq); !known || h.Open() {
			ends = append(ends, end)
		}
	}
	return ends
}

// touch adds the id of a hold and the balances that its end changes to c.
func (l *Local) touch(r store.Reader, seq uint64, c *expire) error {
	rec, known := tables.Record(r, seq)
	if !known {
		return ErrNotFound
	}
	c.holds = append(c.holds, rec.TxID())
	n, err := l.namesOf(r, &rec)
	c.touched = append(c.touched, MarkOf(n.From, n.Asset), MarkOf(n.To, n.Asset))
	return err
}

// seal is the command of one slice of a run of the idempotency index.
type seal struct {
	slice idem.Slice
}

// Kind names the command.
func (*seal) Kind() string { return "ledger.seal/1" }

// Size returns the weight of the command in its group, bytes.
func (c *seal) Size() int { return c.slice.Size() }

// Apply writes the slice.
func (c *seal) Apply(r store.Reader, at store.Stamp, w *store.Writes) (struct{}, error) {
	b := store.GroupOf[*books](r)
	if _, err := b.start(r, at, w, 0); err != nil {
		return struct{}{}, err
	}
	if err := b.idem.Seal(r, w, &c.slice); err != nil {
		return struct{}{}, err
	}
	w.Then(b.keep)
	return struct{}{}, nil
}

// drop is the command that deletes a run of expired keys.
type drop struct{ first uint64 }

// Kind names the command.
func (drop) Kind() string { return "ledger.drop/1" }

// Apply drops the run.
func (c drop) Apply(r store.Reader, at store.Stamp, w *store.Writes) (struct{}, error) {
	b := store.GroupOf[*books](r)
	if _, err := b.start(r, at, w, 0); err != nil {
		return struct{}{}, err
	}
	b.idem.Drop(w, c.first)
	w.Then(b.keep)
	return struct{}{}, nil
}

// runSealer seals slots that are closed and drops runs that are too old. Slots close early when
// much is written, so it looks often.
func (l *Local) runSealer(ctx context.Context) error {
	defer l.sealTick.Stop()
	mistaken := l.books.idem.Stats().Mistaken
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.sealTick.C():
		}
		is := l.books.idem.Stats().Mistaken
		l.m.probes(int(is - mistaken))
		if mistaken = is; l.ready() != nil {
			continue
		}
		err := l.seal(ctx)
		if err == nil {
			err = l.dropOld(ctx)
		}
		l.noticed(err)
	}
}

// seal seals every closed slot.
func (l *Local) seal(ctx context.Context) error {
	s := l.books.idem.Sealer()
	for slice, ok := s.Next(); ok; slice, ok = s.Next() {
		if _, err := store.Commit(ctx, l.store, store.Bulk, &seal{slice}); err != nil {
			return err
		}
	}
	return nil
}

// dropOld drops the runs that are too old, one a commit, unless no key may be forgotten.
func (l *Local) dropOld(ctx context.Context) error {
	view := func(fn func(store.Reader) error) error { return l.store.View(ctx, fn) }
	for l.settled() {
		first, due, err := l.books.idem.Due(l.books.view.Load().At-int64(l.reloaded.Load().KeyTTL), view)
		if err != nil || !due {
			return err
		}
		if _, err := store.Commit(ctx, l.store, store.Bulk, drop{first}); err != nil {
			return err
		}
	}
	return nil
}
