package ledger

import (
	"context"
	"encoding/binary"
	"errors"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// A reference is a permanent id of one op, chosen by the caller. The record of the op binds it as a
// guard: the guard's key is a hash of principal and reference, its owner a digest of the op's
// words. An op under a bound reference replays the record that bound it if the words are the same,
// and is refused with reference_conflict if they are not. If a closed period has the record, the op
// is refused with period_closed, whatever its words: the record is gone, and so may be its row.

// The purposes of the hashes. They have no key, so that an import into a ledger with another key
// still finds every reference.
var (
	referenceKeys  = b3.Derive("ronbox ledger reference v1")
	referenceWords = b3.Derive("ronbox ledger reference words v1")
)

// reference is the reference of an op, hashed, with the row that the caller's goroutine has read.
type reference struct {
	guard record.Guard
	row   tables.Once // as it was when the ledger was at the record rowAt
	rowAt uint64      // 0: it was not read
	free  bool        // memory knows that it is not bound
}

func (r *reference) key() tables.OnceKey { return referenceKey(r.guard.Key) }

func referenceKey(key [16]byte) tables.OnceKey { return tables.OnceKey{Guard: true, Key: key} }

// HashReference returns the key of the guard that a payment under a principal's reference has.
func HashReference(principal, text string) [16]byte {
	return digest16(referenceKeys.Sum([]byte{byte(len(text))}, []byte(text), []byte(principal)))
}

// words returns the digest of the members that a repetition under the same reference must repeat.
func (o *Op) words() [16]byte {
	buf := make([]byte, 0, 320)
	buf = append(buf, byte(o.Code))
	for _, s := range [...]string{o.From, o.To, o.Asset, o.Memo} {
		buf = append(binary.LittleEndian.AppendUint32(buf, uint32(len(s))), s...)
	}
	hi, lo := o.Amount.Parts()
	for _, n := range [...]uint64{hi, lo, uint64(o.ExpiresIn), uint64(o.ValidUntil)} {
		buf = binary.LittleEndian.AppendUint64(buf, n)
	}
	buf = append(buf, o.Hold[:]...)
	return digest16(referenceWords.Sum(buf))
}

// refer hashes the reference of an op that principal has asked for.
func (s *resolver) refer(a *action, principal string) {
	ref := &reference{guard: record.Guard{Key: HashReference(principal, a.op.Reference), Owner: a.op.words()}}
	var ok bool
	if ref.row, ok = s.l.books.onces.read(ref.key()); !ok {
		s.refers = append(s.refers, ref)
	}
	ref.free = ok && !ref.row.Bound()
	a.reference = ref
}

// readReferences reads the rows of the references that are not in memory.
func (s *resolver) readReferences(r store.Reader) {
	for _, ref := range s.refers {
		ref.row, ref.rowAt = s.l.onceAt(r, ref.key()), s.seq
	}
}

// onceAt reads the row of a reference that is not in memory, zero if there is none. References are
// merged after the closing was published: the horizon of a view that lacks a row is no older.
func (l *Local) onceAt(r store.Reader, k tables.OnceKey) tables.Once {
	if l.past(r).Period == 0 {
		return first(tables.GetOnce(r, k))
	}
	return first(tables.FindOnce(r, k))
}

// closedResult is the result of an op that was done in a closed period. The caller reads what is to
// be told of the period.
func closedResult(bound tables.Once) result {
	res := refused(periodClosed(&ClosedError{Period: bound.Period}))
	res.seq = bound.Seq
	return res
}

// periodClosed is the refusal of an op that was done in a closed period.
func periodClosed(c *ClosedError) *Reject { return &Reject{Code: record.PeriodClosed, Closed: c} }

// referred returns the result of an op with a bound reference, and reports whether it is bound.
func (x *run) referred(ref *reference) (result, bool) {
	x.b.onces.bring(ref.key(), ref.row, ref.rowAt)
	bound := x.b.onceRow(x.r, ref.key())
	switch {
	case !bound.Bound():
		return result{}, false
	case bound.Closed(&x.b.cur.horizon):
		return closedResult(bound), true
	case digest16(bound.Digest) != ref.guard.Owner:
		return refused(refuse(record.ReferenceConflict)), true
	}
	return replay(bound.Seq), true
}

// reject adds to a Reject what the file knows of the record, or of the period.
func (s *answers) reject(r store.Reader, w *later) error {
	past := s.l.past(r)
	if w.out.Reject.Code != record.PeriodClosed {
		w.out.Reject.Committed = past.lastTx(w.payer, w.seq)
		return nil
	}
	bound := tables.Once{Seq: w.seq}
	if c := w.out.Reject.Closed; c != nil {
		bound.Period = c.Period
	}
	closed, err := past.bound(&bound)
	if closed != nil {
		w.out.Reject.Closed = closed
	}
	return err
}

// errUnderWay is the cause of an error if the op of a reference is not synced yet.
var errUnderWay = errors.New("ledger: an earlier call with this reference is under way")

// Reference reads the record done under a principal's reference; see Client.
func (l *Local) Reference(ctx context.Context, principal, text string) (Outcome, error) {
	out, _, err := l.referenced(ctx, principal, text)
	return out, err
}

// doneBefore returns the outcome of an op that was done before under the same reference, and
// reports whether there is one.
func (l *Local) doneBefore(ctx context.Context, op *Op) (Outcome, bool, error) {
	out, words, err := l.referenced(ctx, op.Principal, op.Reference)
	var closed *ClosedError
	switch {
	case errors.Is(err, ErrNotFound):
		return Outcome{}, false, nil
	case errors.As(err, &closed):
		return Outcome{Reject: periodClosed(closed)}, true, nil
	case err != nil:
		return Outcome{}, false, err
	case words != op.words():
		return Outcome{Reject: refuse(record.ReferenceConflict)}, true, nil
	}
	out.Replayed = true
	return out, true, nil
}

// referenced reads the record done under a principal's reference, and the digest of its words.
func (l *Local) referenced(ctx context.Context, principal, text string) (out Outcome, words [16]byte, err error) {
	if err := l.readable(ctx); err != nil {
		return out, words, err
	}
	if record.CheckReference(text) != nil {
		return out, words, ErrNotFound
	}
	lack, key := l.books.view.Load().lack, referenceKey(HashReference(principal, text))
	row, cached := l.books.onces.read(key) // before the view begins: a row that leaves memory is in the view
	err = l.view(ctx, func(r store.Reader) error {
		if !cached {
			row = l.onceAt(r, key)
		}
		closed, err := l.past(r).bound(&row)
		switch {
		case err != nil:
			return err
		case closed != nil:
			return closed
		case row.Seq == 0 && lack != nil:
			return lack
		case row.Seq == 0 || row.Seq > l.books.view.Load().Seq:
			return ErrNotFound
		}
		words = digest16(row.Digest)
		out, err = l.outcomeAt(r, row.Seq)
		return err
	})
	var closed *ClosedError
	if errors.As(err, &closed) {
		l.m.closed[closedReference](1)
		return out, words, closed
	}
	if errors.Is(err, ErrNotFound) && l.strays.hasKey(idem.Key(key.Key)) { // it may be applied and not synced yet
		return out, words, &UnavailableError{Unknown: true, Cause: errUnderWay}
	}
	return out, words, l.readError(err)
}

// repeats writes a record for each op of a batch that was answered by what its reference had done
// before: in the order of the ops, before the results. They let the answer of the batch be made
// again.
func (x *run) repeats(ops []action, inner []result, p place) {
	for i := range inner {
		if inner[i].code == record.Replayed {
			rec := x.record(record.OpOnce)
			rec.Flags, rec.Guard = p.flags, ops[i].reference.guard
			x.append(rec)
		}
	}
}

// repeated returns the outcome that the record seq, written by repeats, points to.
func (l *Local) repeated(r store.Reader, seq uint64) (Outcome, error) {
	rec, known := tables.Record(r, seq)
	if !known || rec.Op != record.OpOnce {
		return Outcome{}, ErrNotFound
	}
	key := referenceKey(rec.Guard.Key)
	row, ok := l.books.onces.read(key)
	if !ok {
		row = l.onceAt(r, key)
	}
	switch closed, err := l.past(r).bound(&row); {
	case err != nil:
		return Outcome{}, err
	case closed != nil: // since the batch repeated it
		l.m.closed[closedReference](1)
		return Outcome{Reject: refuse(record.PeriodClosed)}, nil
	case row.Seq == 0 || row.Seq >= seq:
		return Outcome{}, errStale
	}
	out, err := l.outcomeAt(r, row.Seq)
	out.Replayed = true
	return out, err
}
