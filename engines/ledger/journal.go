package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"ronbox/appliance/b3"
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
	declared := v.assets.byName[q.Asset]
	if err == nil && key == nil && v.Seq != 0 {
		err = errKeys
	}
	if err != nil || ref == 0 || declared == nil {
		return emptyPage(q, cmp.Or(err, v.unread()))
	}
	of := tables.StateKey{Account: ref, Asset: declared.ref}
	var floor floor
	err = l.view(ctx, func(r store.Reader) (err error) { // before top, which is not below it
		floor, err = l.past(r).floor(of, &q)
		return err
	})
	if err != nil {
		return Page{}, l.readError(err)
	}
	top, err := l.balanceOf(ctx, of)
	if err != nil || top.Postings == 0 {
		return emptyPage(q, err)
	}
	// rows are published before the head: wait until Tx finds the records shown here
	if err := l.reach(ctx, top.State.LastSeq); err != nil {
		return Page{}, err
	}
	walk, err := tables.NewWalk(tables.Query{
		Of:     of,
		Top:    top,
		Floor:  floor.balance,
		Oldest: !q.NewestFirst,
		Limit:  q.Limit,
		Since:  q.Since,
		Until:  q.Until,
		Cursor: q.Cursor,
		Key:    key.StoreKey,
		Mark: func(n uint64) (seq uint64, known bool) {
			seq, _ = l.books.marks.read(tables.MarkKey{StateKey: of, N: n})
			return seq, seq != 0
		},
	})
	for done := false; !done && err == nil; {
		err = l.viewAt(ctx, floor.Period, func(r store.Reader) (err error) {
			done, err = walk.Step(r, historySlice)
			return err
		})
	}
	var page Page
	if err == nil {
		page, err = l.page(ctx, of, walk, floor.Period)
	}
	switch {
	case errors.Is(err, errMoved):
		return l.History(ctx, q)
	case errors.Is(err, tables.ErrBelow):
		err = l.view(ctx, func(r store.Reader) error { return l.past(r).told(floor.Period) })
		return Page{}, l.readError(err)
	case err != nil:
		return Page{}, l.readError(err)
	}
	page.Opening = floor.opening(&q, page.Next)
	return page, nil
}

// emptyPage is that of an account without postings: no cursor belongs to it.
func emptyPage(q HistoryQuery, err error) (Page, error) {
	if err == nil && q.Cursor != "" {
		err = ErrCursor
	}
	return Page{}, err
}

// page resolves account names and batch roots for the records of a walk, if the horizon is still
// that of a period.
func (l *Local) page(ctx context.Context, of tables.StateKey, walk *tables.Walk, period uint64) (Page, error) {
	postings := walk.Page()
	page := Page{Next: walk.Next(), Entries: make([]Entry, 0, len(postings))}
	err := l.viewAt(ctx, period, func(r store.Reader) error {
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
	return page, err
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

// Export calls fn with the lines of the journal; see Client. It reads lines in slices, and calls fn
// between views.
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
		first.Prev, err = l.rootBefore(r, from)
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

// Bounds of one view of an export, and so of the memory of an export with a slow reader: some 100
// KiB each.
const (
	exportSlice = 64       // records
	exportBytes = 32 << 10 // of records, after which a slice ends
)

// rootBefore is the root of the last batch that ends before the record seq.
func (l *Local) rootBefore(r store.Reader, seq uint64) (root [32]byte, err error) {
	if err := l.closed(r, seq); err != nil {
		return root, err
	}
	if past := l.past(r); seq == past.Seq+1 {
		return past.LastRoot, nil
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

// lines are those of the records from one seq up to, not including, another, as many as a slice may
// hold; next is the first that is left.
func (l *Local) lines(r store.Reader, from, end uint64) (out []record.Line, next uint64, err error) {
	if err := l.closed(r, from); err != nil {
		return nil, from, err
	}
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

// source is the ledger as proofs read it, within one view.
type source struct {
	l *Local
	v *tip // taken before the view began: what its log tail lacks is in the file
	past
}

var _ record.Source = source{}

// Record is the bytes of a record.
func (s source) Record(seq uint64) ([]byte, error) {
	if err := s.closed(seq); err != nil {
		return nil, err
	}
	raw := tables.Raw(s.r, seq)
	if raw == nil {
		return nil, ErrNotFound
	}
	return append([]byte(nil), raw...), nil
}

// Batch is the header of a batch.
func (s source) Batch(no uint64) (record.Batch, error) {
	if err := s.closedBatch(no); err != nil {
		return record.Batch{}, err
	}
	h, known := tables.Batch(s.r, no)
	if !known {
		return h, ErrRange
	}
	return h, nil
}

// Node is a digest of the log of batch roots.
func (s source) Node(pos uint64) (b3.Digest, error) { return s.v.log.node(s.r)(pos) }

// Opened is the seq of the record that opened an account.
func (s source) Opened(ref uint64) (uint64, error) {
	if a, ok := s.l.books.accounts.read(ref); ok && a.OpenedSeq != 0 {
		return a.OpenedSeq, nil
	}
	s.l.books.mustHold(tables.StateKey{Account: ref})
	if a, known := tables.GetAccount(s.r, ref); known {
		return a.OpenedSeq, nil
	}
	return 0, errStale // the view may be older than the row
}

// Declared is the seq of the record that declared an asset.
func (s source) Declared(ref uint32) (uint64, error) {
	if a := s.v.assets.of(ref); a != nil {
		return a.seq, nil
	}
	return 0, ErrNotFound
}

// prove runs fn over the ledger as it is now. If fn returns errMoved, or the last batch is in a
// closed period, it waits until the record that closed the period is published, and runs fn again.
func (l *Local) prove(ctx context.Context, fn func(source) error) error {
	if err := l.readable(ctx); err != nil {
		return err
	}
	v := l.books.view.Load()
	if v.Seq != 0 && v.Batches == 0 {
		return fmt.Errorf("%w: %w: the head could not be read", ErrSafeMode, store.ErrCorrupt)
	}
	if v.headless != nil {
		return v.headless
	}
	var closing uint64
	err := l.view(ctx, func(r store.Reader) (err error) {
		past := l.past(r)
		if err = errMoved; !past.BelowBatch(v.Batches) {
			err = fn(source{l, v, past})
		}
		if errors.Is(err, errMoved) {
			_, closing = past.Closing()
		}
		return err
	})
	if !errors.Is(err, errMoved) {
		return l.readError(err)
	}
	if err := l.reach(ctx, closing); err != nil {
		return err
	}
	return l.prove(ctx, fn)
}

// Head is where journal and log end.
func (l *Local) Head(ctx context.Context) (h record.Head, err error) {
	err = l.prove(ctx, func(s source) (err error) {
		h, err = record.HeadOf(s, s.v.Batches)
		return err
	})
	return h, err
}

// Roots lists headers; see Client.
func (l *Local) Roots(ctx context.Context, sinceBatch uint64, n int) (out []record.Batch, err error) {
	err = l.prove(ctx, func(s source) error {
		out = nil
		if sinceBatch >= s.v.Batches {
			return nil
		}
		most := uint64(max(0, min(n, MaxRoots)))
		if sinceBatch != 0 && sinceBatch+most <= s.past.Batch {
			return s.closedBatch(sinceBatch + 1)
		}
		since := max(sinceBatch, s.past.Batch)
		end := since + min(s.v.Batches-since, most)
		for _, h := range tables.Batches(s.r, since+1, end+1) {
			out = append(out, h)
		}
		return nil
	})
	return out, err
}

// Prove returns a proof of one record; see Client.
func (l *Local) Prove(ctx context.Context, id record.TxID, atBatch uint64) (p record.Proof, err error) {
	err = l.prove(ctx, func(s source) error {
		rec, err := l.given(s.r, id)
		if err != nil {
			return err
		}
		at := atBatch
		if at == 0 {
			at = s.v.Batches
		}
		if at > s.v.Batches || rec.Batch > at {
			return ErrRange
		}
		if atBatch == 0 && s.Period != 0 && s.Past(at) == nil && l.safe.Load() == nil {
			return errMoved // its closing is not published yet
		}
		p, err = record.Prove(s, rec.Seq, at)
		return err
	})
	return p, err
}

// Consistency proves that the log only grew; see Client.
func (l *Local) Consistency(ctx context.Context, from, to uint64) (c record.Consistency, err error) {
	err = l.prove(ctx, func(s source) error {
		if from > to || to > s.v.Batches {
			return ErrRange
		}
		if no := cmp.Or(from, to); no != 0 && no < s.past.Batch {
			return s.closedBatch(no)
		}
		c, err = record.ProveConsistency(s, from, to)
		return err
	})
	return c, err
}
