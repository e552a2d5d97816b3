package store

import (
	"bytes"
	"iter"
)

// Table gives a bucket its key order and its value codec. It is a value, safe to share.
type Table[K, V any] struct {
	bucket *Bucket
	key    Key[K]
	value  Value[V]
	summed bool // rows end in a checksum
	later  bool // or began without one: the version byte of their CBOR tells
	alone  bool // all rows of the bucket do
}

// NewTable is a typed face of b.
func NewTable[K, V any](b *Bucket, key Key[K], value Value[V]) Table[K, V] {
	return Table[K, V]{bucket: b, key: key, value: value}
}

// Summed is t with a checksum behind each value: the pages of the file have none, so what a disk has changed is met where the row is read. The
// codec's bytes must be its own, since they are appended to.
func (t Table[K, V]) Summed() Table[K, V] {
	t.summed = true
	return t
}

// SummedLater is Summed for a table of CBOR values whose rows once had no checksum: these are read as they are, and get it when they are written.
func (t Table[K, V]) SummedLater() Table[K, V] {
	t.later = true
	return t
}

// Alone is t, which is Summed, as the only table of its bucket, or beside others that are Summed: that a row is not there is believed only if the
// rows on both sides of its place check. A row of whose key a disk has changed a bit is still there, and so is the search that a changed key
// leads astray.
func (t Table[K, V]) Alone() Table[K, V] {
	t.alone = true
	return t
}

// Bucket is the table's declaration.
func (t Table[K, V]) Bucket() *Bucket { return t.bucket }

// Get reads the row of k. A row that does not decode ends the command or the view in a RowError.
func (t Table[K, V]) Get(r Reader, k K) (v V, known bool) {
	key := t.key.Append(nil, k)
	raw := r.Get(t.bucket, key)
	if raw != nil {
		return t.decode(key, raw), true
	}
	if t.alone {
		t.mustLack(r, key)
	}
	return v, false
}

// mustLack ends the command or the view if the row before the place of key or the one behind it does not check, or lies on the wrong side.
func (t Table[K, V]) mustLack(r Reader, key []byte) {
	t.mustCheck(r.RangeBack(t.bucket, nil, key), func(k []byte) bool { return bytes.Compare(k, key) < 0 })
	t.mustCheck(r.Range(t.bucket, key, nil), func(k []byte) bool { return bytes.Compare(k, key) > 0 })
}

// mustCheck looks at the first of rows.
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

// Has tells whether k has a row, without decoding it.
func (t Table[K, V]) Has(r Reader, k K) bool {
	return r.Get(t.bucket, t.key.Append(nil, k)) != nil
}

// Put writes the row of k. A value that does not encode is the command's bug.
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

// Delete removes the row of k, if it is there.
func (t Table[K, V]) Delete(w *Writes, k K) {
	w.Delete(t.bucket, t.key.Append(nil, k))
}

// Range walks the rows from one key up to, not including, another, ascending.
func (t Table[K, V]) Range(r Reader, from, to K) iter.Seq2[K, V] {
	return t.rows(r.Range(t.bucket, t.key.Append(nil, from), t.bound(to)))
}

// From walks the rows from one key to the end, ascending.
func (t Table[K, V]) From(r Reader, from K) iter.Seq2[K, V] {
	return t.rows(r.Range(t.bucket, t.key.Append(nil, from), nil))
}

// All walks every row, ascending.
func (t Table[K, V]) All(r Reader) iter.Seq2[K, V] {
	return t.rows(r.Range(t.bucket, nil, nil))
}

// Back walks the rows below to, descending to from, which is included.
func (t Table[K, V]) Back(r Reader, from, to K) iter.Seq2[K, V] {
	return t.rows(r.RangeBack(t.bucket, t.key.Append(nil, from), t.bound(to)))
}

// AllBack walks every row, descending.
func (t Table[K, V]) AllBack(r Reader) iter.Seq2[K, V] {
	return t.rows(r.RangeBack(t.bucket, nil, nil))
}

// Last is the row of the greatest key.
func (t Table[K, V]) Last(r Reader) (k K, v V, ok bool) {
	for k, v := range t.AllBack(r) {
		return k, v, true
	}
	return k, v, false
}

// bound keeps an empty upper key from meaning "no bound".
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
