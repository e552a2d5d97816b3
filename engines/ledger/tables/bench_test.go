package tables

import "testing"

// BenchmarkDerive measures the derivation of a transfer's table changes, without writing them.
func BenchmarkDerive(b *testing.B) {
	l := newBooks()
	l.openAccount()
	l.declare()
	l.openAccount()
	l.transfer(1, 2, 1)
	rec, before := &l.records[3], newRows()
	var c Changes
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Derive(rec, before); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPage reads a page of 100 postings, the first page and a deep one.
func BenchmarkPage(b *testing.B) {
	l := longBooks()
	tx := ledgerOf(b, l, 100)
	of := StateKey{1, 1}
	for name, q := range map[string]Query{
		"newest": {Of: of, Top: l.balances[of], Limit: 100},
		"oldest": {Of: of, Top: l.balances[of], Limit: 100, Oldest: true, Since: 9000},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w, err := NewWalk(q)
				if err != nil {
					b.Fatal(err)
				}
				if done, err := w.Step(tx.Reader(), 1000); !done || err != nil || len(w.Page()) != 100 {
					b.Fatal(done, err)
				}
			}
		})
	}
}
