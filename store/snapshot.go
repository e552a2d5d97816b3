package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
)

// SnapshotOptions say what a snapshot is to be.
type SnapshotOptions struct {
	Compact  bool              // rows alone: no deleted data, no free pages; it takes longer
	Versions map[string]string // of the program and its parts, for the manifest; nil: none
	CAS      *CASList          // of what lies beside the file, for the manifest; nil: nothing
}

// Snapshot copies the state of one moment into dir (made if missing) while writers keep going, verifies the copy, and only then gives it
// its name and its manifest. It blocks for as long as that takes; progress, which may be nil, counts bytes, copying and checking each file
// once. A second one at the same time is ErrBusy; a copy that does not verify is kept as .bad and is ErrCorrupt; a store in memory gives
// none, ErrAmnesia. When ctx ends nothing is left behind.
func (s *Store) Snapshot(ctx context.Context, dir string, o SnapshotOptions, progress func(done, total int64)) (Manifest, error) {
	if s.opt.Memory != nil {
		return Manifest{}, fmt.Errorf("snapshot: %w", ErrAmnesia)
	}
	if err := s.readable(ctx); err != nil {
		return Manifest{}, err
	}
	if !s.copying.CompareAndSwap(false, true) {
		return Manifest{}, fmt.Errorf("a snapshot is being taken: %w", ErrBusy)
	}
	defer s.copying.Store(false)
	start := s.mono()
	slot := s.views.begin(start)
	at := s.now().UTC()
	shot := &shot{
		db: s.db, schema: s.schema, dir: dir, at: at, options: o, progress: progress, sound: s.Err,
		stem: "ronbox-" + at.Format("20060102T150405.000000000Z"), copied: func() { s.views.end(slot) },
		name: func(seq uint64) string { return fmt.Sprintf("ronbox-%s-%d.db", at.Format("20060102T150405.000Z"), seq) },
	}
	m, err := shot.take(ctx)
	if err = s.readError(err); err != nil {
		return Manifest{}, fmt.Errorf("snapshot: %w", err)
	}
	s.metrics.snapshot(time.Duration(s.mono() - start).Seconds())
	s.log.Info("snapshot_taken", "file", m.Path, "bytes", m.Size, "seq", m.Seq, "compacted", m.Compacted)
	return m, nil
}

// shot is one snapshot in the making.
type shot struct {
	db       *bolt.DB
	schema   schema
	dir      string
	stem     string // of the name while it is not done
	name     func(seq uint64) string
	at       time.Time
	options  SnapshotOptions
	progress func(done, total int64)
	copied   func()       // the read transaction has ended
	sound    func() error // a store that has failed meanwhile may have shown what is not on the disk
}

// take copies, verifies and publishes. The folder is locked against a sweep meanwhile, shared with other snapshots.
func (t *shot) take(ctx context.Context) (m Manifest, err error) {
	ended := false
	end := func() {
		if !ended && t.copied != nil {
			t.copied()
		}
		ended = true
	}
	defer end()
	folder, err := shareFolder(t.dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	partial := filepath.Join(t.dir, t.stem+".partial")
	defer func() { err = errors.Join(err, removeIfThere(partial)) }() // gone by then if it has another name
	if m, err = t.copyTo(ctx, partial); err != nil {
		return m, err
	}
	end()
	m.At, m.Versions, m.CAS, m.Compacted = t.at, t.options.Versions, t.options.CAS, t.options.Compact
	m.File = t.name(m.Seq)
	m.Path = filepath.Join(t.dir, m.File)
	m.ManifestPath = m.Path + manifestSuffix
	if err = vacant(m.Path); err != nil {
		return m, err
	}
	err = m.measure(ctx, partial, t.progress)
	if errors.Is(err, ErrCorrupt) {
		return m, errors.Join(err, os.Rename(partial, m.Path+".bad"))
	}
	if err = errors.Join(err, t.sound()); err != nil {
		return m, err
	}
	return m, m.publish(partial)
}

// publish gives the copy its name once the manifest is in place.
func (m Manifest) publish(partial string) error {
	err := m.write()
	if err == nil {
		err = os.Rename(partial, m.Path)
	}
	if err != nil {
		return errors.Join(err, removeIfThere(m.ManifestPath))
	}
	return SyncDir(filepath.Dir(m.Path))
}

// vacant refuses to write over a snapshot.
func vacant(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w", path, os.ErrExist)
	}
	return nil
}

// copyTo writes one read transaction, synced. It keeps that transaction open no longer than the copying takes.
func (t *shot) copyTo(ctx context.Context, path string) (m Manifest, err error) {
	err = readRows(t.db, t.schema, func(r *txReader) error {
		info, err := r.info()
		if err != nil {
			return err
		}
		m = Manifest{
			Format: manifestFormat, NodeID: info.NodeID, Incarnation: info.Incarnation, Schema: info.Schema, Seq: info.Seq,
			PageSize: PageSize, Size: r.tx.Size(),
		}
		if t.options.Compact {
			r.inside = true
			m.Size, err = rewrite(ctx, r.tx, path, m.Size, half(t.progress, 0))
			r.inside = false
			return err
		}
		m.B3, err = t.copyPages(ctx, r.tx, path)
		return err
	})
	if err == nil && t.options.Compact {
		m.B3, err = hashFile(path, &copier{ctx: ctx, hash: b3.New()})
	}
	return m, roomError(err)
}

// copyPages writes the pages of a transaction as they are.
func (t *shot) copyPages(ctx context.Context, tx *bolt.Tx, path string) (sum b3.Digest, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	c := &copier{ctx: ctx, to: f, hash: b3.New(), total: tx.Size(), progress: half(t.progress, 0)}
	_, err = tx.WriteTo(c)
	if c.err != nil {
		err = c.err
	}
	if err == nil {
		err = f.Sync()
	}
	return c.hash.Sum32(), err
}

// measure verifies the copy as it is on the disk and takes its counts and state hash.
func (m *Manifest) measure(ctx context.Context, path string, progress func(done, total int64)) error {
	if err := forget(path); err != nil {
		return err
	}
	v := &verifier{ctx: ctx, file: path, want: m, progress: half(progress, 1)}
	rep, err := v.run()
	if err != nil {
		return err
	}
	if !rep.OK {
		return fmt.Errorf("%w: the copy does not verify: %s", ErrCorrupt, rep.Problem)
	}
	m.Buckets, m.StateHash = rep.Buckets, rep.StateHash
	return nil
}
