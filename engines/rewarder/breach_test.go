package rewarder_test

import (
	"testing"
	"time"

	"ronbox/appliance/upstream"
	"ronbox/engines/rewarder"
	"ronbox/store"
)

// restage changes the first staged chunk of a run, with a sound checksum, as a bug of the engine
// would.
func (r *rig) restage(run rewarder.Run, change func(chunk []byte)) {
	at := rewarder.PieceOf(run.RunKey, 0)
	_, err := store.Commit(
		r.ctx(),
		r.store,
		store.Work,
		rewarder.Command("restage", 1<<20, func(rd store.Reader, w *store.Writes) (none struct{}, err error) {
			chunk := append([]byte(nil), rewarder.Must(rd, rewarder.AllocRows, at)...)
			change(chunk)
			rewarder.AllocRows.Put(w, at, chunk)
			return none, nil
		}),
	)
	if err != nil {
		r.t.Error(err)
	}
}

// Staged rows that differ from the computed ones are found when they are read back: the run is
// quarantined for good and has no intents.
func TestStagedRowsAreReadBack(t *testing.T) {
	const row = 2 + len("acct_0000000") + 32 // bytes of an allocation
	const unit = row - 16 - 1                // the last byte of its amount
	for _, tt := range []struct {
		reason string
		change func(chunk []byte)
	}{{"conservation", func(b []byte) { b[unit]++ }}, {"commitment", func(b []byte) { b[unit]++; b[row+unit]-- }}} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inMemory)
			staged := 0
			r.onStep(func(s string) {
				if s != "staging" {
					return
				}
				if staged++; staged == 2 { // the first chunks are in the file
					run, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, "e")
					if err != nil {
						t.Error(err)
					}
					r.restage(run, tt.change)
				}
			})
			r.start()
			p := policy()
			r.put(p)
			r.mustCompute("e", r.seal(inputOf("e", 4_000_000), many(30_000)), p)
			run := r.await("e", rewarder.Quarantined, rewarder.Sealed, rewarder.Settling, rewarder.Settled, rewarder.Failed)
			if q := run.Quarantine; q == nil || q.Kind != rewarder.KindInvariant || q.Reason != tt.reason ||
				run.Transactions != 0 ||
				run.PayoutMinor != "0" {
				t.Fatalf("%+v of %+v", q, run)
			}
			page, err := r.e.Settlement(r.ctx(), rewarder.DefaultTenant, "e", 0, 9)
			if err != nil || len(page.Intents) != 0 {
				t.Errorf("%+v, %v", page, err)
			}
			if first, left := r.balance("acct_0000000"), r.balance(pool); first != "0" || left != "5000000" {
				t.Errorf("an actor has %s, the pool %s", first, left)
			}
			r.eventually("the quarantine is counted", func() bool { return r.count("quarantine_total{epoch=e}") == 1 })
		})
	}
}

// Metrics that no other test provokes.
func TestNumbers(t *testing.T) {
	c := rewarder.DefaultConfig()
	if c.Concurrency != (rewarder.ConcurrencyConfig{4, 64}) || c.EpochDuration.D() != time.Hour ||
		c.ReadTimeout.D() != 5*time.Second ||
		c.DrainDeadline.D() != 3*time.Second ||
		c.Shard.Shards != 1 {
		t.Errorf("%+v", c)
	}
	if rewarder.AnswerWithin != 2*time.Second || rewarder.QueueCap != 512 {
		t.Errorf("answers in %s, queues of %d", rewarder.AnswerWithin, rewarder.QueueCap)
	}
	r := newRig(t, func(r *rig) { r.cfg = c })
	var calls upstream.CallSpec = rewarder.CallSpec(r.e)
	if b := calls.Breaker; calls.Tries != 3 || calls.Inflight != 64 || calls.Timeout() != 5*time.Second ||
		b.Cooldown != time.Second ||
		b.Drawn != 5*time.Second ||
		b.Probes != 1 {
		t.Errorf("%+v", calls)
	}
}
