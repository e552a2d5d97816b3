package ledger_test

import (
	"fmt"
	"sync"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Two concurrent runs of one payroll pay each row once, in batches or singly, with or without keys.
// A later run finds every row done.
func TestReferencesOfTwoRuns(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	r.accept(issue("alice", 1000, 1))
	const rows = 40
	run := func(name string) {
		for i := range rows {
			row := transfer("alice", fmt.Sprint("user", i), 1, 0)
			row.Reference = fmt.Sprint("payroll/", i)
			op := ledger.Op{Code: record.OpBatch, Principal: "p", Ops: []ledger.Op{row}, Atomic: i%4 == 1}
			if i%2 == 0 {
				row.Principal = "p"
				op = row
			}
			if i%3 == 0 {
				op = keyed(op, name+fmt.Sprint(i))
				op.Principal = "p"
			}
			outs, err := r.l.Commit(r.ctx(), []ledger.Op{op})
			if err != nil || outs[0].Reject != nil {
				t.Errorf("%s, row %d: %+v, %v", name, i, outs, err)
			}
		}
	}
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		wg.Go(func() { run(name) })
	}
	wg.Wait()
	head, err := r.l.Head(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	r.reopen() // with rows that were not flushed
	r.verify()
	run("c")
	for i := range rows {
		if v, err := r.l.Balance(r.ctx(), fmt.Sprint("user", i), "ron", 0); err != nil || v.Posted != amount(1) {
			t.Errorf("row %d: %s paid, %v", i, v.Posted, err)
		}
	}
	if after, err := r.l.Head(r.ctx()); after != head || err != nil {
		t.Errorf("a run of what was done went from %+v to %+v, %v", head, after, err)
	}
}
