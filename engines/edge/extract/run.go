package extract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/pack"
)

// The wait after failures without progress.
const (
	leastWait = 5 * time.Second
	mostWait  = 5 * time.Minute
)

// syncEvery is the number of bytes after which a part is synced.
const syncEvery = 16 << 20

// errDamaged is returned for a folder that is not as it was written.
var errDamaged = errors.New("its part is damaged")

// run works on the extracts, the oldest that is due first.
func (x *Extractor) run(ctx context.Context) error {
	for ctx.Err() == nil {
		_, moved := x.moved.Load()
		j, within, wait := x.take(ctx)
		if j != nil {
			x.settle(ctx, j, x.work(within, j))
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-moved:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return context.Cause(ctx)
}

// take returns the oldest job that is due, and the context of its work; or nil and the time until
// one is due.
func (x *Extractor) take(ctx context.Context) (_ *job, within context.Context, wait time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	wait = mostWait
	for _, j := range x.sorted() {
		if j.State != Reading || j.removed != nil {
			continue
		}
		if left := time.Until(j.due); left > 0 {
			wait = min(wait, left)
			continue
		}
		within, j.stop = context.WithCancel(ctx)
		return j, within, 0
	}
	return nil, nil, wait
}

// work reads the rest of a job, and makes it a pack.
func (x *Extractor) work(ctx context.Context, j *job) error {
	path := j.folder.path(partName)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		at, err := os.Stat(filepath.Join(x.d.Packs.Dir(), j.file()))
		if err == nil && at.Size() == j.Bytes { // a kill came after it was renamed
			return nil
		}
		return errDamaged
	}
	if x.d.Config().Mode != config.ModeLive {
		return asset.ErrOffline
	}
	if err := x.reserve(j); err != nil {
		return err
	}
	if err := x.read(ctx, j, path); err != nil {
		return err
	}
	x.mu.Lock()
	j.checking = true
	x.mu.Unlock()
	_, err := x.d.Packs.Adopt(ctx, path, j.file(), j.room)
	return err
}

// reserve reserves room for a job that has none, and returns an error if there is none for its
// rest.
func (x *Extractor) reserve(j *job) (err error) {
	if j.room != nil {
		return j.room.Fits(j.done.Load())
	}
	j.room, err = x.d.Packs.Reserve(j.file(), j.done.Load(), j.Bytes)
	return err
}

// read reads the rest of a part.
func (x *Extractor) read(ctx context.Context, j *job, path string) error {
	ranges, err := j.folder.ranges(j.plan)
	if err != nil {
		return pack.OfDisk(err)
	}
	t, _, err := asset.ParseURL(j.URL)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return pack.OfDisk(err)
	}
	defer func() { _ = f.Close() }() // it is synced
	w := &writer{x: x, j: j, f: f, began: time.Now()}
	if err = w.resume(); err != nil {
		return err
	}
	s := source{Target: t, etag: j.ETag, size: j.Source, asked: &j.asked}
	err = x.fetch(ctx, s, skip(ranges, w.at-j.Head), chunkOf(j.Bytes), w.write)
	if bad := w.sync(); err == nil {
		err = bad
	}
	if err == nil && w.at != j.Bytes {
		err = errDamaged
	}
	return err
}

// writer appends to the part of a job.
type writer struct {
	x     *Extractor
	j     *job
	f     *os.File
	at    int64 // length of the part
	from  int64 // length at the beginning
	began time.Time
}

// resume finds the end of the bytes that are whole. After a power cut those that were not synced
// are not.
func (w *writer) resume() error {
	st, err := w.f.Stat()
	if err != nil {
		return pack.OfDisk(err)
	}
	w.at = st.Size()
	if boot := bootID(); boot == "" || boot != w.j.Boot {
		w.at = min(w.at, w.j.Synced)
	}
	if w.at < w.j.Head || w.at > w.j.Bytes {
		return errDamaged
	}
	if err = w.f.Truncate(w.at); err == nil {
		_, err = w.f.Seek(w.at, io.SeekStart)
	}
	w.from = w.at
	w.j.done.Store(w.at)
	if err == nil && w.j.Boot != bootID() {
		return w.sync() // so that a kill loses nothing
	}
	return pack.OfDisk(err)
}

// write appends bytes, and syncs from time to time.
func (w *writer) write(b []byte) error {
	n, err := w.f.Write(b)
	w.at += int64(n)
	w.j.done.Store(w.at)
	if took := time.Since(w.began).Seconds(); took > 0 {
		w.j.rate.Store(int64(float64(w.at-w.from) / took))
	}
	if err != nil {
		return pack.OfDisk(err)
	}
	if w.at-w.j.Synced < syncEvery {
		return nil
	}
	if err = w.sync(); err == nil {
		err = w.j.room.Fits(w.at)
	}
	return err
}

// sync syncs the part, and then notes that in the plan.
func (w *writer) sync() error {
	err := w.f.Sync()
	w.x.synced()
	if err == nil {
		p := w.j.plan
		p.Synced, p.Boot, p.Requests = w.at, bootID(), p.Requests+w.j.asked.Load()
		err = w.j.folder.write(p)
		w.x.synced()
		w.x.mu.Lock()
		w.j.Synced, w.j.Boot = p.Synced, p.Boot
		w.x.mu.Unlock()
	}
	return pack.OfDisk(err)
}

func (x *Extractor) synced() {
	if x.d.Synced != nil {
		x.d.Synced()
	}
}

// settle draws the consequences of the work on a job that has ended with err.
func (x *Extractor) settle(ctx context.Context, j *job, err error) {
	x.mu.Lock()
	removed := j.removed != nil
	x.mu.Unlock()
	if !removed && (err == nil || ctx.Err() == nil && final(err)) {
		err = x.end(j, err)
	}
	wait := time.Duration(0) // until the next try
	x.mu.Lock()
	j.stop()
	j.stop, j.checking = nil, false
	removed = j.removed != nil
	again := err != nil && ctx.Err() == nil && !removed // otherwise the next start goes on
	if again {
		wait = j.delay(err)
	}
	x.mu.Unlock()
	switch {
	case removed:
		if err = x.drop(j); err != nil {
			x.d.Log.Warn("an extract cannot be removed", "pack", j.Pack, "reason", err.Error(), "next",
				"remove its folder")
		}
	case again:
		x.d.Log.Warn("extract", "pack", j.Pack, "reason", err.Error(), "next",
			fmt.Sprintf("the next try is in %s", wait))
	}
}

// final reports whether a repetition ends with the same error.
func final(err error) bool {
	refused, _ := errors.AsType[*pack.RefusedError](err)
	failed, _ := errors.AsType[*asset.FillError](err)
	return errors.Is(err, ErrChanged) || errors.Is(err, ErrNoRanges) || errors.Is(err, errDamaged) || refused != nil ||
		failed != nil && failed.Reason == asset.ETagInvalid
}

// end ends a job: it is done, or has failed with err.
func (x *Extractor) end(j *job, err error) error {
	p := j.plan
	p.State, p.Requests = Done, p.Requests+j.asked.Load()
	if err != nil {
		p.State, p.Fault = Failed, err.Error()
		_, p.Refused = errors.AsType[*pack.RefusedError](err)
	}
	if err := errors.Join(j.folder.write(p), j.folder.clear()); err != nil {
		return pack.OfDisk(err)
	}
	x.mu.Lock()
	j.plan = p
	j.asked.Store(0)
	x.mu.Unlock()
	j.release()
	x.d.Owner.Event(asset.Event{Kind: "extract", Of: p.Pack, Result: string(p.State), Size: p.Bytes})
	if p.Fault != "" {
		x.d.Log.Warn("an extract has failed", "pack", p.Pack, "reason", p.Fault, "next", "begin it again")
	}
	return nil
}

// delay lets a job wait after a failure, and returns how long. The caller holds mu.
func (j *job) delay(err error) time.Duration {
	if done := j.done.Load(); done > j.before {
		j.fails, j.before = 0, done
	}
	wait := min(leastWait<<min(j.fails, 10), mostWait)
	j.fails++
	j.last, j.due = err, time.Now().Add(wait)
	return wait
}
