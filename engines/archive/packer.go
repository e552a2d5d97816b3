package archive

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/host"
	"ronbox/engines/archive/object"
)

// syncEvery is the interval of syncs of the raw file.
const syncEvery = 100 * time.Millisecond

// outFile is a log object that was not sent yet.
type outFile struct {
	line  string
	name  string
	path  string
	size  int64
	first int64 // stamp of the first group, or when the object was made, Unix ns
}

// outbox is the list of log objects that were not sent yet.
type outbox struct {
	mu    sync.Mutex // a leaf
	files []outFile  // guarded by mu
}

func (o *outbox) push(f outFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.files = append(o.files, f)
}

// first returns the oldest object.
func (o *outbox) first() (f outFile, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.files) == 0 {
		return f, false
	}
	return o.files[0], true
}

// pop removes the oldest object.
func (o *outbox) pop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.files = o.files[1:]
}

// forget removes the objects of a line, and returns them.
func (o *outbox) forget(line string) (gone []outFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var keep []outFile
	for _, f := range o.files {
		if f.line == line {
			gone = append(gone, f)
		} else {
			keep = append(keep, f)
		}
	}
	o.files = keep
	return gone
}

// waiting returns the bytes of the objects, and the time of the oldest, Unix ns.
func (o *outbox) waiting() (bytes, oldest int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.files {
		bytes, oldest = bytes+f.size, olderOf(oldest, f.first)
	}
	return bytes, oldest
}

// of reports whether there is an object of a line.
func (o *outbox) of(line string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.files {
		if f.line == line {
			return true
		}
	}
	return false
}

// adopt gives the packer a raw file of an earlier life.
func (t *tap) adopt(f rawFile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.local = append(t.closed, f), t.local+f.size
}

// runPacker syncs the raw file, and makes objects of closed ones.
func (a *Archive) runPacker(ctx context.Context) error {
	defer a.packTick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.packTick.C():
		}
		if err := a.pack(ctx); ctx.Err() == nil {
			a.noted(&a.unpacked, "pack", err)
		}
		if !a.tap.rests() {
			continue
		}
		if a.packTick.Rest(); !a.tap.rests() {
			a.packTick.Wake()
		}
	}
}

// pack is one turn of the packer.
func (a *Archive) pack(ctx context.Context) error {
	if err := a.tap.sync(); err != nil {
		return err
	}
	now := time.Now()
	rotate := now.Sub(a.rotated) >= a.cfg.Load().Every.D()
	if rotate {
		a.rotated = now
	}
	for _, f := range a.tap.take(rotate, a.store.Info().Seq) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := a.packFile(f); err != nil {
			return err
		}
	}
	return nil
}

// packFile makes the object of a raw file. The record has the object before the raw file is removed
// and before it is sent: one that the record does not have is made again after a kill.
func (a *Archive) packFile(f rawFile) error {
	l := a.record.read().find(f.line)
	if l == nil {
		return nil // the line was dropped meanwhile
	}
	h := a.header(l, object.Log, f.size)
	h.LogHeader = &object.LogHeader{
		From: object.PointOf(f.from), To: object.PointOf(f.to), Entries: f.entries, Prev: l.Sum,
	}
	o := outFile{line: f.line, name: objectName(f.from.Seq()), first: f.first}
	o.path = filepath.Join(a.outDir(f.line), o.name)
	raw, err := os.Open(f.path)
	if err != nil {
		return err
	}
	sum, err := a.writeObject(o.path, h, raw)
	if err = errors.Join(err, raw.Close()); err != nil {
		return err
	}
	st, err := os.Stat(o.path)
	if err != nil {
		return err
	}
	o.size = st.Size()
	err = a.record.update(func(r *record) {
		l := r.find(f.line)
		if l == nil {
			return
		}
		if l.Sum == "" {
			l.Began = f.from
			if l.Base != nil && l.Base.Seq < f.from.Seq() {
				l.Base = nil // a group was in the making when the line began
			}
		}
		l.At, l.Last, l.Sum = f.to, f.last, sum.String()
	})
	if err != nil {
		return err
	}
	a.tap.freed(-o.size)
	a.queue.push(o)
	a.sendTick.Wake()
	a.tap.packed(f)
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// header returns the header of an object of a line, without the part of its kind.
func (a *Archive) header(l *line, kind string, bytes int64) object.Header {
	return object.Header{
		Kind: kind, NodeID: l.NodeID, Incarnation: l.Incarnation, Line: l.ID, Schema: l.Schema,
		MadeAt: a.d.Now().UTC(), Bytes: bytes,
	}
}

// writeObject writes an object to a local file, synced.
func (a *Archive) writeObject(path string, h object.Header, plain io.Reader) (sum b3.Digest, err error) {
	to, err := a.cfg.Load().recipients()
	if err != nil {
		return sum, err
	}
	err = host.ReplaceFile(path, 0o600, func(w io.Writer) error {
		sum, err = object.Write(w, h, plain, to, *a.key.Load())
		return err
	})
	return sum, err
}
