package ledger

import (
	"cmp"
	"context"
	"fmt"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// historySlice is how many records one view of a statement reads: some milliseconds.
const historySlice = 2048

// History reads a page of a statement; see Client.
func (l *Local) History(ctx context.Context, q HistoryQuery) (Page, error) {
	if err := l.readable(ctx); err != nil {
		return Page{}, err
	}
	if q.Limit < 1 || q.Limit > MaxHistory {
		return Page{}, &OpError{Field: "limit", Reason: fmt.Sprintf("must be 1 to %d", MaxHistory)}
	}
	v, key := l.books.view.Load(), l.keyed.Load()
	if v.lack != nil {
		return Page{}, v.lack
	}
	ref, err := l.lookUp(ctx, q.Account)
	declared := v.assets.get(q.Asset)
	if err == nil && key == nil && v.Seq != 0 {
		err = errKeys
		if l.books.keysRead { // an import, into a file that has no room for a key
			err = fmt.Errorf("%w: cursors have no key yet", ErrFull)
		}
	}
	if err != nil || ref == 0 || declared == nil {
		return emptyPage(q, cmp.Or(err, v.unread()))
	}
	of := tables.StateKey{Account: ref, Asset: declared.ref}
	top, err := l.balanceOf(ctx, of)
	if err != nil || top.Postings == 0 {
		return emptyPage(q, err)
	}
	if err := l.reach(ctx, top.State.LastSeq); err != nil { // rows are published before the head: what is shown here can be asked for
		return Page{}, err
	}
	walk, err := tables.NewWalk(tables.Query{
		Of: of, Top: top.Balance, Oldest: !q.NewestFirst, Limit: q.Limit, Since: q.Since, Until: q.Until, Cursor: q.Cursor, Key: key.StoreKey,
		Mark: top.mark,
	})
	for done := false; !done && err == nil; {
		err = l.view(ctx, func(r store.Reader) (err error) {
			done, err = walk.Step(r, historySlice)
			return err
		})
	}
	if err != nil {
		return Page{}, l.readError(err)
	}
	return l.page(ctx, of, walk)
}

// emptyPage is that of an account without postings: no cursor belongs to it.
func emptyPage(q HistoryQuery, err error) (Page, error) {
	if err == nil && q.Cursor != "" {
		err = ErrCursor
	}
	return Page{}, err
}

// mark is one of those that are not in the file yet.
func (b *balance) mark(n uint64) (seq uint64, known bool) {
	for _, m := range b.marks {
		if m.N == n {
			return m.Seq, true
		}
	}
	return 0, false
}

// page gives what a walk found its names and roots.
func (l *Local) page(ctx context.Context, of tables.StateKey, walk *tables.Walk) (Page, error) {
	postings := walk.Page()
	page := Page{Next: walk.Next(), Entries: make([]Entry, 0, len(postings))}
	err := l.view(ctx, func(r store.Reader) error {
		page.Entries = page.Entries[:0]
		for i := range postings {
			e, err := l.entry(r, of, &postings[i])
			if err != nil {
				return err
			}
			page.Entries = append(page.Entries, e)
		}
		return nil
	})
	return page, l.readError(err)
}

func (l *Local) entry(r store.Reader, of tables.StateKey, p *tables.Posting) (Entry, error) {
	head, known := tables.Batch(r, p.Record.Batch)
	if !known {
		return Entry{}, &store.RowError{Bucket: "ledger/batches", Cause: errNoHeader}
	}
	out, err := l.single(r, &p.Record, head.Root())
	state := &p.Record.Images[p.Image].State
	e := Entry{Receipt: out.Receipt, Memo: out.Memo, Debit: p.Record.From == of.Account}
	e.Posted, _ = state.Balance()
	e.Available, _ = state.Available()
	return e, err
}

// Export gives fn the journal; see Client. Lines are read in slices, and fn is called between the views.
func (l *Local) Export(ctx context.Context, from, to uint64, fn func(record.Line) error) error {
	if err := l.readable(ctx); err != nil {
		return err
	}
	v := l.books.view.Load()
	if from = max(from, 1); to == 0 {
		to = v.Seq
	}
	if to > v.Seq || from > to+1 {
		return ErrRange
	}
	first := record.Line{Kind: record.LineFormat, From: from}
	err := l.view(ctx, func(r store.Reader) (err error) {
		first.Prev, err = rootBefore(r, from)
		return err
	})
	if err == nil {
		err = fn(first)
	}
	for err == nil && from <= to {
		var lines []record.Line
		err = l.view(ctx, func(r store.Reader) (err error) {
			lines, from, err = l.lines(r, from, min(to+1, from+exportSlice))
			return err
		})
		for i := 0; err == nil && i < len(lines); i++ {
			err = fn(lines[i])
		}
	}
	return l.readError(err)
}

// What one view of an export reads at most, and so what an export holds whose reader is slow: about 100 KiB, for as many as there may be.
const (
	exportSlice = 64       // records
	exportBytes = 32 << 10 // of records, after which a slice ends
)

// rootBefore is the root of the last batch that ends before the record seq.
func rootBefore(r store.Reader, seq uint64) (root [32]byte, err error) {
	if seq <= 1 {
		return root, nil
	}
	rec, known := tables.Record(r, seq-1)
	if !known {
		return root, ErrRange
	}
	h, known := tables.Batch(r, rec.Batch)
	if known && h.Last() >= seq {
		return h.Prev, nil
	}
	return h.Root(), nil
}

// lines are those of the records from one seq up to, not including, another, as many as a slice may hold; next is the first that is left.
func (l *Local) lines(r store.Reader, from, end uint64) (out []record.Line, next uint64, err error) {
	out = make([]record.Line, 0, end-from+8)
	var head record.Batch
	held, seq := 0, from
	for ; seq < end && held < exportBytes; seq++ {
		raw := tables.Raw(r, seq)
		if raw == nil {
			return nil, seq, ErrRange
		}
		held += len(raw)
		line := record.Line{Kind: record.LineRecord, Raw: append([]byte(nil), raw...)}
		if line.Record, err = record.Decode(raw); err != nil {
			return nil, seq, &store.RowError{Bucket: "ledger/journal", Cause: err}
		}
		if line.Names, err = l.shown(r, &line.Record); err != nil {
			return nil, seq, err
		}
		out = append(out, line)
		if head.No != line.Record.Batch {
			var known bool
			if head, known = tables.Batch(r, line.Record.Batch); !known {
				return nil, seq, &store.RowError{Bucket: "ledger/batches", Cause: errNoHeader}
			}
		}
		if head.Last() == seq {
			out = append(out, record.Line{Kind: record.LineBatch, Batch: head})
		}
	}
	return out, seq, nil
}

// shown are the names that an export shows of a record.
func (l *Local) shown(r store.Reader, rec *record.Record) (record.Names, error) {
	n, err := l.namesOf(r, rec)
	n.Hold = record.TxID{}
	return n, err
}
