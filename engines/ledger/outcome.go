package ledger

import (
	"bytes"
	"context"
	"errors"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// later is an outcome that needs a look at the journal.
type later struct {
	out    *Outcome
	seq    uint64
	reject bool   // out has a Reject that lacks the id of the record seq, or its period
	payer  uint64 // ref of the account whose last nonce that record used
	settle bool   // the record is that of a settlement, if it is in a closed period
}

// answers turns results into outcomes. What the ops themselves do not say is read from the file at
// the end, in one view.
type answers struct {
	l     *Local
	later []later
}

// outcomes returns the outcomes of actions. The command has a result for each that was not known.
func (l *Local) outcomes(ctx context.Context, actions []action, p *posted) ([]Outcome, error) {
	s := answers{l: l}
	outs, next := make([]Outcome, len(actions)), 0
	for i := range actions {
		if known := actions[i].known; known != nil {
			outs[i] = *known
			continue
		}
		s.one(&outs[i], &actions[i], &p.results[next], p)
		next++
	}
	if len(s.later) == 0 {
		return outs, nil
	}
	if err := l.view(ctx, s.read); err != nil {
		return nil, &UnavailableError{Unknown: true, Cause: err} // it is in the journal; the same call finds it
	}
	return outs, nil
}

func (s *answers) one(out *Outcome, a *action, res *result, p *posted) {
	if res.reject != nil {
		mine := *res.reject // another caller may have the same result
		out.Reject = &mine
	}
	switch {
	case len(res.inner) > 0: // counted one by one
	case res.code.Refused():
		s.l.m.refused(res.code)
	case res.code == record.Accepted && res.seq != 0:
		s.l.m.accepted(1)
	}
	switch {
	case res.code == record.Replayed:
		out.Replayed = true
		s.later = append(s.later, later{out: out, seq: res.seq, settle: a.op.Code == record.OpBatch})
	case a.op.Code == record.OpBatch:
		s.batch(out, a, res, p)
	case res.code.Refused():
		if res.seq != 0 || res.code == record.PeriodClosed {
			s.later = append(s.later, later{out: out, seq: res.seq, reject: true, payer: res.payer})
		}
	case spends(a.op.Code):
		out.Receipt = record.Receipt{ // as outcomeAt makes it of the record
			TxID:    record.NewTxID(p.batch.At, res.seq, randOf(p.seed, res.seq)),
			Op:      a.op.Code,
			From:    a.op.From,
			To:      a.op.To,
			Asset:   a.op.Asset,
			Amount:  a.op.Amount,
			Nonce:   res.nonce,
			Idem:    a.op.Idem,
			At:      p.batch.At,
			Seq:     res.seq,
			Batch:   p.batch.No,
			Root:    p.root,
			Version: record.ReceiptVersion,
		}
	default:
		s.later = append(s.later, later{out: out, seq: res.seq})
	}
}

// read looks into the journal for what comes later. It may run again.
func (s *answers) read(r store.Reader) error {
	for _, w := range s.later {
		if w.reject {
			if err := s.reject(r, &w); err != nil {
				return err
			}
			continue
		}
		replayed := w.out.Replayed
		out, err := s.l.outcomeAt(r, w.seq)
		var closed *ClosedError
		if errors.As(err, &closed) {
			*w.out = doneInPeriod(w.settle, closed)
			s.l.m.doneInPeriod(w.settle)
			continue
		}
		if err != nil {
			return err
		}
		if *w.out = out; replayed {
			w.out.replay()
		}
	}
	return nil
}

// replay marks o as done before.
func (o *Outcome) replay() {
	o.Replayed = true
	for i := range o.Results {
		o.Results[i].Replayed = o.Results[i].Reject == nil
	}
}

// outcomeAt is the outcome of the record seq, and of what came with it. ErrNotFound is no such
// record, a *ClosedError one in a closed period.
func (l *Local) outcomeAt(r store.Reader, seq uint64) (Outcome, error) {
	if err := l.closed(r, seq); err != nil {
		return Outcome{}, err
	}
	rec, known := tables.Record(r, seq)
	if !known {
		return Outcome{}, ErrNotFound
	}
	head, known := tables.Batch(r, rec.Batch)
	if !known {
		return Outcome{}, &store.RowError{Bucket: "ledger/batches", Cause: errNoHeader}
	}
	root := head.Root()
	switch rec.Op {
	case record.OpBatch:
		return l.batchAt(r, &rec, root)
	case record.OpOnce:
		if rec.Flags&record.FlagInner != 0 {
			return l.repeated(r, seq)
		}
		return l.settledAt(r, &rec, &head)
	}
	return l.single(r, &rec, root)
}

// single is the outcome of one record alone.
func (l *Local) single(r store.Reader, rec *record.Record, root b3.Digest) (Outcome, error) {
	n, err := l.namesOf(r, rec)
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Receipt: rec.Receipt(n, root), Memo: rec.Memo, Parties: Parties{n.From, n.To}}, nil
}

// namesOf returns the names of a record's refs.
func (l *Local) namesOf(r store.Reader, rec *record.Record) (n record.Names, err error) {
	if rec.From != 0 {
		if n.From, err = l.nameOf(r, rec.From); err != nil {
			return n, err
		}
	}
	if rec.To != 0 {
		if n.To, err = l.nameOf(r, rec.To); err != nil {
			return n, err
		}
	}
	if rec.Asset != 0 {
		a := l.books.view.Load().assets.of(rec.Asset)
		if a == nil {
			return n, errStale
		}
		n.Asset = a.name
	}
	if rec.Hold != 0 {
		if n.Hold, err = l.past(r).ended(rec); err != nil {
			return n, err
		}
	}
	return n, nil
}

// batchAt is the outcome of a batch: rec is a part of its results, which stand behind the records
// of its ops.
func (l *Local) batchAt(r store.Reader, rec *record.Record, root b3.Digest) (Outcome, error) {
	first := rec.Seq - uint64(rec.Part)
	var codes []byte
	for part := range uint64(rec.Parts) {
		p, known := tables.Record(r, first+part)
		if !known || p.Op != record.OpBatch {
			return Outcome{}, ErrNotFound
		}
		codes = append(codes, p.Results...)
	}
	out := Outcome{
		Batch:   true,
		Atomic:  rec.Flags&record.FlagAtomic != 0,
		Memo:    rec.Memo,
		Results: make([]Outcome, len(codes)),
	}
	if !rec.Named {
		out.Receipt.Version = record.ReceiptVersion
	}
	repeat := first
	seq := first - uint64(bytes.Count(codes, []byte{byte(record.Replayed)}))
	for i := len(codes) - 1; i >= 0; i-- {
		code := record.Result(codes[i])
		if code == record.Replayed {
			var err error
			repeat--
			if out.Results[i], err = l.repeated(r, repeat); err != nil {
				return Outcome{}, err
			}
			continue
		}
		if code.Refused() {
			out.Results[i].Reject = refuse(code)
			continue
		}
		for seq--; ; seq-- {
			inner, known := tables.Record(r, seq)
			if !known {
				return Outcome{}, ErrNotFound
			}
			if inner.Op == record.OpOpen {
				continue
			}
			var err error
			if out.Results[i], err = l.single(r, &inner, root); err != nil {
				return Outcome{}, err
			}
			break
		}
	}
	return out, nil
}

// settledAt is the outcome of a settlement: its ops are what follows the record of its id in its
// batch.
func (l *Local) settledAt(r store.Reader, rec *record.Record, head *record.Batch) (Outcome, error) {
	out := Outcome{Batch: true, Atomic: true}
	for _, op := range tables.Records(r, rec.Seq+1, head.Last()+1) {
		if op.Op == record.OpOpen {
			continue
		}
		one, err := l.single(r, op, head.Root())
		if err != nil {
			return Outcome{}, err
		}
		out.Results = append(out.Results, one)
	}
	return out, nil
}

// PaymentFilter selects records that move money. Members that are empty select any.
type PaymentFilter struct {
	Account string      // a party; of an issue or a burn also the issuance account
	Asset   string      // its asset
	Ops     []record.Op // its op is one of them
	Memo    string      // a part of its memo
	Newest  bool        // newest first
}

// Bounds of one view of payments, and so of the memory of a slow reader: some 50 KiB.
const (
	paymentsScan  = 1024 // records that are read
	paymentsFound = 64   // records that are selected
)

// Payments calls fn with the records that f selects; see Client. It reads in slices, and calls fn
// between views.
func (l *Local) Payments(ctx context.Context, f PaymentFilter, from, to uint64, fn func(*Outcome) error) error {
	if err := l.readable(ctx); err != nil {
		return err
	}
	v := l.books.view.Load()
	if from == 0 || to > v.Seq || from > to+1 {
		return ErrRange
	}
	w := paymentWalk{l: l, f: &f, from: from, to: to}
	if f.Asset != "" {
		declared := v.assets.byName[f.Asset]
		if declared == nil {
			return v.unread()
		}
		w.asset = declared.ref
	}
	if f.Account != "" {
		var err error
		if w.account, err = l.lookUp(ctx, f.Account); err != nil || w.account == 0 {
			return err
		}
	}
	for done := false; !done; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := l.view(ctx, func(r store.Reader) (err error) {
			done, err = w.slice(r)
			return err
		})
		for i := 0; err == nil && i < len(w.found); i++ {
			err = fn(&w.found[i])
		}
		if err != nil {
			return l.readError(err)
		}
		w.from, w.to = w.left()
	}
	return nil
}
