package edge

import (
	"context"

	"ronbox/appliance/flow"
)

// room is what the content store holds, and what fills under way have reserved.
type room struct {
	mu       *flow.Mutex
	has      tally // guarded by mu
	reserved int64 // bytes; guarded by mu
}

// tally is how much is stored, or how much more; below zero, less.
type tally struct{ bytes, objects, urls int64 }

func (t *tally) add(d tally) {
	t.bytes, t.objects, t.urls = t.bytes+d.bytes, t.objects+d.objects, t.urls+d.urls
}

// add books what is there from now on.
func (r *room) add(d tally, reserved int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.has.add(d)
	r.reserved += reserved
}

// set replaces the count of what is there.
func (r *room) set(has tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.has = has
}

func (r *room) held() (has tally, reserved int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.has, r.reserved
}

// take reserves need bytes if neither the quota nor the disk is short of them then.
func (r *room) take(need, quota, disk int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.has.bytes+r.reserved+need > quota || r.reserved+need > disk {
		return false
	}
	r.reserved += need
	return true
}

// Bounds of a reservation.
const (
	growBy    = 8 << 20 // bytes at a time, for an object whose length is not known
	roomTries = 3       // since others may take the room that was made
)

// reserve takes need bytes for a fill, and has objects evicted if need be. It waits for that until ctx ends.
func (e *Engine) reserve(ctx context.Context, need int64) error {
	for range roomTries {
		if quota, disk, err := e.bounds(); err != nil || e.room.take(need, quota, disk) {
			return err
		}
		if err := e.write(ctx, &writeJob{need: need}); err != nil {
			return err
		}
	}
	return ErrFull
}

// bounds returns how many bytes all objects may have, and how many they may still take of the disk; below 0, how many it is short of.
func (e *Engine) bounds() (quota, disk int64, err error) {
	free, err := e.diskFree()
	c := e.Config().CAS
	return c.MaxBytes.Bytes(), free - c.MinFree.Bytes() - c.headroom(), err
}

// mostHeadroom is four growth steps of the database file.
const mostHeadroom = 64 << 20

// headroom is what objects leave free above min_free, bytes: the database may grow by it before it meets its own floor, which is no higher than
// min_free, and the edge evicts in the meantime.
func (c CASConfig) headroom() int64 { return min(c.MinFree.Bytes()/4, mostHeadroom) }

// relieve has objects evicted when the disk is short of space although no fill asks for any: other files grow too. It evicts nothing if all
// objects together would not be enough.
func (e *Engine) relieve() {
	if e.d.Amnesia {
		return
	}
	need := e.Config().CAS.headroom()
	has, _ := e.room.held()
	_, disk, err := e.bounds()
	if err != nil || disk >= 0 || has.bytes < need-disk {
		return
	}
	_ = e.writes.TrySend(&writeJob{need: max(need, 1), reply: flow.NewReply[struct{}]()}) // full: the next look asks again
}

// shortOf is how many bytes, and URLs, have to go so that there is room for as many more.
func (e *Engine) shortOf(bytes, urls int64) (tally, error) {
	quota, disk, err := e.bounds()
	has, reserved := e.room.held()
	short := tally{urls: beyond(has.urls, urls, int64(e.Config().CAS.MaxURLs))}
	if bytes > 0 {
		short.bytes = max(0, reserved+bytes-disk, beyond(has.bytes, reserved+bytes, quota))
	}
	return short, err
}

// beyond is how much of has must go for more to come. Once the quota is reached, a tenth of it goes, so that what comes next need not evict.
func beyond(has, more, quota int64) int64 {
	if has+more <= quota {
		return 0
	}
	return max(has+more-quota, min(has, has+more-quota/10*9))
}
