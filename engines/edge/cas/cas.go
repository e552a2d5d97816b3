package cas

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// ErrCorrupt is returned for a file whose bytes are not those of its name.
var ErrCorrupt = errors.New("cas: file does not hold what its name says")

// CorruptError describes a file that is ErrCorrupt.
type CorruptError struct {
	Name   b3.Digest
	Reason string
	File   fs.FileInfo // of the file that was read
}

func (e *CorruptError) Error() string { return fmt.Sprintf("%v: %s: %s", ErrCorrupt, e.Name, e.Reason) }

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Dir is a folder of objects: b3/<2 hex>/<62 hex>, tmp and quarantine.
type Dir struct {
	root  string
	fault func(op string) error
}

// New returns the content store in root. It does no I/O. Fault, which may be nil, is asked before each change of a
// file: create, write, seal, place, sync, remove, set aside.
func New(root string, fault func(op string) error) *Dir {
	if fault == nil {
		fault = func(string) error { return nil }
	}
	return &Dir{root: root, fault: fault}
}

// Prepare makes the folders, and removes what a crash has left in tmp.
func (d *Dir) Prepare() error {
	err := os.RemoveAll(filepath.Join(d.root, "tmp"))
	for _, dir := range []string{"b3", "tmp", "quarantine"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(d.root, dir), 0o700))
	}
	for i := range 256 {
		dir := filepath.Join(d.root, "b3", hex.EncodeToString([]byte{byte(i)}))
		if bad := os.Mkdir(dir, 0o700); !errors.Is(bad, fs.ErrExist) {
			err = errors.Join(err, bad)
		}
	}
	return errors.Join(err, store.SyncDir(filepath.Join(d.root, "b3")))
}

func (d *Dir) path(name b3.Digest) string {
	text := hex.EncodeToString(name[:])
	return filepath.Join(d.root, "b3", text[:2], text[2:])
}

// Temp is an object that is being written. After Seal, Place gives it its name; Drop gives it up.
type Temp struct {
	f     *os.File
	hash  *b3.Hasher
	size  int64
	fault func(op string) error
	reach func(size int64) error
}

// Create begins an object. Reach is asked before it grows to a size; nil: nobody is.
func (d *Dir) Create(reach func(size int64) error) (*Temp, error) {
	if err := d.fault("create"); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Join(d.root, "tmp"), "fill-*")
	if err != nil {
		return nil, err
	}
	return &Temp{f: f, hash: b3.New(), fault: d.fault, reach: reach}, nil
}

// Write appends to the object.
func (t *Temp) Write(p []byte) (int, error) {
	err := t.fault("write")
	if err == nil && t.reach != nil {
		err = t.reach(t.size + int64(len(p)))
	}
	if err != nil {
		return 0, err
	}
	n, err := t.f.Write(p)
	_, _ = t.hash.Write(p[:n])
	t.size += int64(n)
	return n, err
}

// Sum is the digest of what has been written, and how many bytes that is.
func (t *Temp) Sum() (b3.Digest, int64) { return t.hash.Sum32(), t.size }

// Seal brings the object to the disk, so that it may be given its name.
func (t *Temp) Seal() error {
	err := t.fault("seal")
	if err == nil {
		err = errors.Join(t.f.Chmod(0o440), t.f.Sync())
	}
	return errors.Join(err, t.f.Close())
}

// Drop gives the object up. It does nothing to one that has its name.
func (t *Temp) Drop() {
	_ = t.f.Close()
	_ = os.Remove(t.f.Name())
}

// Place gives a sealed object its name, in the place of a file that has it. Sync makes it last.
func (d *Dir) Place(t *Temp) error {
	if err := d.fault("place"); err != nil {
		return err
	}
	return os.Rename(t.f.Name(), d.path(t.hash.Sum32()))
}

// Sync brings the names of objects to the disk.
func (d *Dir) Sync(names ...b3.Digest) error {
	if err := d.fault("sync"); err != nil {
		return err
	}
	var err error
	done := map[byte]bool{}
	for _, name := range names {
		if !done[name[0]] {
			done[name[0]] = true
			err = errors.Join(err, store.SyncDir(filepath.Dir(d.path(name))))
		}
	}
	return err
}

// Open opens an object. It returns fs.ErrNotExist for one that is not there and a [CorruptError] for one of another size. It does not look at the
// bytes.
func (d *Dir) Open(name b3.Digest, size int64) (*os.File, error) {
	f, _, err := d.open(name, size)
	return f, err
}

func (d *Dir) open(name b3.Digest, size int64) (*os.File, fs.FileInfo, error) {
	f, err := os.Open(d.path(name))
	if err != nil {
		return nil, nil, err
	}
	at, err := f.Stat()
	if err == nil && at.Size() != size {
		err = &CorruptError{Name: name, Reason: fmt.Sprintf("it has %d bytes, not %d", at.Size(), size), File: at}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, at, nil
}

const errBytes = "its bytes have another hash"

// Read returns the bytes of an object after it has hashed them. It returns fs.ErrNotExist or a [CorruptError].
func (d *Dir) Read(name b3.Digest, size int64) ([]byte, error) {
	f, at, err := d.open(name, size)
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if _, err = io.ReadFull(f, b); (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) && b3.Sum(b) != name {
		err = &CorruptError{Name: name, Reason: errBytes, File: at}
	}
	return b, errors.Join(err, f.Close())
}

// verifyPiece is how much Verify reads at a time.
const verifyPiece = 1 << 20

// Verify hashes an object piece by piece, and calls piece after each one with its length; an error of piece ends it. It returns nil,
// fs.ErrNotExist, a [CorruptError], or the error of piece.
func (d *Dir) Verify(name b3.Digest, size int64, piece func(n int) error) error {
	f, at, err := d.open(name, size)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	hash, buf := b3.New(), make([]byte, min(verifyPiece, size+1))
	for err == nil {
		var n int
		n, err = io.ReadFull(f, buf)
		_, _ = hash.Write(buf[:n])
		if bad := piece(n); bad != nil {
			return bad
		}
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if hash.Sum32() != name {
		return &CorruptError{Name: name, Reason: errBytes, File: at}
	}
	return nil
}

// Holds reports whether the name of an object still stands for the file at.
func (d *Dir) Holds(name b3.Digest, at fs.FileInfo) bool {
	now, err := os.Stat(d.path(name))
	return err == nil && os.SameFile(now, at)
}

// Use notes that an object is used. A disk that is read-only does not keep it.
func (d *Dir) Use(name b3.Digest, now time.Time) { _ = os.Chtimes(d.path(name), now, now) }

// Used is when an object was used last; zero: it is not there.
func (d *Dir) Used(name b3.Digest) time.Time {
	if at, err := os.Stat(d.path(name)); err == nil {
		return at.ModTime()
	}
	return time.Time{}
}

// Remove takes an object away. One that is not there is no fault.
func (d *Dir) Remove(name b3.Digest) error {
	if err := d.fault("remove"); err != nil {
		return err
	}
	return unlessMissing(os.Remove(d.path(name)))
}

// Quarantine takes an object out of its place and keeps it for a look, in one of 16 places, which an older one leaves for it. One that is not
// there is no fault.
func (d *Dir) Quarantine(name b3.Digest) error {
	if err := d.fault("set aside"); err != nil {
		return err
	}
	return unlessMissing(os.Rename(d.path(name), filepath.Join(d.root, "quarantine", hex.EncodeToString(name[:1])[:1])))
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Walk visits every file below b3 in the order of the names; the zero Digest is one that is no object's. It ends with the first error of visit,
// or when ctx ends.
func (d *Dir) Walk(ctx context.Context, visit func(path string, name b3.Digest) error) error {
	return filepath.WalkDir(filepath.Join(d.root, "b3"), func(path string, f fs.DirEntry, err error) error {
		if err = errors.Join(err, context.Cause(ctx)); err != nil || f.IsDir() {
			return err
		}
		name, err := b3.Parse("b3:" + filepath.Base(filepath.Dir(path)) + f.Name())
		if err != nil || path != d.path(name) {
			name = b3.Digest{}
		}
		return visit(path, name)
	})
}

// scrubbed is a file whose time is that of the last scrub.
const scrubbed = "scrubbed"

// NoteScrub records that all objects have been verified as of now.
func (d *Dir) NoteScrub(now time.Time) error {
	path := filepath.Join(d.root, scrubbed)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Chtimes(path, now, now))
}

// LastScrub returns the time that NoteScrub recorded last, zero if it recorded none.
func (d *Dir) LastScrub() time.Time {
	if at, err := os.Stat(filepath.Join(d.root, scrubbed)); err == nil {
		return at.ModTime()
	}
	return time.Time{}
}

// Free is how many bytes the disk has left.
func (d *Dir) Free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(d.root, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: d.root, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil
}
