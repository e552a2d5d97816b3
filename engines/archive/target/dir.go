package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"ronbox/appliance/host"
)

// temporary begins the names of files that have no name in the target yet.
const temporary = ".ronbox-"

// sweepAfter is the age of a temporary file that no call of Create can still write.
const sweepAfter = 24 * time.Hour

// dirTarget is a directory, such as that of a mounted disk.
type dirTarget struct{ root string }

// Open implements Target.
func (d *dirTarget) Open(ctx context.Context, fresh bool) error {
	mark := filepath.Join(d.root, Mark)
	text, err := os.ReadFile(mark)
	switch {
	case err == nil && string(text) == markText:
		return nil
	case err == nil:
		return fmt.Errorf("%w: %s holds %q", ErrFormat, mark, text[:min(len(text), 100)])
	case !errors.Is(err, fs.ErrNotExist):
		return d.failed(err)
	}
	all, err := os.ReadDir(d.root)
	if err != nil {
		return d.failed(err)
	}
	switch {
	case !fresh:
		return fmt.Errorf("%w: %s has no %s: is the disk mounted? A new target must be an empty directory",
			ErrChanged, d.root, Mark)
	case slices.ContainsFunc(all, isContents):
		return d.Open(ctx, false) // another call may have made the mark since, and an object
	}
	err = d.place(ctx, mark, strings.NewReader(markText))
	if errors.Is(err, fs.ErrExist) {
		return d.Open(ctx, false)
	}
	return d.failed(err)
}

// isContents reports whether an entry of the root keeps the target from being a new one. What a
// call leaves that makes the mark meanwhile, or that was killed while it did, does not.
func isContents(e fs.DirEntry) bool { return e.Name() != Mark && host.IsContents(e.Name()) }

// Create implements Target.
func (d *dirTarget) Create(ctx context.Context, name, file string) (err error) {
	if err := d.Open(ctx, false); err != nil {
		return err
	}
	to := filepath.Join(d.root, filepath.FromSlash(name))
	if _, err := os.Lstat(to); err == nil {
		return d.exists(name, to)
	}
	in, err := os.Open(file)
	if err != nil {
		return err // the target is not at fault
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if err = d.place(ctx, to, in); errors.Is(err, fs.ErrExist) {
		return d.exists(name, to)
	}
	return d.failed(err)
}

// exists returns ErrExists for a name that is durable: the call that created it may have been
// killed before it had synced the directory.
func (d *dirTarget) exists(name, to string) error {
	if err := host.SyncDir(filepath.Dir(to)); err != nil {
		return d.failed(err)
	}
	return fmt.Errorf("%w: %s", ErrExists, name)
}

// place writes a file under a temporary name, synced, and then gives it its own. It returns
// fs.ErrExist if that exists.
func (d *dirTarget) place(ctx context.Context, to string, in io.Reader) (err error) {
	temp, err := d.copyTo(ctx, filepath.Dir(to), in)
	if temp != "" {
		defer func() {
			if gone := os.Remove(temp); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}()
	}
	if err != nil {
		return err
	}
	return host.PlaceFile(temp, to)
}

// copyTo copies a file to a temporary one in dir, synced. It returns its name, if there is one,
// even with an error.
func (d *dirTarget) copyTo(ctx context.Context, dir string, in io.Reader) (temp string, err error) {
	out, err := d.createTemp(dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for {
		n, err := io.CopyN(out, in, 1<<20)
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == io.EOF && n < 1<<20 {
			return out.Name(), out.Sync()
		}
		if err != nil {
			return out.Name(), err
		}
	}
}

// tempTries bounds the tries of createTemp. Each that fails is beside a call of Delete.
const tempTries = 10

// createTemp creates a temporary file in dir, after dir itself. Delete may remove dir in between,
// with its last object.
func (d *dirTarget) createTemp(dir string) (f *os.File, err error) {
	for range tempTries {
		if err = d.makeDirs(dir); err == nil {
			f, err = os.CreateTemp(dir, temporary+"*") // mode 0600
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return f, err
}

// makeDirs creates dir and its missing parents below the root, each synced into its own parent.
func (d *dirTarget) makeDirs(dir string) error {
	if dir == d.root {
		return nil
	}
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := d.makeDirs(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return host.SyncDir(filepath.Dir(dir))
}

// Read implements Target.
func (d *dirTarget) Read(_ context.Context, name string, from, n int64) (raw []byte, err error) {
	f, err := os.Open(filepath.Join(d.root, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		if err := d.Open(context.Background(), false); err != nil { // is it mounted?
			return nil, err
		}
		return nil, fmt.Errorf("%w: %s", ErrNotExist, name)
	}
	if err != nil {
		return nil, d.failed(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	raw, err = io.ReadAll(io.NewSectionReader(f, from, n))
	return raw, d.failed(err)
}

// List implements Target.
func (d *dirTarget) List(ctx context.Context, prefix, after string, fn func(Item) bool) error {
	if err := d.Open(ctx, false); err != nil {
		return err
	}
	_, err := d.walk(ctx, "", prefix, after, fn)
	return err
}

// walk lists the directory dir, which is "" or ends in a slash. It reports false once fn has.
func (d *dirTarget) walk(ctx context.Context, dir, prefix, after string, fn func(Item) bool) (bool, error) {
	all, err := os.ReadDir(filepath.Join(d.root, filepath.FromSlash(dir)))
	if errors.Is(err, fs.ErrNotExist) && dir != "" { // Delete has removed it, if the target is still mounted
		return true, d.Open(ctx, false)
	}
	if err != nil {
		return false, d.failed(err)
	}
	names := make([]string, 0, len(all))
	for _, e := range all {
		if e.IsDir() {
			names = append(names, dir+e.Name()+"/")
		} else if !strings.HasPrefix(e.Name(), temporary) {
			names = append(names, dir+e.Name())
		}
	}
	slices.Sort(names) // as names sort: a/b comes after a-
	for _, name := range names {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		more := true
		switch inner := strings.HasSuffix(name, "/"); {
		case inner && (strings.HasPrefix(name, prefix) || strings.HasPrefix(prefix, name)):
			if last := name + "\xff"; last < after {
				continue
			}
			more, err = d.walk(ctx, name, prefix, after, fn)
		case inner, !strings.HasPrefix(name, prefix), name <= after:
			continue
		default:
			more, err = d.item(name, fn)
		}
		if err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// item calls fn with one object, unless it was deleted since.
func (d *dirTarget) item(name string, fn func(Item) bool) (bool, error) {
	st, err := os.Stat(filepath.Join(d.root, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, d.failed(err)
	}
	return fn(Item{Name: name, Bytes: st.Size(), At: st.ModTime()}), nil
}

// Delete implements Target.
func (d *dirTarget) Delete(ctx context.Context, name string) error {
	if err := d.Open(ctx, false); err != nil {
		return err
	}
	path := filepath.Join(d.root, filepath.FromSlash(name))
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.failed(err)
	}
	for dir := filepath.Dir(path); dir != d.root; dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil { // it is not empty
			break
		}
	}
	return nil
}

// Sweep implements Target.
func (d *dirTarget) Sweep(ctx context.Context, node string) error {
	sweep := func(path string, e fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if e.IsDir() || !strings.HasPrefix(e.Name(), temporary) {
			return nil
		}
		if st, err := e.Info(); err != nil || time.Since(st.ModTime()) < sweepAfter {
			return err
		}
		return os.Remove(path)
	}
	all, err := os.ReadDir(d.root) // it may be a link
	for _, e := range all {
		if err == nil {
			err = sweep(filepath.Join(d.root, e.Name()), e, nil)
		}
	}
	if err == nil {
		err = filepath.WalkDir(filepath.Join(d.root, node), sweep)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return d.failed(err)
}

// failed returns err as an error of a target.
func (d *dirTarget) failed(err error) error {
	var kind error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %s; under systemd add the line ReadWritePaths=%s to the unit, else mount it for writing",
			ErrDenied, err.Error(), d.root)
	case errors.Is(err, fs.ErrPermission):
		kind = ErrDenied
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		kind = ErrFull
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		kind = ErrUnreachable
	}
	return fmt.Errorf("%w: %s", kind, err.Error()) // a cause of the target is none of the local disk
}
