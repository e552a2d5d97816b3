package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/archive/object"
	"ronbox/store"
)

// dropStrangers removes the local files of lines that the record does not have, and the part of a
// period that was being copied.
func (a *Archive) dropStrangers() error {
	_ = os.Remove(filepath.Join(a.d.Dir, periodObject))
	all, err := os.ReadDir(a.d.Dir)
	for _, e := range all {
		if _, no := ulid.ParseStrict(e.Name()); no == nil && e.IsDir() && a.record.read().find(e.Name()) == nil {
			err = errors.Join(err, os.RemoveAll(filepath.Join(a.d.Dir, e.Name())))
		}
	}
	return err
}

// resume reads the local files of all lines, and goes on with the last one if it is that of the
// file.
func (a *Archive) resume() error {
	info := a.store.Info()
	r := a.record.read()
	for i := range r.Lines {
		l := &r.Lines[i]
		if err := a.queueObjects(l); err != nil {
			return fmt.Errorf("line %s: %w", l.ID, err)
		}
		limit := info.Position().Seq()
		if l.Incarnation != info.Incarnation {
			limit = 1 << 62 // the file was restored: it had all of them
		}
		end, err := a.scan(l, limit)
		if err != nil {
			return fmt.Errorf("line %s: %w", l.ID, err)
		}
		current := i == len(r.Lines)-1 && l.Ended == ""
		reason := ""
		if current {
			reason = a.differs(l, info, end.at)
		}
		if reason == reasonGap && len(end.files) > 0 {
			// only an entry that another one follows is known to have been committed
			if end, err = a.scan(l, end.at.Seq()-1); err != nil {
				return fmt.Errorf("line %s: %w", l.ID, err)
			}
		}
		if err := a.adoptFiles(l, end.files); err != nil {
			return err
		}
		if reason != "" {
			a.d.Log.Warn("archive_line_ends", "line", l.ID, "reason", reason)
			return a.beginLine(reason)
		}
		if current {
			a.tap.begin(l, a.rawDir(l.ID), end.at, end.last, end.virgin)
		}
	}
	if r.current() == nil {
		return a.beginLine(reasonFirst)
	}
	return nil
}

// adoptFiles gives the raw files of a line to the packer, or removes them if the key is lost that
// has signed its objects.
func (a *Archive) adoptFiles(l *line, files []rawFile) error {
	for _, f := range files {
		if l.Signer == a.key.Load().Signer() {
			a.tap.adopt(f)
		} else if err := os.Remove(f.path); err != nil {
			return err
		}
	}
	return nil
}

// differs returns the reason for which a file cannot go on with a line that ends at a position.
func (a *Archive) differs(l *line, info *store.Info, at store.Position) string {
	switch {
	case l.Schema != info.Schema || l.Buckets != bucketsOf(a.store):
		return reasonSchema
	case l.NodeID != info.NodeID || l.Incarnation != info.Incarnation:
		return reasonIncarnation
	case l.Signer != a.key.Load().Signer():
		return reasonSigner
	case at != info.Position():
		return reasonGap
	}
	return ""
}

// bucketsOf returns a hash of the declarations of the buckets.
func bucketsOf(s *store.Store) b3.Digest {
	var text bytes.Buffer
	for _, b := range s.Buckets() {
		fmt.Fprintf(&text, "%s %d %t %t %t\n", b.Name, b.Class, b.Append, b.Subs, b.Proven)
	}
	return b3.Sum(text.Bytes())
}

// lineEnd is the end of a line in its local files.
type lineEnd struct {
	at     store.Position
	last   b3.Digest
	virgin bool      // the line has no entry
	files  []rawFile // that have no object yet
}

// scan reads the raw files of a line, and cuts off what is torn or beyond a command.
func (a *Archive) scan(l *line, limit uint64) (end lineEnd, err error) {
	end = lineEnd{at: l.At, last: l.Last, virgin: l.Sum == ""}
	names, err := sortedNames(a.rawDir(l.ID))
	if err != nil {
		return end, err
	}
	whole := true
	for _, name := range names {
		f := rawFile{line: l.ID, path: filepath.Join(a.rawDir(l.ID), name)}
		var raw []byte
		if l.Sum == "" || name >= objectName(l.At.Seq()) { // else the record has its object
			if raw, err = os.ReadFile(f.path); err != nil {
				return end, err
			}
			if whole {
				whole = end.read(&f, raw, limit)
			}
		}
		switch {
		case f.entries == 0:
			err = os.Remove(f.path)
		case f.size < int64(len(raw)):
			err = cut(f.path, f.size)
		}
		if err != nil {
			return end, err
		}
		if f.entries > 0 {
			end.files = append(end.files, f)
		}
	}
	return end, nil
}

// read reads the entries of a raw file up to a command. It reports whether the file ends with them.
func (end *lineEnd) read(f *rawFile, raw []byte, limit uint64) (whole bool) {
	f.from = end.at
	for rest := raw; ; {
		e, next, ok := object.CutEntry(rest)
		if !ok {
			return len(rest) == 0
		}
		h, err := store.ReadEntry(e)
		if end.virgin && err == nil { // the line began with the next entry
			end.at, f.from = h.From, h.From
		}
		if err != nil || h.From != end.at || h.To.Seq() > limit || !end.virgin && h.Prev != end.last {
			return false
		}
		if f.entries == 0 {
			f.first = h.To.At()
		}
		end.at, end.last, end.virgin, rest = h.To, h.Sum, false, next
		f.to, f.last, f.entries, f.size = h.To, h.Sum, f.entries+1, int64(len(raw)-len(next))
	}
}

// cut cuts a file, for good: what was cut off must not come back after a power cut.
func cut(path string, size int64) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(size); err != nil {
		return err
	}
	return f.Sync()
}

// queueObjects queues the log objects of a line that were made and not sent, and removes one that
// was. One that the record does not know is made again.
func (a *Archive) queueObjects(l *line) error {
	names, err := sortedNames(a.outDir(l.ID))
	for _, name := range names {
		path := filepath.Join(a.outDir(l.ID), name)
		if len(name) != 16 || name <= l.SentName || name >= objectName(l.At.Seq()) {
			err = errors.Join(err, os.Remove(path))
			continue
		}
		st, bad := os.Stat(path)
		if bad != nil {
			return bad
		}
		a.queue.push(outFile{line: l.ID, name: name, path: path, size: st.Size(), first: st.ModTime().UnixNano()})
		a.tap.freed(-st.Size())
	}
	return err
}

// sortedNames returns the names in a directory, which need not exist.
func sortedNames(dir string) (names []string, err error) {
	all, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names, err
}
