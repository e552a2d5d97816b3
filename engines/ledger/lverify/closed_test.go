package lverify_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// closed makes a ledger of the calls of several periods, and closes all of them but the last. Each
// period ends with a batch that repeats the references of the periods before, and has a new one.
// left is what may be dropped.
func closed(t testing.TB, seed uint64, calls ...int) (all, left []row) {
	t.Helper()
	var periods []func(f *file)
	for i, n := range calls {
		periods = append(periods, func(f *file) {
			if i == 0 {
				f.fill(seed, n)
			} else {
				f.calls(n)
			}
			var again []ledger.Op
			for k := range i + 2 {
				again = append(again, ledger.Op{
					Code: record.OpIssue, To: "shop:till", Asset: "ron", Amount: engines.AmountOf(0, 3),
					Reference: fmt.Sprint("invoice ", k),
				})
			}
			for _, out := range f.do(ledger.Op{Code: record.OpBatch, Principal: "shop", Ops: again}) {
				if out.Reject != nil {
					t.Fatal(out.Reject)
				}
			}
		})
	}
	return closedAfter(t, periods...)
}

// closedAfter is closed for any calls. It flushes after each period. Every other period is closed
// only after all calls, so that records which close a period are in closed periods and after them.
func closedAfter(t testing.TB, periods ...func(f *file)) (all, left []row) {
	t.Helper()
	f := newFile(t).open(true)
	var ends []uint64
	closeAll := func() {
		for _, end := range ends {
			// as if all were dropped: what runs needs what the test drops in the end
			idle := forgery(func(_ store.Reader, w *store.Writes) { tables.PutClosing(w, tables.Closing{}) })
			if _, err := store.Commit(t.Context(), f.s, store.Work, idle); err != nil {
				t.Fatal(err)
			}
			f.clock.Advance(25 * time.Hour) // keys end
			if _, err := ledgertest.Close(t.Context(), f.s, end); err != nil {
				t.Fatal(err)
			}
		}
		ends = ends[:0]
	}
	for i, fill := range periods {
		fill(f)
		f.flush()
		if i == len(periods)-1 {
			break
		}
		f.view(func(r store.Reader) {
			head, _ := tables.GetHead(r)
			if n := len(ends); n == 0 || ends[n-1] < head.Seq { // else the period is empty
				ends = append(ends, head.Seq)
			}
		})
		if i%2 == 1 {
			closeAll()
		}
	}
	closeAll()
	f.view(func(r store.Reader) { all = rows(r) })
	f.close()
	f.open(false)
	if done, err := ledgertest.Drop(t.Context(), f.s, 0, 100); !done || err != nil {
		t.Fatal(done, err)
	}
	var after []row
	f.view(func(r store.Reader) { after = rows(r) })
	f.close()
	if rep := newBench(t, all).verify(t, lverify.Options{}); !rep.OK {
		t.Fatalf("before references are merged: %v", rep.Findings)
	}
	var merged []row
	for _, d := range diff(all, after) {
		if d.b.Name == "ledger/once" || d.b.Name == "ledger/closed" {
			merged = append(merged, d)
		} else {
			left = append(left, d)
		}
	}
	return dropped(all, merged), left
}

// diff returns what makes the rows then of the rows now.
func diff(now, then []row) (changes []row) {
	was := map[string]row{}
	for _, r := range now {
		was[r.b.Name+string(r.key)] = r
	}
	for _, r := range then {
		old, known := was[r.b.Name+string(r.key)]
		if delete(was, r.b.Name+string(r.key)); !known || !bytes.Equal(old.value, r.value) {
			changes = append(changes, r)
		}
	}
	for _, r := range now {
		if _, gone := was[r.b.Name+string(r.key)]; gone {
			changes = append(changes, row{r.b, r.key, nil})
		}
	}
	return changes
}

// dropped returns rows after changes.
func dropped(all, changes []row) (rest []row) {
	now := map[string]row{}
	for _, r := range changes {
		now[r.b.Name+string(r.key)] = r
	}
	for _, r := range all {
		new, changed := now[r.b.Name+string(r.key)]
		if delete(now, r.b.Name+string(r.key)); !changed {
			rest = append(rest, r)
		} else if new.value != nil {
			rest = append(rest, new)
		}
	}
	for _, r := range changes {
		if _, fresh := now[r.b.Name+string(r.key)]; fresh && r.value != nil {
			rest = append(rest, r)
		}
	}
	return rest
}
