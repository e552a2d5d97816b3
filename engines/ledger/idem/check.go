package idem

import (
	"errors"
	"fmt"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Check compares every whole run with the stretch of the journal that it covers: it must hold the newest record of each key there and
// nothing else, its filter must know its keys, and runs must follow one another. A run that was not sealed to its end is no fault. It tells
// how many records of how many it has compared, and ends with the error of tell. It gives the number of keys. It reads for as long as it
// takes, so it is for files at rest.
func Check(r store.Reader, tell func(done, total uint64) error) (keys uint64, err error) {
	var metas []Meta
	total := uint64(0)
	for b := range store.Subs(r, tables.Idem) {
		if m, whole := readMeta(r, b); whole {
			metas, total = append(metas, m), total+m.Last-m.First+1
		}
	}
	done := uint64(0)
	for i, m := range metas {
		if i > 0 && m.First != metas[i-1].Last+1 {
			return keys, fmt.Errorf("run %d: it follows on the one that ends at record %d", m.First, metas[i-1].Last)
		}
		if err := m.checkRun(r, func(n uint64) error { return tell(done+n, total) }); err != nil {
			return keys, fmt.Errorf("run %d: %w", m.First, err)
		}
		keys, done = keys+m.Keys, done+m.Last-m.First+1
	}
	return keys, nil
}

// tellEvery is how many records Check compares between two reports.
const tellEvery = 1 << 14

func (m *Meta) checkRun(r store.Reader, tell func(done uint64) error) error {
	run := readRun(r, bucketOf(m.First), *m)
	want, last := Table{}, m.First-1
	for seq, rec := range tables.Records(r, m.First, m.Last+1) {
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
	return run.compare(r, &want)
}

// compare tells whether the run holds what want does.
func (r *run) compare(rd store.Reader, want *Table) error {
	rows := 0
	for raw, row := range rd.Range(r.bucket, nil, behind(0)) {
		if len(raw) != len(Key{}) {
			return fmt.Errorf("row %x: %w", raw, errRow)
		}
		key := Key(raw)
		if seq := r.seq(&key, row); seq == 0 || seq != want.Get(key) {
			return fmt.Errorf("key %x: it leads to record %d, and the journal to record %d", key, seq, want.Get(key))
		}
		if !r.filter.has(&key) {
			return fmt.Errorf("key %x: the filter does not know it", key)
		}
		rows++
	}
	if rows != want.Len() || uint64(rows) != r.meta.Keys {
		return fmt.Errorf("it has %d keys, its meta row says %d and the journal %d", rows, r.meta.Keys, want.Len())
	}
	return nil
}

var errRow = errors.New("not a row of a run")
