package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"sync"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
)

const (
	sendEvery = 100 * time.Millisecond
	slowest   = 16 << 10 // bytes a second that a target must take
)

// errForeign is returned when another writer has used the name of an object.
var errForeign = errors.New("archive: another node writes into this line")

// errUnread is returned when the name of an object is taken and the target does not permit to read
// it: by a call whose answer was lost, or by another writer.
var errUnread = errors.New("archive: the name is taken, and may not be read")

// errGone is returned when the local file of an object was removed while it was sent: that of a
// base whose line has ended goes with the next base.
var errGone = errors.New("archive: the local file of an object was removed")

// deadlineOf returns the time that the target has for an object.
func deadlineOf(size int64) time.Duration {
	return 30*time.Second + time.Duration(size/slowest)*time.Second
}

// pauseAfter returns the time to wait after failure n.
func pauseAfter(n int) time.Duration { return min(time.Second<<min(n, 6), time.Minute) }

// runSender sends what is to be sent.
func (a *Archive) runSender(ctx context.Context) error {
	defer a.sendTick.Stop()
	if !a.record.read().used() {
		_ = a.Reach(ctx) // a new target gets its mark at once; an error comes again with the first object
	}
	for {
		sent, err := a.send(ctx)
		if err != nil && ctx.Err() == nil {
			a.noted(&a.unsent, "send", err)
		}
		if sent && err == nil && ctx.Err() == nil {
			continue
		}
		if !a.hasUnsent() {
			if a.sendTick.Rest(); a.hasUnsent() {
				a.sendTick.Wake()
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.sendTick.C():
		}
	}
}

// hasUnsent reports whether there is an object to send.
func (a *Archive) hasUnsent() bool {
	if _, some := a.queue.first(); some {
		return true
	}
	l := a.record.read().current()
	return l != nil && l.Next != nil
}

// send sends one object: the oldest log object, or else a part of a base. It reports false if there
// is none.
func (a *Archive) send(ctx context.Context) (sent bool, err error) {
	if f, ok := a.queue.first(); ok {
		return true, a.sendLog(ctx, f)
	}
	if l := a.record.read().current(); l != nil && l.Next != nil {
		return true, a.sendPart(ctx, *l)
	}
	return false, nil
}

// sendLog sends a log object.
func (a *Archive) sendLog(ctx context.Context, f outFile) error {
	l := a.record.read().find(f.line)
	if l == nil {
		a.queue.pop()
		a.tap.freed(f.size)
		return nil
	}
	raw, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	h, _, err := object.ParseHeader(raw)
	if err != nil {
		return err
	}
	err = a.create(ctx, l, object.Log, path.Join(l.NodeID, l.ID, "log", f.name), f.path, raw)
	if errors.Is(err, errForeign) {
		return a.leave(f.line, reasonForeign)
	}
	if errors.Is(err, errUnread) {
		return a.leave(f.line, reasonGap)
	}
	if err != nil {
		return err
	}
	if err := a.record.update(func(r *record) {
		if l := r.find(f.line); l != nil {
			l.SentName, l.SentSeq, l.SentAt, l.SentBytes = f.name, h.To.Seq, a.d.Now(), l.SentBytes+f.size
			r.LastSuccess = l.SentAt
		}
	}); err != nil {
		return err
	}
	a.queue.pop()
	a.tap.freed(f.size)
	return a.pace(ctx, f.size, remove(f.path))
}

// remove removes a local file. The folder of a line that has ended, or of its base, may have been
// removed meanwhile.
func remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// pacer spreads objects so that together they keep to a rate.
type pacer struct {
	mu   sync.Mutex // a leaf
	free time.Time  // guarded by mu; when the objects so far are paid for
}

// after returns the time to wait after an object of some bytes at a rate.
func (p *pacer) after(size, rate int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(float64(size) / float64(rate) * float64(time.Second)))
	return p.free.Sub(now)
}

// pace waits until max_rate permits the next object, unless err is set.
func (a *Archive) pace(ctx context.Context, size int64, err error) error {
	rate := a.cfg.Load().MaxRate.Bytes()
	if err != nil || rate == 0 {
		return err
	}
	wait, stop := context.WithTimeout(ctx, a.pacer.after(size, rate))
	defer stop()
	<-wait.Done()
	return nil
}

// create creates an object of a line in the target, and tries until it succeeds, another writer has
// the name, or ctx ends.
func (a *Archive) create(ctx context.Context, l *line, kind, name, file string, raw []byte) error {
	again := func(err error) bool {
		return !errors.Is(err, errForeign) && !errors.Is(err, errUnread) && !errors.Is(err, errGone)
	}
	try := flow.Retry(a.pause, math.MaxInt, again).Counting(a.d.Catalog, Service, "send")
	var known time.Time // when the target was found to be that of the line
	return try.Do(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, deadlineOf(int64(len(raw))))
		defer cancel()
		var err error
		if time.Since(known) > knownFor {
			if err = a.find(ctx, l); err == nil {
				known = time.Now()
			}
		}
		if err == nil {
			err = a.createOnce(ctx, name, file, raw)
		}
		a.told(kind, int64(len(raw)), err)
		return err
	})
}

// createOnce creates an object. One that is there with the same sum was created by a call whose
// answer was lost.
func (a *Archive) createOnce(ctx context.Context, name, file string, raw []byte) error {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", errGone, file)
	}
	err := a.target.Create(ctx, name, file)
	if !errors.Is(err, target.ErrExists) {
		return err
	}
	tail := object.Tail(raw)
	from := int64(len(raw) - len(tail))
	there, err := a.target.Read(ctx, name, from, int64(len(tail))+1)
	if errors.Is(err, target.ErrDenied) { // nobody can tell whose it is: the name is used up
		return fmt.Errorf("%w: %s", errUnread, name)
	}
	if err != nil || bytes.Equal(there, tail) {
		return err
	}
	signer := "unknown"
	if head, err := a.target.Read(ctx, name, 0, object.MaxHeader); err == nil {
		if h, _, err := object.ParseHeader(head); err == nil {
			signer = h.Signer
		}
	}
	a.d.Log.Error("archive_foreign", "object", name, "own_signer", a.key.Load().Signer(), "other_signer", signer,
		"effect", "a new line begins", "next", "stop the other node, then run `ronbox archive base`")
	return fmt.Errorf("%w: %s", errForeign, name)
}

// knownFor is the time for which a target need not be looked at again while an object is sent. The
// next try comes sooner, and is one call: of two calls, the second may fail each time.
const knownFor = 10 * time.Second

// unreadFor is the time for which a target that does not permit to read is not asked again.
const unreadFor = time.Hour

// find opens the target. It returns ErrChanged if the target lacks what was last sent of a line:
// another disk is mounted, or it was emptied. Credentials that may not read cannot tell.
func (a *Archive) find(ctx context.Context, l *line) error {
	if !a.opened.Load() {
		if err := a.target.Open(ctx, !a.record.read().used()); err != nil {
			return err
		}
		a.opened.Store(true)
	}
	name := path.Join(l.NodeID, l.ID, "log", l.SentName)
	switch {
	case a.mayNotRead() || l.SentName == "" && l.Base == nil:
		return nil
	case l.SentName == "":
		name = path.Join(l.NodeID, l.ID, "base", objectName(l.Base.Seq), "00000")
	}
	_, err := a.target.Read(ctx, name, 0, 1)
	switch {
	case errors.Is(err, target.ErrDenied):
		a.unread.Store(time.Now().Add(unreadFor).UnixNano())
		return nil
	case errors.Is(err, target.ErrNotExist):
		return fmt.Errorf("%w: it lacks %s, which was sent", target.ErrChanged, name)
	}
	return err
}

// mayNotRead reports whether the target did not permit to read a short time ago.
func (a *Archive) mayNotRead() bool {
	left := time.Duration(a.unread.Load() - time.Now().UnixNano())
	return left > 0 && left <= unreadFor // else the clock went back
}

// told counts a call to the target.
func (a *Archive) told(kind string, size int64, err error) {
	if err == nil {
		a.unsent.Store(nil)
		a.series.sent[kind](1)
		a.series.bytes[kind](int(size))
		return
	}
	a.series.unsent[kind](1)
	if was := a.unsent.Swap(&failure{err}); was == nil {
		a.d.Log.Warn("archive_behind", "reason", err.Error(), "effect", "changes are kept on the local disk")
	}
}
