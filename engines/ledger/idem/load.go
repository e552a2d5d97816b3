package idem

import (
	"bytes"
	"fmt"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Loader reads the runs of an index from the file at boot, one a step, so that each view is short.
// The caller then reads the journal after them.
type Loader struct {
	x     *Index
	begun bool
	left  []*store.Bucket
	half  []uint64
	runs  []*run
}

// Loader reads into x, which is new.
func (x *Index) Loader() *Loader { return &Loader{x: x} }

// Step reads one run, and reports whether it was the last.
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

// Half returns the incomplete runs, for Drop. Sealing them again drops them too.
func (l *Loader) Half() []uint64 { return l.half }

// From returns the seq after the runs, where the journal is to be read from. If it is 1, there are
// no runs, and expired records at the beginning of the journal may be skipped; else none may,
// because a key that was used again would lead to the older record in a run.
func (l *Loader) From() uint64 { return l.x.set.Load().end() + 1 }

// Read inserts the keys of up to n records from the seq from up to, not including, to. It returns
// the seq to go on from, which is to or more at the end. Slots may close; they can be sealed
// between two calls.
func (x *Index) Read(r store.Reader, from, to uint64, n int) (next uint64) {
	next = from
	for seq, rec := range tables.Records(r, from, min(to, from+uint64(n))) {
		if key, ok := tables.IdemKey(rec); ok {
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

// Check compares every whole run with the stretch of the journal that it covers: it must hold the
// newest record of each key there and no other, its filter must contain its keys, and runs must
// follow one another. Keys that lead to records up to the horizon have ended, and the journal may
// not have these any more. An incomplete run is not an error. Check calls tell with its progress in
// records, and ends with the error of tell. It returns the number of keys. It takes one long view,
// so it is for files at rest.
func Check(r store.Reader, horizon uint64, tell func(done, total uint64) error) (keys uint64, err error) {
	var metas []Meta
	total, last, half := uint64(0), uint64(0), false
	for b := range store.Subs(r, tables.Idem) {
		m, whole := readMeta(r, b)
		if err := misplaced(b, whole, last, half); err != nil {
			return 0, fmt.Errorf("run %x: %w", b.Name, err)
		}
		if half = !whole; whole {
			metas, total, last = append(metas, m), total+m.Last-m.First+1, m.Last
		}
	}
	done := uint64(0)
	for _, m := range metas {
		if err := m.checkRun(r, horizon, func(n uint64) error { return tell(done+n, total) }); err != nil {
			return keys, fmt.Errorf("run %d: %w", m.First, err)
		}
		keys, done = keys+m.Keys, done+m.Last-m.First+1
	}
	return keys, nil
}

// tellEvery is how many records Check compares between two reports.
const tellEvery = 1 << 14

func (m *Meta) checkRun(r store.Reader, horizon uint64, tell func(done uint64) error) error {
	run := readRun(r, bucketOf(m.First), *m)
	want, from := Table{}, max(m.First, min(horizon, m.Last)+1)
	last := from - 1
	for seq, rec := range tables.Records(r, from, m.Last+1) {
		if last = seq; (seq-m.First)%tellEvery == 0 {
			if err := tell(seq - m.First); err != nil {
				return err
			}
		}
		if key, ok := tables.IdemKey(rec); ok && rec.At >= m.FirstAt {
			want.Put(key, seq)
		}
	}
	if last != m.Last {
		return fmt.Errorf("it ends at record %d, and the journal with record %d", m.Last, last)
	}
	return run.compare(r, horizon, &want)
}

// compare returns an error unless the run holds exactly the keys of want, beside those that lead to
// records up to the horizon.
func (r *run) compare(rd store.Reader, horizon uint64, want *Table) error {
	n, keys, ended := uint32(0), 0, 0
	for raw, row := range rd.Range(r.bucket, nil, behind(0)) {
		if !bytes.Equal(raw, blockKey(n)) {
			return fmt.Errorf("row %x: it is not block %d", raw, n)
		}
		b, err := decodeBlock(raw, row)
		for i := 0; err == nil && i < b.len(); i++ {
			key, seq := Key(b.key(i)), b.seq(i)
			if err = r.compareKey(n, key, seq, horizon, want); i > 0 && bytes.Compare(b.key(i-1), b.key(i)) >= 0 {
				err = errBlock
			}
			if seq <= horizon {
				ended++
			}
		}
		if err != nil {
			return fmt.Errorf("block %d: %w", n, err)
		}
		n, keys = n+1, keys+b.len()
	}
	if n != blocks(r.meta.Keys) || keys-ended != want.Len() || uint64(keys) != r.meta.Keys {
		return fmt.Errorf("it has %d keys in %d blocks, its meta row says %d and the journal %d", keys, n, r.meta.Keys,
			want.Len()+ended)
	}
	return nil
}

// compareKey returns an error unless key belongs into block n and leads to the record of want.
func (r *run) compareKey(n uint32, key Key, seq, horizon uint64, want *Table) error {
	newest := want.Get(key)
	switch {
	case seq == 0 || seq != newest && (seq > horizon || newest != 0):
		return fmt.Errorf("key %x: it leads to record %d, and the journal to record %d", key, seq, newest)
	case blockOf(&key, blocks(r.meta.Keys)) != n:
		return fmt.Errorf("key %x: it belongs into another", key)
	case !r.filter.has(&key):
		return fmt.Errorf("key %x: the filter does not know it", key)
	}
	return nil
}
