package limit

import (
	"sync"
	"time"
)

// none marks the end of the list of slots.
const none = -1

// Keyed is a table of token buckets by key. It is safe for concurrent use, never waits, and
// allocates only while it grows.
type Keyed[K comparable] struct {
	mu    sync.Mutex // a leaf
	rate  Rate       // guarded by mu
	room  int        // maximum number of keys
	index map[K]int  // into slots; guarded by mu
	slots []slot[K]  // guarded by mu
	head  int        // most recently used slot; guarded by mu
	tail  int        // least recently used slot; guarded by mu
}

// slot is a bucket in the list of slots, which is ordered by last use.
type slot[K comparable] struct {
	key          K
	full         int64 // Unix nanoseconds
	newer, older int
}

// NewKeyed returns an empty table for at most room keys, and at least one. Each key gets rps tokens
// per second and a burst.
func NewKeyed[K comparable](room int, rps float64, burst int) *Keyed[K] {
	return &Keyed[K]{rate: Per(rps, burst), room: max(1, room), index: make(map[K]int), head: none, tail: none}
}

// Set changes the rate of all keys.
func (t *Keyed[K]) Set(rps float64, burst int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rate = Per(rps, burst)
}

// Take takes one token of key, or returns the time until there is one.
func (t *Keyed[K]) Take(key K, now time.Time) (ok bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.take(key, now.UnixNano(), t.rate)
}

// TakeLeft is Take and also returns the state of the bucket. limited is false if there is no limit.
func (t *Keyed[K]) TakeLeft(key K, now time.Time) (ok bool, wait time.Duration, left Left, limited bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rate.interval == 0 {
		return true, 0, Left{}, false
	}
	at := now.UnixNano()
	ok, wait = t.take(key, at, t.rate)
	return ok, wait, t.rate.left(t.slots[t.head].full, at), true
}

// TakeAt is Take at rate r, for keys with different rates.
func (t *Keyed[K]) TakeAt(key K, now time.Time, r Rate) (ok bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.take(key, now.UnixNano(), r)
}

// Peek returns what Take would return, without taking a token.
func (t *Keyed[K]) Peek(key K, now time.Time) (ok bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, known := t.index[key]
	if !known || t.rate.interval == 0 {
		return true, 0
	}
	next, ok, wait := t.rate.full(t.slots[i].full, now.UnixNano())
	if !ok {
		t.slots[i].full = next // unchanged, unless the clock has jumped
	}
	return ok, wait
}

// take takes one token of key at rate r. Called with mu held.
func (t *Keyed[K]) take(key K, now int64, r Rate) (ok bool, wait time.Duration) {
	if r.interval == 0 {
		return true, 0
	}
	i, known := t.index[key]
	if known {
		t.unlink(i)
	} else {
		i = t.place(key)
	}
	t.link(i)
	t.slots[i].full, ok, wait = r.full(t.slots[i].full, now)
	return ok, wait
}

// place returns a slot for a new key: an unused one, or that of the least recently used key. Called
// with mu held.
func (t *Keyed[K]) place(key K) int {
	i := len(t.slots)
	if i < t.room {
		t.slots = append(t.slots, slot[K]{key: key})
	} else {
		i = t.tail
		t.unlink(i)
		delete(t.index, t.slots[i].key)
		t.slots[i] = slot[K]{key: key}
	}
	t.index[key] = i
	return i
}

// link makes slot i the most recently used one. Called with mu held.
func (t *Keyed[K]) link(i int) {
	t.slots[i].newer, t.slots[i].older = none, t.head
	if t.head != none {
		t.slots[t.head].newer = i
	} else {
		t.tail = i
	}
	t.head = i
}

// unlink removes slot i from the list. Called with mu held.
func (t *Keyed[K]) unlink(i int) {
	newer, older := t.slots[i].newer, t.slots[i].older
	if newer != none {
		t.slots[newer].older = older
	} else {
		t.head = older
	}
	if older != none {
		t.slots[older].newer = newer
	} else {
		t.tail = newer
	}
}
