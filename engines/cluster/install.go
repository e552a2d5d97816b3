package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"ronbox/appliance/host"
	"ronbox/store"
)

const (
	partialSuffix  = ".tmp" // of the install file while it is written; a boot removes it
	manifestSuffix = ".manifest.json"
	headSize       = 4        // length of the manifest
	maxManifest    = 16 << 20 // bytes
)

// sink implements raft.SnapshotSink.
type sink struct {
	n    *Node
	at   store.Place
	head []byte   // length and manifest, until they are complete
	file *os.File // nil until then
	done bool     // closed or canceled
}

// ID implements raft.SnapshotSink.
func (s *sink) ID() string { return fmt.Sprintf("install-%d-%d", s.at.Term, s.at.Index) }

// Write implements io.Writer.
func (s *sink) Write(p []byte) (int, error) {
	if s.file != nil {
		return s.file.Write(p)
	}
	s.head = append(s.head, p...)
	if len(s.head) < headSize {
		return len(p), nil
	}
	n := uint64(binary.BigEndian.Uint32(s.head)) + headSize
	if n > maxManifest {
		return 0, fmt.Errorf("install: a manifest of %d bytes", n)
	}
	if uint64(len(s.head)) < n {
		return len(p), nil
	}
	rest := s.head[n:]
	s.head = s.head[:n]
	var err error
	if s.file, err = os.OpenFile(s.partial(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return 0, err
	}
	if _, err = s.file.Write(rest); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *sink) partial() string {
	return s.n.installFile() + partialSuffix
}

// Cancel implements raft.SnapshotSink.
func (s *sink) Cancel() error {
	if s.done {
		return nil
	}
	s.done = true
	return s.discard()
}

// discard removes what was written.
func (s *sink) discard() error {
	if s.file == nil {
		return nil
	}
	return errors.Join(s.file.Close(), removeAll(s.partial(), s.partial()+manifestSuffix))
}

func removeAll(paths ...string) (err error) {
	for _, p := range paths {
		if e := os.Remove(p); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// Close implements io.Closer. It installs what was written. If nothing was, it moves the place of
// the file.
func (s *sink) Close() error {
	switch {
	case s.done:
		return nil
	case s.file == nil && len(s.head) > 0:
		return fmt.Errorf("install: the stream ends within the manifest: %w", store.ErrCorrupt)
	}
	s.done = true
	if s.file == nil {
		return s.n.movePlace(s.at)
	}
	if err := s.install(s.n.ctx); err != nil {
		s.n.log.Error("install_failed", "error", err)
		return errors.Join(err, s.discard())
	}
	s.n.metrics.installed(1)
	s.n.end(ReasonInstalled, nil)
	return nil
}

// movePlace moves the place of the file, so that the log may be truncated up to there. The place of
// a leader moves with its groups only.
func (n *Node) movePlace(at store.Place) error {
	if n.over() {
		return errClosed
	}
	if err := n.store.Follow(n.ctx, []store.Placed{{Place: at}}); err != nil {
		return err
	}
	if a := n.store.Applied(); a.Index < at.Index {
		return fmt.Errorf("cluster: the file is at %d, the log is not truncated up to %d", a.Index, at.Index)
	}
	return nil
}

// install verifies the file and gives it its name. A file with that name is complete: the next boot
// renames it to the database.
func (s *sink) install(ctx context.Context) error {
	path := s.partial()
	if err := s.file.Sync(); err != nil {
		return err
	}
	if err := os.WriteFile(path+manifestSuffix, s.head[headSize:], 0o600); err != nil {
		return err
	}
	rep, err := store.Verify(ctx, path, nil, nil, nil)
	if err == nil && !rep.OK {
		err = fmt.Errorf("install: %w: %s", store.ErrCorrupt, rep.Problem)
	}
	if err != nil {
		return err
	}
	m, err := store.ReadMembership(path)
	switch {
	case err != nil:
		return err
	case m == nil || m.Applied.Place != s.at:
		return fmt.Errorf("install: %w: the file is not the one at %d", store.ErrCorrupt, s.at.Index)
	}
	m.Applied.Origin = originInstall
	if err = store.SetMembership(path, m); err != nil {
		return err
	}
	if err = errors.Join(s.file.Close(), os.Remove(path+manifestSuffix)); err != nil {
		return err
	}
	if err = os.Rename(path, s.n.installFile()); err != nil {
		return err
	}
	return host.SyncDir(filepath.Dir(path))
}
