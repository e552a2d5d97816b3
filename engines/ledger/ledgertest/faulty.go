package ledgertest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
)

// Faulty is a ledger behind a wire that cannot be trusted. Safe for concurrent use; Events and
// Close are never disturbed.
type Faulty struct {
	inner  ledger.Client
	faults Faults
	born   time.Time

	mu      sync.Mutex     // a leaf
	asked   map[string]int // how often each question was asked; guarded by mu
	late    []lateCall     // guarded by mu
	calls   int            // guarded by mu
	counts  map[Fault]int  // guarded by mu
	next    chan struct{}  // closed when the next write has passed; guarded by mu
	blocked chan struct{}  // nil: not; closed by the Resume that ends it; guarded by mu
}

var _ ledger.Client = (*Faulty)(nil)

// lateCall is a write that is done with the call of a number, or the first after it.
type lateCall struct {
	due int
	do  func()
}

// NewFaulty puts faults between callers and inner.
func NewFaulty(inner ledger.Client, faults Faults) *Faulty {
	return &Faulty{
		inner:  inner,
		faults: faults,
		born:   time.Now(),
		asked:  map[string]int{},
		counts: map[Fault]int{},
		next:   make(chan struct{}),
	}
}

// Pause lets no write and no probe pass from now on: they wait until Resume or for the end of their
// context. Reads go on.
func (f *Faulty) Pause() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blocked == nil {
		f.blocked = make(chan struct{})
	}
}

// Resume ends a Pause.
func (f *Faulty) Resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blocked != nil {
		close(f.blocked)
		f.blocked = nil
	}
}

// Count returns the number of each fault so far.
func (f *Faulty) Count() map[Fault]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// begin draws the fate of a call and makes the late calls that are due.
func (f *Faulty) begin(label string, write bool) fate {
	f.mu.Lock()
	f.calls++
	f.asked[label]++
	is := f.faults.fate(f.faults.dice(label, f.asked[label]), write)
	if f.faults.out(time.Since(f.born), write) {
		is = fate{kind: Outage}
	}
	if is.kind != "" {
		f.counts[is.kind]++
	}
	if is.stall > 0 {
		f.counts[Stalled]++
	}
	due := f.due(f.calls)
	f.mu.Unlock()
	for _, l := range due {
		l.do()
	}
	return is
}

// due takes the late calls up to a number, none while writes are paused; the caller holds mu.
func (f *Faulty) due(upTo int) (due []lateCall) {
	if f.blocked != nil {
		return nil
	}
	var rest []lateCall
	for _, l := range f.late {
		if l.due <= upTo {
			due = append(due, l)
		} else {
			rest = append(rest, l)
		}
	}
	f.late = rest
	return due
}

func (f *Faulty) postpone(by int, do func()) {
	f.mu.Lock()
	f.late = append(f.late, lateCall{f.calls + by, do})
	f.mu.Unlock()
}

// passed tells those who let others go first.
func (f *Faulty) passed() {
	f.mu.Lock()
	close(f.next)
	f.next = make(chan struct{})
	f.mu.Unlock()
}

// gate waits while writes are paused.
func (f *Faulty) gate(ctx context.Context) error {
	for {
		f.mu.Lock()
		blocked := f.blocked
		f.mu.Unlock()
		if blocked == nil {
			return nil
		}
		select {
		case <-blocked:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// yield waits until another write has passed.
func (f *Faulty) yield(ctx context.Context) error {
	f.mu.Lock()
	next := f.next
	f.mu.Unlock()
	return wait(ctx, next, f.faults.MaxStall)
}

// wait ends with done, after d, or with ctx.
func wait(ctx context.Context, done <-chan struct{}, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// write takes a write through its fate.
func write[T any](
	ctx context.Context,
	f *Faulty,
	label string,
	do func(context.Context) (T, error),
) (out T, err error) {
	var nothing T
	if err := f.gate(ctx); err != nil {
		return nothing, err
	}
	is := f.begin(label, true)
	if !is.after {
		if err := wait(ctx, nil, is.stall); err != nil {
			return nothing, err
		}
	}
	again := func() { _, _ = do(context.WithoutCancel(ctx)) } // the answer is lost
	switch is.kind {
	case Outage:
		return nothing, none(errOutage)
	case Refused:
		return nothing, none(errRefused)
	case Lost:
		return nothing, unknown()
	case Late:
		f.postpone(is.later, again)
		return nothing, unknown()
	case Forgotten:
		again()
		f.passed()
		return nothing, unknown()
	case Yielded:
		if err := f.yield(ctx); err != nil {
			return nothing, err
		}
	}
	out, err = do(ctx)
	f.passed()
	if is.kind == Repeated && is.repeat {
		again()
	} else if is.kind == Repeated {
		f.postpone(is.later, again)
	}
	if is.after {
		if err := wait(ctx, nil, is.stall); err != nil {
			return nothing, err
		}
	}
	return out, err
}

// read takes a read through its fate.
func read[T any](ctx context.Context, f *Faulty, label string, do func(context.Context) (T, error)) (T, error) {
	var nothing T
	is := f.begin(label, false)
	if err := wait(ctx, nil, is.stall); err != nil {
		return nothing, err
	}
	switch is.kind {
	case Outage:
		return nothing, none(errOutage)
	case Refused:
		return nothing, none(errRefused)
	}
	return do(ctx)
}

// labelOf identifies a call by its first op.
func labelOf(ops []ledger.Op) string {
	if len(ops) == 0 {
		return "commit"
	}
	o := ops[0]
	return fmt.Sprintf("commit %s %s %s %s %s %s %d", o.Dedupe.Scope, o.Dedupe.Key, o.Reference, o.Code, o.From, o.To,
		o.Nonce)
}

// Prepare is a read.
func (f *Faulty) Prepare(ctx context.Context, op *ledger.Op) (*ledger.Prepared, error) {
	return read(ctx, f, "prepare "+labelOf([]ledger.Op{*op}),
		func(ctx context.Context) (*ledger.Prepared, error) { return f.inner.Prepare(ctx, op) })
}

// Submit is a write, which is made by the Wait for it.
func (f *Faulty) Submit(_ context.Context, ops []*ledger.Prepared) (ledger.Pending, error) {
	return &faultyPending{f, ops}, nil
}

type faultyPending struct {
	f   *Faulty
	ops []*ledger.Prepared
}

// Wait submits the ops and waits for them.
func (p *faultyPending) Wait(ctx context.Context) ([]ledger.Outcome, error) {
	label := "submit"
	if len(p.ops) > 0 {
		label = labelOf([]ledger.Op{*p.ops[0].Op})
	}
	return write(ctx, p.f, label, func(ctx context.Context) ([]ledger.Outcome, error) {
		sent, err := p.f.inner.Submit(ctx, p.ops)
		if err != nil {
			return nil, err
		}
		return sent.Wait(ctx)
	})
}

// Commit is a write.
func (f *Faulty) Commit(ctx context.Context, ops []ledger.Op) ([]ledger.Outcome, error) {
	return write(ctx, f, labelOf(ops),
		func(ctx context.Context) ([]ledger.Outcome, error) { return f.inner.Commit(ctx, ops) })
}

// Settle is a write.
func (f *Faulty) Settle(ctx context.Context, once ledger.Once, ops []ledger.Op) (ledger.Outcome, error) {
	label := "settle " + once.Domain + " " + once.ID
	return write(ctx, f, label,
		func(ctx context.Context) (ledger.Outcome, error) { return f.inner.Settle(ctx, once, ops) })
}

// Probe is stopped by a Pause and by an outage of writes; no other fault meets it.
func (f *Faulty) Probe(ctx context.Context) error {
	if err := f.gate(ctx); err != nil {
		return err
	}
	if f.faults.out(time.Since(f.born), true) {
		return none(errOutage)
	}
	return f.inner.Probe(ctx)
}

// Events is the inner client's.
func (f *Faulty) Events(consumer string) *flow.Subscription[ledger.Committed] {
	return f.inner.Events(consumer)
}

// Close makes the late calls, then closes the inner client.
func (f *Faulty) Close(ctx context.Context) error {
	f.Resume()
	f.mu.Lock()
	due := f.late
	f.late = nil
	f.mu.Unlock()
	for _, l := range due {
		l.do()
	}
	return f.inner.Close(ctx)
}
