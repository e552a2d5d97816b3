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
	"ronbox/appliance/host"
)

// ErrCorrupt is returned if the bytes of a file do not match its name.
var ErrCorrupt = errors.New("cas: the bytes of the file do not match its name")

// CorruptError describes a corrupt file. It matches ErrCorrupt.
type CorruptError struct {
	Name   b3.Digest
	Reason string
	File   fs.FileInfo // of the file that was read
}

func (e *CorruptError) Error() string { return fmt.Sprintf("%v: %s: %s", ErrCorrupt, e.Name, e.Reason) }

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Dir is a content store: a folder with objects in b3/<2 hex>/<62 hex>, and folders tmp and
// quarantine.
type Dir struct {
	root  string
	fault func(op string) error
	free  func() (int64, error) // nil: of the disk
	files files
}

// Faults replaces what a Dir asks of the system. Only tests set it.
type Faults struct {
	// Op, if not nil, is called before each change of a file with its operation: create, write,
	// seal, place, sync, remove or set aside. Its error ends the change.
	Op func(op string) error
	// Free, if not nil, returns the free bytes of the disk.
	Free func() (int64, error)
}

// New returns the content store in root. It does no I/O.
func New(root string, f Faults) *Dir {
	if f.Op == nil {
		f.Op = func(string) error { return nil }
	}
	return &Dir{root: root, fault: f.Op, free: f.Free, files: files{byName: map[b3.Digest]*openFile{}}}
}

// In returns the content store of a data directory. It does no I/O.
func In(dataDir string, f Faults) *Dir { return New(filepath.Join(dataDir, "edge", "cas"), f) }

// Prepare creates the folders and removes the files that a crash has left in tmp. No object may be
// written meanwhile.
func (d *Dir) Prepare() error {
	return errors.Join(os.RemoveAll(filepath.Join(d.root, "tmp")), d.MakeFolders())
}

// MakeFolders creates the folders that are missing.
func (d *Dir) MakeFolders() (err error) {
	for _, dir := range []string{"b3", "tmp", "quarantine"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(d.root, dir), 0o700))
	}
	for i := range 256 {
		dir := filepath.Join(d.root, "b3", hex.EncodeToString([]byte{byte(i)}))
		if bad := os.Mkdir(dir, 0o700); !errors.Is(bad, fs.ErrExist) {
			err = errors.Join(err, bad)
		}
	}
	return errors.Join(err, host.SyncDir(filepath.Join(d.root, "b3")))
}

func (d *Dir) path(name b3.Digest) string {
	text := hex.EncodeToString(name[:])
	return filepath.Join(d.root, "b3", text[:2], text[2:])
}

// Temp is an object that is being written. After Seal, Place names it. Drop discards it.
type Temp struct {
	f     *os.File
	hash  *b3.Hasher
	size  int64
	fault func(op string) error
}

// Create creates an empty Temp.
func (d *Dir) Create() (*Temp, error) {
	if err := d.fault("create"); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Join(d.root, "tmp"), "fill-*")
	if err != nil {
		return nil, err
	}
	return &Temp{f: f, hash: b3.New(), fault: d.fault}, nil
}

// Write appends to the object.
func (t *Temp) Write(p []byte) (int, error) {
	if err := t.fault("write"); err != nil {
		return 0, err
	}
	n, err := t.f.Write(p)
	_, _ = t.hash.Write(p[:n])
	t.size += int64(n)
	return n, err
}

// Sum returns the digest and the number of the bytes written so far.
func (t *Temp) Sum() (b3.Digest, int64) { return t.hash.Sum32(), t.size }

// Seal syncs the object, after which Place may name it.
func (t *Temp) Seal() error {
	err := t.fault("seal")
	if err == nil {
		err = errors.Join(t.f.Chmod(0o440), t.f.Sync())
	}
	return errors.Join(err, t.f.Close())
}

// Drop discards the object. It does nothing after Place.
func (t *Temp) Drop() {
	_ = t.f.Close()
	_ = os.Remove(t.f.Name())
}

// Place renames a sealed object to its digest and replaces a file of that name. Sync makes the name
// durable.
func (d *Dir) Place(t *Temp) error {
	if err := d.fault("place"); err != nil {
		return err
	}
	name := t.hash.Sum32()
	defer func() { closeIdle(d.files.forget(name)) }()
	return os.Rename(t.f.Name(), d.path(name))
}

// Sync makes the names of objects durable.
func (d *Dir) Sync(names ...b3.Digest) error {
	if err := d.fault("sync"); err != nil {
		return err
	}
	var err error
	done := map[byte]bool{}
	for _, name := range names {
		if !done[name[0]] {
			done[name[0]] = true
			err = errors.Join(err, host.SyncDir(filepath.Dir(d.path(name))))
		}
	}
	return err
}

// Try writes, syncs and removes a file of one byte. It returns the error of a disk that accepts no
// objects.
func (d *Dir) Try() error {
	t, err := d.Create()
	if err != nil {
		return err
	}
	defer t.Drop()
	if _, err = t.Write([]byte{0}); err != nil {
		return err
	}
	if err = t.Seal(); err == nil {
		err = d.fault("place")
	}
	if err == nil {
		err = os.Rename(t.f.Name(), filepath.Join(d.root, tried))
	}
	if err == nil {
		err = d.fault("sync")
	}
	if err != nil {
		return err
	}
	return errors.Join(host.SyncDir(d.root), os.Remove(filepath.Join(d.root, tried)))
}

// tried is the name of the file of Try.
const tried = "tried"

// Open opens an object. It returns fs.ErrNotExist if there is no such file, and a [CorruptError] if
// it has another size. It does not read the bytes.
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

// Read returns the bytes of an object after checking their hash. It returns fs.ErrNotExist or a
// [CorruptError].
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

// verifyPiece is the number of bytes that Verify reads at a time.
const verifyPiece = 1 << 20

// Verify hashes an object in pieces and calls piece with the length of each; an error of piece ends
// it. It returns nil, fs.ErrNotExist, a [CorruptError], or the error of piece.
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

// Holds reports whether the file of an object is still the file at.
func (d *Dir) Holds(name b3.Digest, at fs.FileInfo) bool {
	now, err := os.Stat(d.path(name))
	return err == nil && os.SameFile(now, at)
}

// Use records that an object is used now. It has no effect on a read-only disk.
func (d *Dir) Use(name b3.Digest, now time.Time) { _ = os.Chtimes(d.path(name), now, now) }

// Used returns the last use of an object, or zero if it has no file.
func (d *Dir) Used(name b3.Digest) time.Time {
	if at, err := os.Stat(d.path(name)); err == nil {
		return at.ModTime()
	}
	return time.Time{}
}

// Remove removes an object. A missing object is not an error.
func (d *Dir) Remove(name b3.Digest) error {
	if err := d.fault("remove"); err != nil {
		return err
	}
	defer func() { closeIdle(d.files.forget(name)) }()
	return unlessMissing(os.Remove(d.path(name)))
}

// Quarantine moves an object to one of 16 places of the quarantine folder, and replaces an older
// file there. It returns nil if the object has no file.
func (d *Dir) Quarantine(name b3.Digest) error {
	if err := d.fault("set aside"); err != nil {
		return err
	}
	defer func() { closeIdle(d.files.forget(name)) }()
	return unlessMissing(os.Rename(d.path(name), filepath.Join(d.root, "quarantine", hex.EncodeToString(name[:1])[:1])))
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Walk calls visit for every file below b3 in the order of names, with the zero Digest if the name
// is not that of an object. It ends with the first error of visit or when ctx ends.
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

// scrubbed is a file with the modification time of the last scrub.
const scrubbed = "scrubbed"

// NoteScrub records that all objects were verified at the time now.
func (d *Dir) NoteScrub(now time.Time) error {
	path := filepath.Join(d.root, scrubbed)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Chtimes(path, now, now))
}

// LastScrub returns the time of the last NoteScrub, or zero if there was none.
func (d *Dir) LastScrub() time.Time {
	if at, err := os.Stat(filepath.Join(d.root, scrubbed)); err == nil {
		return at.ModTime()
	}
	return time.Time{}
}

// Free returns the free bytes of the disk.
func (d *Dir) Free() (int64, error) {
	if d.free != nil {
		return d.free()
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.root, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: d.root, Err: err}
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
