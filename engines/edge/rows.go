package edge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// Checks returns the edge's step of a check of a file: every row of the edge reads, and the rows agree with each other.
func Checks() []store.Check {
	return []store.Check{{Name: service, Schema: 2, Run: func(r store.Reader) error {
		if err := readRows(r).fault(); err != nil {
			return err
		}
		return checkPacks(r)
	}}}
}

// rows is the content of edge/paths and edge/blobs.
type rows struct {
	paths map[b3.Digest]Stored  // sound rows, by their keys
	blobs map[b3.Digest]blobRow // sound rows, by their keys
	refs  map[b3.Digest]int64   // rows of paths that lead to an object
	bad   []*store.RowError     // rows that do not read
}

// readRows reads both buckets in the order of the file, so that a row whose key was changed hides no other.
func readRows(r store.Reader) *rows {
	s := &rows{paths: map[b3.Digest]Stored{}, blobs: map[b3.Digest]blobRow{}, refs: map[b3.Digest]int64{}}
	read(r, bPaths, &s.bad, func(key b3.Digest, row Stored) error {
		if key != pathKey(row.URL) || row.Size < 0 {
			return errors.New("the row is not of this key")
		}
		s.paths[key] = row
		s.refs[row.Digest]++
		return nil
	})
	read(r, bBlobs, &s.bad, func(key b3.Digest, row blobRow) error {
		if row.Size < 0 {
			return errors.New("the size is negative")
		}
		s.blobs[key] = row
		return nil
	})
	return s
}

// read calls sound for every row of a bucket that decodes, and records the others, and those that sound refuses, in bad.
func read[V any](r store.Reader, b *store.Bucket, bad *[]*store.RowError, sound func(b3.Digest, V) error) {
	decode := store.CBOR[V]().Decode
	var last []byte // key of the last sound row
	for raw, row := range r.Range(b, nil, nil) {
		value, err := store.CutSum(raw, row)
		var key b3.Digest
		var v V
		if err == nil {
			key, err = store.Array32[b3.Digest]().Decode(raw)
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

// fault returns the first fault of the rows, nil if there is none.
func (s *rows) fault() error {
	if len(s.bad) > 0 {
		return s.bad[0]
	}
	for name, n := range s.refs {
		if b, known := s.blobs[name]; !known || b.Refs != n {
			return &store.RowError{Bucket: bBlobs.Name, Key: name[:], Cause: fmt.Errorf("%d rows of %s lead to it, it has %d", n, bPaths.Name, b.Refs)}
		}
	}
	for key, row := range s.paths {
		if b := s.blobs[row.Digest]; b.Size != row.Size {
			return &store.RowError{Bucket: bPaths.Name, Key: key[:], Cause: fmt.Errorf("it has %d bytes, its object %d", row.Size, b.Size)}
		}
	}
	for name := range s.blobs {
		if s.refs[name] == 0 {
			return &store.RowError{Bucket: bBlobs.Name, Key: name[:], Cause: errors.New("no URL leads to it")}
		}
	}
	return nil
}

// mended returns the changes after which the rows are sound, and the objects that lose their row. A row of blobs that is missing or wrong is made
// from the paths that lead to it.
func (s *rows) mended() (c mendCmd, lost []b3.Digest) {
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
	slices.SortFunc(c.Blobs, func(a, b namedBlob) int { return bytes.Compare(a.Name[:], b.Name[:]) })
	return c, lost
}

// whole returns the command that writes both buckets anew.
func (s *rows) whole() mendCmd {
	c := mendCmd{Anew: true}
	for _, row := range s.paths {
		c.Paths = append(c.Paths, row)
	}
	for name, row := range s.blobs {
		c.Blobs = append(c.Blobs, namedBlob{name, row})
	}
	slices.SortFunc(c.Paths, func(a, b Stored) int { return cmp.Compare(a.URL, b.URL) })
	slices.SortFunc(c.Blobs, func(a, b namedBlob) int { return bytes.Compare(a.Name[:], b.Name[:]) })
	return c
}

// tally returns what the rows say is stored.
func (s *rows) tally() (t tally) {
	for _, b := range s.blobs {
		t.add(tally{b.Size, 1, b.Refs})
	}
	return t
}

// mendCmd drops rows that do not read and writes rows that contradict others. Anew, it begins with empty buckets: a row with a changed key may
// stand where a search for the key does not lead.
type mendCmd struct {
	Anew  bool
	Drop  []rawRow
	Paths []Stored
	Blobs []namedBlob
}

type rawRow struct {
	Bucket string
	Key    []byte
}

type namedBlob struct {
	Name b3.Digest
	Row  blobRow
}

// mendRows bounds the rows that one command of a repair writes, so that the commands of other services get in between.
const mendRows = 1000

// parts splits c into commands of at most mendRows rows, in order. A crash between two of them leaves rows that the next repair makes agree.
func (c mendCmd) parts() (all []mendCmd) {
	if c.Anew {
		all = append(all, mendCmd{Anew: true})
	}
	for drop := range slices.Chunk(c.Drop, mendRows) {
		all = append(all, mendCmd{Drop: drop})
	}
	for rows := range slices.Chunk(c.Blobs, mendRows) {
		all = append(all, mendCmd{Blobs: rows})
	}
	for rows := range slices.Chunk(c.Paths, mendRows) {
		all = append(all, mendCmd{Paths: rows})
	}
	return all
}

func (mendCmd) Kind() string { return "edge.mend/1" }

func (c mendCmd) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	if c.Anew {
		w.Clear(bPaths)
		w.Clear(bBlobs)
	}
	for _, row := range c.Drop {
		bucket := bPaths
		if row.Bucket == bBlobs.Name {
			bucket = bBlobs
		}
		w.Delete(bucket, row.Key)
	}
	for _, row := range c.Paths {
		paths.Put(w, pathKey(row.URL), row)
	}
	for _, b := range c.Blobs {
		blobs.Put(w, b.Name, b.Row)
	}
	return struct{}{}, nil
}

// mend drops the rows that do not read, and makes the others agree. What is lost can be fetched again; a file without a row is set aside. It is
// called by Recover, then by the task cas_writer alone. It returns an error if rows are still bad after it.
func (e *Engine) mend(ctx context.Context) error {
	var found *rows
	look := func() error {
		return e.d.Store.View(ctx, func(r store.Reader) error { found = readRows(r); return nil })
	}
	err := look()
	if err != nil || found.fault() == nil {
		return err
	}
	for _, row := range found.bad {
		e.damaged("row", row.Error())
	}
	var all []b3.Digest
	for _, anew := range []bool{false, true} {
		cmd, lost := found.mended()
		if anew {
			cmd = found.whole()
		}
		if all = append(all, lost...); len(found.bad) == 0 && !anew {
			e.damaged("row", fmt.Sprintf("%d rows of %s contradict those of %s", len(cmd.Blobs)+len(lost), bBlobs.Name, bPaths.Name))
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
			err = found.fault()
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
