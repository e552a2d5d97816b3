package store

import (
	"bytes"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// localSchema is the first schema with bucket local.
const localSchema = 3

// Keys of the local bucket. Its rows belong to one copy of the file: no entry of a cluster holds
// them, and StateHash does not cover them. In files of schema 1 and 2 they are rows of meta.
var (
	keyClean     = []byte("clean")     // whether the last stop was orderly
	keyBuckets   = []byte("buckets")   // declarations of the buckets
	keyMigration = []byte("migration") // migrationRow
	keyApplied   = []byte("applied")   // Applied
	keyMembers   = []byte("members")   // memberRow
	keyLog       = []byte("log")       // id of the log that the file goes on with

	// names of the rows of meta and local, except those with namesPrefix
	ownNames = [][]byte{
		keyIdent, keyPosition, keyAudit1, keyClean, keyBuckets, keyMigration, keyApplied, keyMembers, keyLog, keyNamed,
	}
)

// localRows returns the bucket of the local rows.
func localRows(tx *bolt.Tx) *bolt.Bucket {
	if local := tx.Bucket([]byte(localBucket.Name)); local != nil {
		return local
	}
	return tx.Bucket([]byte(metaBucket.Name))
}

// toLocal leads to schema 3. It has no step: writing the Info of schema 3 moves the rows, in the
// same transaction.
var toLocal = Migration{From: localSchema - 1}

// toNames leads to schema 4. It has no step: the next boot counts the names.
var toNames = Migration{From: namesSchema - 1}

// splitMeta makes the local bucket, if it does not exist, and moves the local rows into it. The
// clean row of meta stays, as a constant: a program of schema 2 reads it before it compares the
// schemas, and reports that the file is damaged if it is missing.
func splitMeta(tx *bolt.Tx, meta *bolt.Bucket) error {
	if tx.Bucket([]byte(localBucket.Name)) != nil {
		return nil
	}
	local, err := tx.CreateBucket([]byte(localBucket.Name))
	if err != nil {
		return err
	}
	for _, key := range [][]byte{keyBuckets, keyMigration} {
		row := bytes.Clone(meta.Get(key))
		if row == nil {
			continue
		}
		if err := errors.Join(local.Put(key, row), meta.Delete(key)); err != nil {
			return err
		}
	}
	return meta.Put(keyClean, cleanFlag(false))
}

// readClean reports whether the last stop was orderly.
func readClean(tx *bolt.Tx, schema int) (bool, error) {
	meta, local := tx.Bucket([]byte(metaBucket.Name)), tx.Bucket([]byte(localBucket.Name))
	clean, err := parseClean(meta)
	switch {
	case err != nil:
		return false, fmt.Errorf("meta clean: %w", err)
	case schema < localSchema:
		return clean, nil
	case local == nil:
		return false, errors.New("no local bucket")
	}
	if clean, err = parseClean(local); err != nil {
		return false, fmt.Errorf("local clean: %w", err)
	}
	return clean, nil
}

func parseClean(b *bolt.Bucket) (bool, error) {
	row, err := fixedRow(keyClean, b.Get(keyClean), 1)
	return string(row) == "1", err
}

// putClean records whether the last stop was orderly.
func putClean(tx *bolt.Tx, clean bool) error { return localRows(tx).Put(keyClean, cleanFlag(clean)) }

// cleanFlag returns the row that records whether the last stop was orderly.
func cleanFlag(clean bool) []byte {
	if clean {
		return AddSum(keyClean, []byte("1"))
	}
	return AddSum(keyClean, []byte("0"))
}

// bucketRow records a declaration, so that the file can be verified without the program.
type bucketRow struct {
	Name   string `cbor:"1,keyasint"`
	Class  Class  `cbor:"2,keyasint"`
	Append bool   `cbor:"3,keyasint"`
	Owner  string `cbor:"4,keyasint"`
	Subs   bool   `cbor:"5,keyasint,omitempty"`
	Proven bool   `cbor:"6,keyasint,omitempty"` // since schema 4
}

// makeBuckets creates the new buckets, counts their names and records all declarations.
func makeBuckets(tx *bolt.Tx, s schema) error {
	recorded, err := readBuckets(tx)
	if err != nil {
		return err
	}
	rows := make([]bucketRow, 0, len(s))
	for _, d := range s.sorted() {
		if _, err := tx.CreateBucketIfNotExists([]byte(d.Name)); err != nil {
			return fmt.Errorf("make bucket %s: %w", d.Name, err)
		}
		rows = append(rows, bucketRow{d.Name, d.Class, d.Append, d.owner, d.Subs, d.Proven})
	}
	raw, err := encodeSummed(keyBuckets, rows)
	if err != nil {
		return err
	}
	return errors.Join(nameNew(tx, s, recorded), localRows(tx).Put(keyBuckets, raw))
}

// readBuckets returns the declarations recorded in the file, or nil if no node has opened it. If
// the names were counted, each of these buckets is there.
func readBuckets(tx *bolt.Tx) ([]*Bucket, error) {
	raw := localRows(tx).Get(keyBuckets)
	named := localRows(tx).Get(keyNamed) != nil
	switch {
	case raw == nil && named:
		return nil, fmt.Errorf("%w: row buckets is not there", ErrCorrupt)
	case raw == nil:
		return nil, nil
	}
	var rows []bucketRow
	if err := decodeSummed(keyBuckets, raw, &rows); err != nil {
		return nil, fmt.Errorf("%w: row buckets: %w", ErrCorrupt, err)
	}
	out := make([]*Bucket, len(rows))
	for i, r := range rows {
		out[i] = &Bucket{Name: r.Name, Class: r.Class, Append: r.Append, Subs: r.Subs, Proven: r.Proven}
		if named && tx.Bucket([]byte(r.Name)) == nil {
			return nil, fmt.Errorf("%w: bucket %s is not there", ErrCorrupt, r.Name)
		}
	}
	return out, nil
}
