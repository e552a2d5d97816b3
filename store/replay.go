package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
)

// Replay brings a file that no process uses, a copy of a snapshot, to a later position, with the
// entries that a [Tap] was given. Only one goroutine may use it.
type Replay struct {
	db       *bolt.DB
	path     string
	info     Info
	declared []*Bucket
	last     *b3.Digest // sum of the entry before the next one; nil: none was read
}

// OpenReplay opens a copy of a snapshot. It returns ErrSchema if another release wrote it.
func OpenReplay(path string) (*Replay, error) {
	db, err := openBolt(path, &opening{noSync: true})
	if err != nil {
		return nil, err
	}
	r := &Replay{db: db, path: path}
	err = guarded(func() error {
		return db.View(func(tx *bolt.Tx) (err error) {
			if r.info, err = readInfo(tx); err != nil {
				return err
			}
			r.declared, err = readBuckets(tx)
			return err
		})
	})
	if err == nil && r.info.Schema != Schema {
		err = fmt.Errorf("%w: %s has schema %d, and entries lead only to files of schema %d", ErrSchema, path,
			r.info.Schema, Schema)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return r, nil
}

// Info returns the identity and position of the file.
func (r *Replay) Info() Info { return r.info }

// Apply applies consecutive entries in one transaction, which is synced by Publish. Entries that
// the file has are skipped. It returns ErrDiverged unless the others follow the file and each
// other, ErrFormat if the file lacks one of their buckets, and ErrCorrupt for a damaged entry.
func (r *Replay) Apply(entries [][]byte) error {
	var es []entry
	at, last := r.info.position(), r.last
	for _, raw := range entries {
		e, err := parseEntry(raw, MaxTapped)
		if err == nil {
			err = r.knows(&e)
		}
		if err == nil && last != nil && e.prev != *last {
			err = fmt.Errorf("%w: it follows entry %s, not %s", ErrDiverged, e.prev, last)
		}
		last = &e.sum
		switch {
		case err == nil && e.to.seq <= r.info.Seq && len(es) == 0:
			if e.to.seq == at.seq && e.to != at {
				err = fmt.Errorf("%w: it leads to another command %d than the file has", ErrDiverged, at.seq)
			}
		case err == nil && e.from != at:
			err = fmt.Errorf("%w: it begins at command %d, the file is at command %d", ErrDiverged, e.from.seq, at.seq)
		default:
			es, at = append(es, e), e.to
		}
		if err != nil {
			return fmt.Errorf("entry to command %d: %w", e.to.seq, err)
		}
	}
	r.last = last
	if len(es) == 0 {
		return nil
	}
	return guarded(func() error {
		return update(r.db, func(tx *bolt.Tx) (err error) {
			r.info, err = applyEntries(tx, es, r.declared, at)
			return err
		})
	})
}

// knows returns ErrFormat if e has rows of a bucket that the file does not declare.
func (r *Replay) knows(e *entry) error {
	for _, o := range e.ops {
		known := false
		for _, b := range r.declared {
			known = known || b.Name == o.bucket && b.Subs == (o.sub != "")
		}
		if !known {
			return fmt.Errorf("%w: the file has no bucket %q", ErrFormat, o.bucket)
		}
	}
	return nil
}

// Close closes the file, which has no use then.
func (r *Replay) Close() error { return r.db.Close() }

// Publish syncs and closes the file, verifies it with the given checks, and gives it a manifest and
// the name of a snapshot, in its folder. The result is the file of a node alone. progress, which
// may be nil, counts bytes over two passes. Publish returns ErrCorrupt if the file does not verify.
func (r *Replay) Publish(
	ctx context.Context, versions map[string]string, checks []Check, progress func(done, total int64),
) (m Manifest, err error) {
	m = Manifest{
		Format: manifestFormat, NodeID: r.info.NodeID, Incarnation: r.info.Incarnation, Schema: r.info.Schema,
		Seq: r.info.Seq, At: time.Unix(0, r.info.At).UTC(), PageSize: PageSize, Versions: versions,
	}
	err = guarded(func() error {
		return update(r.db, func(tx *bolt.Tx) error {
			// its place in a log is that of the snapshot
			return errors.Join(writeMembership(localRows(tx), nil), putClean(tx, true))
		})
	})
	if err == nil {
		err = r.db.View(func(tx *bolt.Tx) error {
			m.Size = tx.Size()
			return nil
		})
	}
	if err = errors.Join(err, r.db.Close()); err == nil {
		err = trim(r.path, m.Size)
	}
	if err != nil {
		return m, roomError(err)
	}
	c := &copier{ctx: ctx, hash: b3.New(), total: m.Size, progress: halfProgress(progress, 0)}
	if m.B3, err = hashFile(r.path, c); err != nil {
		return m, err
	}
	m.File = fmt.Sprintf("ronbox-%s-%d.db", m.At.Format("20060102T150405.000Z"), m.Seq)
	m.Path = filepath.Join(filepath.Dir(r.path), m.File)
	m.ManifestPath = m.Path + manifestSuffix
	if err = vacant(m.Path); err == nil {
		err = m.measure(ctx, r.path, checks, progress)
	}
	if err != nil {
		return m, err
	}
	return m, m.publish(r.path)
}
