package archive

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"ronbox/engines/archive/history"
	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
	"ronbox/store"
)

// ErrBusy is returned by Base while capture waits for space.
var ErrBusy = errors.New("archive: capture has stopped")

const (
	keepEvery  = time.Second
	purgeEvery = time.Hour
)

// baseFloor is the log after which even a small file gets another base, bytes: it may be of 16,000
// objects, which a restore from a bucket reads in two minutes, and it is larger than the base.
const baseFloor = 16 << 20

// runKeeper begins lines, takes bases and deletes what is not kept.
func (a *Archive) runKeeper(ctx context.Context) error {
	defer a.keepTick.Stop()
	for {
		_ = a.keep(ctx) // each step has noted its error
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.keepTick.C():
		}
	}
}

// keep is one turn of the keeper.
func (a *Archive) keep(ctx context.Context) error {
	err := a.tend()
	if a.noted(&a.untended, "line", err); err != nil {
		return err
	}
	if err := a.takeBase(ctx); err != nil {
		return err
	}
	now := time.Now()
	if l := a.record.read().current(); l == nil || l.Base == nil || now.Sub(a.swept) < purgeEvery {
		return nil
	}
	a.swept = now
	err = a.prune(ctx)
	a.noted(&a.unpruned, "prune", err)
	return err
}

// prune deletes from the target what is not kept.
func (a *Archive) prune(ctx context.Context) error {
	keep := a.cfg.Load().Keep.D()
	l := a.record.read().current()
	if keep == 0 {
		return nil
	}
	all, err := history.Open(ctx, a.target, l.NodeID)
	if err != nil {
		return err
	}
	now := a.d.Now()
	if wall := time.Now(); wall.Before(now) {
		now = wall
	}
	n, bytes, err := all.Prune(ctx, history.Pruning{
		Keep: keep, Now: now, Current: map[string]string{l.NodeID: l.ID},
	})
	if n > 0 {
		a.d.Log.Info("archive_pruned", "objects", n, "bytes", bytes)
	}
	return err
}

// due reports whether the line needs a base.
func (a *Archive) due(l *line) bool {
	switch {
	case l == nil || l.Ended != "" || l.Next != nil:
		return false
	case l.Lost > 0 && l.Lost == a.store.Info().Seq || l.Base != nil && l.Base.Seq == a.store.Info().Seq:
		return false // the names of its parts are taken
	case l.Base == nil || a.asked.Load():
		return true
	}
	return a.d.Now().Sub(l.Base.MadeAt) > a.cfg.Load().BaseEvery.D() || l.SentBytes > max(l.Base.Bytes, baseFloor)
}

// takeBase takes a snapshot if a base is due. The sender sends it.
func (a *Archive) takeBase(ctx context.Context) error {
	l := a.record.read().current()
	if !a.due(l) {
		if l == nil || l.Next == nil {
			a.wanted.Store(0)
		}
		return nil
	}
	a.wanted.CompareAndSwap(0, a.d.Now().UnixNano())
	if time.Now().Before(a.held) && !a.asked.Load() {
		return nil
	}
	err := a.snapshot(ctx, l)
	switch {
	case errors.Is(err, store.ErrBusy):
		return nil // another snapshot is being taken
	case err != nil:
		return a.refuse(err)
	}
	a.holds = 0
	a.unbased.Store(nil)
	a.asked.Store(false)
	return nil
}

// snapshot takes a snapshot that is the next base of a line.
func (a *Archive) snapshot(ctx context.Context, l *line) error {
	err := a.dropBase() // first: what a line has left may be the room that is missing
	if err == nil {
		err = a.store.HoldsCopy()
	}
	if err == nil {
		err = os.MkdirAll(a.baseDir(), 0o700)
	}
	if err != nil {
		return err
	}
	made := a.d.Now()
	a.stage.Store(&copying{})
	defer a.stage.Store(nil)
	m, err := a.store.Snapshot(ctx, a.baseDir(), store.SnapshotOptions{Versions: a.d.Versions},
		func(done, total int64) { a.stage.Store(&copying{done, total}) })
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(m.ManifestPath)
	if err != nil {
		return err
	}
	b := base{Seq: m.Seq, File: m.File, Bytes: m.Size, MadeAt: made}
	if b.At, err = stampOf(m.Path); err != nil {
		return err
	}
	total := 4 + int64(len(manifest)) + m.Size
	b.Parts = int((total + object.PartSize - 1) / object.PartSize)
	defer a.sendTick.Wake()
	return a.record.update(func(r *record) {
		if now := r.find(l.ID); now != nil && now.Ended == "" {
			now.Next = &b
		}
	})
}

// refuse notes that no base can be taken, once, and returns nil for a want of space, which the next
// turn meets again. After another error the next snapshot waits, longer each time.
func (a *Archive) refuse(err error) error {
	if !errors.Is(err, store.ErrFull) {
		a.asked.Store(false) // first: a call that has seen the error asks again
		a.noted(&a.unbased, "base", err)
		a.held = time.Now().Add(a.pause(a.holds))
		a.holds++
		return err
	}
	if was := a.unbased.Swap(&failure{err}); was == nil {
		a.d.Log.Warn("archive_base_waits", "reason", err.Error(), "effect", "log objects are sent meanwhile")
	}
	return nil
}

// stampOf returns the stamp of the last command of a snapshot.
func stampOf(file string) (int64, error) {
	r, err := store.OpenReader(file)
	if err != nil {
		return 0, err
	}
	return r.Info().At, r.Close()
}

// sendPart sends the next part of the base of a line. The object of the part stays on the local
// disk until the record counts it, so that a repeated part is the same.
func (a *Archive) sendPart(ctx context.Context, l line) error {
	b := *l.Next
	local := filepath.Join(a.baseDir(), fmt.Sprintf("%s-%05d.object", l.ID, b.Sent))
	name := path.Join(l.NodeID, l.ID, "base", objectName(b.Seq), fmt.Sprintf("%05d", b.Sent))
	raw, err := os.ReadFile(local)
	if errors.Is(err, os.ErrNotExist) {
		if err = a.sealPart(&l, b, local); err == nil {
			raw, err = os.ReadFile(local)
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return a.baseGone(l.ID, b.Seq, err)
	}
	if err != nil {
		return err
	}
	err = a.create(ctx, &l, object.Base, name, local, raw)
	if errors.Is(err, errGone) {
		return a.baseGone(l.ID, b.Seq, err)
	}
	if errors.Is(err, errForeign) {
		return a.leave(l.ID, reasonForeign)
	}
	if errors.Is(err, errUnread) {
		return a.leave(l.ID, reasonGap)
	}
	if err != nil {
		return err
	}
	b.Sent++
	whole := b.Sent == b.Parts
	if whole {
		b.DoneAt = a.d.Now()
	}
	if err := a.record.update(func(r *record) {
		now := r.find(l.ID)
		if now == nil {
			return
		}
		r.LastSuccess = a.d.Now()
		now.Next = &b
		if whole {
			now.Next = nil
			if now.Sum == "" || b.Seq >= now.Began.Seq() {
				now.Base, now.SentBytes = &b, 0
			}
		}
	}); err != nil {
		return err
	}
	if !whole {
		return a.pace(ctx, int64(len(raw)), remove(local))
	}
	a.d.Log.Info("archive_base", "line", l.ID, "seq", b.Seq, "parts", b.Parts, "bytes", b.Bytes)
	if a.d.Based != nil {
		a.d.Based(b.MadeAt)
	}
	// The folder stays: it may have the next base already. What is not removed goes with that one.
	_ = os.Remove(local)
	file := filepath.Join(a.baseDir(), b.File)
	if m, err := store.ReadManifest(file); err == nil {
		_ = os.Remove(m.ManifestPath)
	}
	_ = os.Remove(file)
	return nil
}

// baseGone forgets the base of a line whose local files are gone. It returns err unless the line
// has ended: then the base of the next line has removed them.
func (a *Archive) baseGone(id string, seq uint64, err error) error {
	ended := true
	bad := a.record.update(func(r *record) {
		if now := r.find(id); now != nil {
			now.Next, now.Lost = nil, seq
			ended = now.Ended != ""
		}
	})
	if ended {
		return bad
	}
	return errors.Join(err, bad)
}

// sealPart makes the object of the next part of a base.
func (a *Archive) sealPart(l *line, b base, to string) error {
	file := filepath.Join(a.baseDir(), b.File)
	m, err := store.ReadManifest(file)
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(m.ManifestPath)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	head := append(binary.BigEndian.AppendUint32(nil, uint32(len(manifest))), manifest...)
	total := int64(len(head)) + b.Bytes
	from := int64(b.Sent) * object.PartSize
	h := a.header(l, object.Base, min(object.PartSize, total-from))
	h.BaseHeader = &object.BaseHeader{Seq: b.Seq, At: b.At, Part: b.Sent, Parts: b.Parts}
	_, err = a.writeObject(to, h, io.NewSectionReader(&joined{head, f}, from, h.Bytes))
	return errors.Join(err, f.Close())
}

// joined is a file after some bytes.
type joined struct {
	head []byte
	file io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (j *joined) ReadAt(p []byte, off int64) (n int, err error) {
	if off < int64(len(j.head)) {
		n = copy(p, j.head[off:])
	}
	if n == len(p) {
		return n, nil
	}
	m, err := j.file.ReadAt(p[n:], off+int64(n)-int64(len(j.head)))
	return n + m, err
}

// Base takes a base now and waits until it is in the target. It waits for one that is on its way,
// and takes none if nothing has changed since the last. It also ends the state foreign. It returns
// ErrBusy while capture waits for space, the error of the snapshot, such as store.ErrFull if there
// is no room for it, and that of a target which answers and does not take it. progress counts bytes
// or parts; it may be nil.
func (a *Archive) Base(ctx context.Context, progress func(stage string, done, total int64)) (Status, error) {
	l := a.current()
	if a.isFull(l) {
		return Status{}, ErrBusy
	}
	if err := a.record.update(func(r *record) { r.Foreign = false }); err != nil {
		return Status{}, err
	}
	was, unsent, unbased := l.Base, a.unsent.Load(), a.unbased.Load()
	if l.Next == nil && a.stage.Load() == nil {
		if l.Ended == "" && was != nil && was.Seq == a.store.Info().Seq {
			return a.Status(), nil
		}
		a.asked.Store(true)
	}
	tick := time.NewTicker(sendEvery) //rawchan: it ends with the call
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return Status{}, context.Cause(ctx) // the base is taken all the same
		case <-tick.C:
		}
		l, untended := a.current(), a.untended.Load()
		stage, now, refused := a.stage.Load(), a.unbased.Load(), refusal(unsent, a.unsent.Load())
		switch {
		case l.Base != nil && (was == nil || !l.Base.MadeAt.Equal(was.MadeAt)):
			return a.Status(), nil
		case a.isFull(l):
			return Status{}, ErrBusy
		case (l.ID == "" || l.Ended != "") && untended != nil:
			return Status{}, fmt.Errorf("begin a line: %w", untended.err)
		case now != nil && now != unbased:
			a.asked.Store(false)
			return Status{}, fmt.Errorf("take a base: %w", now.err)
		case refused != nil:
			return Status{}, refused
		case progress == nil:
		case stage != nil:
			progress("snapshot", stage.done, stage.total)
		case l.Next != nil:
			progress("send", int64(l.Next.Sent), int64(l.Next.Parts))
		}
	}
}

// isFull reports whether capture waits for space. After another end the next line begins at once.
func (a *Archive) isFull(l *line) bool { return a.tap.reason() == reasonFull || l.Ended == reasonFull }

// current returns the line of the node, or an empty one before the first.
func (a *Archive) current() *line {
	if l := a.record.read().current(); l != nil {
		return l
	}
	return &line{}
}

// dropBase removes the local files of a base.
func (a *Archive) dropBase() error {
	err := os.RemoveAll(a.baseDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// refusal returns the error of a call since an earlier one that the target has answered: no repeat
// of the call helps. It returns nil for another error.
func refusal(was, now *failure) error {
	if now == nil || now == was || errors.Is(now.err, target.ErrUnreachable) || !target.Is(now.err) {
		return nil
	}
	return now.err
}
