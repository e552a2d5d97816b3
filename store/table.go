package store

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// Table is a typed view of a bucket, with a key order and a value codec. It is a value and safe to
// share.
type Table[K, V any] struct {
	bucket *Bucket
	key    Key[K]
	value  Value[V]
	summed bool // rows end in a checksum
	later  bool // as summed, but older rows have no checksum: the version byte of their CBOR shows it
	alone  bool // every row of the bucket has a checksum
}

// NewTable returns a table of the rows of b.
func NewTable[K, V any](b *Bucket, key Key[K], value Value[V]) Table[K, V] {
	return Table[K, V]{bucket: b, key: key, value: value}
}

// Summed returns t with a checksum after each value. The pages of the file have no checksum, so a
// row that the disk changed is detected when it is read. The checksum is appended to the bytes that
// the codec returns, so they must not be shared.
func (t Table[K, V]) Summed() Table[K, V] {
	t.summed = true
	return t
}

// SummedLater is like Summed, for a table of CBOR values in which older rows have no checksum.
// These rows are read as they are, and get a checksum when they are written again.
func (t Table[K, V]) SummedLater() Table[K, V] {
	t.later = true
	return t
}

// Alone returns t, which must be Summed, with checked absence: a row counts as absent only if the
// checksums of both neighbours match. This detects a row whose key was changed on the disk, and a
// search that a changed key leads astray. Every table of the bucket must be Summed.
func (t Table[K, V]) Alone() Table[K, V] {
	t.alone = true
	return t
}

// Bucket returns the bucket of the table.
func (t Table[K, V]) Bucket() *Bucket { return t.bucket }

// Get reads the row of k. A row that cannot be decoded ends the command or the view with a
// RowError.
func (t Table[K, V]) Get(r Reader, k K) (v V, known bool) {
	key := t.key.Append(nil, k)
	raw := r.Get(t.bucket, key)
	if raw != nil {
		return t.decode(key, raw), true
	}
	if t.alone {
		t.mustBeAbsent(r, key)
	}
	return v, false
}

// mustBeAbsent ends the command or the view with a RowError if the row before or after the place of
// key has a wrong checksum or is on the wrong side.
func (t Table[K, V]) mustBeAbsent(r Reader, key []byte) {
	t.mustCheck(r.RangeBack(t.bucket, nil, key), func(k []byte) bool { return bytes.Compare(k, key) < 0 })
	t.mustCheck(r.Range(t.bucket, key, nil), func(k []byte) bool { return bytes.Compare(k, key) > 0 })
}

// mustCheck checks the first of rows.
func (t Table[K, V]) mustCheck(rows iter.Seq2[[]byte, []byte], placed func(k []byte) bool) {
	for k, row := range rows {
		_, err := CutSum(k, row)
		if err == nil && !placed(k) {
			err = errOrder
		}
		if err != nil {
			panic(t.broken(k, err))
		}
		return
	}
}

// Has reports whether k has a row, without decoding it.
func (t Table[K, V]) Has(r Reader, k K) bool {
	return r.Get(t.bucket, t.key.Append(nil, k)) != nil
}

// Put writes the row of k. It panics if the value cannot be encoded, which is a bug of the command.
func (t Table[K, V]) Put(w *Writes, k K, v V) {
	raw, err := t.value.Encode(v)
	if err != nil {
		panic(err)
	}
	key := t.key.Append(nil, k)
	switch {
	case t.summed:
		raw = AddSum(key, raw)
	case t.later:
		raw = sealCBOR(key, raw)
	}
	w.Put(t.bucket, key, raw)
}

// Delete removes the row of k, if it exists.
func (t Table[K, V]) Delete(w *Writes, k K) {
	w.Delete(t.bucket, t.key.Append(nil, k))
}

// Range iterates over the rows from one key up to, but not including, another, in ascending order.
func (t Table[K, V]) Range(r Reader, from, to K) iter.Seq2[K, V] {
	return t.rows(r.Range(t.bucket, t.key.Append(nil, from), t.bound(to)))
}

// From iterates over the rows from a key to the end, in ascending order.
func (t Table[K, V]) From(r Reader, from K) iter.Seq2[K, V] {
	return t.rows(r.Range(t.bucket, t.key.Append(nil, from), nil))
}

// All iterates over all rows in ascending order.
func (t Table[K, V]) All(r Reader) iter.Seq2[K, V] {
	return t.rows(r.Range(t.bucket, nil, nil))
}

// Back iterates over the rows below to in descending order, down to and including from.
func (t Table[K, V]) Back(r Reader, from, to K) iter.Seq2[K, V] {
	return t.rows(r.RangeBack(t.bucket, t.key.Append(nil, from), t.bound(to)))
}

// AllBack iterates over all rows in descending order.
func (t Table[K, V]) AllBack(r Reader) iter.Seq2[K, V] {
	return t.rows(r.RangeBack(t.bucket, nil, nil))
}

// Last returns the row with the greatest key.
func (t Table[K, V]) Last(r Reader) (k K, v V, ok bool) {
	for k, v := range t.AllBack(r) {
		return k, v, true
	}
	return k, v, false
}

// bound encodes an upper bound. An empty key must not become nil, which means no bound.
func (t Table[K, V]) bound(to K) []byte {
	return t.key.Append([]byte{}, to)
}

func (t Table[K, V]) rows(raw iter.Seq2[[]byte, []byte]) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for kb, vb := range raw {
			k, err := t.key.Decode(kb)
			if err != nil {
				panic(t.broken(kb, err))
			}
			if !yield(k, t.decode(kb, vb)) {
				return
			}
		}
	}
}

// Parse returns the value of a row that was read from the bucket: of its key and bytes. A damaged
// row ends the view or the command in a RowError.
func (t Table[K, V]) Parse(key, raw []byte) V { return t.decode(key, raw) }

func (t Table[K, V]) decode(key, raw []byte) V {
	var err error
	switch {
	case t.summed:
		raw, err = CutSum(key, raw)
	case t.later:
		raw, err = openCBOR(key, raw)
	}
	var v V
	if err == nil {
		v, err = t.value.Decode(raw)
	}
	if err != nil {
		panic(t.broken(key, err))
	}
	return v
}

func (t Table[K, V]) broken(key []byte, err error) *RowError {
	return &RowError{Bucket: t.bucket.Name, Key: append([]byte{}, key...), Cause: err}
}

// Class is the kind of data in a bucket: truth, or data derived from it. StateHash covers truth
// only.
type Class int

// The classes.
const (
	Truth Class = iota
	Derived
)

func (c Class) String() string {
	if c == Derived {
		return "derived"
	}
	return "truth"
}

// Bucket declares a table of the file. With Subs it holds sub-buckets instead of rows. It is
// immutable and may be used by several stores.
type Bucket struct {
	Name   string // such as "reg/entry"
	Class  Class
	Append bool // keys are appended in order, so pages are filled completely
	Subs   bool // it holds only sub-buckets
	Proven bool // the rows of other buckets prove which rows it has, so the store does not count its names

	parent *Bucket // of a sub-bucket
}

// Sub returns the sub-bucket with the given name of a bucket declared with Subs. It is created by
// the first Put into it and removed by Writes.Drop. Sub panics if the name is empty or longer than
// MaxKey, or if b has no sub-buckets.
func (b *Bucket) Sub(name string) *Bucket {
	if !b.Subs || name == "" || len(name) > MaxKey {
		panic(
			fmt.Sprintf("store: no sub-bucket %q of %s: it holds none, or the name is not of 1 to %d bytes", name,
				b.Name, MaxKey),
		)
	}
	return &Bucket{Name: name, Class: b.Class, Append: b.Append, Proven: b.Proven, parent: b}
}

// full returns a unique name. The name of a sub-bucket contains a NUL, which no declared name has.
func (b *Bucket) full() string {
	if b.parent != nil {
		return b.parent.Name + "\x00" + b.Name
	}
	return b.Name
}

// Buckets of the store itself. StateHash does not cover them, because a restore changes them.
var (
	metaBucket  = &Bucket{Name: "meta", Class: Derived, Proven: true}
	localBucket = &Bucket{Name: "local", Class: Derived, Proven: true}
	auditBucket = &Bucket{Name: "audit", Class: Derived, Append: true, Proven: true}
)

// ownService owns the buckets and commands of the store itself.
const ownService = "store"

// declared is a bucket and the service that owns it.
type declared struct {
	*Bucket
	owner string
}

// schema holds the declared buckets by name. It does not change once the store is open.
type schema map[string]declared

func newSchema() schema {
	s := schema{}
	s.add(ownService, metaBucket, localBucket, auditBucket)
	return s
}

// add declares buckets of a service. It panics if a name is empty, reserved for another owner, or
// declared differently.
func (s schema) add(service string, buckets ...*Bucket) {
	for _, b := range buckets {
		if b.Name == "" || len(b.Name) > 64 || strings.ContainsRune(b.Name, 0) || b.parent != nil || service == "" {
			panic(fmt.Sprintf("store: bucket %q of service %q has no usable name", b.Name, service))
		}
		if old, known := s[b.Name]; known && (old.owner != service || *old.Bucket != *b) {
			panic(fmt.Sprintf("store: bucket %s is declared by %s and %s", b.Name, old.owner, service))
		}
		s[b.Name] = declared{b, service}
	}
}

// made returns an error if the file lacks a declared bucket.
func (s schema) made(tx *bolt.Tx) error {
	for name := range s {
		if tx.Bucket([]byte(name)) == nil {
			return fmt.Errorf("bucket %s is not there", name)
		}
	}
	return nil
}

// sorted returns the declarations in byte order of their names.
func (s schema) sorted() []declared {
	out := make([]declared, 0, len(s))
	for _, d := range s {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b declared) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// truth returns the buckets that StateHash covers, in byte order of their names.
func truth(buckets []*Bucket) []*Bucket {
	out := make([]*Bucket, 0, len(buckets))
	for _, b := range buckets {
		if b.Class == Truth && b.Name != metaBucket.Name && b.Name != auditBucket.Name && b.Name != authName {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b *Bucket) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// authName is the bucket of token keys, which the node declares. A restore may change it, so
// StateHash does not cover it.
const authName = "auth"
