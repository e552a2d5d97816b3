package archive

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/appliance/host"
)

// beginLine ends the current line, if there is one, and begins another at the position of the file.
func (a *Archive) beginLine(reason string) error {
	id, err := ulid.New(ulid.Timestamp(a.d.Now()), rand.Reader)
	if err != nil {
		return err
	}
	info := a.store.Info()
	l := line{
		ID: id.String(), NodeID: info.NodeID, Incarnation: info.Incarnation, Schema: info.Schema,
		Buckets: bucketsOf(a.store), Signer: a.key.Load().Signer(), Reason: reason,
		Began: info.Position(), At: info.Position(),
	}
	for _, dir := range []string{a.rawDir(l.ID), a.outDir(l.ID)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := errors.Join(host.SyncDir(filepath.Dir(a.rawDir(l.ID))), host.SyncDir(a.d.Dir)); err != nil {
		return err
	}
	if err := a.record.update(func(r *record) {
		if old := r.current(); old != nil {
			old.Next = nil
			if old.Ended == "" {
				old.Ended = reason
			}
		}
		r.Foreign = r.Foreign || reason == reasonForeign
		r.Lines = append(r.Lines, l)
	}); err != nil {
		return err
	}
	a.series.lines[reason](1)
	a.d.Log.Info("archive_line", "line", l.ID, "reason", reason, "seq", info.Seq, "signer", a.key.Load().Signer())
	a.tap.begin(&l, a.rawDir(l.ID), info.Position(), b3.Digest{}, true)
	return nil
}

// tend begins a line after one that has ended, and forgets ended lines that were sent.
func (a *Archive) tend() error {
	r := a.record.read()
	l := r.current()
	if l == nil {
		return a.beginLine(reasonFirst)
	}
	reason := a.tap.reason()
	if reason != "" && l.Ended == "" {
		if err := a.record.update(func(r *record) { r.current().Ended = reason }); err != nil {
			return err
		}
		a.d.Log.Warn("archive_line_ends", "line", l.ID, "reason", reason)
	}
	for _, old := range r.Lines {
		if old.Ended == "" || a.tap.has(old.ID) || a.queue.of(old.ID) { // a file goes from the one to the other
			continue
		}
		switch {
		case old.ID != l.ID:
			if err := a.dropLine(old.ID); err != nil {
				return err
			}
		case old.Ended != reasonFull || a.tap.room(): // all of the line was sent
			return a.beginLine(old.Ended)
		}
	}
	if l = a.record.read().current(); l.Ended != "" && l.Ended != reasonFull {
		return a.beginLine(l.Ended)
	}
	return nil
}

// leave drops a line that another node writes or that cannot go on in the target, and begins a new
// one.
func (a *Archive) leave(id, reason string) error {
	a.tap.stop(reason)
	for _, f := range a.tap.forget(id) {
		_ = os.Remove(f.path) // it is removed with its folder
	}
	for _, f := range a.queue.forget(id) {
		a.tap.freed(f.size)
	}
	if err := a.beginLine(reason); err != nil {
		return err
	}
	return a.dropLine(id) // the next base removes the files of one that was on its way
}

// dropLine removes a line from the record and its local files.
func (a *Archive) dropLine(id string) error {
	err := a.record.update(func(r *record) {
		for i := range r.Lines {
			if r.Lines[i].ID == id {
				r.Lines = append(r.Lines[:i], r.Lines[i+1:]...)
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(a.d.Dir, id))
}

func (a *Archive) rawDir(line string) string { return filepath.Join(a.d.Dir, line, "raw") }
func (a *Archive) outDir(line string) string { return filepath.Join(a.d.Dir, line, "out") }
func (a *Archive) baseDir() string           { return filepath.Join(a.d.Dir, "base") }
