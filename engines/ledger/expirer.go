package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// maxExpire is how many holds one command ends.
const maxExpire = 256

// expire is the command that ends holds whose time is over, in the order in which it ran out.
type expire struct {
	holds   []record.TxID
	seed    uint64
	touched []Mark
}

// Kind names the command.
func (*expire) Kind() string { return "ledger.expire/1" }

// Size is what the command weighs in its group.
func (c *expire) Size() int { return len(c.holds) * opSize }

// Apply ends the holds that are still open, and tells how many.
func (c *expire) Apply(r store.Reader, at store.Stamp, w *store.Writes) (int, error) {
	b := store.GroupOf[*books](r)
	x, err := b.start(r, at, w, c.seed)
	if err != nil {
		return 0, err
	}
	o := &Op{Code: record.OpExpire}
	var ended []record.TxID
	for _, id := range c.holds {
		if res := x.move(&action{op: o, hold: id.Seq()}, plain); res.code == record.Accepted {
			ended = append(ended, id)
		}
	}
	if len(x.raws) == 0 {
		return 0, refusal{&posted{}}
	}
	h := x.seal()
	b.event = Committed{First: h.First, Last: h.Last(), Batch: h.No, Root: b.cur.LastRoot, At: h.At, Touched: c.touched, Expired: ended}
	w.Then(b.keep)
	return len(x.raws), nil
}

// runExpirer ends holds whose time is over.
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

// expireDue ends up to a command's worth of holds, and tells whether more may be due.
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

// due finds holds whose time is over, the earliest first: those that were flushed stand in the file in that order, the others are in memory.
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

// dueInFile finds what the file's order of expiry has, but for what memory knows to be closed.
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

// touch adds a hold to c: its id, and whose balances its end changes.
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
