package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// namesSchema is the first schema that counts names.
const namesSchema = 4

// The pages of the file have no checksum, so a row whose key was changed, or that a page no longer
// counts, looks as if it had never been written. For each bucket that is not Proven, a row of local
// holds the number of its rows and the sum of the hashes of their keys. Every transaction that adds
// or removes a key updates it by the difference, so later writes never hide a lost row.

// namesPrefix begins the keys of these rows in local; the rest is the name of the bucket. A row
// keyNamed is written with the first of them.
const namesPrefix = "names/"

var (
	keyNamed = []byte("named")
	namesEnd = []byte("names0") // after every key with namesPrefix
)

// nameSum is the number of keys and the sum of their hashes.
type nameSum struct{ rows, sum uint64 }

// with returns s plus n keys with the given hash; n is 1 or -1.
func (s nameSum) with(hash uint64, n int) nameSum {
	return nameSum{s.rows + uint64(n), s.sum + uint64(n)*hash}
}

// hashName returns the FNV-1a hash of a key. Two keys that differ in one byte have different
// hashes.
func hashName(sub string, key []byte) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(sub) {
		h = (h ^ uint64(sub[i])) * 1099511628211
	}
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

// errAbsent is the cause of a RowError for a row that must exist.
var errAbsent = errors.New("it is not there")

func namesKey(bucket string) []byte { return append([]byte(namesPrefix), bucket...) }

func (s nameSum) row(key []byte) []byte {
	b := make([]byte, 0, 16+SumSize)
	b = binary.BigEndian.AppendUint64(b, s.rows)
	return AddSum(key, binary.BigEndian.AppendUint64(b, s.sum))
}

// parseNames decodes a row of names.
func parseNames(key, row []byte) (s nameSum, err error) {
	if row == nil {
		return s, &RowError{localBucket.Name, key, errAbsent}
	}
	b, err := CutSum(key, row)
	if err == nil && len(b) != 16 {
		err = errVersion
	}
	if err != nil {
		return s, &RowError{localBucket.Name, key, err}
	}
	return nameSum{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, nil
}

// countNames counts the names in a bucket.
func countNames(r Reader, b *Bucket) (s nameSum) {
	for leaf := range leaves(r, b) {
		sub := ""
		if b.Subs {
			sub = leaf.Name
		}
		for key := range r.Range(leaf, nil, nil) {
			s = s.with(hashName(sub, key), 1)
		}
	}
	return s
}

// CheckNames returns ErrCorrupt if a bucket has not the names that were written into it: a row was
// lost, or its key was changed on the disk. It reads all keys of the buckets, but skips buckets
// that are Proven and, unless most is 0, those of more than most rows.
func CheckNames(r Reader, most uint64, buckets ...*Bucket) error {
	for _, b := range buckets {
		if err := checkNames(r, most, b); err != nil {
			return err
		}
	}
	return nil
}

func checkNames(r Reader, most uint64, b *Bucket) error {
	if b.Proven {
		return nil
	}
	key := namesKey(b.Name)
	row := r.Get(localBucket, key)
	if row == nil && r.Get(localBucket, keyNamed) == nil {
		return nil // the first boot of a full file could not count them
	}
	want, err := parseNames(key, row)
	if err != nil || most > 0 && want.rows > most {
		return err
	}
	switch got := countNames(r, b); {
	case got.rows != want.rows:
		return &NamesError{b.Name, fmt.Sprintf("it has %d rows, %d were written", got.rows, want.rows)}
	case got != want:
		return &NamesError{b.Name, fmt.Sprintf("the key of one of its %d rows was changed", got.rows)}
	}
	return nil
}

// NamesError is returned by CheckNames for a bucket with a lost or changed name. It is ErrCorrupt.
type NamesError struct{ Bucket, Reason string }

func (e *NamesError) Error() string {
	return fmt.Sprintf("%v: bucket %s: %s", ErrCorrupt, e.Bucket, e.Reason)
}

// Is reports whether target is ErrCorrupt.
func (e *NamesError) Is(target error) bool { return target == ErrCorrupt }

// nameLog collects the names that a transaction adds and removes.
type nameLog struct{ changes []nameChange }

// nameChange is the change of the names of one bucket.
type nameChange struct {
	bucket *Bucket
	nameSum
	cleared bool // all earlier names were removed
}

func (l *nameLog) of(b *Bucket) *nameChange {
	for i := range l.changes {
		if l.changes[i].bucket.Name == b.Name {
			return &l.changes[i]
		}
	}
	l.changes = append(l.changes, nameChange{bucket: b})
	return &l.changes[len(l.changes)-1]
}

// note notes what o will do to the names of b, before it is done. rows is the bucket or sub-bucket
// that o changes, or nil if it does not exist.
func (l *nameLog) note(b *Bucket, rows *bolt.Bucket, o op) {
	switch {
	case b.Proven:
	case o.kind == opClear:
		*l.of(b) = nameChange{bucket: b, cleared: true}
	case o.kind == opDrop && rows != nil:
		c := l.of(b)
		cur := rows.Cursor()
		for key, _ := cur.First(); key != nil; key, _ = cur.Next() {
			c.nameSum = c.with(hashName(o.sub, key), -1)
		}
	case o.kind == opPut || o.kind == opDelete:
		n := 0
		if o.kind == opPut {
			n++
		}
		if rows != nil && rows.Get(o.key) != nil {
			n--
		}
		if n != 0 {
			c := l.of(b)
			c.nameSum = c.with(hashName(o.sub, o.key), n)
		}
	}
}

// write adds the changes to the rows of local and forgets them. A row that is damaged or missing
// stays so: CheckNames finds it, or a boot counts the names.
func (l *nameLog) write(tx *bolt.Tx) error {
	for _, c := range l.changes {
		if c.nameSum == (nameSum{}) && !c.cleared {
			continue
		}
		local, key := localRows(tx), namesKey(c.bucket.Name)
		row := local.Get(key)
		was, err := parseNames(key, row)
		switch {
		case row == nil || err != nil && !c.cleared:
			continue
		case c.cleared:
			was = nameSum{}
		}
		now := nameSum{was.rows + c.rows, was.sum + c.sum}
		if err := local.Put(key, now.row(key)); err != nil {
			return fmt.Errorf("count the names of %s: %w", c.bucket.Name, err)
		}
	}
	l.changes = l.changes[:0]
	return nil
}

// nameNew counts the names of the buckets that no node has recorded, or of all if the file has not
// counted them yet.
func nameNew(tx *bolt.Tx, s schema, recorded []*Bucket) error {
	local := localRows(tx)
	named := local.Get(keyNamed) != nil
	r := newTxReader(tx, s)
	for range r.Range(localBucket, []byte(namesPrefix), namesEnd) {
		if !named {
			return &RowError{localBucket.Name, keyNamed, errAbsent}
		}
		break
	}
	for _, d := range s.sorted() {
		known := slices.ContainsFunc(recorded, func(b *Bucket) bool { return b.Name == d.Name })
		if d.Proven || named && known {
			continue
		}
		key := namesKey(d.Name)
		if err := local.Put(key, countNames(r, d.Bucket).row(key)); err != nil {
			return err
		}
	}
	return local.Put(keyNamed, AddSum(keyNamed, []byte{1}))
}

// checkOwnNames returns ErrCorrupt if a row of meta or local has an unknown name, or if a row that
// counts names is damaged.
func checkOwnNames(r Reader) error {
	for _, b := range []*Bucket{metaBucket, localBucket} {
		for key, row := range r.Range(b, nil, nil) {
			var err error
			switch own := slices.ContainsFunc(ownNames, func(name []byte) bool { return bytes.Equal(name, key) }); {
			case bytes.Equal(key, keyNamed) || bytes.HasPrefix(key, []byte(namesPrefix)):
				_, err = CutSum(key, row)
			case !own:
				err = errors.New("this name is unknown")
			}
			if err != nil {
				return &RowError{b.Name, bytes.Clone(key), err}
			}
		}
	}
	return nil
}
