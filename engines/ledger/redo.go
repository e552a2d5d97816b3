package ledger

import (
	"context"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/engines/merkle"
	"ronbox/store"
)

// redoSlice is how many records one view of a boot goes over: some 20 ms.
const redoSlice = 8192

// redo brings memory from where the rows in the file are to the end of the journal, and checks the journal on its way.
func (l *Local) redo(ctx context.Context) error {
	b := l.books
	walk := &journalWalk{next: b.cur.hand.low.Seq + 1, no: b.cur.hand.low.Batches + 1}
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
		b.rowsTo = walk.next - 1
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

// warm has the disk read the balances that records change and memory lacks, so that the redo of them does not wait for one page at a time.
func (b *books) warm(r store.Reader, from, to uint64) {
	if b.cur.Accounts < cleanRows {
		return // they lie in few pages
	}
	var cold []tables.StateKey
	var rec record.Record
	for _, raw := range tables.Raws(r, from, to) {
		if rec.Decode(raw) != nil {
			return // the redo tells
		}
		for i := range rec.Images {
			if k := (tables.StateKey{Account: rec.Images[i].Account, Asset: rec.Images[i].Asset}); b.states.cell(k) == nil {
				cold = append(cold, k)
			}
		}
	}
	tables.WarmStates(r, cold)
}

// journalWalk goes through the journal batch by batch and holds each against its header, and the headers against one another.
type journalWalk struct {
	next uint64 // seq of the next record
	no   uint64 // of the next batch
	prev b3.Digest
	tree merkle.Tree
	rec  record.Record
}

// each is given every record, and every header after its records.
type each func(r store.Reader, rec *record.Record, h *record.Batch) error

// step goes on by some n records, up to the batch last.
func (w *journalWalk) step(r store.Reader, last uint64, n int, do each) error {
	if w.no > 1 && w.prev.IsZero() {
		before, known := tables.Batch(r, w.no-1)
		if !known {
			return damage("the header of batch %d is not there", w.no-1)
		}
		w.prev = before.Root()
	}
	for until := w.next + uint64(n); w.no <= last && w.next < until; {
		if err := w.batch(r, do); err != nil {
			return err
		}
	}
	return nil
}

func (w *journalWalk) batch(r store.Reader, do each) error {
	h, known := tables.Batch(r, w.no)
	switch {
	case !known:
		return damage("the header of batch %d is not there", w.no)
	case h.First != w.next:
		return damage("batch %d begins with record %d, not with %d", w.no, h.First, w.next)
	case h.Prev != w.prev:
		return damage("batch %d does not name the root of the batch before it", w.no)
	}
	for seq, raw := range tables.Raws(r, h.First, h.Last()+1) {
		if seq != w.next {
			break
		}
		if err := w.rec.Decode(raw); err != nil {
			return damage("record %d: %w", seq, err)
		}
		if w.rec.Seq != seq || w.rec.Batch != h.No || w.rec.At != h.At {
			return damage("record %d is another one, or of another batch", seq)
		}
		w.tree.Add(raw)
		if err := do(r, &w.rec, nil); err != nil {
			return err
		}
		w.next++
	}
	if w.next != h.Last()+1 {
		return damage("the record %d is not there", w.next)
	}
	if w.tree.Root() != h.Merkle {
		return damage("the records of batch %d do not lead to its root", w.no)
	}
	w.prev, w.no = h.Root(), w.no+1
	return do(r, nil, &h)
}

// again redoes one record, or the end of a batch.
func (b *books) again(r store.Reader, rec *record.Record, h *record.Batch) error {
	if h != nil {
		if err := b.cur.log.add(r, h.No-1, h.Root()); err != nil {
			return damage("the log of batch %d: %w", h.No, err)
		}
		return nil
	}
	var c tables.Changes
	if err := c.Derive(rec, former{b, r}); err != nil {
		return damage("%w", err)
	}
	if n := c.Name; n.Asset && b.cur.assets.of(uint32(n.Ref)) == nil {
		if err := b.cur.assets.follows(uint32(n.Ref)); err != nil {
			return err
		}
	}
	b.take(r, rec, &c)
	return nil
}

// take enters what one record changes.
func (b *books) take(r store.Reader, rec *record.Record, c *tables.Changes) {
	for _, change := range c.Balances() {
		cell := b.state(r, change.Key)
		next := balance{Balance: change.New, marks: cell.cur.v.marks}
		if mark, ok := change.New.Mark(change.Key); ok {
			next.marks = append(next.marks, mark)
		}
		b.states.redo(cell, next, rec.Seq)
	}
	if c.Account.Ref != 0 {
		b.accounts.redo(b.account(r, c.Account.Ref), c.Account.New, rec.Seq)
	}
	for _, o := range c.Onces() {
		b.onces.redo(b.once(r, o.Key), o.New, rec.Seq)
	}
	if c.Hold.Seq != 0 {
		b.holds.redo(b.hold(r, c.Hold.Seq), c.Hold.New, rec.Seq)
	}
	switch n := c.Name; {
	case n.Ref == 0:
	case !n.Asset:
		b.names.redo(b.names.fresh(n.Name), n.Ref, rec.Seq)
		b.refs.redo(b.refs.fresh(n.Ref), n.Name, rec.Seq)
	case b.cur.assets.of(uint32(n.Ref)) == nil:
		b.cur.assets = b.cur.assets.with(newAsset(uint32(n.Ref), n.Name, rec.From, rec.Seq))
	}
}

// former gives the rows as memory has them.
type former struct {
	b *books
	r store.Reader
}

var _ tables.Former = former{}

// Balance is an account in an asset.
func (f former) Balance(k tables.StateKey) tables.Balance { return f.b.state(f.r, k).cur.v.Balance }

// Account is an account apart from its balances.
func (f former) Account(ref uint64) tables.Account { return f.b.account(f.r, ref).cur.v }

// Hold is a hold.
func (f former) Hold(seq uint64) (tables.Hold, bool) {
	h := f.b.hold(f.r, seq).cur.v
	return h, h.From != 0
}

// Once is a permanent id or a guard.
func (f former) Once(k tables.OnceKey) (tables.Once, bool) {
	o := f.b.once(f.r, k).cur.v
	return o, o.Seq != 0
}
