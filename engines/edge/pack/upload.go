package pack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ronbox/appliance/b3"
	"ronbox/appliance/host"
	"ronbox/engines/edge/asset"
)

// uploadPrefix begins the names of files that are being uploaded. A scan skips them.
const uploadPrefix = ".upload-"

// uploadStep is the number of bytes between two looks at the room that an upload has.
const uploadStep = 8 << 20

// Upload is a pack that a caller sends.
type Upload struct {
	File   string // its name in the folder
	Body   io.Reader
	Size   int64     // bytes of Body; -1 if unknown
	Expect b3.Digest // the digest that the bytes must have; zero accepts any
}

// ErrName is returned for a file that cannot be a pack because of its name.
var ErrName = errors.New("edge: a pack is named ID.pmtiles or ID.mbtiles, and its id matches " + idForm.String())

// RefusedError is returned for an upload that would not be served. Nothing was changed.
type RefusedError struct{ Faults []string }

func (e *RefusedError) Error() string {
	if more := len(e.Faults) - 1; more > 0 {
		return fmt.Sprintf("%s (and %d more faults)", e.Faults[0], more)
	}
	return e.Faults[0]
}

// RoomError is returned for an upload without room. Nothing was changed.
type RoomError struct{ Reason string }

func (e *RoomError) Error() string { return e.Reason }

// mayChange returns the info of the file of a pack that a caller changes.
func (s *Set) mayChange(file string) (Info, error) {
	info, err := nameOf(file)
	switch {
	case err != nil || info.File != file || info.Kind != PMTiles && info.Kind != MBTiles:
		return info, ErrName
	case s.Amnesia:
		return info, asset.ErrAmnesia
	}
	return info, nil
}

// Upload receives a pack, checks it, and serves it in place of the pack with its name. fresh
// reports whether no pack had that name. Upload reads the body until its end or an error. The
// folder does not change before the file is whole, sound and on the disk, and an error leaves no
// file. It returns ErrName, a *RoomError, a *RefusedError, an *asset.DigestError, asset.ErrAmnesia,
// asset.ErrDisk, an error of the body or the cause of ctx.
func (s *Set) Upload(ctx context.Context, u Upload) (_ Info, fresh bool, err error) {
	info, err := s.MayAdd(u.File)
	if err != nil {
		return Info{}, false, err
	}
	s.sweep()
	f, err := os.CreateTemp(s.Dir(), uploadPrefix+"*")
	if err != nil {
		return Info{}, false, OfDisk(err)
	}
	defer func() {
		_ = f.Close()           // it is synced, or goes
		_ = os.Remove(f.Name()) // unless it was renamed
	}()
	a := Allowance{s: s, file: u.File, size: u.Size}
	defer a.End()
	digest, err := s.receive(ctx, f, u, &a)
	if err != nil {
		return Info{}, false, OfDisk(err)
	}
	return s.adopt(ctx, f.Name(), info, digest, &a)
}

// Adopt serves a file that is on the disk of the folder and synced, under the name of a pack, as
// Upload does. It renames the file at path, and ends its room. It returns the errors of Upload.
func (s *Set) Adopt(ctx context.Context, path, file string, a *Allowance) (Info, error) {
	info, err := s.MayAdd(file)
	if err != nil {
		return Info{}, err
	}
	info, _, err = s.adopt(ctx, path, info, b3.Digest{}, a)
	return info, err
}

// MayAdd returns the error of an Upload of a file with this name, whatever its bytes are.
func (s *Set) MayAdd(file string) (Info, error) {
	info, err := s.mayChange(file)
	if err == nil {
		err = s.mayAdd(info)
	}
	return info, err
}

// adopt checks a file with room a and serves it. A zero digest is computed.
func (s *Set) adopt(ctx context.Context, path string, info Info, d b3.Digest,
	a *Allowance) (_ Info, fresh bool, err error) {
	row, err := s.examine(ctx, path, info, d)
	if err != nil {
		return Info{}, false, err
	}
	if fresh, err = s.install(ctx, path, info, row, a); err != nil {
		return Info{}, false, OfDisk(err)
	}
	info, err = s.shown(context.WithoutCancel(ctx), info.ID)
	return info, fresh, err
}

// Dir returns the folder of the packs. It makes the default one if that is missing; another one may
// be on a disk that is not mounted.
func (s *Set) Dir() string {
	if s.dir == filepath.Join(s.DataDir, "packs") {
		_ = os.MkdirAll(s.dir, 0o700) // the next use of it fails too
	}
	return s.dir
}

// mayAdd refuses a new pack whose id has another file, or that is one too many.
func (s *Set) mayAdd(info Info) error {
	other := info.ID + "." + string(PMTiles)
	if info.Kind == PMTiles {
		other = info.ID + "." + string(MBTiles)
	}
	if _, err := os.Lstat(filepath.Join(s.dir, other)); err == nil {
		return &RefusedError{[]string{other + " has this id: remove it, or choose another id"}}
	}
	if g := s.current.Load(); g.packs[info.ID].path == "" && len(g.packs) >= maxPacks {
		return &RefusedError{[]string{fmt.Sprintf("there are %d packs, each of which holds files open", maxPacks)}}
	}
	return nil
}

// receive writes the body of an upload to f within a, and syncs it. It returns the digest of the
// bytes.
func (s *Set) receive(ctx context.Context, f *os.File, u Upload, a *Allowance) (d b3.Digest, err error) {
	if err = a.extend(max(u.Size, 0)); err != nil {
		return d, err
	}
	h, buf := b3.New(), make([]byte, 256<<10)
	for {
		n, end := u.Body.Read(buf)
		if err = a.write(f, buf[:n]); err != nil {
			return d, err
		}
		_, _ = h.Write(buf[:n])
		switch {
		case ctx.Err() != nil:
			return d, context.Cause(ctx)
		case end == io.EOF && a.written < u.Size:
			return d, io.ErrUnexpectedEOF
		case end == io.EOF:
			if d = h.Sum32(); !u.Expect.IsZero() && u.Expect != d {
				return d, &asset.DigestError{Want: u.Expect, Got: d}
			}
			return d, s.after(f.Sync())
		case end != nil:
			return d, end
		}
	}
}

// examine opens and checks a new file, and hashes it if its digest is zero. It returns the row of
// its result.
func (s *Set) examine(ctx context.Context, path string, info Info, d b3.Digest) (row result, err error) {
	var p *Pack
	var r Report
	err = guarded(func() (err error) {
		if p, err = s.env.open(ctx, path, info, s.serial.Add(1)); err != nil {
			return err
		}
		defer p.Close()
		if r, err = p.check(ctx); err == nil && len(r.Faults) == 0 && d.IsZero() {
			d, err = p.hash(ctx, func(int64, int64) {})
		}
		return err
	})
	if ctx.Err() != nil {
		return row, context.Cause(ctx)
	}
	if failed := OfDisk(err); errors.Is(failed, asset.ErrDisk) {
		return row, failed
	}
	if err != nil {
		r.Faults = []string{valid(err.Error())}
	}
	if len(r.Faults) == 0 {
		r.Info.verified(d)
		return result{}.after(p, r.Info), nil
	}
	for i, fault := range r.Faults {
		r.Faults[i] = strings.ReplaceAll(fault, path, info.File)
	}
	return row, &RefusedError{r.Faults}
}

// install gives the file of a sound upload its name, and keeps its result. One upload at a time has
// the turn, so that no two files get one id.
func (s *Set) install(ctx context.Context, path string, info Info, row result, a *Allowance) (fresh bool, err error) {
	if err = s.naming.Acquire(ctx); err != nil {
		return false, err
	}
	defer s.naming.Release()
	if err = s.mayAdd(info); err != nil { // others may have come since
		return false, err
	}
	to := filepath.Join(s.dir, row.File)
	_, err = os.Lstat(to)
	fresh = errors.Is(err, fs.ErrNotExist)
	if err = os.Rename(path, to); err == nil {
		a.End() // the folder counts the file from now on
		err = s.after(host.SyncDir(s.dir))
	}
	if err == nil {
		s.update(func(next *generation) { next.rows[row.File] = row })
		s.dirty.Store(true) // a verifier writes the rows
	}
	return fresh, err
}

// after returns the error of a sync.
func (s *Set) after(err error) error {
	if s.Synced != nil {
		s.Synced()
	}
	return err
}

// shown scans the folder and returns the pack with an id, which it opens unless a task has done so.
func (s *Set) shown(ctx context.Context, id string) (Info, error) {
	if err := s.scan(lookAtOnce); err != nil {
		return Info{}, OfDisk(err)
	}
	if e := s.current.Load().packs[id]; e.want != (stamp{}) {
		s.open(ctx, e)
	}
	return s.Info(id)
}

// Remove removes the file of a pack, which is no longer served. It returns ErrName, ErrMissing,
// asset.ErrAmnesia or asset.ErrDisk.
func (s *Set) Remove(file string) error {
	if _, err := s.mayChange(file); err != nil {
		return err
	}
	path := filepath.Join(s.dir, file)
	st, err := os.Lstat(path)
	if err == nil && !st.IsDir() {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.IsDir() {
		return ErrMissing
	}
	if err == nil {
		s.dirty.Store(true)
		err = errors.Join(host.SyncDir(s.dir), s.scan(lookAtOnce))
	}
	return OfDisk(err)
}

// removeUploads removes what uploads have left that ended with the process. It is called once,
// before the first upload.
func (s *Set) removeUploads() {
	left, _ := filepath.Glob(filepath.Join(globbed(s.dir), uploadPrefix+"*")) // the pattern is valid
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			s.Log.Warn("the rest of an upload stays", "reason", err.Error(), "next", "remove the file")
		}
	}
}

// globbed returns a pattern that matches path alone.
func globbed(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// OfDisk converts an error of the kernel: no room to a *RoomError, any other to asset.ErrDisk.
func OfDisk(err error) error {
	code, ok := errors.AsType[syscall.Errno](err)
	switch {
	case !ok:
		return err
	case code == syscall.ENOSPC || code == syscall.EDQUOT || code == syscall.EFBIG:
		return &RoomError{"the disk of the packs is full"}
	}
	return fmt.Errorf("%w: %w", asset.ErrDisk, err)
}

// Allowance is the room of a new file in the folder. The file takes the place of another with the
// same name, which does not count.
type Allowance struct {
	s        *Set
	file     string
	size     int64 // -1 if unknown
	reserved int64 // of edge.packs.max_bytes
	written  int64
	looked   int64 // bytes up to which the disk has room
}

// Reserve reserves room for a file of size bytes, of which some are written. It returns a
// *RoomError or asset.ErrDisk.
func (s *Set) Reserve(file string, written, size int64) (*Allowance, error) {
	a := &Allowance{s: s, file: file, size: size}
	if err := a.Fits(written); err != nil {
		a.End()
		return nil, err
	}
	return a, nil
}

// Fits returns an error if there is no room for the rest of the file, of which some bytes are
// written.
func (a *Allowance) Fits(written int64) error {
	a.written = written
	return OfDisk(a.extend(a.size))
}

// write writes b to the end of f if there is room.
func (a *Allowance) write(f *os.File, b []byte) error {
	if total := a.written + int64(len(b)); total > a.looked {
		if a.size < 0 {
			total = a.written + uploadStep
		}
		if err := a.extend(max(total, a.size)); err != nil {
			return err
		}
	}
	n, err := f.Write(b)
	a.written += int64(n)
	return err
}

// extend reserves room for total bytes, of which some are written.
func (a *Allowance) extend(total int64) error {
	more := max(0, total-a.reserved)
	a.reserved += more
	all := a.s.uploading.Add(more)
	most := a.s.env.cfg.MaxBytes.Bytes()
	has, err := a.s.folder(a.file)
	if err != nil {
		return err
	}
	if has+all > most {
		return &RoomError{fmt.Sprintf("the packs would have %d bytes, edge.packs.max_bytes allows %d", has+all, most)}
	}
	var st unix.Statfs_t
	if err = unix.Statfs(a.s.Dir(), &st); err != nil {
		return err
	}
	free := int64(st.Bavail)*int64(st.Bsize) - a.s.Spare
	if need := total - a.written; need > free {
		return &RoomError{fmt.Sprintf("it needs %d more bytes, the disk has %d beyond edge.cas.min_free", need,
			max(0, free))}
	}
	a.looked = a.written + min(total-a.written, uploadStep)
	return nil
}

// End returns the room. It may be called again.
func (a *Allowance) End() {
	a.s.uploading.Add(-a.reserved)
	a.reserved = 0
}

// folder returns the bytes of the files of the folder, without one file and those of uploads.
func (s *Set) folder(without string) (sum int64, err error) {
	files, err := os.ReadDir(s.Dir())
	for _, f := range files {
		if f.Name() == without || strings.HasPrefix(f.Name(), uploadPrefix) {
			continue
		}
		st, bad := os.Stat(filepath.Join(s.dir, f.Name()))
		switch {
		case bad == nil && st.Mode().IsRegular():
			sum += st.Size()
		case bad != nil && !errors.Is(bad, fs.ErrNotExist):
			err = cmp.Or(err, bad)
		}
	}
	return sum, err
}
