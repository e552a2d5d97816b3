package storetest_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"ronbox/store"
	"ronbox/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bucket = &store.Bucket{Name: "any/rows"}

var errOdd = errors.New("odd")

// count adds one to a row and refuses, after it has written, when Odd.
type count struct{ Odd bool }

func (count) Kind() string { return "any.count/1" }

func (c count) Apply(r store.Reader, at store.Stamp, w *store.Writes) (uint64, error) {
	rows := store.NewTable(bucket, store.U32(), store.CBOR[uint64]())
	n, _ := rows.Get(r, 1)
	rows.Put(w, 1, n+1)
	w.Audit(store.Event{Event: "count"})
	if c.Odd {
		return 0, errOdd
	}
	if at.Seq != n+1 {
		panic("stamps have holes")
	}
	return n + 1, nil
}

func TestDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tx, done := storetest.NewTx(t, bucket), uint64(0)
		for _, odd := range rapid.SliceOf(rapid.Bool()).Draw(t, "odd") {
			n, err := storetest.Do(tx, count{odd})
			if odd != errors.Is(err, errOdd) {
				t.Fatalf("err = %v", err)
			}
			if !odd {
				if done++; n != done {
					t.Fatalf("count %d, want %d", n, done)
				}
			}
		}
		audit, err := store.Audit(tx.Reader(), 0, 1000)
		if err != nil || uint64(len(audit)) != done {
			t.Fatalf("%d audit rows of %d, %v", len(audit), done, err)
		}
	})
}
