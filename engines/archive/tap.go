package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/host"
	"ronbox/engines/archive/object"
	"ronbox/store"
)

// rawSize is the size at which a raw file is closed, bytes. One write of the committer may exceed
// it.
const rawSize = 16 << 20

// frameMost bounds the memory that a tap keeps, bytes: the rows of most groups.
const frameMost = 2 << 20

// rawFile is a plain log on the local disk: entries that the packer makes an object of.
type rawFile struct {
	line     string
	path     string
	from, to store.Position
	last     b3.Digest // sum of the last entry
	entries  int
	size     int64
	first    int64 // stamp of the first group, Unix ns
}

// tap writes the entries of the committer to a raw file. It is the [store.Tap] of the node.
type tap struct {
	limits atomic.Pointer[limits]
	wake   func() // of the packer, after a write

	mu     sync.Mutex // held over a write to a local file; a leaf
	on     bool       // false: nothing is captured
	ended  string     // the reason for which a line ended that was on; guarded by mu, as all below
	dir    string     // of the raw files
	line   string
	at     store.Position // end of the line
	last   b3.Digest      // sum of its last entry
	virgin bool           // the line has no entry yet
	file   *os.File       // of the open raw file; nil: none
	open   rawFile
	dirty  bool       // the open file was not synced since the last write
	due    bool       // the open file is to be closed before the next write
	closed []rawFile  // for the packer
	local  int64      // bytes of local files, without the base
	frame  []byte     // of the last write, for the next one
	broken bool       // a sync has failed: the next write ends the line
	before *undoPoint // the state before the last write; nil: it was undone
}

// limits bound what a tap writes.
type limits struct {
	maxLocal int64
	always   bool         // sync before each commit
	spare    func() int64 // bytes that the disk has for the archive
}

// undoPoint is the state of a tap before a write.
type undoPoint struct {
	at     store.Position
	last   b3.Digest
	virgin bool
	open   rawFile
	local  int64
}

// Last implements store.Tap.
func (t *tap) Last() b3.Digest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// Write implements store.Tap. An error ends the line.
func (t *tap) Write(entries ...[]byte) {
	defer t.wake()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before = nil
	if t.on && t.broken {
		t.end(reasonGap) //lockwait: it closes a local file without buffers
	}
	if !t.on { // as before Bind, while init makes the file
		return
	}
	//lockwait: the committer would wait for this write in any case
	if err := t.write(entries, t.limits.Load()); err != nil {
		reason := reasonGap
		if errors.Is(err, errNoSpace) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
			errors.Is(err, syscall.EFBIG) {
			reason = reasonFull
		}
		t.end(reason) //lockwait: it closes a local file without buffers
	}
}

// errNoSpace is returned when local files would exceed their bound.
var errNoSpace = errors.New("archive: no space for local files")

func (t *tap) write(entries [][]byte, l *limits) error {
	from, n := store.HeadOf(entries[0]).From, int64(0)
	for _, e := range entries {
		n += int64(4 + len(e))
	}
	if t.virgin && t.file == nil {
		t.at = from // a group that was in the making when the line began came before
	}
	switch {
	case from != t.at:
		return errors.New("archive: an entry is missing")
	case !t.virgin && store.HeadOf(entries[0]).Prev != t.last:
		return errors.New("archive: an entry does not follow the one before") // a cluster was formed
	case n > object.MaxPlain:
		return errors.New("archive: an entry is too large")
	case t.local+n > l.maxLocal || n > l.spare():
		return errNoSpace
	}
	if t.file != nil && (t.due || t.open.size+n > rawSize) && t.open.size > 0 {
		t.close()
	}
	if t.file == nil {
		if err := t.create(l.always); err != nil {
			return err
		}
	}
	t.before = &undoPoint{at: t.at, last: t.last, virgin: t.virgin, open: t.open, local: t.local}
	t.frame = t.frame[:0]
	for _, e := range entries {
		t.frame = object.AppendEntry(t.frame, e)
	}
	_, err := t.file.WriteAt(t.frame, t.open.size)
	if cap(t.frame) > frameMost {
		t.frame = nil
	}
	if err == nil && l.always {
		err = t.file.Sync()
	}
	if err != nil {
		t.restore()
		return err
	}
	h := store.HeadOf(entries[len(entries)-1])
	if t.open.entries == 0 {
		t.open.first = store.HeadOf(entries[0]).To.At()
	}
	t.at, t.last, t.virgin, t.dirty = h.To, h.Sum, false, true
	t.open.to, t.open.last, t.open.entries = h.To, h.Sum, t.open.entries+len(entries)
	t.open.size, t.local = t.open.size+n, t.local+n
	return nil
}

// Undo implements store.Tap.
func (t *tap) Undo() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.on && t.before != nil {
		t.restore() //lockwait: it cuts a local file, for the committer
	}
}

// restore takes back the last write. If the file cannot be cut, the next write replaces its end,
// and a boot finds that what follows is not of the line.
func (t *tap) restore() {
	b := t.before
	t.at, t.last, t.virgin, t.open, t.local, t.before = b.at, b.last, b.virgin, b.open, b.local, nil
	_ = t.file.Truncate(t.open.size)
}

// create creates the next raw file, with synced one that a power cut leaves.
func (t *tap) create(synced bool) error {
	path := filepath.Join(t.dir, objectName(t.at.Seq()))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil && synced {
		if err = host.SyncDir(t.dir); err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return err
	}
	t.file, t.open, t.due = f, rawFile{line: t.line, path: path, from: t.at, to: t.at}, false
	return nil
}

// close passes the open file to the packer, which syncs it by way of its object.
func (t *tap) close() {
	_ = t.file.Close() // nothing is buffered
	t.closed = append(t.closed, t.open)
	t.file, t.open, t.dirty, t.due, t.before = nil, rawFile{}, false, false, nil
}

// end ends the line. What it has stays for the packer.
func (t *tap) end(reason string) {
	if t.file != nil {
		t.close()
	}
	t.on, t.ended = false, reason
}

// stop ends the line from outside of the committer. Its raw files must be dropped: the last write
// is not undone any more.
func (t *tap) stop(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.on {
		t.end(reason) //lockwait: it closes a local file without buffers
	}
}

// reason returns the reason for which the line has ended, or "".
func (t *tap) reason() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// begin makes l the line that is captured. The next entry begins at l.At, or later if l is new.
func (t *tap) begin(l *line, dir string, at store.Position, last b3.Digest, virgin bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on, t.ended, t.dir, t.line, t.at, t.last, t.virgin = true, "", dir, l.ID, at, last, virgin
	t.broken = false
}

// position returns the end of the line.
func (t *tap) position() store.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at
}

// take returns the closed raw files. With rotate set it closes the open one first, or has the next
// write do so if the committed position shows that its last write is still in the making.
func (t *tap) take(rotate bool, committed uint64) []rawFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rotate && t.file != nil && t.open.size > 0 {
		if t.open.to.Seq() <= committed {
			t.close() //lockwait: a local file without buffers
		} else {
			t.due = true
		}
	}
	return append([]rawFile(nil), t.closed...)
}

// rests reports whether there is nothing for the packer.
func (t *tap) rests() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.file == nil && len(t.closed) == 0
}

// packed removes a closed file that has an object, unless its line was forgotten meanwhile.
func (t *tap) packed(f rawFile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.closed {
		if t.closed[i].path == f.path {
			t.closed, t.local = append(t.closed[:i:i], t.closed[i+1:]...), t.local-f.size
			return
		}
	}
}

// has reports whether a line has a raw file.
func (t *tap) has(line string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.closed {
		if f.line == line {
			return true
		}
	}
	return t.file != nil && t.line == line
}

// room reports whether the bounds leave space for a line to begin.
func (t *tap) room() bool {
	t.mu.Lock()
	local := t.local
	t.mu.Unlock()
	l := t.limits.Load()
	return local+min(rawSize, l.maxLocal/4) <= l.maxLocal && l.spare() >= rawSize
}

// freed counts local bytes that were removed.
func (t *tap) freed(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.local -= n
}

// forget drops the closed files of a line, and returns them.
func (t *tap) forget(id string) (gone []rawFile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var keep []rawFile
	for _, f := range t.closed {
		if f.line == id {
			gone, t.local = append(gone, f), t.local-f.size
		} else {
			keep = append(keep, f)
		}
	}
	t.closed = keep
	return gone
}

// sync syncs the open file if it was written to. The committer goes on meanwhile.
func (t *tap) sync() error {
	t.mu.Lock()
	f, dirty := t.file, t.dirty
	t.dirty = false
	t.mu.Unlock()
	if f == nil || !dirty {
		return nil
	}
	if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.mu.Lock()
		t.broken = true // what was not synced may be lost; the last write may be undone yet
		t.mu.Unlock()
		return fmt.Errorf("sync a local file: %w", err)
	}
	return nil
}

// waiting describes the raw files: their bytes, and the stamp of their oldest group, Unix ns.
func (t *tap) waiting() (bytes, oldest int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range append(t.closed[:len(t.closed):len(t.closed)], t.open) {
		if f.size > 0 {
			bytes += f.size
			oldest = olderOf(oldest, f.first)
		}
	}
	return bytes, oldest
}

// olderOf returns the smaller of two times, of which 0 is none.
func olderOf(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// finish syncs and closes the open file after the committer has ended.
func (t *tap) finish() error {
	err := t.sync()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on = false
	if t.file != nil {
		err = errors.Join(err, t.file.Close()) //lockwait: the committer has ended
		t.file = nil
	}
	return err
}

// objectName returns the name of the log object, or of the raw file, that begins at a command.
func objectName(seq uint64) string { return fmt.Sprintf("%016x", seq) }

// ageOf returns the time since a stamp, at least 0.
func ageOf(now time.Time, stamp int64) time.Duration { return max(now.Sub(time.Unix(0, stamp)), 0) }
