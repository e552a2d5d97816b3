package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/hashicorp/raft"

	"ronbox/store"
)

// fileID is the id of the one snapshot that there is: the file.
const fileID = "file"

// snapshots implements raft.SnapshotStore. The file of the node is its snapshot.
type snapshots struct{ n *Node }

// List implements raft.SnapshotStore.
func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	c := s.n.latest.Load()
	m, err := metaOf(s.n.store.Applied().Place, c.index, c.raw)
	if err != nil {
		return nil, err
	}
	return []*raft.SnapshotMeta{m}, nil
}

// metaOf describes a file with a place and a configuration.
func metaOf(at store.Place, index uint64, raw []byte) (*raft.SnapshotMeta, error) {
	c, err := decodeConfiguration(raw)
	if err != nil {
		return nil, err
	}
	return &raft.SnapshotMeta{
		Version:            raft.SnapshotVersionMax,
		ID:                 fileID,
		Index:              at.Index,
		Term:               at.Term,
		Configuration:      c,
		ConfigurationIndex: index,
	}, nil
}

// decodeConfiguration decodes a configuration of the file. Raft's decoder panics on a damaged one.
func decodeConfiguration(raw []byte) (c raft.Configuration, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: members: %v", store.ErrCorrupt, v)
		}
	}()
	return raft.DecodeConfiguration(raw), nil
}

// Open implements raft.SnapshotStore. It takes a verified snapshot of the file for one reader, so
// that no read transaction stays open while the file is sent. A snapshot that was just installed is
// opened by FSM.Restore, which reads nothing.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if id != fileID {
		return &raft.SnapshotMeta{ID: id}, io.NopCloser(bytes.NewReader(nil)), nil
	}
	shot, err := s.n.Shot(s.n.ctx)
	if err != nil {
		again := time.NewTimer(stallEvery) // raft tries again at once
		defer again.Stop()
		select {
		case <-again.C:
		case <-s.n.ctx.Done():
		}
		return nil, nil, err
	}
	m, err := metaOf(shot.Membership.Applied.Place, shot.Membership.Index, shot.Membership.Raw)
	var r *shotReader
	if err == nil {
		r, err = shot.stream()
	}
	if err != nil {
		return nil, nil, errors.Join(err, shot.Remove())
	}
	m.Size = r.size
	s.n.metrics.sent(1)
	return m, r, nil
}

// Create implements raft.SnapshotStore. A sink that is written installs a file of the leader. An
// empty sink moves the place of the file before raft truncates its log.
func (s *snapshots) Create(
	_ raft.SnapshotVersion,
	index, term uint64,
	_ raft.Configuration,
	_ uint64,
	_ raft.Transport,
) (raft.SnapshotSink, error) {
	return &sink{n: s.n, at: store.Place{Index: index, Term: term}}, nil
}

// Shot is a verified snapshot of the file in a folder of its own.
type Shot struct {
	Manifest   store.Manifest
	Membership store.Membership
	dir        string
}

// Shot takes a verified snapshot of the file, with its place and its members. The caller calls
// Remove. It returns [store.ErrBusy] while another snapshot is being taken, and [store.ErrFull] if
// the copy would take the space of the groups of this node.
func (n *Node) Shot(ctx context.Context) (*Shot, error) {
	if err := n.store.HoldsCopy(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(n.shots(), 0o700); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(n.shots(), "")
	if err != nil {
		return nil, err
	}
	s := &Shot{dir: dir}
	if s.Manifest, err = n.store.Snapshot(ctx, dir, store.SnapshotOptions{}, nil); err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	m, err := store.ReadMembership(s.Manifest.Path)
	if err == nil && m == nil {
		err = fmt.Errorf("%w: the snapshot has no members", store.ErrCorrupt)
	}
	if err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	s.Membership = *m
	return s, nil
}

// shots returns the folder of snapshots that are being sent. It is emptied at boot and by Close.
func (n *Node) shots() string { return filepath.Join(n.dataDir(), "cluster", "shots") }

// Remove deletes the snapshot.
func (s *Shot) Remove() error { return os.RemoveAll(s.dir) }

// shotReader reads what a sink writes: the length of the manifest, the manifest and the file.
type shotReader struct {
	io.Reader
	file *os.File
	shot *Shot
	size int64
}

// stream returns the bytes for a sink. Close removes the snapshot.
func (s *Shot) stream() (*shotReader, error) {
	manifest, err := json.Marshal(s.Manifest, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	f, err := os.Open(s.Manifest.Path)
	if err != nil {
		return nil, err
	}
	head := append(binary.BigEndian.AppendUint32(nil, uint32(len(manifest))), manifest...)
	return &shotReader{
		Reader: io.MultiReader(bytes.NewReader(head), f),
		file:   f,
		shot:   s,
		size:   int64(len(head)) + s.Manifest.Size,
	}, nil
}

// Close implements io.Closer.
func (r *shotReader) Close() error { return errors.Join(r.file.Close(), r.shot.Remove()) }
