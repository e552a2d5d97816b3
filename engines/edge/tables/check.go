package tables

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// Content holds the content of edge/paths, edge/blobs, edge/keys and edge/announced.
type Content struct {
	Paths map[b3.Digest]Stored  // sound rows, by their keys
	Blobs map[b3.Digest]BlobRow // sound rows, by their keys
	keys  map[string]KeyRow     // sound rows, by their URLs
	Refs  map[b3.Digest]int64   // number of rows of paths that lead to an object
	own   []namedAnnounced      // sound rows of announced
	Bad   []*store.RowError     // rows that do not read
}

// Read reads the buckets in the order of the file, so that a row with a changed key hides no
// other row.
func Read(r store.Reader) *Content {
	s := &Content{
		Paths: map[b3.Digest]Stored{},
		Blobs: map[b3.Digest]BlobRow{},
		keys:  map[string]KeyRow{},
		Refs:  map[b3.Digest]int64{},
	}
	readBucket(r, bPaths, digests, &s.Bad, func(key b3.Digest, row Stored) error {
		if key != PathKey(row.URL) || row.Size < 0 {
			return errors.New("the row does not belong to its key")
		}
		s.Paths[key] = row
		s.Refs[row.Digest]++
		return nil
	})
	readBucket(r, bBlobs, digests, &s.Bad, func(key b3.Digest, row BlobRow) error {
		if row.Size < 0 {
			return errors.New("the size is negative")
		}
		s.Blobs[key] = row
		return nil
	})
	readBucket(r, bKeys, urlKeys, &s.Bad, func(key URLKey, row KeyRow) error {
		url := row.URL(key)
		if key != KeyOf(url) || row.Size < 0 || row.Lost && (!row.Pinned || row.Size != 0) {
			return errors.New("the row does not belong to its key")
		}
		s.keys[url] = row
		return nil
	})
	readBucket(r, bAnnounced, digests, &s.Bad, func(key b3.Digest, row AnnouncedRow) error {
		s.own = append(s.own, namedAnnounced{key, row})
		return nil
	})
	return s
}

// readBucket calls sound for every row of a bucket that decodes. It adds the other rows, and those
// for which sound returns an error, to bad.
func readBucket[K, V any](r store.Reader, b *store.Bucket, keys store.Key[K], bad *[]*store.RowError,
	sound func(K, V) error) {
	decode := store.CBOR[V]().Decode
	var last []byte // key of the last sound row
	for raw, row := range r.Range(b, nil, nil) {
		value, err := store.CutSum(raw, row)
		var key K
		var v V
		if err == nil {
			key, err = keys.Decode(raw)
		}
		if err == nil {
			v, err = decode(value)
		}
		if err == nil && last != nil && bytes.Compare(raw, last) <= 0 {
			err = errors.New("the row is out of order")
		}
		if err == nil {
			last = bytes.Clone(raw)
			err = sound(key, v)
		}
		if err != nil {
			*bad = append(*bad, &store.RowError{Bucket: b.Name, Key: bytes.Clone(raw), Cause: err})
		}
	}
}

// Fault returns the first fault of the rows, or nil.
func (s *Content) Fault() error {
	if len(s.Bad) > 0 {
		return Redact(s.Bad[0])
	}
	for name, n := range s.Refs {
		if b, known := s.Blobs[name]; !known || b.Refs != n {
			return &store.RowError{
				Bucket: bBlobs.Name,
				Key:    name[:],
				Cause:  fmt.Errorf("%d rows of %s lead to it, it has %d", n, bPaths.Name, b.Refs),
			}
		}
	}
	for key, row := range s.Paths {
		if b := s.Blobs[row.Digest]; b.Size != row.Size {
			return &store.RowError{
				Bucket: bPaths.Name,
				Key:    key[:],
				Cause:  fmt.Errorf("it has %d bytes, its object %d", row.Size, b.Size),
			}
		}
	}
	for name := range s.Blobs {
		if s.Refs[name] == 0 {
			return &store.RowError{Bucket: bBlobs.Name, Key: name[:], Cause: errors.New("no URL leads to it")}
		}
	}
	for url, row := range s.keys { // a URL without a row is added at the next start
		if next, there := s.agreed(url, row); next != row || !there {
			return &store.RowError{
				Bucket: bKeys.Name,
				Key:    urlKeys.Append(nil, KeyOf(url)),
				Cause:  fmt.Errorf("it contradicts %s", bPaths.Name),
			}
		}
	}
	return nil
}

// agreed returns the row of edge/keys that is consistent with edge/paths, or false if there is
// none.
func (s *Content) agreed(url string, row KeyRow) (next KeyRow, there bool) {
	stored, known := s.Paths[PathKey(url)]
	if next = row; known {
		next.Size, next.Lost = stored.Size, false
	} else {
		next.Size, next.Lost = 0, true
	}
	return next, known || row.Pinned
}

// Repairs returns the command that makes the rows sound, and the objects that lose their row. It
// derives a missing or wrong row of blobs from the rows of paths.
func (s *Content) Repairs() (c Repair, lost []b3.Digest) {
	for _, row := range s.Bad {
		c.Drop = append(c.Drop, RawRow{row.Bucket, row.Key})
	}
	for name := range s.Blobs {
		if s.Refs[name] == 0 {
			lost = append(lost, name)
			c.Drop = append(c.Drop, RawRow{bBlobs.Name, bytes.Clone(name[:])})
			delete(s.Blobs, name)
		}
	}
	for _, row := range s.Paths {
		want := BlobRow{Size: row.Size, Type: row.Type, Refs: s.Refs[row.Digest]}
		has, known := s.Blobs[row.Digest]
		if known {
			want.Type = has.Type
		}
		if has != want {
			s.Blobs[row.Digest] = want
			c.Blobs = append(c.Blobs, NamedBlob{row.Digest, want})
		}
	}
	for _, row := range s.Paths {
		if _, listed := s.keys[row.URL]; !listed {
			s.keys[row.URL] = KeyRow{Size: -1, Tail: row.URL[min(len(row.URL), KeyHead):]}
		}
	}
	for url, row := range s.keys {
		switch next, there := s.agreed(url, row); {
		case !there:
			delete(s.keys, url)
			c.Drop = append(c.Drop, RawRow{bKeys.Name, urlKeys.Append(nil, KeyOf(url))})
		case next != row:
			s.keys[url] = next
			c.Keys = append(c.Keys, NamedKey{url, next})
		}
	}
	c.sort()
	return c, lost
}

// sort sorts the rows of c, so that their order does not depend on maps.
func (c *Repair) sort() {
	slices.SortFunc(c.Paths, func(a, b Stored) int { return cmp.Compare(a.URL, b.URL) })
	slices.SortFunc(c.Blobs, func(a, b NamedBlob) int { return bytes.Compare(a.Name[:], b.Name[:]) })
	slices.SortFunc(c.Keys, func(a, b NamedKey) int { return cmp.Compare(a.URL, b.URL) })
}

// Whole returns the command that rewrites the buckets.
func (s *Content) Whole() Repair {
	c := Repair{Anew: true, Announced: s.own}
	for _, row := range s.Paths {
		c.Paths = append(c.Paths, row)
	}
	for name, row := range s.Blobs {
		c.Blobs = append(c.Blobs, NamedBlob{name, row})
	}
	for url, row := range s.keys {
		c.Keys = append(c.Keys, NamedKey{url, row})
	}
	c.sort()
	return c
}

// Tally counts the content by the rows.
func (s *Content) Tally() (t Tally) {
	for _, b := range s.Blobs {
		t.Add(Tally{Bytes: b.Size, Objects: 1, URLs: b.Refs})
	}
	for _, row := range s.keys {
		t.Add(row.Pins())
	}
	return t
}

// Repair drops rows that do not read and replaces inconsistent ones. If Anew is set, it clears
// the buckets first, because a search does not find a row with a changed key.
type Repair struct {
	Anew  bool
	Drop  []RawRow
	Paths []Stored
	Blobs []NamedBlob
	Keys  []NamedKey

	Announced []namedAnnounced
}

type RawRow struct {
	Bucket string
	Key    []byte
}

type NamedBlob struct {
	Name b3.Digest
	Row  BlobRow
}

type NamedKey struct {
	URL string
	Row KeyRow
}

type namedAnnounced struct {
	Name b3.Digest
	Row  AnnouncedRow
}

// repairRows bounds the rows that one command of a repair writes, so that commands of other
// services can run in between.
const repairRows = 1000

// Parts splits c into commands of at most repairRows rows, in order. After a crash between two of
// them the next repair completes the work.
func (c Repair) Parts() (all []Repair) {
	if c.Anew {
		all = append(all, Repair{Anew: true})
	}
	for drop := range slices.Chunk(c.Drop, repairRows) {
		all = append(all, Repair{Drop: drop})
	}
	for rows := range slices.Chunk(c.Blobs, repairRows) {
		all = append(all, Repair{Blobs: rows})
	}
	for rows := range slices.Chunk(c.Paths, repairRows) {
		all = append(all, Repair{Paths: rows})
	}
	for rows := range slices.Chunk(c.Keys, repairRows) {
		all = append(all, Repair{Keys: rows})
	}
	for rows := range slices.Chunk(c.Announced, repairRows) {
		all = append(all, Repair{Announced: rows})
	}
	return all
}

// Kind returns a name that is stored in the file.
func (Repair) Kind() string { return "edge.mend/1" }

// Apply drops and writes rows. It reads none, because a search may not find them.
func (c Repair) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	if c.Anew {
		w.Clear(bPaths)
		w.Clear(bBlobs)
		w.Clear(bKeys)
		w.Clear(bAnnounced)
	}
	for _, row := range c.Drop {
		for _, bucket := range Buckets() {
			if bucket.Name == row.Bucket {
				w.Delete(bucket, row.Key)
			}
		}
	}
	for _, row := range c.Paths {
		Paths.Put(w, PathKey(row.URL), row)
	}
	for _, b := range c.Blobs {
		Blobs.Put(w, b.Name, b.Row)
	}
	for _, k := range c.Keys {
		k.Row.put(w, k.URL, KeyRow{}, &Change{})
	}
	for _, a := range c.Announced {
		Announced.Put(w, a.Name, a.Row)
	}
	return struct{}{}, nil
}

// CheckNames returns an error if names of rows were lost: a search does not find these rows.
func CheckNames(r store.Reader) error { return store.CheckNames(r, 0, Buckets()...) }

// Redact returns row without the query of the URL with which the key of a row of edge/keys
// begins, for the log.
func Redact(row *store.RowError) *store.RowError {
	short := *row
	if row.Bucket == bKeys.Name {
		short.Key, _, _ = bytes.Cut(row.Key, []byte("?"))
	}
	return &short
}
