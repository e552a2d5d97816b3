package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ronbox/appliance/b3"
)

// Snapshot copies the state of one moment into dir (made if missing) while writers keep going, verifies the copy, and only then gives it
// its name and its manifest. It blocks for as long as that takes; progress, which may be nil, counts bytes, copying and checking each file
// once. A second one at the same time is ErrBusy; a copy that does not verify is kept as .bad and is ErrCorrupt. When ctx ends nothing is
// left behind.
func (s *Store) Snapshot(ctx context.Context, dir string, progress func(done, total int64)) (Manifest, error) {
	if err := s.readable(ctx); err != nil {
		return Manifest{}, err
	}
	if !s.copying.CompareAndSwap(false, true) {
		return Manifest{}, fmt.Errorf("a snapshot is being taken: %w", ErrBusy)
	}
	defer s.copying.Store(false)
	start := s.mono()
	if err := makeDir(dir); err != nil {
		return Manifest{}, err
	}
	m, err := s.snapshot(ctx, dir, progress)
	if err = s.readError(err); err != nil {
		return Manifest{}, fmt.Errorf("snapshot: %w", err)
	}
	s.metrics.snapshot(time.Duration(s.mono() - start).Seconds())
	s.log.Info("snapshot_taken", "file", m.Path, "bytes", m.Size, "seq", m.Seq)
	return m, nil
}

func (s *Store) snapshot(ctx context.Context, dir string, progress func(done, total int64)) (m Manifest, err error) {
	at := s.now().UTC()
	partial := filepath.Join(dir, fmt.Sprintf("ronbox-%s.partial", at.Format("20060102T150405.000000000Z")))
	defer func() { err = errors.Join(err, removeIfThere(partial)) }() // gone by then if it has another name
	if m, err = s.copyTo(ctx, partial, progress); err != nil {
		return m, err
	}
	m.At = at
	m.File = fmt.Sprintf("ronbox-%s-%d.db", at.Format("20060102T150405.000Z"), m.Seq)
	m.Path = filepath.Join(dir, m.File)
	m.ManifestPath = m.Path + manifestSuffix
	if err = vacant(m.Path); err != nil {
		return m, err
	}
	err = m.measure(ctx, partial, progress)
	if errors.Is(err, ErrCorrupt) {
		return m, errors.Join(err, os.Rename(partial, partial+".bad"))
	}
	if err = errors.Join(err, s.Err()); err != nil { // a store that has failed meanwhile may have shown what is not on the disk
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
	return syncDir(filepath.Dir(m.Path))
}

// vacant refuses to write over a snapshot.
func vacant(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w", path, os.ErrExist)
	}
	return nil
}

// copyTo writes the pages of one read transaction, synced. It keeps that transaction open no longer than the copying takes.
func (s *Store) copyTo(ctx context.Context, path string, progress func(done, total int64)) (m Manifest, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	slot := s.views.begin(s.mono())
	defer s.views.end(slot)
	c := &copier{ctx: ctx, to: f, hash: b3.New()}
	err = readRows(s.db, s.schema, func(r *txReader) error {
		info, err := r.info()
		if err != nil {
			return err
		}
		m = Manifest{
			Format: manifestFormat, NodeID: info.NodeID, Incarnation: info.Incarnation, Schema: info.Schema, Seq: info.Seq,
			PageSize: PageSize, Size: r.tx.Size(),
		}
		c.total, c.progress = 2*m.Size, progress
		_, err = r.tx.WriteTo(c)
		return err
	})
	if c.err != nil {
		err = c.err
	}
	if err != nil {
		return m, err
	}
	m.B3 = c.hash.Sum32()
	return m, f.Sync()
}

// measure verifies the copy as it is on the disk and takes its counts and state hash.
func (m *Manifest) measure(ctx context.Context, path string, progress func(done, total int64)) error {
	if err := forget(path); err != nil {
		return err
	}
	v := &verifier{ctx: ctx, file: path, want: m, progress: func(done, total int64) {
		if progress != nil {
			progress(total+done, 2*total)
		}
	}}
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
