package wallet_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

func TestKeyIsNeeded(t *testing.T) {
	r := newRig(t).start()
	for _, key := range []string{"", "a b", "ü", string(make([]byte, 65)), `"quoted"`} {
		var field *wallet.FieldError
		if _, err := r.post(key, issue("bo", 1, 1)); !errors.As(err, &field) || field.Field != "idempotency_key" ||
			reasonOf(err) != "malformed" {
			t.Errorf("key %q: %v", key, err)
		}
	}
	if _, err := r.post("A-Z.a_z:09"+string(make([]byte, 0)), issue("bo", 1, 1)); err != nil {
		t.Error(err)
	}
}

// A replay returns the first answer byte for byte and does nothing else.
func TestReplay(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	first, err := r.post("k", transfer("alice", "bo", 10, 1))
	if err != nil || first.Replayed {
		t.Fatalf("%+v, %v", first, err)
	}
	for i := range 5 {
		again, err := r.post("k", transfer("alice", "bo", 10, 1))
		if err != nil || !again.Replayed || string(bytesOf(again)) != string(bytesOf(first)) || !wholeOf(again) {
			t.Errorf("repetition %d: %+v, %v", i, again, err)
		}
	}
	r.want(5, "wallet_idem_replays_total")
	if got := r.available("bo"); got != "10" {
		t.Errorf("bo has %s", got)
	}
}

func TestSameKeyForSomethingElse(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	r.must("k", transfer("alice", "bo", 10, 1))
	for i, q := range []ledger.Op{
		transfer("alice", "bo", 11, 1), transfer("alice", "carol", 10, 1), transfer("alice", "bo", 10, 2),
		{Code: record.OpBurn, From: "alice", Asset: "ron", Amount: amountOf(10), Nonce: 1},
		{Code: record.OpTransfer, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(10), Nonce: 1, Memo: "x"},
	} {
		if _, err := r.post("k", q); reasonOf(err) != "idem_conflict" {
			t.Errorf("case %d: %v", i, err)
		}
	}
	if _, err := r.e.Batch(context.Background(), alice, "k", "", true, []ledger.Op{transfer("alice", "bo", 10, 1)}); reasonOf(
		err,
	) != "idem_conflict" {
		t.Errorf("as a batch: %v", err)
	}
	if got := r.available("bo"); got != "10" {
		t.Errorf("bo has %s", got)
	}
}

// Concurrent requests with the same key wait for the first one and return its answer as a replay. A
// request beyond the limit of waiters is refused with ErrInFlight, and a different request with the
// same key conflicts.
func TestSameKeyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold, calls := make(chan struct{}), 0
		r := newRig(
			t,
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				<-hold
				calls++
				return next.Commit(ctx, ops)
			}),
		).start()
		r.fund("alice", 100)
		var wg sync.WaitGroup
		bodies := make([]string, 1+wallet.FlightWaiters)
		var done atomic.Int32 // answers that are not replays
		for i := range bodies {
			wg.Go(func() {
				a, err := r.post("k", transfer("alice", "bo", 10, 1))
				if err != nil {
					t.Errorf("waiter %d: %v", i, err)
				}
				if !a.Replayed {
					done.Add(1)
				}
				bodies[i] = string(bytesOf(a))
			})
		}
		synctest.Wait()
		if _, err := r.post("k", transfer("alice", "bo", 10, 1)); !errors.Is(err, wallet.ErrInFlight) ||
			!rowOf(err).Retry {
			t.Errorf("one too many: %v", err)
		}
		if _, err := r.post("k", transfer("alice", "bo", 11, 1)); reasonOf(err) != "idem_conflict" {
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
		r.want(wallet.FlightWaiters, "wallet_idem_replays_total")
		r.stop()
	})
}

// A request that times out while it waits for another request's job returns ErrInFlight. The
// request that started the job returns an unknown outcome.
func TestWaitersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		r := newRig(
			t,
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				<-hold
				return next.Commit(context.WithoutCancel(ctx), ops)
			}),
		).start()
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
		var out *wallet.OutcomeError
		if !errors.As(first, &out) || !out.Unknown || !errors.Is(second, wallet.ErrInFlight) {
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

// A refusal is not stored under the key: the same request is evaluated again.
func TestRefusedThenGood(t *testing.T) {
	r := newRig(t).start()
	if _, err := r.post("k", transfer("alice", "bo", 10, 1)); reasonOf(err) != "insufficient_funds" {
		t.Fatal(err)
	}
	r.fund("alice", 100)
	if a, err := r.post("k", transfer("alice", "bo", 10, 1)); err != nil || a.Replayed {
		t.Errorf("%+v, %v", a, err)
	}
}

// Sending a request with an unknown outcome again resolves the outcome. The op is applied once,
// whether or not the first request reached the ledger.
func TestUnknownThenAgain(t *testing.T) {
	for _, done := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			failing := true
			r := newRig(
				t,
				commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
					if !failing {
						return next.Commit(ctx, ops)
					}
					if done {
						_, _ = next.Commit(ctx, ops)
					}
					return nil, unavailable(true)
				}),
			).start()
			r.fund("alice", 100)
			_, err := r.post("k", transfer("alice", "bo", 10, 1))
			var out *wallet.OutcomeError
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

// After its key has expired, a repeated request is refused by its nonce, and the refusal names the
// committed transaction.
func TestAfterTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, with(func(c *wallet.Config) { c.IdempotencyTTL = seconds(600) })).start()
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

// A key is valid up to the last nanosecond of its TTL.
func TestLastMomentOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, with(func(c *wallet.Config) { c.IdempotencyTTL = seconds(60) })).start()
		r.fund("alice", 100)
		q := transfer("alice", "bo", 1, 1)
		first, err := r.post("k", q)
		if err != nil {
			t.Fatal(err)
		}
		over := time.Unix(0, first.Receipt.At).Add(r.cfg.IdempotencyTTL.D())
		time.Sleep(time.Until(over) - time.Nanosecond)
		if a, err := r.post("k", q); err != nil || !a.Replayed {
			t.Errorf("in its last moment: %+v, %v", a, err)
		}
		time.Sleep(time.Nanosecond)
		var reject *ledger.Reject
		if a, err := r.post("k", q); !errors.As(err, &reject) || reject.Code != record.NonceReused ||
			reject.Committed != first.Receipt.TxID {
			t.Errorf("after its time: %s, %v", bytesOf(a), err)
		}
		r.stop()
	})
}

// The TTL of a key is measured in the ledger's time, which does not go back with the wall clock. A
// wall clock that is behind, or ahead and not believed, refuses nothing.
func TestTTLIsOfTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newWall()
		r := newRig(t, on(newOnModel(t, clock.Now).model), by(clock.Now),
			with(func(c *wallet.Config) { c.IdempotencyTTL = seconds(60) })).start()
		r.fund("alice", 100)
		r.must("k", transfer("alice", "bo", 1, 1))
		time.Sleep(55 * time.Second)
		if a, err := r.post("k", transfer("alice", "bo", 1, 1)); err != nil || !a.Replayed {
			t.Errorf("before its time is over: %+v, %v", a, err)
		}
		for n, by := range []time.Duration{26 * time.Hour, -52 * time.Hour, 26 * time.Hour} {
			clock.turn(by)
			r.must("turned-"+name(n), transfer("alice", "bo", 1, uint64(n+2)))
		}
		clock.turn(8 * time.Second)
		r.fund("carol", 1)
		clock.turn(-8 * time.Second)
		synctest.Wait()
		var reject *ledger.Reject
		a, err := r.post("k", transfer("alice", "bo", 1, 1))
		if !errors.As(err, &reject) || reject.Code != record.NonceReused {
			t.Errorf("after it: %s, %v", bytesOf(a), err)
		}
		r.stop()
	})
}

func TestPrincipalsAreApart(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	mine := r.must("k", transfer("alice", "bo", 10, 1))
	bo := engines.Actor{CapID: "c2", Principal: "bo"}
	if _, err := r.e.Post(context.Background(), bo, "k", "", transfer("alice", "bo", 10, 1)); reasonOf(
		err,
	) != "nonce_reused" {
		t.Errorf("the same request of another one: %v", err)
	}
	a, err := r.e.Post(context.Background(), bo, "k", "", transfer("alice", "bo", 10, 2))
	if err != nil || a.Replayed || parse(t, bytesOf(a)).TxID == mine.TxID {
		t.Errorf("%+v, %v", a, err)
	}
}

// A caller at the admin socket is named after the node that forwards for it, and without a node
// while its own leads. A key is one request all the same.
func TestSocketsOfAClusterShareKeys(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	root, other := uint32(0), uint32(7)
	pay := func(uid *uint32, name string, nonce uint64) wallet.Answer {
		t.Helper()
		by := engines.Actor{UID: uid, Principal: name, Admin: true}
		a, err := r.e.Post(context.Background(), by, "k", "", transfer("alice", "bo", 10, nonce))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := pay(&root, "uid:0", 1)
	for _, name := range []string{"01JD8Q3T5YV2R9W7K4M6N8P0AB/uid:0", "01JD8Q3T5YV2R9W7K4M6N8P0AC/uid:0"} {
		if a := pay(&root, name, 1); !a.Replayed || string(bytesOf(a)) != string(bytesOf(first)) {
			t.Errorf("%s: %s, want the answer to uid:0", name, bytesOf(a))
		}
	}
	if a := pay(&other, "uid:7", 2); a.Replayed {
		t.Errorf("another user gets the answer to uid:0")
	}
}

// A batch is stored whole under its key, with its refused ops. A batch with no accepted op is not
// stored.
func TestBatchReplay(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	ops := []ledger.Op{
		transfer("alice", "bo", 10, 1),
		transfer("alice", "bo", 1000, 2),
		transfer("alice", "bo", 20, 2),
		transfer("carol", "bo", 1, 1),
	}
	batch := func(key string, atomic bool, ops ...ledger.Op) (wallet.Answer, error) {
		return r.e.Batch(context.Background(), alice, key, "", atomic, ops)
	}
	first, err := batch("b", false, ops...)
	if err != nil || wholeOf(first) || first.Replayed {
		t.Fatalf("%+v, %v", first, err)
	}
	for range 3 {
		again, err := batch("b", false, ops...)
		if err != nil || !again.Replayed || wholeOf(again) || string(bytesOf(again)) != string(bytesOf(first)) {
			t.Errorf("again: %s, %v\nwant %s", bytesOf(again), err, bytesOf(first))
		}
	}
	if got := r.available("bo"); got != "30" {
		t.Errorf("bo has %s", got)
	}
	_, err = batch("a", true, transfer("alice", "bo", 1, 3), transfer("carol", "bo", 1, 1))
	var at *wallet.IndexError
	if !errors.As(err, &at) || at.Index != 1 || reasonOf(err) != "insufficient_funds" {
		t.Errorf("atomic: %v", err)
	}
	none, err := batch("n", false, transfer("carol", "bo", 1, 1))
	if err != nil || wholeOf(none) || none.Replayed {
		t.Errorf("nothing accepted: %+v, %v", none, err)
	}
	r.fund("carol", 5)
	if a, err := batch("n", false, transfer("carol", "bo", 1, 1)); err != nil || !wholeOf(a) || a.Replayed {
		t.Errorf("nothing was kept: %+v, %v", a, err)
	}
	if a, err := batch("a", true, transfer("alice", "bo", 1, 3), transfer("carol", "bo", 1, 2)); err != nil ||
		!wholeOf(a) {
		t.Errorf("atomic, all good: %+v, %v", a, err)
	}
}
