package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
)

func (r *rig) refused(want record.Result, op ledger.Op) *ledger.Reject {
	r.t.Helper()
	out := r.commit(op)[0]
	if out.Reject == nil || out.Reject.Code != want {
		r.t.Fatalf("%+v: %+v, want %s", op, out, want)
	}
	return out.Reject
}

// A hold can be captured until the instant at which it expires, and is expired from then on.
func TestHoldEndsAtItsInstant(t *testing.T) {
	clock := ledgertest.NewClock()
	r := newRig(t, clock).declare("ron")
	r.accept(issue("alice", 100, 1))
	hold := func(nonce uint64) record.Receipt {
		clock.Advance(time.Millisecond)
		return r.accept(ledger.Op{
			Code: record.OpHold, From: "alice", To: "bob", Asset: "ron", Amount: amount(10), Nonce: nonce, ExpiresIn: time.Minute,
		})[0].Receipt
	}
	open := func(h record.Receipt, ns int64) { clock.Set(time.Unix(0, h.At+int64(time.Minute)+ns)) }

	h := hold(1)
	open(h, -1)
	if err := r.l.Sweep(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.accept(ledger.Op{Code: record.OpCapture, Hold: h.TxID}) // a nanosecond before
	h = hold(2)
	open(h, 0)
	r.refused(record.HoldExpired, ledger.Op{Code: record.OpCapture, Hold: h.TxID})
	r.refused(record.HoldExpired, ledger.Op{Code: record.OpRelease, Hold: h.TxID})
	for _, flushed := range []bool{false, true} { // from memory, and from the file
		if flushed {
			h = hold(3)
			if err := r.l.Flush(r.ctx()); err != nil {
				t.Fatal(err)
			}
			r.reopen()
			open(h, 0)
		}
		if err := r.l.Sweep(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if b, _ := r.l.Balance(r.ctx(), "alice", "ron", 0); !b.Held.IsZero() || b.Posted != amount(90) {
			t.Errorf("flushed %v: %v is held after the sweep, %v is there", flushed, b.Held, b.Posted)
		}
		r.refused(record.HoldExpired, ledger.Op{Code: record.OpCapture, Hold: h.TxID})
	}
	r.verify()
}

// A day ends at midnight UTC by the stamp. An amount returned by a release counts on the day of the
// hold alone.
func TestDayTurnsAtMidnight(t *testing.T) {
	clock := ledgertest.NewClock()
	r := newRig(t, clock).declare("ron")
	r.accept(issue("alice", 1000, 1))
	at := &ledger.Limits{Daily: amount(10)}
	pay := func(n, nonce uint64) ledger.Op {
		o := transfer("alice", "bob", n, nonce)
		o.Limits = at
		return o
	}
	hold := pay(6, 1)
	hold.Code, hold.ExpiresIn = record.OpHold, 48*time.Hour
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	clock.Set(midnight.Add(-time.Hour))
	early := r.accept(hold)[0].Receipt
	r.refused(record.LimitDaily, pay(5, 2))
	r.accept(ledger.Op{Code: record.OpCapture, Hold: early.TxID, Amount: amount(2)}) // 4 come back
	r.refused(record.LimitDaily, pay(9, 2))
	hold.Nonce, hold.Amount = 2, amount(8)
	late := r.accept(hold)[0].Receipt
	clock.Set(midnight.Add(-time.Nanosecond))
	r.refused(record.LimitDaily, pay(1, 3))
	clock.Set(midnight)
	r.accept(pay(9, 3))
	r.accept(ledger.Op{Code: record.OpRelease, Hold: late.TxID}) // of yesterday: today has still 1
	r.refused(record.LimitDaily, pay(2, 4))
	r.accept(pay(1, 4))
	r.refused(record.LimitDaily, pay(1, 5))
	r.reopen()
	r.refused(record.LimitDaily, pay(1, 5))
	clock.Set(midnight.Add(-time.Hour)) // a clock that was set back is no new day
	r.refused(record.LimitDaily, pay(1, 5))
	r.verify()
}

// The largest numbers are handled without overflow.
func TestLargestNumbers(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	most := engines.AmountOf(math.MaxUint64, math.MaxUint64)
	whole := ledger.Op{Code: record.OpIssue, To: "rich", Asset: "ron", Amount: most, Nonce: 1}
	r.accept(whole)
	more := issue("rich", 1, 2)
	if got := r.refused(record.LimitDaily, more); got.Limit != ledger.LimitDaily {
		t.Errorf("%+v", got)
	}
	pay := transfer("rich", "heir", 1, math.MaxUint64)
	pay.Limits = &ledger.Limits{Monotonic: true, NonceSpan: math.MaxUint64, AccountTotal: most}
	r.accept(pay)
	if got := r.refused(record.NonceReused, pay); got.Expected != 0 {
		t.Errorf("after the last nonce %d is expected", got.Expected)
	}
	pay.Nonce = 1
	r.refused(record.NonceReused, pay)
	pay.Nonce = 0
	r.refused(record.NonceReused, pay)
	b, err := r.l.Balance(r.ctx(), "rich", "ron", 0)
	if want, _ := most.Sub(amount(1)); err != nil || b.Posted != want {
		t.Errorf("rich has %v, %v", b.Posted, err)
	}
	r.reopen()
	r.verify()
}

// A ledger without records and a ledger with a single batch open at every verification level.
func TestOpenSmall(t *testing.T) {
	for _, verify := range []string{ledger.VerifyNone, ledger.VerifyTail, ledger.VerifyFull} {
		t.Run(verify, func(t *testing.T) {
			r := newRig(t, nil, func(c *ledger.Config) { c.VerifyOnOpen = verify })
			r.reopen() // it has begun, and has nothing
			if h, err := r.l.Head(r.ctx()); err != nil || h.Seq != 0 || h.Batches != 0 {
				t.Errorf("%+v, %v", h, err)
			}
			if err := r.l.Flush(r.ctx()); err != nil {
				t.Fatal(err)
			}
			r.declare("ron")
			r.reopen()
			r.accept(issue("alice", 1, 1))
			r.reopen()
			r.verify()
		})
	}
}

// The largest batch, with the largest memos, commits and can be undone. Each of its ops depends on
// the op before it.
func TestLargestBatch(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	memo := strings.Repeat("m", record.MaxMemo)
	batch := func(n int) ledger.Op {
		o := ledger.Op{Code: record.OpBatch, Atomic: true, Ops: []ledger.Op{issue("a", 5, 1)}}
		from, to := "a", "b"
		for i := 1; i < n; i++ {
			next := transfer(from, to, 5, uint64(i+1)/2)
			next.Memo = memo
			o.Ops = append(o.Ops, next)
			from, to = to, from
		}
		return o
	}
	bad := batch(4096)
	bad.Ops[4095].Nonce--
	head, _ := r.l.Head(r.ctx())
	if got := r.refused(record.NonceReused, bad); got.Index != 4095 || !got.Committed.IsZero() {
		t.Errorf("%+v", got)
	}
	if is, err := r.l.Head(r.ctx()); err != nil || is != head {
		t.Errorf("the head is %+v, %v", is, err)
	}
	if a, err := r.l.Account(r.ctx(), "a"); err != nil || a.Known {
		t.Errorf("%+v, %v", a, err)
	}
	if out := r.accept(batch(4096))[0]; len(out.Results) != 4096 || out.Results[4095].Reject != nil {
		t.Errorf("%d results", len(out.Results))
	}
	full := make([]ledger.Op, ledger.MaxOps)
	for i := range full {
		full[i] = issue("a", 1, uint64(i)+2)
		full[i].Memo = memo
	}
	r.accept(full...)
	r.reopen()
	r.verify()
}

// In safe mode the tasks do nothing, however much work is pending.
func TestTasksRestInSafeMode(t *testing.T) {
	r := newRig(t, nil, func(c *ledger.Config) { c.DirtyMaxAccounts = 1 }).declare("ron")
	r.accept(issue("alice", 1, 1), issue("bob", 1, 2))
	r.l.Bar()
	ctx, cancel := context.WithTimeout(r.ctx(), time.Minute)
	defer cancel()
	if r.l.FlushDue(ctx); ctx.Err() != nil {
		t.Error("the flusher does not rest")
	}
}

// A batch with a memo is refused. The memo would not fit beside many results.
func TestBatchHasNoMemo(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	o := ledger.Op{Code: record.OpBatch, Memo: strings.Repeat("m", record.MaxMemo)}
	for i := range uint64(600) {
		o.Ops = append(o.Ops, issue("alice", 1, i+1))
	}
	var bad *ledger.OpError
	if _, err := r.l.Commit(r.ctx(), []ledger.Op{o}); !errors.As(err, &bad) || bad.Field != "memo" {
		t.Errorf("%v, want an OpError of the memo", err)
	}
	o.Memo, o.Idem = "", strings.Repeat("i", record.MaxIdem)
	r.accept(o)
}

// A boot seals the closed slots after the sealed runs, and skips no key because of its age.
func TestBootSeals(t *testing.T) {
	clock := ledgertest.NewClock()
	r := newRig(t, clock, func(c *ledger.Config) { c.SlotMax = 512 }).declare("ron")
	var ops []ledger.Op
	for i := range uint64(30_000) {
		if ops = append(ops, keyed(issue("alice", 1, i+1), fmt.Sprint("k", i))); len(ops) == 3000 {
			r.accept(ops...)
			ops = ops[:0]
		}
	}
	r.reopen()
	if n := r.panics(); n != 0 || r.l.Closed() > 1 {
		t.Errorf("%d slots wait to be sealed after a boot, %v commands panicked", r.l.Closed(), n)
	}
	if out := r.commit(keyed(issue("alice", 1, 1), "k0"))[0]; !out.Replayed {
		t.Errorf("%+v", out)
	}
}

// A key is free again at the exact instant at which its TTL has passed.
func TestKeyEndsExactly(t *testing.T) {
	clock := ledgertest.NewClock()
	r := newRig(t, clock).declare("ron")
	op := keyed(issue("alice", 1, 1), "k")
	end := time.Unix(0, r.accept(op)[0].Receipt.At).Add(op.TTL)
	clock.Set(end.Add(-1))
	if out := r.accept(op); !out[0].Replayed {
		t.Errorf("a nanosecond before: %+v, want it replayed", out[0])
	}
	clock.Set(end)
	r.refused(record.NonceReused, op)
}

// Each op that is accepted or refused counts once. A batch does not count beside its ops. A refusal binds no
// key, so a repetition is decided and counted anew.
func TestOpsAreCounted(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	r.accept(issue("alice", 10, 1))
	pay := func(n uint64) ledger.Op {
		return ledger.Op{Code: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Amount: amount(n)}
	}
	paid, refused := keyed(pay(1), "paid"), keyed(pay(11), "refused")
	other := paid
	other.Fingerprint = [32]byte{1}
	for _, tt := range []struct {
		doc               string
		op                ledger.Op
		accepted, refused float64
	}{
		{"accepted", paid, 1, 0},
		{"replayed", paid, 0, 0},
		{"refused", refused, 0, 1},
		{"the key of another", other, 0, 1},
		{"refused again", refused, 0, 1},
		{"two of a batch", ledger.Op{Code: record.OpBatch, Ops: []ledger.Op{pay(20), pay(1), pay(30)}}, 1, 2},
		{"one of an atomic batch", ledger.Op{Code: record.OpBatch, Atomic: true, Ops: []ledger.Op{pay(1), pay(40)}}, 0, 2},
	} {
		accepted, refused := r.counted("ledger_accepted_total"), r.counted("ledger_rejects_total")
		r.commit(tt.op)
		accepted, refused = r.counted("ledger_accepted_total")-accepted, r.counted("ledger_rejects_total")-refused
		if accepted != tt.accepted || refused != tt.refused {
			t.Errorf("%s: %v accepted, %v refused, want %v, %v", tt.doc, accepted, refused, tt.accepted, tt.refused)
		}
	}
}
