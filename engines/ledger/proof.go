package ledger

import (
	"context"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/engines/merkle"
	"ronbox/store"
)

// source is the ledger as proofs read it, within one view.
type source struct {
	l *Local
	v *tip // taken before the view began: what its log tail lacks is in the file
	r store.Reader
}

var _ record.Source = source{}

// Record is the bytes of a record.
func (s source) Record(seq uint64) ([]byte, error) {
	raw := tables.Raw(s.r, seq)
	if raw == nil {
		return nil, ErrNotFound
	}
	return append([]byte(nil), raw...), nil
}

// Batch is the header of a batch.
func (s source) Batch(no uint64) (record.Batch, error) {
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

// prove runs fn over the ledger as it is now.
func (l *Local) prove(ctx context.Context, fn func(source) error) error {
	if err := l.readable(ctx); err != nil {
		return err
	}
	v := l.books.view.Load()
	if v.Seq != 0 && v.Batches == 0 {
		return fmt.Errorf("%w: %w: the head could not be read", ErrSafeMode, store.ErrCorrupt)
	}
	return l.readError(l.view(ctx, func(r store.Reader) error { return fn(source{l, v, r}) }))
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
		end := sinceBatch + min(s.v.Batches-sinceBatch, uint64(max(0, min(n, MaxRoots))))
		for _, h := range tables.Batches(s.r, sinceBatch+1, end+1) {
			out = append(out, h)
		}
		return nil
	})
	return out, err
}

// Prove gives a proof of one record; see Client.
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
		c, err = record.ProveConsistency(s, from, to)
		return err
	})
	return c, err
}

// HeadOf is where the ledger of a file ends.
func HeadOf(r store.Reader) (record.Head, error) {
	head, _ := tables.GetHead(r)
	h := record.Head{Batches: head.Batches, LastRoot: head.LastRoot, Seq: head.Seq}
	low := tables.GetFlushed(r)
	tail := logTail{base: merkle.LogCount(low.Batches)}
	for no, b := range tables.Batches(r, low.Batches+1, head.Batches+1) {
		if err := tail.add(r, no-1, b.Root()); err != nil {
			return h, err
		}
	}
	var err error
	h.Root, err = merkle.LogRoot(head.Batches, tail.node(r))
	return h, err
}
