package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// Create makes a new file: built beside its place, synced, renamed, the folder synced, since bbolt does not survive a power cut during
// its very first write. It makes the folder (0700) too. An existing file is fs.ErrExist.
func Create(path string, id Identity) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	info := Info{NodeID: id.NodeID, Incarnation: id.Incarnation, Schema: Schema, CreatedAt: id.CreatedAt.UnixNano(), AuthEpoch: 1, Clean: true}
	if err := build(fresh, info); err != nil {
		return errors.Join(fmt.Errorf("create %s: %w", path, err), os.Remove(fresh))
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func build(path string, info Info) error {
	db, err := openBolt(path, opening{fresh: true})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		if err := writeInfo(tx, info); err != nil {
			return err
		}
		_, err := tx.CreateBucketIfNotExists([]byte(auditBucket.Name))
		return err
	})
	if err == nil {
		err = db.Sync()
	}
	return errors.Join(err, db.Close())
}
