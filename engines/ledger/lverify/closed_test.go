package lverify_test

import (
	"bytes"
	"cmp"
	"slices"
	"testing"

	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// closed makes a ledger of the calls of several periods, and closes all of them but the last. left
// is what a dropping deletes, and what it writes.
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
	kept, had := map[string]bool{}, map[string]bool{}
	for _, r := range all {
		had[r.b.Name+string(r.key)] = true
	}
	f.view(func(r store.Reader) {
		for _, r := range rows(r) {
			kept[r.b.Name+string(r.key)] = true
			if !had[r.b.Name+string(r.key)] { // a block of references
				left = append(left, r)
			}
		}
	})
	for _, r := range all {
		if !kept[r.b.Name+string(r.key)] {
			left = append(left, row{r.b, r.key, nil})
		}
	}
	f.close()
	slices.SortStableFunc(left, func(x, y row) int { return cmp.Compare(references(y), references(x)) })
	return all, left
}

// references returns 1 for a row that the merge of references, a command of its own, writes or
// deletes.
func references(r row) int {
	if r.b.Name == "ledger/once" || r.b.Name == "ledger/closed" {
		return 1
	}
	return 0
}

// merged returns the number of rows of left that the merge of references writes and deletes.
func merged(left []row) (n int) {
	for n < len(left) && references(left[n]) == 1 {
		n++
	}
	return n
}

// dropped returns rows as a dropping leaves them: without those that left names without a value,
// and with the others of left.
func dropped(all, left []row) (rest []row) {
	gone := map[string]bool{}
	for _, r := range left {
		if r.value != nil {
			rest = append(rest, r)
		}
		gone[r.b.Name+string(r.key)] = true
	}
	for _, r := range all {
		if !gone[r.b.Name+string(r.key)] {
			rest = append(rest, r)
		}
	}
	order := tables.Buckets()
	slices.SortStableFunc(rest, func(x, y row) int {
		return cmp.Or(cmp.Compare(slices.Index(order, x.b), slices.Index(order, y.b)), bytes.Compare(x.key, y.key))
	})
	return rest
}
