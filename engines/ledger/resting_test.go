package ledger_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
)

// When payments stop, unchanged recent rows cost one commit per slice to move to their own tables,
// and no commits before that.
func TestRestingRowsCostNoCommits(t *testing.T) {
	const accounts, slice = 300, 50
	r := newRig(t, nil, func(c *ledger.Config) { c.FlushSlice = slice }).declare("ron")
	for round := range uint64(2) {
		var ops []ledger.Op
		for i := range uint64(accounts) {
			ops = append(ops, issue(fmt.Sprint("a", i), 1, round*accounts+i+1))
		}
		r.accept(ops...)
	}
	if err := r.l.Flush(r.ctx()); err != nil {
		t.Fatal(err)
	}
	resting := len(r.keys(bucket("recent")))
	if resting < accounts {
		t.Fatalf("%d rows rest", resting)
	}
	was, ticks := r.groups.Load(), 0
	for ; len(r.keys(bucket("recent"))) > 0; ticks++ {
		if r.l.FlushDue(r.ctx()); ticks > 1000 {
			t.Fatal("they never go home")
		}
	}
	for range 10 {
		r.l.FlushDue(r.ctx())
	}
	if n, most := r.groups.Load()-was, int64(resting/slice+1); n > most {
		t.Errorf("%d commits in %d ticks, to take %d rows home in slices of %d", n, ticks, resting, slice)
	}
	if ticks < 4 {
		t.Errorf("they went home after %d ticks", ticks)
	}
	r.reopen()
	if b, err := r.l.Balance(r.ctx(), "a7", "ron", 0); err != nil || b.Posted != amount(2) {
		t.Errorf("%v, %v", b.Posted, err)
	}
}

// A change waits for flush_after. Then a payment takes the rows of earlier ones along in its own
// commit; without a payment the flusher writes them a little later.
func TestPaymentTakesAPassAlong(t *testing.T) {
	const after = 5 * time.Second
	r := newRig(t, nil, func(c *ledger.Config) { c.FlushAfter = unit.Duration(after) }).declare("ron")
	r.accept(issue("alice", 1, 1))
	for d, want := range map[time.Duration]struct{ ripe, now bool }{
		0: {}, after - 1: {}, after: {ripe: true}, after + after/5 - 1: {ripe: true}, after + after/5: {now: true},
	} {
		if ripe, now := r.l.Flushes(d); ripe != want.ripe || now != want.now {
			t.Errorf("after %v: ripe %t, now %t, want %+v", d, ripe, now, want)
		}
	}
	r.l.Flushes(after)
	was := r.groups.Load()
	r.accept(issue("alice", 1, 2))
	if n, behind := r.groups.Load()-was, r.l.Behind(); n != 1 || behind != 1 {
		t.Errorf("%d commits, %d records are not behind, want 1 each", n, behind)
	}
	r.accept(issue("alice", 1, 3))
	if behind := r.l.Behind(); behind != 2 {
		t.Errorf("%d records are behind: the next payment has flushed, too", behind)
	}
	r.reopen()
	if b, err := r.l.Balance(r.ctx(), "alice", "ron", 0); err != nil || b.Posted != amount(3) {
		t.Errorf("%v, %v", b.Posted, err)
	}
}

// The flusher ticks only while changes wait or rows rest.
func TestFlusherSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const after = 5 * time.Second
		r := newRig(t, nil, func(c *ledger.Config) { c.FlushAfter = unit.Duration(after) }).declare("ron").start()
		for round := range uint64(3) {
			r.accept(issue("alice", 1, round+1))
			time.Sleep(after)
			if r.l.Sleeps() || r.l.Behind() == 0 {
				t.Errorf("round %d: sleeps %t, %d records are behind", round, r.l.Sleeps(), r.l.Behind())
			}
			time.Sleep(after)
			if n := r.l.Behind(); n != 0 {
				t.Errorf("round %d: %d records are still behind", round, n)
			}
			time.Sleep(time.Minute)
			if !r.l.Sleeps() {
				t.Errorf("round %d: it still ticks", round)
			}
		}
		r.stop()
	})
}
