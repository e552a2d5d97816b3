package store

import "iter"

// Foreign returns a reader of the buckets of another service, in the transaction of r, so that a
// command can decide by the state of two services. It reads what commands before this one have
// written. Nothing can be written through it.
func Foreign(r Reader, service string) Reader {
	if tr, ok := r.(*txReader); ok && tr.confined {
		return foreign{tr, service}
	}
	return r
}

// foreign is a txReader that acts for another service.
type foreign struct {
	r       *txReader
	service string
}

// act lets the reader act for the other service until the returned function is called.
func (f foreign) act() (end func()) {
	owner := f.r.owner
	f.r.owner = f.service
	return func() { f.r.owner = owner }
}

// Get implements Reader.
func (f foreign) Get(b *Bucket, key []byte) []byte {
	defer f.act()()
	return f.r.Get(b, key)
}

// Range implements Reader.
func (f foreign) Range(b *Bucket, from, to []byte) iter.Seq2[[]byte, []byte] {
	defer f.act()()
	return f.r.Range(b, from, to)
}

// RangeBack implements Reader.
func (f foreign) RangeBack(b *Bucket, from, to []byte) iter.Seq2[[]byte, []byte] {
	defer f.act()()
	return f.r.RangeBack(b, from, to)
}
