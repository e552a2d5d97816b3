package cas

import (
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"ronbox/appliance/b3"
)

// MaxOpen is the number of files that a Dir keeps open for later readers.
const MaxOpen = 256

// files holds the open files of objects that were read last. A file stays open until it is no
// longer listed and its last reader has closed it.
type files struct {
	mu      sync.Mutex              // a leaf
	byName  map[b3.Digest]*openFile // guarded by mu
	uses    uint64                  // of files; guarded by mu
	renames uint64                  // of objects, and removals; guarded by mu
}

// openFile is one open file of an object.
type openFile struct {
	*os.File
	refs int    // of readers; guarded by files.mu, as are the next two
	used uint64 // the last use
	kept bool   // it is listed
}

// take returns the listed file of an object for one reader, or nil, and the number of changes of
// names so far.
func (t *files) take(name b3.Digest) (*openFile, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.byName[name]
	if f != nil {
		t.uses++
		f.refs, f.used = f.refs+1, t.uses
	}
	return f, t.renames
}

// add lists a file for one reader. It does not if names have changed since the file was opened,
// when the number of changes was renames. It returns another file, for its caller to close, that
// was used the longest time ago, if too many are listed.
func (t *files) add(name b3.Digest, own *os.File, renames uint64) (f, idle *openFile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.uses++
	f = &openFile{File: own, refs: 1, used: t.uses}
	if t.byName[name] != nil || t.renames != renames {
		return f, nil
	}
	if len(t.byName) == MaxOpen {
		idle = t.unlist(t.oldest())
	}
	f.kept = true
	t.byName[name] = f
	return f, idle
}

// oldest is called with mu held.
func (t *files) oldest() (last b3.Digest) {
	least := t.uses
	for name, f := range t.byName {
		if f.used < least {
			last, least = name, f.used
		}
	}
	return last
}

// forget ends the listing of an object after its name has changed. It returns the file, for its
// caller to close, if it has no reader.
func (t *files) forget(name b3.Digest) *openFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renames++
	return t.unlist(name)
}

// unlist is called with mu held.
func (t *files) unlist(name b3.Digest) *openFile {
	f := t.byName[name]
	if f == nil {
		return nil
	}
	delete(t.byName, name)
	f.kept = false
	if f.refs > 0 {
		return nil
	}
	return f
}

// release ends a reader. It returns f, for its caller to close, if f has no other reader and is not
// listed.
func (t *files) release(f *openFile) *openFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.refs--; f.refs > 0 || f.kept {
		return nil
	}
	return f
}

// listed returns the objects whose files are listed.
func (t *files) listed() []b3.Digest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.byName))
}

// Shared is an object that is open for one reader. Several readers may share its file.
type Shared struct {
	*io.SectionReader
	f *openFile
	t *files
}

// Close ends the reading.
func (s *Shared) Close() {
	closeIdle(s.t.release(s.f))
}

// Share opens an object for a reader that has a position of its own. The Dir keeps the files open
// that were read last. Share returns the errors of Open.
func (d *Dir) Share(name b3.Digest, size int64) (*Shared, error) {
	f, renames := d.files.take(name)
	for f != nil && !f.names(size) {
		closeIdle(d.files.forget(name))
		closeIdle(d.files.release(f))
		f, renames = d.files.take(name)
	}
	if f == nil {
		own, err := d.Open(name, size)
		if err != nil {
			return nil, err
		}
		var idle *openFile
		f, idle = d.files.add(name, own, renames)
		closeIdle(idle)
	}
	return &Shared{io.NewSectionReader(f.File, 0, size), f, &d.files}, nil
}

// names reports whether an open file still has a name, and a size. A file that an operator has
// removed has none.
func (f *openFile) names(size int64) bool {
	var at unix.Stat_t
	return unix.Fstat(int(f.Fd()), &at) == nil && at.Nlink > 0 && at.Size == size
}

// CloseFiles closes the files that are kept open. Those with readers are closed by them.
func (d *Dir) CloseFiles() {
	for _, name := range d.files.listed() {
		closeIdle(d.files.forget(name))
	}
}

// closeIdle closes a file that is no longer listed, unless it is nil: it has readers then.
func closeIdle(f *openFile) {
	if f != nil {
		_ = f.Close() // it was only read
	}
}
