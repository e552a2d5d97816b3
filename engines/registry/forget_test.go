package registry

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

func TestForgetOnlyWhatIsOver(t *testing.T) {
	t.Parallel()
	tx, c := started(t)
	c.do(t, tx, staleOp(1, 20))
	var guard *tables.GuardError
	if _, err := storetest.Do(tx, c.batch(forgetOp(19, 1))); !errors.As(err, &guard) || guard.Guard != "outcome_over" {
		t.Errorf("too early: %v", err)
	}
	c.do(t, tx, forgetOp(20, 1))
	if tables.DoneOutcome.Has(tx.Reader(), testID(1)) || !tables.DoneOutcome.Has(tx.Reader(), testID(200)) {
		t.Error("the wrong outcome is gone")
	}
}

// The outcome of a proposal without a version is kept for 30 days, that of a version for ever.
func TestOutcomesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := newRig(t).start(), newSigners(1, 1)
		r.genesis(s)
		done, gone := r.propose(2, "b"), r.propose(2, "c")
		r.approve(done, s.keys...)
		r.commit(done)
		r.advance(tables.KeepOutcomes - time.Minute)
		late := r.propose(3, "d")
		if err := r.e.Withdraw(r.ctx(), alice, late.ID, ""); err != nil {
			t.Fatal(err)
		}
		if got := r.stateOf(gone); got != document.StateStale {
			t.Errorf("before its time: %s", got)
		}
		r.advance(forgetEvery)
		r.waitFor("the sweep",
			func() bool { _, err := r.e.Proposal(r.ctx(), gone.ID); return errors.Is(err, document.ErrNotFound) })
		if got := r.stateOf(late); got != document.StateWithdrawn {
			t.Errorf("a later one: %s", got)
		}
		if c := r.commit(done); !c.Replayed || c.Version != 2 {
			t.Errorf("the version: %+v", c)
		}
		if rep := r.verifyFile(); !rep.OK {
			t.Errorf("the log does not verify: %+v", rep)
		}
	})
}

// forgetRig is a file with outcomes of given ages in order of their ids: "c" for committed, "w" for
// withdrawn.
type forgetRig struct {
	tx  *storetest.Tx
	ids []ulid.ULID
}

type plant struct{ rows map[ulid.ULID]tables.DoneRow }

func (plant) Kind() string { return "registry.plant/1" }

func (c plant) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	for id, row := range c.rows {
		tables.DoneOutcome.Put(w, id, row)
	}
	return struct{}{}, nil
}

func newForgetRig(t *testing.T, n int, born func(i int) (age, end time.Duration, state string),
	now time.Time) *forgetRig {
	t.Helper()
	f := &forgetRig{tx: storetest.NewTx(t, Buckets()...)}
	c := plant{rows: map[ulid.ULID]tables.DoneRow{}}
	for i := range n {
		age, end, state := born(i)
		id := ulid.ULID{14: byte(i >> 8), 15: byte(i)}
		if err := id.SetTime(uint64(now.Add(-age).UnixMilli())); err != nil {
			t.Fatal(err)
		}
		c.rows[id] = tables.DoneRow{State: state, AtMS: now.Add(-end).UnixMilli()}
		f.ids = append(f.ids, id)
	}
	if _, err := storetest.Do(f.tx, c); err != nil {
		t.Fatal(err)
	}
	return f
}

const day = 24 * time.Hour

// A pass reads a bounded number of rows a tick, returns at most 256 of them, and finds each that is
// due. So does the next pass, even if batches failed.
func TestForgetterWalksInPasses(t *testing.T) {
	t.Parallel()
	now := time.Now()
	const n = 3*forgetSlice/2 + 600
	f := newForgetRig(t, n, func(i int) (time.Duration, time.Duration, string) {
		switch {
		case i < n-600:
			return 90 * day, 90 * day, document.StateCommitted
		case i < n-10:
			return 80 * day, 79 * day, document.StateExpired
		}
		return 31 * day, 29 * day, document.StateStale
	}, now)
	var walk forgetter
	var found []ulid.ULID
	for ticks := 0; !walk.idle(now); ticks++ {
		due, then := walk.look(f.tx.Reader(), now)
		if len(due) > maxForget || ticks > 9 {
			t.Fatalf("tick %d: %d due", ticks, len(due))
		}
		found, walk = append(found, due...), then
	}
	if want := f.ids[n-600 : n-10]; !slices.Equal(found, want) {
		t.Errorf("%d found, want %d", len(found), len(want))
	}
	if walk.idle(now.Add(forgetEvery)) {
		t.Error("no pass begins an hour later")
	}
	later, again := now.Add(2*day), 0
	for again == 0 && !walk.idle(later) {
		var due []ulid.ULID
		due, walk = walk.look(f.tx.Reader(), later)
		again += len(due)
	}
	if again != maxForget {
		t.Errorf("%d due in the next pass", again)
	}
}

// The sweep runs over as many ticks as it needs, through the same command.
func TestManyOutcomesAreForgottenInSlices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Proposals.MaxPending, c.Proposals.MaxPerCap = 400, 400 }).start()
		r.genesis(newSigners(1, 1))
		for i := range maxForget + 10 {
			r.propose(2, fmt.Sprintf("i%d", i))
		}
		r.advance(r.cfg.Proposals.TTL.D())
		r.waitFor("all to expire", func() bool { return len(r.e.pub.State.Load().Live) == 0 })
		r.advance(tables.KeepOutcomes + forgetEvery)
		left := func() (n int) {
			_ = r.store.View(r.ctx(), func(rd store.Reader) error {
				n = 0
				for range tables.DoneOutcome.All(rd) {
					n++
				}
				return nil
			})
			return n
		}
		r.waitFor("all but the genesis to be forgotten", func() bool { return left() == 1 })
		if event := r.lastAudit().Event; event != "proposal.forgotten" {
			t.Errorf("last record is %s", event)
		}
	})
}
