package edge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/pack"
	"ronbox/store"
)

// Checks returns the check of the edge for a file: every row of the edge reads, and the rows are
// consistent.
func Checks() []store.Check {
	return []store.Check{{Name: service, Schema: 2, Run: func(r store.Reader) error {
		if err := readRows(r).fault(); err != nil {
			return err
		}
		if err := pack.Check(r); err != nil {
			return err
		}
		return checkUsage(r)
	}}}
}

// rows holds the content of edge/paths, edge/blobs, edge/keys and edge/announced.
type rows struct {
	paths map[b3.Digest]Stored  // sound rows, by their keys
	blobs map[b3.Digest]blobRow // sound rows, by their keys
	keys  map[string]keyRow     // sound rows, by their URLs
	refs  map[b3.Digest]int64   // number of rows of paths that lead to an object
	own   []namedAnnounced      // sound rows of announced
	bad   []*store.RowError     // rows that do not read
}

// readRows reads the buckets in the order of the file, so that a row with a changed key hides no
// other row.
func readRows(r store.Reader) *rows {
	s := &rows{
		paths: map[b3.Digest]Stored{},
		blobs: map[b3.Digest]blobRow{},
		keys:  map[string]keyRow{},
		refs:  map[b3.Digest]int64{},
	}
	read(r, bPaths, digests, &s.bad, func(key b3.Digest, row Stored) error {
		if key != pathKey(row.URL) || row.Size < 0 {
			return errors.New("the row does not belong to its key")
		}
		s.paths[key] = row
		s.refs[row.Digest]++
		return nil
	})
	read(r, bBlobs, digests, &s.bad, func(key b3.Digest, row blobRow) error {
		if row.Size < 0 {
			return errors.New("the size is negative")
		}
		s.blobs[key] = row
		return nil
	})
	read(r, bKeys, urlKeys, &s.bad, func(key urlKey, row keyRow) error {
		url := row.url(key)
		if key != keyOf(url) || row.Size < 0 || row.Lost && (!row.Pinned || row.Size != 0) {
			return errors.New("the row does not belong to its key")
		}
		s.keys[url] = row
		return nil
	})
	read(r, bAnnounced, digests, &s.bad, func(key b3.Digest, row announcedRow) error {
		s.own = append(s.own, namedAnnounced{key, row})
		return nil
	})
	return s
}

// read calls sound for every row of a bucket that decodes. It adds the other rows, and those for
// which sound returns an error, to bad.
func read[K, V any](r store.Reader, b *store.Bucket, keys store.Key[K], bad *[]*store.RowError,
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

// fault returns the first fault of the rows, or nil.
func (s *rows) fault() error {
	if len(s.bad) > 0 {
		return redactRow(s.bad[0])
	}
	for name, n := range s.refs {
		if b, known := s.blobs[name]; !known || b.Refs != n {
			return &store.RowError{
				Bucket: bBlobs.Name,
				Key:    name[:],
				Cause:  fmt.Errorf("%d rows of %s lead to it, it has %d", n, bPaths.Name, b.Refs),
			}
		}
	}
	for key, row := range s.paths {
		if b := s.blobs[row.Digest]; b.Size != row.Size {
			return &store.RowError{
				Bucket: bPaths.Name,
				Key:    key[:],
				Cause:  fmt.Errorf("it has %d bytes, its object %d", row.Size, b.Size),
			}
		}
	}
	for name := range s.blobs {
		if s.refs[name] == 0 {
			return &store.RowError{Bucket: bBlobs.Name, Key: name[:], Cause: errors.New("no URL leads to it")}
		}
	}
	for url, row := range s.keys { // a URL without a row is added at the next start
		if next, there := s.agreed(url, row); next != row || !there {
			return &store.RowError{
				Bucket: bKeys.Name,
				Key:    urlKeys.Append(nil, keyOf(url)),
				Cause:  fmt.Errorf("it contradicts %s", bPaths.Name),
			}
		}
	}
	return nil
}

// agreed returns the row of edge/keys that is consistent with edge/paths, or false if there is
// none.
func (s *rows) agreed(url string, row keyRow) (next keyRow, there bool) {
	stored, known := s.paths[pathKey(url)]
	if next = row; known {
		next.Size, next.Lost = stored.Size, false
	} else {
		next.Size, next.Lost = 0, true
	}
	return next, known || row.Pinned
}

// repairs returns the command that makes the rows sound, and the objects that lose their row. It
// derives a missing or wrong row of blobs from the rows of paths.
func (s *rows) repairs() (c repairCmd, lost []b3.Digest) {
	for _, row := range s.bad {
		c.Drop = append(c.Drop, rawRow{row.Bucket, row.Key})
	}
	for name := range s.blobs {
		if s.refs[name] == 0 {
			lost = append(lost, name)
			c.Drop = append(c.Drop, rawRow{bBlobs.Name, bytes.Clone(name[:])})
			delete(s.blobs, name)
		}
	}
	for _, row := range s.paths {
		want := blobRow{Size: row.Size, Type: row.Type, Refs: s.refs[row.Digest]}
		has, known := s.blobs[row.Digest]
		if known {
			want.Type = has.Type
		}
		if has != want {
			s.blobs[row.Digest] = want
			c.Blobs = append(c.Blobs, namedBlob{row.Digest, want})
		}
	}
	for _, row := range s.paths {
		if _, listed := s.keys[row.URL]; !listed {
			s.keys[row.URL] = keyRow{Size: -1, Tail: row.URL[min(len(row.URL), keyHead):]}
		}
	}
	for url, row := range s.keys {
		switch next, there := s.agreed(url, row); {
		case !there:
			delete(s.keys, url)
			c.Drop = append(c.Drop, rawRow{bKeys.Name, urlKeys.Append(nil, keyOf(url))})
		case next != row:
			s.keys[url] = next
			c.Keys = append(c.Keys, namedKey{url, next})
		}
	}
	c.sort()
	return c, lost
}

// sort sorts the rows of c, so that their order does not depend on maps.
func (c *repairCmd) sort() {
	slices.SortFunc(c.Paths, func(a, b Stored) int { return cmp.Compare(a.URL, b.URL) })
	slices.SortFunc(c.Blobs, func(a, b namedBlob) int { return bytes.Compare(a.Name[:], b.Name[:]) })
	slices.SortFunc(c.Keys, func(a, b namedKey) int { return cmp.Compare(a.URL, b.URL) })
}

// whole returns the command that rewrites the buckets.
func (s *rows) whole() repairCmd {
	c := repairCmd{Anew: true, Announced: s.own}
	for _, row := range s.paths {
		c.Paths = append(c.Paths, row)
	}
	for name, row := range s.blobs {
		c.Blobs = append(c.Blobs, namedBlob{name, row})
	}
	for url, row := range s.keys {
		c.Keys = append(c.Keys, namedKey{url, row})
	}
	c.sort()
	return c
}

// tally counts the content by the rows.
func (s *rows) tally() (t tally) {
	for _, b := range s.blobs {
		t.add(tally{bytes: b.Size, objects: 1, urls: b.Refs})
	}
	for _, row := range s.keys {
		t.add(row.pins())
	}
	return t
}

// repairCmd drops rows that do not read and replaces inconsistent ones. If Anew is set, it clears
// the buckets first, because a search does not find a row with a changed key.
type repairCmd struct {
	Anew  bool
	Drop  []rawRow
	Paths []Stored
	Blobs []namedBlob
	Keys  []namedKey

	Announced []namedAnnounced
}

type rawRow struct {
	Bucket string
	Key    []byte
}

type namedBlob struct {
	Name b3.Digest
	Row  blobRow
}

type namedKey struct {
	URL string
	Row keyRow
}

type namedAnnounced struct {
	Name b3.Digest
	Row  announcedRow
}

// repairRows bounds the rows that one command of a repair writes, so that commands of other
// services can run in between.
const repairRows = 1000

// parts splits c into commands of at most repairRows rows, in order. After a crash between two of
// them the next repair completes the work.
func (c repairCmd) parts() (all []repairCmd) {
	if c.Anew {
		all = append(all, repairCmd{Anew: true})
	}
	for drop := range slices.Chunk(c.Drop, repairRows) {
		all = append(all, repairCmd{Drop: drop})
	}
	for rows := range slices.Chunk(c.Blobs, repairRows) {
		all = append(all, repairCmd{Blobs: rows})
	}
	for rows := range slices.Chunk(c.Paths, repairRows) {
		all = append(all, repairCmd{Paths: rows})
	}
	for rows := range slices.Chunk(c.Keys, repairRows) {
		all = append(all, repairCmd{Keys: rows})
	}
	for rows := range slices.Chunk(c.Announced, repairRows) {
		all = append(all, repairCmd{Announced: rows})
	}
	return all
}

func (repairCmd) Kind() string { return "edge.mend/1" }

func (c repairCmd) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
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
		paths.Put(w, pathKey(row.URL), row)
	}
	for _, b := range c.Blobs {
		blobs.Put(w, b.Name, b.Row)
	}
	for _, k := range c.Keys {
		k.Row.put(w, k.URL, keyRow{}, &change{})
	}
	for _, a := range c.Announced {
		announced.Put(w, a.Name, a.Row)
	}
	return struct{}{}, nil
}

// redactRow returns row without the query of the URL with which the key of a row of edge/keys
// begins, for the log.
func redactRow(row *store.RowError) *store.RowError {
	short := *row
	if row.Bucket == bKeys.Name {
		short.Key, _, _ = bytes.Cut(row.Key, []byte("?"))
	}
	return &short
}

// repair drops the rows that do not read and makes the others consistent. Lost objects can be
// fetched again; the file of an object without a row is set aside. It is called by Recover and
// afterwards only by the task cas_writer. It returns an error if bad rows remain.
func (e *Engine) repair(ctx context.Context) error {
	var found *rows
	var lost error // names that were lost; only rows that are written anew have all of them
	look := func() error {
		return e.d.Store.View(ctx, func(r store.Reader) error {
			found, lost = readRows(r), store.CheckNames(r, 0, bPaths, bBlobs, bKeys, bAnnounced)
			return nil
		})
	}
	err := look()
	if err != nil || found.fault() == nil {
		return err
	}
	for _, row := range found.bad {
		e.damaged("row", redactRow(row).Error())
	}
	var all []b3.Digest
	for _, anew := range []bool{false, true} {
		cmd, gone := found.repairs()
		if anew {
			cmd = found.whole()
		}
		all = append(all, gone...)
		if len(found.bad) == 0 && !anew {
			n := len(cmd.Blobs) + len(cmd.Keys) + len(gone)
			e.damaged("row", fmt.Sprintf("%d rows contradict those of %s", n, bPaths.Name))
		}
		for _, part := range cmd.parts() {
			if _, err = store.Commit(ctx, e.d.Store, store.Work, part); err != nil {
				break
			}
		}
		if err == nil {
			err = look()
		}
		if err == nil {
			err = cmp.Or(found.fault(), lost)
		}
		if err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("rows of the edge stay damaged: %w", err)
	}
	e.room.set(found.tally())
	e.epoch.Add(1)
	for _, name := range all {
		if _, stored := found.blobs[name]; !stored {
			e.sums.forget(name)
			err = errors.Join(err, e.cas.Quarantine(name))
		}
	}
	return err
}
