package idem

import (
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Loader reads an index from the file at boot: first the runs, one a step, so that each view is short, then the journal behind them.
type Loader struct {
	x     *Index
	begun bool
	left  []*store.Bucket
	half  []uint64
	runs  []*run
}

// Loader reads into x, which is new.
func (x *Index) Loader() *Loader { return &Loader{x: x} }

// Step reads a run, and tells whether all are read.
func (l *Loader) Step(r store.Reader) (done bool) {
	if !l.begun {
		l.begun = true
		for b := range store.Subs(r, tables.Idem) {
			l.left = append(l.left, b)
		}
	}
	for len(l.left) > 0 {
		b := l.left[0]
		l.left = l.left[1:]
		m, whole := readMeta(r, b)
		if err := misplaced(b, whole, l.last(), len(l.half) > 0); err != nil {
			panic(rowError(b, behind(tagMeta), err))
		}
		if whole {
			l.runs = append(l.runs, readRun(r, b, m))
			break
		}
		first, _ := firstOf(b)
		l.half = append(l.half, first)
	}
	if len(l.left) > 0 {
		return false
	}
	l.x.set.Store(&set{runs: l.runs})
	l.x.checked.Store(l.From() - 1)
	return true
}

// last is the seq at which the runs end that were read.
func (l *Loader) last() uint64 {
	if n := len(l.runs); n > 0 {
		return l.runs[n-1].meta.Last
	}
	return 0
}

// Half are runs that were not sealed to their end, for Drop. Sealing them anew drops them too.
func (l *Loader) Half() []uint64 { return l.half }

// From is the seq behind the runs that were read: where the journal is to be read from. If it is 1 there are no runs, and what is too old at
// the beginning of the journal may be left out; behind runs nothing may, see Read.
func (l *Loader) From() uint64 { return l.x.set.Load().end() + 1 }

// Read inserts the keys of up to n records from the seq from up to, not including, to. If there are no runs, those older than notBefore, Unix
// ns, count for nothing; else all are read, since a key that was used again would lead to the older record in a run. It gives the seq to go
// on from, at to or beyond it at the end. Meanwhile slots may close: they can be sealed between two calls.
func (x *Index) Read(r store.Reader, from, to uint64, n int, notBefore int64) (next uint64) {
	if next = from; len(x.set.Load().runs) > 0 {
		notBefore = 0
	}
	for seq, rec := range tables.Records(r, from, min(to, from+uint64(n))) {
		if key, ok := tables.IdemKey(rec); ok && rec.At >= notBefore {
			x.Insert(key, seq, rec.At)
		}
		next = seq + 1
	}
	x.Committed()
	if next == from { // no record is there: a hole ends what can be read
		return to
	}
	return next
}
