package pipeline_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/pipeline"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// The outcome of a proposal without a version is kept for 30 days, that of a version for ever.
func TestOutcomesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := registrytest.New(t).Start(), newSigners(1, 1)
		r.Genesis(s)
		done, gone := r.Propose(2, "b"), r.Propose(2, "c")
		r.Approve(done, s.Keys...)
		r.Commit(done)
		r.Advance(tables.KeepOutcomes - time.Minute)
		late := r.Propose(3, "d")
		if err := r.Engine.Withdraw(r.Ctx(), alice, late.ID, ""); err != nil {
			t.Fatal(err)
		}
		if got := r.StateOf(gone); got != document.StateStale {
			t.Errorf("before its time: %s", got)
		}
		r.Advance(pipeline.ForgetEvery)
		r.WaitFor("the sweep",
			func() bool {
				_, err := r.Engine.Proposal(r.Ctx(), gone.ID)
				return errors.Is(err, document.ErrNotFound)
			})
		if got := r.StateOf(late); got != document.StateWithdrawn {
			t.Errorf("a later one: %s", got)
		}
		if c := r.Commit(done); !c.Replayed || c.Version != 2 {
			t.Errorf("the version: %+v", c)
		}
		if rep := r.VerifyFile(); !rep.OK {
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

func newForgetRig(t *testing.T, n int, born func(i int) (age, end time.Duration, state string),
	now time.Time) *forgetRig {
	t.Helper()
	f := &forgetRig{tx: storetest.NewTx(t, registry.Buckets()...)}
	c := registrytest.Plant{Rows: map[ulid.ULID]tables.DoneRow{}}
	for i := range n {
		age, end, state := born(i)
		id := ulid.ULID{14: byte(i >> 8), 15: byte(i)}
		if err := id.SetTime(uint64(now.Add(-age).UnixMilli())); err != nil {
			t.Fatal(err)
		}
		c.Rows[id] = tables.DoneRow{State: state, AtMS: now.Add(-end).UnixMilli()}
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
	const n = 3*pipeline.ForgetSlice/2 + 600
	f := newForgetRig(t, n, func(i int) (time.Duration, time.Duration, string) {
		switch {
		case i < n-600:
			return 90 * day, 90 * day, document.StateCommitted
		case i < n-10:
			return 80 * day, 79 * day, document.StateExpired
		}
		return 31 * day, 29 * day, document.StateStale
	}, now)
	var walk pipeline.Forgetter
	var found []ulid.ULID
	for ticks := 0; !pipeline.Idle(walk, now); ticks++ {
		due, then := pipeline.Look(walk, f.tx.Reader(), now)
		if len(due) > pipeline.MaxForget || ticks > 9 {
			t.Fatalf("tick %d: %d due", ticks, len(due))
		}
		found, walk = append(found, due...), then
	}
	if want := f.ids[n-600 : n-10]; !slices.Equal(found, want) {
		t.Errorf("%d found, want %d", len(found), len(want))
	}
	if pipeline.Idle(walk, now.Add(pipeline.ForgetEvery)) {
		t.Error("no pass begins an hour later")
	}
	later, again := now.Add(2*day), 0
	for again == 0 && !pipeline.Idle(walk, later) {
		var due []ulid.ULID
		due, walk = pipeline.Look(walk, f.tx.Reader(), later)
		again += len(due)
	}
	if again != pipeline.MaxForget {
		t.Errorf("%d due in the next pass", again)
	}
}

// The sweep runs over as many ticks as it needs, through the same command.
func TestManyOutcomesAreForgottenInSlices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := registrytest.New(t, func(c *registry.Config) { c.Proposals.MaxPending, c.Proposals.MaxPerCap = 400, 400 }).Start()
		r.Genesis(newSigners(1, 1))
		for i := range pipeline.MaxForget + 10 {
			r.Propose(2, fmt.Sprintf("i%d", i))
		}
		r.Advance(r.Config.Proposals.TTL.D())
		r.WaitFor("all to expire", func() bool { return len(r.Engine.Pub().State.Load().Live) == 0 })
		r.Advance(tables.KeepOutcomes + pipeline.ForgetEvery)
		left := func() (n int) {
			_ = r.Store.View(r.Ctx(), func(rd store.Reader) error {
				n = 0
				for range tables.DoneOutcome.All(rd) {
					n++
				}
				return nil
			})
			return n
		}
		r.WaitFor("all but the genesis to be forgotten", func() bool { return left() == 1 })
		if event := r.LastAudit().Event; event != "proposal.forgotten" {
			t.Errorf("last record is %s", event)
		}
	})
}
