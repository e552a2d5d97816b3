package wallet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

func TestKeyIsNeeded(t *testing.T) {
	r := newRig(t).start()
	for _, key := range []string{"", "a b", "ü", string(make([]byte, 65)), `"quoted"`} {
		var field *FieldError
		if _, err := r.post(key, issue("bo", 1, 1)); !errors.As(err, &field) || field.Field != "idempotency_key" || code(err) != "BAD_REQUEST" {
			t.Errorf("key %q: %v", key, err)
		}
	}
	if _, err := r.post("A-Z.a_z:09"+string(make([]byte, 0)), issue("bo", 1, 1)); err != nil {
		t.Error(err)
	}
}

// A repetition gets the first answer byte for byte, from the ledger and then from the cache, and does nothing.
func TestReplay(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	first, err := r.post("k", transfer("alice", "bo", 10, 1))
	if err != nil || first.Replayed {
		t.Fatalf("%+v, %v", first, err)
	}
	for i := range 5 {
		again, err := r.post("k", transfer("alice", "bo", 10, 1))
		if err != nil || !again.Replayed || string(again.bytes()) != string(first.bytes()) || !again.whole() {
			t.Errorf("repetition %d: %+v, %v", i, again, err)
		}
		r.e.receipts.kept.Settle()
	}
	r.want(5, "wallet_idem_replays_total")
	if got := r.available("bo"); got != "10" {
		t.Errorf("bo has %s", got)
	}
	if n := r.sum("upstream_calls_total", "op", opFind, "outcome", "ok"); n > 2+1 {
		t.Errorf("%v lookups: the cache of receipts does not answer", n)
	}
}

func TestSameKeyForSomethingElse(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	r.must("k", transfer("alice", "bo", 10, 1))
	for i, q := range []Request{
		transfer("alice", "bo", 11, 1), transfer("alice", "carol", 10, 1), transfer("alice", "bo", 10, 2),
		{Op: record.OpBurn, From: "alice", Asset: "ron", Amount: amountOf(10), Nonce: 1},
		{Op: record.OpTransfer, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(10), Nonce: 1, Memo: "x"},
	} {
		if _, err := r.post("k", q); code(err) != "IDEMPOTENCY_CONFLICT" {
			t.Errorf("case %d: %v", i, err)
		}
	}
	if _, err := r.e.Batch(context.Background(), alice, "k", "", true, []Request{transfer("alice", "bo", 10, 1)}); code(err) != "IDEMPOTENCY_CONFLICT" {
		t.Errorf("as a batch: %v", err)
	}
	if got := r.available("bo"); got != "10" {
		t.Errorf("bo has %s", got)
	}
}

// Those who ask while the first is on its way get its answer, as one that another request has done; one too many, and one who asks for something else, are told so.
func TestSameKeyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold, calls := make(chan struct{}), 0
		r := newRig(t, commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
			<-hold
			calls++
			return next.Commit(ctx, ops)
		})).start()
		r.fund("alice", 100)
		var wg sync.WaitGroup
		bodies := make([]string, 1+flightWaiters)
		var done atomic.Int32 // answered as the one that did it
		for i := range bodies {
			wg.Go(func() {
				a, err := r.post("k", transfer("alice", "bo", 10, 1))
				if err != nil {
					t.Errorf("waiter %d: %v", i, err)
				}
				if !a.Replayed {
					done.Add(1)
				}
				bodies[i] = string(a.bytes())
			})
		}
		synctest.Wait()
		if _, err := r.post("k", transfer("alice", "bo", 10, 1)); !errors.Is(err, ErrInFlight) || !CodeOf(err).Retryable {
			t.Errorf("one too many: %v", err)
		}
		if _, err := r.post("k", transfer("alice", "bo", 11, 1)); code(err) != "IDEMPOTENCY_CONFLICT" {
			t.Errorf("something else meanwhile: %v", err)
		}
		close(hold)
		wg.Wait()
		for _, b := range bodies {
			if b != bodies[0] {
				t.Errorf("answers differ: %s and %s", b, bodies[0])
			}
		}
		if got := r.available("bo"); got != "10" || calls != 1 || done.Load() != 1 {
			t.Errorf("bo has %s after %d calls, which %d did", got, calls, done.Load())
		}
		r.want(flightWaiters, "wallet_idem_replays_total")
		r.stop()
	})
}

// One who waits for another's job and has no more time is told that it goes on; the one who began it is told that nobody knows yet.
func TestWaitersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		r := newRig(t, commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
			<-hold
			return next.Commit(context.WithoutCancel(ctx), ops)
		})).start()
		r.fund("alice", 100)
		ask := func(d time.Duration) (err error) {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			_, err = r.e.Post(ctx, alice, "k", "", transfer("alice", "bo", 10, 1))
			return err
		}
		var wg sync.WaitGroup
		var first, second error
		wg.Go(func() { first = ask(time.Second) })
		synctest.Wait()
		wg.Go(func() { second = ask(500 * time.Millisecond) })
		wg.Wait()
		var out *OutcomeError
		if !errors.As(first, &out) || !out.Unknown || !errors.Is(second, ErrInFlight) {
			t.Errorf("%v; %v", first, second)
		}
		close(hold)
		synctest.Wait()
		if a, err := r.post("k", transfer("alice", "bo", 10, 1)); err != nil || !a.Replayed {
			t.Errorf("asked again: %+v, %v", a, err)
		}
		r.stop()
	})
}

// A refusal is not kept: the same request is judged afresh.
func TestRefusedThenGood(t *testing.T) {
	r := newRig(t).start()
	if _, err := r.post("k", transfer("alice", "bo", 10, 1)); code(err) != "INSUFFICIENT_FUNDS" {
		t.Fatal(err)
	}
	r.fund("alice", 100)
	if a, err := r.post("k", transfer("alice", "bo", 10, 1)); err != nil || a.Replayed {
		t.Errorf("%+v, %v", a, err)
	}
}

// An unknown outcome is found out by sending the same request again: it is done once, whether the first one got through or not.
func TestUnknownThenAgain(t *testing.T) {
	for _, done := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			failing := true
			r := newRig(t, commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				if !failing {
					return next.Commit(ctx, ops)
				}
				if done {
					_, _ = next.Commit(ctx, ops)
				}
				return nil, unavailable(true)
			})).start()
			r.fund("alice", 100)
			_, err := r.post("k", transfer("alice", "bo", 10, 1))
			var out *OutcomeError
			if !errors.As(err, &out) || !out.Unknown {
				t.Fatalf("first: %v", err)
			}
			failing = false
			a, err := r.post("k", transfer("alice", "bo", 10, 1))
			if err != nil || a.Replayed != done {
				t.Errorf("again: %+v, %v", a, err)
			}
			if got := r.available("bo"); got != "10" {
				t.Errorf("bo has %s", got)
			}
			r.stop()
		})
	}
}

// When the key's time is over the nonce stops a repetition, and names the record.
func TestAfterTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, with(func(c *Config) { c.IdempotencyTTL = seconds(600) })).start()
		r.fund("alice", 100)
		first := r.must("k", transfer("alice", "bo", 10, 1))
		time.Sleep(r.cfg.IdempotencyTTL.D() - time.Minute)
		if a, err := r.post("k", transfer("alice", "bo", 10, 1)); err != nil || !a.Replayed {
			t.Errorf("within its time: %+v, %v", a, err)
		}
		time.Sleep(2 * time.Minute)
		_, err := r.post("k", transfer("alice", "bo", 10, 1))
		var reject *ledger.Reject
		if !errors.As(err, &reject) || reject.Code != record.NonceReused || reject.Committed != first.id(t) {
			t.Errorf("after its time: %+v", err)
		}
		r.stop()
	})
}

// A key counts to the last nanosecond of its time, and no longer, whether its answer is in the cache or not.
func TestLastMomentOfAKey(t *testing.T) {
	for _, cached := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, with(func(c *Config) { c.IdempotencyTTL = seconds(60) })).start()
			r.fund("alice", 100)
			q := transfer("alice", "bo", 1, 1)
			first := r.must("k", q)
			synctest.Wait()
			over := time.Unix(0, int64(r.e.ledgerTime.Load())).Add(r.cfg.IdempotencyTTL.D())
			if cached {
				r.must("k", q)
				r.e.receipts.kept.Settle()
			}
			asked := r.sum("upstream_calls_total", "op", opFind)
			time.Sleep(time.Until(over) - time.Nanosecond)
			if a, err := r.post("k", q); err != nil || !a.Replayed {
				t.Errorf("cached %t, in its last moment: %+v, %v", cached, a, err)
			}
			if here := r.sum("upstream_calls_total", "op", opFind) == asked; here != cached {
				t.Errorf("cached %t, and the ledger was not asked: %t", cached, here)
			}
			r.want(1, "upstream_calls_total", "op", opCommit, "outcome", "ok")
			time.Sleep(time.Nanosecond)
			var reject *ledger.Reject
			if a, err := r.post("k", q); !errors.As(err, &reject) || reject.Code != record.NonceReused || reject.Committed != first.id(t) {
				t.Errorf("cached %t, after its time: %s, %v", cached, a.bytes(), err)
			}
			r.stop()
		})
	}
}

// Two keys that share a place in the cache are not taken for each other, nor are two questions under one key.
func TestReceiptsApart(t *testing.T) {
	c := newReceipts(flow.NewCatalog(nil, nil))
	if err := c.kept.Open(); err != nil {
		t.Fatal(err)
	}
	defer c.kept.Close()
	mine := receipt{scope: "alice", key: "k", print: b3.Sum(nil), at: 2}
	for _, tt := range []struct {
		name  string
		spoil func(*receipt)
		found bool
	}{
		{"the same", func(*receipt) {}, true},
		{"another principal", func(r *receipt) { r.scope = "bo" }, false},
		{"another key", func(r *receipt) { r.key = "l" }, false},
		{"another question", func(r *receipt) { r.print = b3.Sum([]byte("x")) }, false},
	} {
		kept := mine
		tt.spoil(&kept)
		c.kept.Set(c.place(mine.scope, mine.key), &kept, 1)
		c.kept.Settle()
		if _, found := c.replay(mine.scope, mine.key, mine.print, mine.at-1); found != tt.found {
			t.Errorf("%s: found %t", tt.name, found)
		}
	}
}

// Long answers push others out: what is kept is bounded in bytes.
func TestReceiptsAreBounded(t *testing.T) {
	const body, n = 64 << 10, 2 * receiptBytes / (64 << 10)
	c := newReceipts(flow.NewCatalog(nil, nil))
	if err := c.kept.Open(); err != nil {
		t.Fatal(err)
	}
	defer c.kept.Close()
	out := &ledger.Outcome{Receipt: record.Receipt{At: 2}}
	found := 0
	for i := range n {
		c.keep("alice", name(i), b3.Digest{}, out, Answer{ledger.Outcome{Batch: true, Results: make([]ledger.Outcome, body/receiptRoom)}})
		c.kept.Settle()
	}
	for i := range n {
		if _, ok := c.replay("alice", name(i), b3.Digest{}, 1); ok {
			found++
		}
	}
	if found == 0 || found*body > receiptBytes {
		t.Errorf("%d answers of %d bytes are kept", found, body)
	}
}

// A key lives by the ledger's time: on a wall clock that was set back, within what is let pass, it is not given another while.
func TestTTLIsOfTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock wall
		r := newRig(t, on(newOnModel(t, clock.now).model), by(clock.now), with(func(c *Config) { c.IdempotencyTTL = seconds(60) })).start()
		r.fund("alice", 100)
		first := r.must("k", transfer("alice", "bo", 1, 1))
		time.Sleep(55 * time.Second)
		if a, err := r.post("k", transfer("alice", "bo", 1, 1)); err != nil || !a.Replayed {
			t.Errorf("before its time is over: %+v, %v", a, err)
		}
		clock.turn(8 * time.Second)
		r.fund("carol", 1)
		clock.turn(-8 * time.Second)
		synctest.Wait()
		var reject *ledger.Reject
		if a, err := r.post("k", transfer("alice", "bo", 1, 1)); !errors.As(err, &reject) || reject.Code != record.NonceReused || reject.Committed != first.id(t) {
			t.Errorf("after it: %s, %v", a.bytes(), err)
		}
		r.stop()
	})
}

func TestPrincipalsAreApart(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	mine := r.must("k", transfer("alice", "bo", 10, 1))
	bo := engines.Actor{CapID: "c2", Principal: "bo"}
	if _, err := r.e.Post(context.Background(), bo, "k", "", transfer("alice", "bo", 10, 1)); code(err) != "NONCE_CONFLICT" {
		t.Errorf("the same request of another one: %v", err)
	}
	a, err := r.e.Post(context.Background(), bo, "k", "", transfer("alice", "bo", 10, 2))
	if err != nil || a.Replayed || parse(t, a.bytes()).TxID == mine.TxID {
		t.Errorf("%+v, %v", a, err)
	}
}

// A batch is kept whole under its key, refusals included; one that did nothing is not kept.
func TestBatchReplay(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	ops := []Request{transfer("alice", "bo", 10, 1), transfer("alice", "bo", 1000, 2), transfer("alice", "bo", 20, 2), transfer("carol", "bo", 1, 1)}
	batch := func(key string, atomic bool, ops ...Request) (Answer, error) {
		return r.e.Batch(context.Background(), alice, key, "", atomic, ops)
	}
	first, err := batch("b", false, ops...)
	if err != nil || first.whole() || first.Replayed {
		t.Fatalf("%+v, %v", first, err)
	}
	for range 3 {
		again, err := batch("b", false, ops...)
		if err != nil || !again.Replayed || again.whole() || string(again.bytes()) != string(first.bytes()) {
			t.Errorf("again: %s, %v\nwant %s", again.bytes(), err, first.bytes())
		}
		r.e.receipts.kept.Settle()
	}
	if got := r.available("bo"); got != "30" {
		t.Errorf("bo has %s", got)
	}
	_, err = batch("a", true, transfer("alice", "bo", 1, 3), transfer("carol", "bo", 1, 1))
	var at *IndexError
	if !errors.As(err, &at) || at.Index != 1 || code(err) != "INSUFFICIENT_FUNDS" {
		t.Errorf("atomic: %v", err)
	}
	none, err := batch("n", false, transfer("carol", "bo", 1, 1))
	if err != nil || none.whole() || none.Replayed {
		t.Errorf("nothing accepted: %+v, %v", none, err)
	}
	r.fund("carol", 5)
	if a, err := batch("n", false, transfer("carol", "bo", 1, 1)); err != nil || !a.whole() || a.Replayed {
		t.Errorf("nothing was kept: %+v, %v", a, err)
	}
	if a, err := batch("a", true, transfer("alice", "bo", 1, 3), transfer("carol", "bo", 1, 2)); err != nil || !a.whole() {
		t.Errorf("atomic, all good: %+v, %v", a, err)
	}
}
