package rewarder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines"
	"ronbox/engines/ledger"
	ledgerrecord "ronbox/engines/ledger/record"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// Calls to the ledger. Both are idempotent, a settlement because of its id.
const (
	opRef    = "ref"
	opSettle = "settle"
)

// callSpec configures the calls to the ledger.
func (e *Engine) callSpec() upstream.CallSpec {
	return upstream.CallSpec{
		Service:  service,
		Svc:      "ledger",
		Ops:      []string{opRef, opSettle},
		Inflight: e.boot.Concurrency.IOInflight,
		Callers:  []string{flow.HTTP, taskEmitter},
		Tries:    3,
		Passing:  passing,
		Timeout:  func() time.Duration { return e.live().ReadTimeout.D() },
		Delay:    func(int) time.Duration { return 100*time.Millisecond + rand.N(150*time.Millisecond) },
		Breaker: flow.BreakerRule{
			Ratio:    0.5,
			Min:      20,
			Window:   10 * time.Second,
			Cooldown: time.Second,
			Drawn:    5 * time.Second,
			Probes:   1,
		},
	}
}

// passing reports whether a retry of a failed call may succeed soon.
func passing(err error) bool {
	return errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// ledgerRef returns the balance of an account at the newest record of the ledger.
func (e *Engine) ledgerRef(ctx context.Context, account, asset string) (ref record.LedgerRef, err error) {
	ref = record.LedgerRef{Account: account, Asset: asset}
	if err = e.calls.Do(ctx, opRef, func(ctx context.Context) error {
		head, err := e.ledger.Head(ctx)
		if err != nil {
			return err
		}
		b, err := e.ledger.Balance(ctx, account, asset, head.Seq)
		ref.Root, ref.Seq, ref.Available = head.Root, head.Seq, b.Available
		return err
	}); err != nil {
		err = fmt.Errorf("%w: %w", ErrNoLedger, err)
	}
	return ref, err
}

// errOthers is returned when the answer of the ledger names payees or amounts other than those of
// the run.
var errOthers = errors.New("rewarder: the answer of the ledger names other payees")

// refusal is returned when the ledger refuses a payment because of one account.
type refusal struct {
	*ledger.Reject
	account string
	payee   int // index among the payees; -1 if the payer is refused
}

func (r *refusal) reason() string { return "ledger: " + r.Code.String() }

// payment is the outcome of allocations that are paid under one key: those of a chunk, or one
// parked payee.
type payment struct {
	intent   Intent
	first    uint64 // number of all[0] in the run
	all      []record.Allocation
	receipts []ledgerrecord.Receipt // one per allocation; a receipt without a seq means parked, unless closed
	closed   bool                   // paid in a closed period of the ledger, which has no receipts any more
	why      map[string]string      // reasons of refusals, by actor
}

// row returns the outcome of allocation i.
func (p *payment) row(i int) Parked {
	a, paid := p.all[i], p.receipts[i]
	row := Parked{Actor: a.Actor, Amount: a.Amount.String(), Index: p.first + uint64(i), Result: IntentParked}
	switch {
	case paid.Seq != 0:
		row.Result, row.TxID, row.Seq = p.intent.Result, paid.TxID.String(), paid.Seq
	case p.closed:
		row.Result = p.intent.Result
	default:
		row.Reason = cmp.Or(p.why[a.Actor], "ledger: refused earlier") // before a restart
	}
	return row
}

// take matches the receipts of an answer with the allocations. The answer decides which allocations
// were paid: an earlier call under the same key may have left out others.
func (p *payment) take(out *ledger.Outcome) error {
	i := 0
	for k := range out.Results {
		got := &out.Results[k].Receipt
		for i < len(p.all) && p.all[i].Actor < got.To {
			i++
		}
		if i == len(p.all) || p.all[i].Actor != got.To || p.all[i].Amount != got.Amount {
			return errOthers
		}
		p.receipts[i] = *got
		i++
	}
	p.intent.Result = IntentAccepted
	if out.Replayed {
		p.intent.Result = IntentDup
	}
	if len(out.Results) > 0 {
		first := out.Results[0].Receipt
		p.intent.TxID, p.intent.Seq = first.TxID.String(), first.Seq
	}
	return nil
}

// maxMemo is the number of bytes of an epoch id that fit into a memo after the word reward.
const maxMemo = ledgerrecord.MaxMemo - len("reward ")

// payChunk has the ledger pay chunk n.
func (e *Engine) payChunk(ctx context.Context, j job, m *material, run *Run, n uint32) (p payment, err error) {
	p = payment{intent: Intent{Index: n}, first: uint64(n) * record.ChunkRows}
	if err = e.view(ctx, func(r store.Reader) error {
		p.all, _ = readChunk(r, j.key, m.roots, n)
		return nil
	}); err != nil {
		return p, err
	}
	root := m.roots[n]
	once := ledger.Once{ID: record.IntentKey(j.key, run.Commitment, n, root), Digest: root}
	return p, e.settle(ctx, j, m, run, once, &p)
}

// settle has the ledger pay the allocations of p under one key, all at once. If the run skips
// refused payees, it retries without them under the same key. The ledger executes at most one call
// per key; if all payees are refused, the key stays unused. Errors: *refusal, errOthers, and errors
// of the calls.
func (e *Engine) settle(ctx context.Context, j job, m *material, run *Run, once ledger.Once, p *payment) error {
	once.Domain, once.Principal = service, service
	once.Guard = ledger.Guard{Key: j.slot, Owner: j.key.String()}
	p.intent.Key, p.receipts, p.why = once.ID, make([]ledgerrecord.Receipt, len(p.all)), map[string]string{}
	left := p.all
	for len(left) > 0 {
		var out ledger.Outcome
		err := e.calls.Do(ctx, opSettle, func(ctx context.Context) (err error) {
			p.intent.Attempts++
			out, err = e.ledger.Settle(ctx, once, transfers(m, run, left))
			return err
		})
		switch {
		case err != nil:
			return err
		case out.Period != 0: // done; who was left out then, only the file of the period tells
			p.closed, p.intent.Result = true, IntentDup
			return nil
		case out.Reject == nil:
			before := run.SkipRefused && out.Replayed // an earlier call may have paid fewer
			if len(out.Results) != len(left) && !before || len(out.Results) == 0 {
				return errOthers
			}
			return p.take(&out)
		}
		refused := refusalOf(out.Reject, left, m.policy.Account)
		if refused.payee < 0 || !run.SkipRefused {
			return refused
		}
		p.why[refused.account] = refused.reason()
		left = slices.Delete(slices.Clone(left), refused.payee, refused.payee+1)
	}
	p.intent.Result = IntentParked
	return nil
}

// transfers returns the ledger operations that pay allocations.
func transfers(m *material, run *Run, all []record.Allocation) []ledger.Op {
	ops := make([]ledger.Op, len(all))
	for i, a := range all {
		ops[i] = ledger.Op{
			Code: ledgerrecord.OpTransfer, From: m.policy.Account, To: a.Actor, Asset: m.policy.Asset, Amount: a.Amount,
			Memo: "reward " + run.Epoch[:min(len(run.Epoch), maxMemo)], Principal: service,
		}
	}
	return ops
}

// refusalOf returns the account that a refusal is about: a payee that is locked or full, otherwise
// the payer.
func refusalOf(r *ledger.Reject, all []record.Allocation, payer string) *refusal {
	ofPayee := r.Code == ledgerrecord.AccountLocked && r.Party == "to" || r.Code == ledgerrecord.LimitTotal
	if ofPayee && 0 <= r.Index && r.Index < len(all) {
		return &refusal{r, all[r.Index].Actor, r.Index}
	}
	return &refusal{r, payer, -1}
}

// tally holds the paid and the parked sums of a run.
type tally struct {
	paid, parked engines.Amount
	actors, held uint64
}

// tallyOf returns the tally of a run. For a run of schema 1 it is computed from the allocations.
func tallyOf(r store.Reader, run *Run) (t tally) {
	t.parked, t.held = amountOf(run.ParkedMinor), run.Parked
	switch {
	case run.PaidMinor != "":
		t.paid, t.actors = amountOf(run.PaidMinor), run.PaidActors
	case run.Acked == 0:
	case run.Acked == run.Transactions:
		t.paid, t.actors = amountOf(run.PayoutMinor), run.Actors
	default:
		roots := must(r, sealed, run.RunKey).Roots
		for c := range run.Acked {
			all, _ := readChunk(r, run.RunKey, roots, c)
			for _, a := range all {
				t.paid = plus(t.paid, a.Amount)
			}
			t.actors += uint64(len(all))
		}
	}
	return t
}

// amountOf parses an amount of a row. "" is zero.
func amountOf(s string) engines.Amount {
	n, _ := engines.ParseAmount(s) // written by this package
	return n
}

// plus adds amounts of one run. Their sum is at most its pool.
func plus(a, b engines.Amount) engines.Amount {
	sum, ok := a.Add(b)
	if !ok {
		panic("rewarder: the amounts of a run are more than 2^128-1")
	}
	return sum
}

// count adds the outcome of an allocation.
func (t *tally) count(row *Parked) {
	if row.Result == IntentParked {
		t.parked, t.held = plus(t.parked, amountOf(row.Amount)), t.held+1
	} else {
		t.paid, t.actors = plus(t.paid, amountOf(row.Amount)), t.actors+1
	}
}

// unpark moves a payee from parked to paid.
func (t *tally) unpark(row *Parked) {
	rest, ok := t.parked.Sub(amountOf(row.Amount))
	if !ok || t.held == 0 {
		panic("rewarder: more payees would leave the parked ones than there are")
	}
	t.parked, t.held = rest, t.held-1
	t.paid, t.actors = plus(t.paid, amountOf(row.Amount)), t.actors+1
}

// enter copies the tally into its run.
func (t *tally) enter(run *Run) {
	run.PaidMinor, run.PaidActors, run.Parked, run.ParkedMinor = t.paid.String(), t.actors, t.held, ""
	if t.held > 0 {
		run.ParkedMinor = t.parked.String()
	}
}
