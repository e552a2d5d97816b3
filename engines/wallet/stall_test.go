package wallet_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/wallet"
)

// If the ledger stalls for 2 s, the wallet becomes unready after a second, refuses writes and
// serves balances. After the ledger resumes, all queued requests are done.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wire *ledgertest.Faulty
		r := newRig(t, quick, faulty(&wire)).start()
		r.fund("alice", 1000)
		if keys := r.failing(); len(keys) != 0 {
			t.Fatalf("failing at first: %v", keys)
		}
		wire.Pause()
		began := time.Now()
		done := make(chan error, 20)
		for i := range 20 {
			go func() {
				// the ledger assigns the nonces: the second worker, which gets the turn of the first, has
				// no order with it once the ledger resumes
				_, err := r.post("s"+name(i), transfer("alice", "bo", 1, 0))
				done <- err
			}()
			synctest.Wait()
		}
		for r.e.WriteReady() == nil {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took >= time.Second+2*wallet.WatchEvery {
			t.Errorf("unready after %s", took)
		}
		if keys := r.failing(); !slices.Equal(keys, []string{wallet.KeyLedger}) {
			t.Errorf("failing: %v", keys)
		}
		var not *wallet.NotReadyError
		if _, err := r.post("x", transfer("alice", "bo", 1, 1)); !errors.As(err, &not) || not.Cause != wallet.CauseLedger ||
			!strings.Contains(not.Detail, "longer than 1s (ledger.stall_after): the disk is slow") {
			t.Errorf("a write meanwhile: %v", err)
		}
		asked := time.Now()
		if b, err := r.e.Balance(context.Background(), alice, "alice", "ron",
			0); err != nil || b.Available.String() != "1000" ||
			time.Since(asked) != 0 {
			t.Errorf("a balance meanwhile: %+v, %v", b, err)
		}
		time.Sleep(2*time.Second - time.Since(began))
		synctest.Wait()
		if n := r.sum("worker_inflight"); n < 1 { // as of the last tick
			t.Errorf("%v workers are at it", n)
		}
		wire.Resume()
		resumed := time.Now()
		for r.e.WriteReady() != nil {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(resumed); took > 1500*time.Millisecond {
			t.Errorf("ready again after %s", took)
		}
		for range 20 {
			if err := <-done; err != nil {
				t.Errorf("of those queued: %v", err)
			}
		}
		if got := r.available("bo"); got != "20" {
			t.Errorf("bo has %s", got)
		}
		time.Sleep(wallet.TickEvery)
		synctest.Wait()
		if n := r.sum("worker_inflight"); n != 0 {
			t.Errorf("%v workers are at it when all is done", n)
		}
		r.stop()
	})
}

// A ledger that stalls after a long time without a commit is noticed as soon as one that is busy,
// although the watchdog looks seldom until the commit.
func TestStallAfterARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wire *ledgertest.Faulty
		const limit = 100 * time.Millisecond
		r := newRig(t, func(r *rig) { r.stall = limit }, faulty(&wire)).start()
		r.fund("alice", 1000)
		time.Sleep(time.Minute + wallet.WatchEvery/2)
		wire.Pause()
		began := time.Now()
		done := make(chan error, 1)
		go func() {
			_, err := r.post("s", transfer("alice", "bo", 1, 0))
			done <- err
		}()
		for r.e.WriteReady() == nil && time.Since(began) < time.Minute {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took >= limit+2*wallet.WatchEvery {
			t.Errorf("unready after %s", took)
		}
		wire.Resume()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.stop()
	})
}

// During a stall of 2 s, readiness changes to false once and back once, at the times given by the
// ticks and probes of the watchdog. In each millisecond the health report agrees with readiness,
// and writes are refused exactly while it is false.
func TestReadinessAroundAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wire *ledgertest.Faulty
		r := newRig(t, quick, faulty(&wire)).start()
		r.fund("alice", 1000)
		time.Sleep(wallet.WatchEvery - time.Duration(time.Now().UnixNano())%wallet.WatchEvery) // a tick of the watchdog
		synctest.Wait()
		wire.Pause()
		began := time.Now()
		answered := make(chan error, 1)
		go func() {
			_, err := r.post("s", transfer("alice", "bo", 1, 1))
			answered <- err
		}()
		var flips []time.Duration
		for ready := true; time.Since(began) < 3*time.Second; time.Sleep(time.Millisecond) {
			synctest.Wait()
			if time.Since(began) == 2*time.Second {
				wire.Resume()
			}
			now := r.e.WriteReady() == nil
			if now != ready {
				ready, flips = now, append(flips, time.Since(began))
			}
			rep := r.board.Report(wallet.Service, "")
			if missing := []string{wallet.Service + "." + wallet.KeyLedger}; rep.Ready != now || !rep.ReadReady ||
				!now && (!slices.Equal(rep.Missing, missing) || rep.RetryAfter != 2) {
				t.Fatalf("after %s: ready %t, reported %+v", time.Since(began), now, rep)
			}
			if !now {
				if _, err := r.post("x", transfer("alice", "bo", 1, 2)); reasonOf(err) != "degraded" {
					t.Fatalf("after %s: a write: %v", time.Since(began), err)
				}
			}
			if b, err := r.e.Balance(context.Background(), alice, "alice", "ron", 0); err != nil ||
				b.Available.IsZero() {
				t.Fatalf("after %s: a balance: %+v, %v", time.Since(began), b, err)
			}
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if want := []time.Duration{time.Second, 2200 * time.Millisecond}; !slices.Equal(flips, want) {
			t.Errorf("readiness changes after %s, want %s", flips, want)
		}
		r.stop()
	})
}
