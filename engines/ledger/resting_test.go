package ledger_test

import (
	"fmt"
	"testing"

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
