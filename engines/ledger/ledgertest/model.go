package ledgertest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Model is a ledger in maps and big integers: slow, forgetful and plainly right. It keeps
// everything in memory, idempotency keys too, and is safe for concurrent use.
type Model struct {
	turn  chan struct{} // holds a token while the books are free
	now   func() time.Time
	bus   *flow.Broadcast[ledger.Committed]
	log   map[uint64]b3.Digest // nodes of the log of roots; with the turn
	books books                // with the turn
	last  int64                // the stamp of the last command; with the turn
	shut  bool                 // Close was called; with the turn
}

var _ ledger.Client = (*Model)(nil)

// NewModel is an empty ledger; now nil is time.Now.
func NewModel(now func() time.Time) *Model {
	if now == nil {
		now = time.Now
	}
	m := &Model{turn: make(chan struct{}, 1), now: now, log: map[uint64]b3.Digest{}, books: newBooks()}
	m.bus = flow.NewBroadcast[ledger.Committed](flow.NewCatalog(nil, nil), flow.Spec{
		Service: "ledger", Name: "bus", Cap: 1024, Policy: flow.DropOldest,
		Producers: []string{"model"}, Consumers: []string{"test"}, Doc: "one event a batch",
	})
	m.turn <- struct{}{}
	return m
}

// with runs fn in a turn of its own.
func (m *Model) with(ctx context.Context, fn func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.turn:
	}
	defer func() { m.turn <- struct{}{} }()
	if m.shut {
		return &ledger.UnavailableError{Cause: errors.New("the model is closed")}
	}
	return fn()
}

// stamp is the time of the next command: it grows whatever the clock does.
func (m *Model) stamp() int64 {
	m.last = max(m.last+1, m.now().UnixNano())
	return m.last
}

// Prepare checks an op and looks for what its key or its reference has done.
func (m *Model) Prepare(ctx context.Context, op *ledger.Op) (*ledger.Prepared, error) {
	if err := checkOps([]ledger.Op{*op}, false); err != nil {
		return nil, err
	}
	p := &ledger.Prepared{Op: op}
	err := m.withHolds(ctx, func() error {
		v, is := m.books.replay(*op, max(m.last, m.now().UnixNano()))
		if !is {
			v, is = m.books.refer(*op, within{})
		}
		if is {
			out := m.outcome(v)
			p.Known = &out
		}
		return nil
	})
	return p, err
}

// Submit commits prepared ops at once.
func (m *Model) Submit(ctx context.Context, ops []*ledger.Prepared) (ledger.Pending, error) {
	return submit(ops, func(todo []ledger.Op) ([]ledger.Outcome, error) { return m.Commit(ctx, todo) })
}

// answered is a call that has ended.
type answered []ledger.Outcome

func (a answered) Wait(context.Context) ([]ledger.Outcome, error) { return a, nil }

// submit commits the ops that are not known.
func submit(ops []*ledger.Prepared, commit func([]ledger.Op) ([]ledger.Outcome, error)) (ledger.Pending, error) {
	out, todo := make(answered, len(ops)), []ledger.Op(nil)
	for _, p := range ops {
		if p.Known == nil {
			todo = append(todo, *p.Op)
		}
	}
	var done []ledger.Outcome
	if len(todo) > 0 {
		var err error
		if done, err = commit(todo); err != nil {
			return nil, err
		}
	}
	for i, p := range ops {
		if p.Known != nil {
			out[i] = *p.Known
			continue
		}
		out[i], done = done[0], done[1:]
	}
	return out, nil
}

// Commit decides ops in turn, in one batch of the ledger.
func (m *Model) Commit(ctx context.Context, ops []ledger.Op) (outs []ledger.Outcome, err error) {
	if err := checkOps(ops, false); err != nil {
		return nil, err
	}
	err = m.withHolds(ctx, func() error {
		at, from := m.stamp(), len(m.books.entries)
		verdicts := make([]verdict, len(ops))
		for i := range ops {
			verdicts[i] = m.books.do(ops[i], at, within{})
		}
		m.seal(from, at)
		for _, v := range verdicts {
			outs = append(outs, m.outcome(v))
		}
		return nil
	})
	return outs, err
}

// Settle does all ops or none, under an id that counts for ever.
func (m *Model) Settle(ctx context.Context, o ledger.Once, ops []ledger.Op) (out ledger.Outcome, err error) {
	whole := ledger.Op{Code: record.OpBatch, Atomic: true, Ops: ops}
	if len(ops) == 0 || len(ops) > ledger.MaxPostings {
		return out, &ledger.OpError{Field: "ops", Reason: "are none, or too many"}
	}
	if err := checkOps(ops, true); err != nil {
		return out, err
	}
	err = m.withHolds(ctx, func() error {
		at, from := m.stamp(), len(m.books.entries)
		v := m.books.settle(o, whole, at)
		m.seal(from, at)
		out = m.outcome(v)
		return nil
	})
	return out, err
}

// settle looks the id and its guard up first.
func (b *books) settle(o ledger.Once, whole ledger.Op, at int64) verdict {
	id := onceID{o.Domain, o.ID}
	if k, ok := b.once[id]; ok {
		if k.digest != o.Digest {
			return verdict{reject: refuse(record.OnceConflict)}
		}
		return b.again(k.seq)
	}
	if owner, ok := b.guards[o.Guard.Key]; ok && o.Guard.Key != "" && owner != o.Guard.Owner {
		return verdict{reject: refuse(record.OnceConflict)}
	}
	before := b.copy()
	seq := b.writeOnce(o, at)
	v := b.doBatch(whole, at, within{internal: true})
	if v.reject != nil {
		*b = before
		return v
	}
	v.seq, b.entries[seq-1].results, b.entries[seq-1].atomic = seq, v.results, true
	b.once[id] = known{seq, at, o.Digest}
	if o.Guard.Key != "" {
		b.guards[o.Guard.Key] = o.Guard.Owner
	}
	return v
}

// Declare makes the assets that are not there yet.
func (m *Model) Declare(ctx context.Context, assets ...string) error {
	return m.with(ctx, func() error {
		at, from := m.stamp(), len(m.books.entries)
		for _, a := range assets {
			if _, ok := m.books.assets[a]; !ok {
				m.books.do(ledger.Op{Code: record.OpAsset, Asset: a}, at, within{})
			}
		}
		m.seal(from, at)
		return nil
	})
}

// Sweep ends the overdue holds.
func (m *Model) Sweep(ctx context.Context) error {
	return m.withHolds(ctx, func() error { return nil })
}

// withHolds is with, after it has ended the overdue holds in the order of their expiry.
func (m *Model) withHolds(ctx context.Context, fn func() error) error {
	return m.with(ctx, func() error {
		due := m.books.overdue(max(m.last, m.now().UnixNano()))
		if len(due) == 0 {
			return fn()
		}
		at, from := m.stamp(), len(m.books.entries)
		for _, seq := range due {
			h := m.books.holds[seq]
			mv := &move{
				Op: ledger.Op{Code: record.OpExpire, Asset: h.asset, Hold: m.books.entries[seq-1].receipt.TxID},
				at: at, day: uint32(at / nsPerDay), from: h.from, to: h.to, hold: h,
			}
			m.books.post(mv)
		}
		m.seal(from, at)
		return fn()
	})
}

// overdue returns the overdue open holds, in the order of their expiry.
func (b *books) overdue(at int64) (seqs []uint64) {
	for seq, h := range b.holds {
		if h.closed == record.Accepted && at >= h.expires {
			seqs = append(seqs, seq)
		}
	}
	slices.SortFunc(seqs, func(x, y uint64) int {
		return cmp.Or(cmp.Compare(b.holds[x].expires, b.holds[y].expires), cmp.Compare(x, y))
	})
	return seqs
}

// Probe does nothing, in a turn.
func (m *Model) Probe(ctx context.Context) error { return m.with(ctx, func() error { return nil }) }

// Events is a subscription to batches from now on.
func (m *Model) Events(consumer string) *flow.Subscription[ledger.Committed] {
	return m.bus.Subscribe(consumer)
}

// Close ends the bus; calls after it are refused.
func (m *Model) Close(ctx context.Context) error {
	return m.with(ctx, func() error {
		m.shut = true
		m.bus.Close()
		return nil
	})
}

// Reopen ends m, which refuses all later calls, and returns a model over the same journal, as after
// a restart: without subscribers, and with the time of the last batch.
func (m *Model) Reopen() *Model {
	<-m.turn
	defer func() { m.turn <- struct{}{} }()
	next := NewModel(m.now)
	next.books, next.log = m.books, m.log
	if n := len(m.books.batches); n > 0 {
		next.last = m.books.batches[n-1].At
	}
	if !m.shut {
		m.shut = true
		m.bus.Close()
	}
	return next
}

// Supply returns the amount of an asset in circulation: issued less burnt.
func (m *Model) Supply(ctx context.Context, asset string) (out engines.Amount, err error) {
	err = m.with(ctx, func() error {
		s := m.books.of(acctAsset{Account: engines.IssuanceAccount(asset), Asset: asset})
		out = amount(minus(s.debits, s.credits))
		return nil
	})
	return out, err
}
