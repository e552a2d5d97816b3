package front

import (
	"context"
	"os"
)

// change is what one part of a reload has prepared: swap puts it in force and cannot fail, undo releases it. Exactly one
// of them is called.
type change struct{ swap, undo func() }

func (c change) then(next change) change {
	return change{
		swap: func() { c.swap(); next.swap() },
		undo: func() { next.undo(); c.undo() },
	}
}

var nothing = func() {}

// prepare makes the generation that follows, on a new socket or on the one in use.
func (e *endpoint) prepare(ctx context.Context, s settings, a access) (change, error) {
	now := e.generation()
	if now == nil || now.settings == s {
		return change{nothing, nothing}, nil
	}
	if now.socket.bind == s.bind {
		next := e.newGeneration(s, now.socket)
		return change{func() { e.follow(next, nil) }, nothing}, nil
	}
	socket, err := e.open(ctx, s.bind, a)
	if err != nil {
		return change{}, err
	}
	next := e.newGeneration(s, socket)
	return change{func() { e.follow(next, nil) }, func() { _ = next.socket.Close() }}, nil
}

// follow lets next accept from now on, after the one that does, which has to be only unless that is nil; it reports whether next
// does. Who has connected to the one before is still let in there, and every connection of its ends with its next answer.
func (e *endpoint) follow(next, only *generation) bool {
	before, follows := e.exchange(next, only)
	switch {
	case follows:
		before.socket.wake()
	case before.socket != next.socket:
		_ = next.socket.Close()
	}
	return follows
}

// exchange puts next in the place of the one before. That one ends under the lock: run, which looks for one that waits, must
// not find it neither accepting nor waiting.
func (e *endpoint) exchange(next, only *generation) (before *generation, follows bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before = e.current
	switch {
	case e.ended || only != nil && only != before:
		return before, false
	case before.socket == next.socket:
		before.end.Store(endHanded)
	default:
		before.end.Store(endMoved)
	}
	e.current, e.old = next, append(busy(e.old), before)
	return before, true
}

// busy keeps the generations that have connections or may yet let some in.
func busy(all []*generation) (out []*generation) {
	for _, g := range all {
		if g.serving.Load() || g.conns.Load() > 0 || g.waits() { // in this order: who is let in is counted before that has ended
			out = append(out, g)
		}
	}
	return out
}

// prepareAccess opens or closes the socket file to others, before the swap: until then the map of peers keeps them out,
// and after it. The file of an inherited socket is its socket unit's.
func (e *endpoint) prepareAccess(path string, a access) (change, error) {
	e.mu.Lock()
	was, now := e.access, e.current
	e.mu.Unlock()
	if was == a || now == nil || now.socket.inherited && now.socket.bind == path {
		return change{nothing, nothing}, nil
	}
	if err := a.openDir(path); err != nil {
		return change{}, err
	}
	if err := os.Chmod(path, a.file); err != nil {
		return change{}, err
	}
	return change{
		swap: func() {
			e.mu.Lock()
			e.access = a
			e.mu.Unlock()
		},
		undo: func() { _ = os.Chmod(path, was.file) },
	}, nil
}
