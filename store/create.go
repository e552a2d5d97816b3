package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	bolt "go.etcd.io/bbolt"
)

// Create makes a new file: built beside its place, synced, renamed, the folder synced, since bbolt does not survive a power cut during
// its very first write. It makes the folder (0700) too. An existing file is fs.ErrExist; ErrLocked is another process at it, ErrFull a disk
// without room.
func Create(path string, id Identity) (err error) {
	folder, err := lockFolder(path)
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	if _, err := os.Lstat(path); err == nil {
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	fresh := path + newSuffix
	if err := removeIfThere(fresh); err != nil {
		return err
	}
	if err = build(fresh, newInfo(id, Schema)); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("create %s: %w", path, roomError(err)), removeIfThere(fresh))
	}
	return folder.Sync()
}

func build(path string, info Info) error {
	db, err := openBolt(path, &opening{fresh: true})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error { return firstRows(tx, info) })
	if err == nil {
		err = db.Sync()
	}
	return errors.Join(err, db.Close())
}

// newInfo is what a new file says of itself.
func newInfo(id Identity, schema int) Info {
	return Info{
		NodeID: id.NodeID, Incarnation: id.Incarnation, Schema: schema, CreatedAt: id.CreatedAt.UnixNano(), AuthEpoch: 1, Clean: true,
		AuditFirst: 1,
	}
}

// firstRows makes the store's own buckets.
func firstRows(tx *bolt.Tx, info Info) error {
	if err := writeInfo(tx, info); err != nil {
		return err
	}
	_, err := tx.CreateBucketIfNotExists([]byte(auditBucket.Name))
	return err
}
