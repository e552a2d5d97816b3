package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Faults are the frequencies of faults, each a share of the calls from 0 to 1. The zero Faults let
// every call pass.
type Faults struct {
	Seed uint64

	Refuse float64 // a write fails with no effect; a read fails
	Lose   float64 // a write is not done, and its outcome is unknown
	Forget float64 // a write is done, but the answer is lost: its outcome is unknown
	Late   float64 // the outcome is unknown, and the write is done with a later call
	Repeat float64 // a write is done, and done again: at once, or with a later call
	Yield  float64 // a write waits until another one went first, MaxStall at most
	Stall  float64 // a call waits, up to MaxStall, before it is done or before its answer

	MaxStall time.Duration

	Outage float64       // share of the windows in which writes, or reads, fail one and all
	Window time.Duration // length of a window; 0: no outages
}

// Storm is a bit of everything.
func Storm(seed uint64) Faults {
	return Faults{
		Seed: seed, Refuse: .05, Lose: .05, Forget: .08, Late: .04, Repeat: .05, Yield: .05, Stall: .1,
		MaxStall: 2 * time.Second, Outage: .05, Window: 3 * time.Second,
	}
}

// Fault is one kind of Faults, as it is counted.
type Fault string

// The faults.
const (
	Refused   Fault = "refused"
	Lost      Fault = "lost"
	Forgotten Fault = "forgotten"
	Late      Fault = "late"
	Repeated  Fault = "repeated"
	Yielded   Fault = "yielded"
	Stalled   Fault = "stalled"
	Outage    Fault = "outage"
)

// fate is the fault of one call.
type fate struct {
	kind   Fault         // "" for nothing
	stall  time.Duration // 0: none
	after  bool          // the stall is between the deed and the answer
	later  int           // of Late and the later half of Repeated: how many calls later
	repeat bool          // of Repeated: at once
}

// dice returns the dice of one call. They depend only on the seed, on the label of the call and on
// its attempt, so that concurrent tasks have the same faults in any order.
func (f Faults) dice(label string, attempt int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s#%d", label, attempt)
	return rand.New(rand.NewPCG(f.Seed, h.Sum64()))
}

func (f Faults) fate(d *rand.Rand, write bool) (is fate) {
	if d.Float64() < f.Stall && f.MaxStall > 0 {
		is.stall, is.after = time.Duration(1+d.Int64N(int64(f.MaxStall))), d.Float64() < .5
	}
	kinds := []struct {
		share float64
		kind  Fault
	}{
		{f.Refuse, Refused}, {f.Lose, Lost}, {f.Forget, Forgotten}, {f.Late, Late}, {f.Repeat, Repeated},
		{f.Yield, Yielded},
	}
	if !write {
		kinds = kinds[:1]
	}
	u := d.Float64()
	for _, k := range kinds {
		if u -= k.share; u < 0 {
			is.kind = k.kind
			break
		}
	}
	is.later, is.repeat = 1+d.IntN(8), d.Float64() < .5
	return is
}

// out reports whether the current window is an outage. Writes and reads have separate windows.
func (f Faults) out(since time.Duration, write bool) bool {
	if f.Window <= 0 {
		return false
	}
	return f.dice(fmt.Sprintf("window %t", write), int(since/f.Window)).Float64() < f.Outage
}

var (
	errRefused = errors.New("fault: refused")
	errOutage  = errors.New("fault: outage")
	errLost    = errors.New("fault: no answer")
)

func none(cause error) error { return &ledger.UnavailableError{Cause: cause} }
func unknown() error         { return &ledger.UnavailableError{Unknown: true, Cause: errLost} }

// found is what Find answers.
type found struct {
	out ledger.Outcome
	ok  bool
}

// Find is a read.
func (f *Faulty) Find(
	ctx context.Context,
	k ledger.DedupeKey,
	fp b3.Digest,
	notBefore int64,
) (ledger.Outcome, bool, error) {
	got, err := read(ctx, f, "find "+k.Scope+" "+k.Key, func(ctx context.Context) (g found, err error) {
		g.out, g.ok, err = f.inner.Find(ctx, k, fp, notBefore)
		return g, err
	})
	return got.out, got.ok, err
}

// Balance is a read.
func (f *Faulty) Balance(ctx context.Context, account, asset string, minSeq uint64) (ledger.BalanceView, error) {
	return read(ctx, f, "balance "+account+" "+asset, func(ctx context.Context) (ledger.BalanceView, error) {
		return f.inner.Balance(ctx, account, asset, minSeq)
	})
}

// Account is a read.
func (f *Faulty) Account(ctx context.Context, account string) (ledger.AccountView, error) {
	return read(ctx, f, "account "+account,
		func(ctx context.Context) (ledger.AccountView, error) { return f.inner.Account(ctx, account) })
}

// Assets is a read.
func (f *Faulty) Assets(ctx context.Context) ([]ledger.AssetView, error) {
	return read(ctx, f, "assets", f.inner.Assets)
}

// Tx is a read.
func (f *Faulty) Tx(ctx context.Context, id record.TxID) (ledger.Outcome, error) {
	return read(ctx, f, "tx "+id.String(),
		func(ctx context.Context) (ledger.Outcome, error) { return f.inner.Tx(ctx, id) })
}

// Reference is a read.
func (f *Faulty) Reference(ctx context.Context, principal, reference string) (ledger.Outcome, error) {
	return read(ctx, f, "reference "+principal+" "+reference,
		func(ctx context.Context) (ledger.Outcome, error) { return f.inner.Reference(ctx, principal, reference) })
}

// History is a read.
func (f *Faulty) History(ctx context.Context, q ledger.HistoryQuery) (ledger.Page, error) {
	return read(ctx, f, "history "+q.Account+" "+q.Asset,
		func(ctx context.Context) (ledger.Page, error) { return f.inner.History(ctx, q) })
}

// Roots is a read.
func (f *Faulty) Roots(ctx context.Context, since uint64, n int) ([]record.Batch, error) {
	return read(ctx, f, "roots",
		func(ctx context.Context) ([]record.Batch, error) { return f.inner.Roots(ctx, since, n) })
}

// Head is a read.
func (f *Faulty) Head(ctx context.Context) (record.Head, error) {
	return read(ctx, f, "head", f.inner.Head)
}

// Prove is a read.
func (f *Faulty) Prove(ctx context.Context, id record.TxID, atBatch uint64) (record.Proof, error) {
	return read(ctx, f, "prove",
		func(ctx context.Context) (record.Proof, error) { return f.inner.Prove(ctx, id, atBatch) })
}

// Consistency is a read.
func (f *Faulty) Consistency(ctx context.Context, from, to uint64) (record.Consistency, error) {
	return read(ctx, f, "consistency",
		func(ctx context.Context) (record.Consistency, error) { return f.inner.Consistency(ctx, from, to) })
}

// Export is a read that fails at its beginning or not at all.
func (f *Faulty) Export(ctx context.Context, from, to uint64, fn func(record.Line) error) error {
	_, err := read(ctx, f, "export",
		func(ctx context.Context) (struct{}, error) { return struct{}{}, f.inner.Export(ctx, from, to, fn) })
	return err
}

// Payments is a read that fails at its beginning or not at all.
func (f *Faulty) Payments(
	ctx context.Context,
	q ledger.PaymentFilter,
	from, to uint64,
	fn func(*ledger.Outcome) error,
) error {
	_, err := read(ctx, f, "payments",
		func(ctx context.Context) (struct{}, error) { return struct{}{}, f.inner.Payments(ctx, q, from, to, fn) })
	return err
}
