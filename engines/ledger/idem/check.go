package idem

import (
	"bytes"
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
	n, keys := uint32(0), 0
	for raw, row := range rd.Range(r.bucket, nil, behind(0)) {
		if !bytes.Equal(raw, blockKey(n)) {
			return fmt.Errorf("row %x: it is not block %d", raw, n)
		}
		b, err := decodeBlock(raw, row)
		for i := 0; err == nil && i < b.len(); i++ {
			if err = r.compareKey(n, Key(b.key(i)), b.seq(i), want); i > 0 && bytes.Compare(b.key(i-1), b.key(i)) >= 0 {
				err = errBlock
			}
		}
		if err != nil {
			return fmt.Errorf("block %d: %w", n, err)
		}
		n, keys = n+1, keys+b.len()
	}
	if n != blocks(r.meta.Keys) || keys != want.Len() || uint64(keys) != r.meta.Keys {
		return fmt.Errorf("it has %d keys in %d blocks, its meta row says %d and the journal %d", keys, n, r.meta.Keys, want.Len())
	}
	return nil
}

// compareKey tells whether block n is where key is looked for, and leads it where the journal does.
func (r *run) compareKey(n uint32, key Key, seq uint64, want *Table) error {
	switch {
	case seq == 0 || seq != want.Get(key):
		return fmt.Errorf("key %x: it leads to record %d, and the journal to record %d", key, seq, want.Get(key))
	case blockOf(&key, blocks(r.meta.Keys)) != n:
		return fmt.Errorf("key %x: it belongs into another", key)
	case !r.filter.has(&key):
		return fmt.Errorf("key %x: the filter does not know it", key)
	}
	return nil
}
