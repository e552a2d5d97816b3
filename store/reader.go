package store

import (
	"bytes"
	"fmt"
	"iter"
	"os"

	bolt "go.etcd.io/bbolt"
)

// Reader reads one consistent state. Inside Apply it sees the commands before this one in the group, but not the command's own Writes.
// Its slices die with the transaction: copy what is kept.
type Reader interface {
	Get(b *Bucket, key []byte) []byte                               // nil: absent
	Range(b *Bucket, from, to []byte) iter.Seq2[[]byte, []byte]     // ascending, to excluded, nil: no bound
	RangeBack(b *Bucket, from, to []byte) iter.Seq2[[]byte, []byte] // the same rows, descending
}

// table is a bucket inside one transaction.
type table struct {
	*declared
	rows *bolt.Bucket // nil: the file has no such bucket yet
	in   *table       // what a sub-bucket is in
}

// subKey tells a sub-bucket inside one transaction.
type subKey struct {
	in   *Bucket
	name string
}

// txReader is the Reader of one transaction; one goroutine uses it.
type txReader struct {
	tx     *bolt.Tx
	schema schema // nil: every bucket of the file is allowed (an offline reader)
	tables map[*Bucket]*table
	subs   map[subKey]*table // sub-buckets, which every call to Sub names anew
	groups []Group           // what GroupOf finds
	file   *os.File          // for Warm; nil: memory, or a file that is read as it is
	inside bool              // in bbolt's code: a panic now is the file's fault, not the caller's

	confined bool   // to the buckets of owner, as a command is; a view reads everything
	owner    string // of the command that runs
}

var _ Reader = (*txReader)(nil)

func newTxReader(tx *bolt.Tx, s schema) *txReader {
	return &txReader{tx: tx, schema: s, tables: make(map[*Bucket]*table, 8)}
}

// Get reads one row.
func (r *txReader) Get(b *Bucket, key []byte) []byte {
	t := r.table(b)
	if t.rows == nil {
		return nil
	}
	r.inside = true
	v := t.rows.Get(key)
	r.inside = false
	return v
}

// Range walks rows upwards.
func (r *txReader) Range(b *Bucket, from, to []byte) iter.Seq2[[]byte, []byte] {
	first := func(c *bolt.Cursor) (k, v []byte) { return seek(c, from) }
	within := func(k []byte) bool { return to == nil || bytes.Compare(k, to) < 0 }
	return r.walk(r.table(b), first, within, (*bolt.Cursor).Next)
}

// RangeBack walks rows downwards.
func (r *txReader) RangeBack(b *Bucket, from, to []byte) iter.Seq2[[]byte, []byte] {
	first := func(c *bolt.Cursor) (k, v []byte) { return below(c, to) }
	within := func(k []byte) bool { return bytes.Compare(k, from) >= 0 }
	return r.walk(r.table(b), first, within, (*bolt.Cursor).Prev)
}

// move places a cursor and gives the row it is at; a nil key is the end.
type move = func(*bolt.Cursor) (k, v []byte)

func (r *txReader) walk(t *table, first move, within func(k []byte) bool, next move) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		if t.rows == nil {
			return
		}
		r.inside = true
		c := t.rows.Cursor()
		k, v := first(c)
		for r.inside = false; k != nil && within(k) && (v == nil && t.Subs || yield(k, v)); r.inside = false { // a nil value: a sub-bucket
			r.inside = true
			k, v = next(c)
		}
	}
}

func seek(c *bolt.Cursor, from []byte) (k, v []byte) {
	if from == nil {
		return c.First()
	}
	return c.Seek(from)
}

// below finds the last row under to.
func below(c *bolt.Cursor, to []byte) (k, v []byte) {
	if to == nil {
		return c.Last()
	}
	if k, _ := c.Seek(to); k == nil {
		return c.Last()
	}
	return c.Prev()
}

// table resolves b once a transaction and enforces ownership at each use.
func (r *txReader) table(b *Bucket) *table {
	if b.parent != nil {
		return r.sub(b)
	}
	t := r.tables[b]
	if t == nil {
		t = r.open(b)
		r.tables[b] = t
	}
	if r.confined && t.owner != r.owner {
		panic(fmt.Sprintf("bucket %s belongs to %s, not to %s", b.Name, t.owner, r.owner))
	}
	return t
}

func (r *txReader) open(b *Bucket) *table {
	d, known := r.schema[b.Name]
	if !known {
		if r.schema != nil {
			panic(fmt.Sprintf("bucket %s is not declared", b.Name))
		}
		d = declared{Bucket: b}
	}
	r.inside = true
	rows := r.tx.Bucket([]byte(b.Name))
	r.inside = false
	t := &table{declared: &d, rows: rows}
	t.fill()
	return t
}

// sub resolves a sub-bucket, once a transaction: what makes or drops it moves the one table that all its names lead to.
func (r *txReader) sub(b *Bucket) *table {
	in := r.table(b.parent)
	key := subKey{b.parent, b.Name}
	if t := r.subs[key]; t != nil {
		return t
	}
	t := &table{declared: &declared{b, in.owner}, in: in}
	if in.rows != nil {
		r.inside = true
		t.rows = in.rows.Bucket([]byte(b.Name))
		r.inside = false
		t.fill()
	}
	if r.subs == nil {
		r.subs = map[subKey]*table{}
	}
	r.subs[key] = t
	return t
}

// fill sets how full pages of an append-only table get: bbolt does not keep it between transactions.
func (t *table) fill() {
	if t.rows != nil && t.Append {
		t.rows.FillPercent = 1
	}
}

// Subs walks the sub-buckets of b that the state has, in byte order of their names.
func Subs(r Reader, b *Bucket) iter.Seq[*Bucket] {
	tr := r.(*txReader)
	return func(yield func(*Bucket) bool) {
		t := tr.table(b)
		if t.rows == nil {
			return
		}
		tr.inside = true
		c := t.rows.Cursor()
		k, v := c.First()
		for tr.inside = false; k != nil && (v != nil || yield(b.Sub(string(k)))); tr.inside = false {
			tr.inside = true
			k, v = c.Next()
		}
	}
}

// leaves walks the tables with rows of b: itself, or its sub-buckets.
func leaves(r Reader, b *Bucket) iter.Seq[*Bucket] {
	if b.Subs {
		return Subs(r, b)
	}
	return func(yield func(*Bucket) bool) { yield(b) }
}

// broken tells whether a recovered panic is the file's: it came out of bbolt, or a mapped page could not be read.
func (r *txReader) broken(recovered any) bool {
	if r.inside {
		return true
	}
	_, fault := recovered.(interface{ Addr() uintptr }) // what debug.SetPanicOnFault makes of SIGBUS and SIGSEGV
	return fault
}

// GroupOf hands an engine the Group it registered, inside Apply. Anything else is a bug of the wiring and panics.
func GroupOf[G Group](r Reader) G {
	if tr, ok := r.(*txReader); ok {
		for _, g := range tr.groups {
			if typed, ok := g.(G); ok {
				return typed
			}
		}
	}
	panic("no such group is registered")
}
