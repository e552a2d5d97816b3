package ledger

import (
	"sync"
	"sync/atomic"
)

// layerShards is how many locks a layer has: readers and the committer seldom meet at one.
const layerShards = 64

// layer is one derived table in memory: the rows changed since their last flush, and a cache of
// rows that were read. Only the committer changes it. The committer sees the changes of the running
// group; readers see synced rows.
//
// The changes of a command that fails are undone one by one, those of a group as a whole.
type layer[K comparable, V any] struct {
	shards  [layerShards]layerShard[K, V]
	spread  func(K) uint64    // a number for a key, which picks its shard
	changed []*cell[K, V]     // by the running group; owned by the committer
	undo    []undo[K, V]      // of the running command; owned by the committer
	soiled  int               // cells that the running command made dirty; owned by the committer
	queue   ring[*cell[K, V]] // every cell once, for eviction; owned by the committer
	pinned  atomic.Int64      // cells that their table lags behind, as of the last group
	// cells that are in the table of recent rows, as of the last group; owned by the committer
	recent int
	dirty  atomic.Int64 // cells that wait to be written, as of the last group
	lost   uint64       // no row that has left memory was changed by a later record; owned by the committer
}

type layerShard[K comparable, V any] struct {
	mu    sync.RWMutex      // a leaf: it covers the map and the cells' pub for a few instructions
	cells map[K]*cell[K, V] // written by the committer under mu; the committer reads it without
}

// cell is one row.
type cell[K comparable, V any] struct {
	key  K
	cur  version[V] // with the running group; owned by the committer
	pub  version[V] // as of the last synced group; guarded by the shard's mu
	in   bool       // in changed; owned by the committer
	used bool       // since eviction last looked; owned by the committer
	gone bool       // eviction has taken it away; owned by the committer
}

// version is a row's value, and how far the file has followed it.
type version[V any] struct {
	v     V
	since uint64 // seq of the first record that changed it since it was as in its own table; 0: it is
	at    uint64 // seq of the last record that changed it; 0: none since it came into memory
	saved uint64 // at, as of when it was written to the table of recent rows; 0: it is not there
	rests int    // passes since then that found it unchanged
}

// dirty reports whether the file lacks the value.
func (v *version[V]) dirty() bool { return v.since != 0 && v.saved != v.at }

// counts returns what v adds to the counts of its layer, 0 or 1 each.
func (v *version[V]) counts() (pinned, recent, dirty int) {
	if v.since != 0 {
		pinned = 1
	}
	if v.saved != 0 {
		recent = 1
	}
	if v.dirty() {
		dirty = 1
	}
	return pinned, recent, dirty
}

type undo[K comparable, V any] struct {
	c   *cell[K, V]
	was version[V]
}

func newLayer[K comparable, V any](spread func(K) uint64) *layer[K, V] {
	l := &layer[K, V]{spread: spread}
	for i := range l.shards {
		l.shards[i].cells = map[K]*cell[K, V]{}
	}
	return l
}

func (l *layer[K, V]) shard(k K) *layerShard[K, V] {
	n := l.spread(k)
	n ^= n >> 33 // numbers that follow one another go to different shards
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	return &l.shards[n%layerShards]
}

// find returns the cell of k, nil if memory has none. Only the committer calls it.
func (l *layer[K, V]) find(k K) *cell[K, V] {
	c := l.shard(k).cells[k]
	if c != nil {
		c.used = true
	}
	return c
}

// get returns the cell of k. If memory has none, it enters what read returns from the file.
func (l *layer[K, V]) get(k K, read func() V) *cell[K, V] {
	if c := l.find(k); c != nil {
		return c
	}
	return l.enter(k, read())
}

// enter adds a cell with the value that the file has.
func (l *layer[K, V]) enter(k K, v V) *cell[K, V] {
	c := &cell[K, V]{key: k, cur: version[V]{v: v}, pub: version[V]{v: v}, used: true}
	s := l.shard(k)
	s.mu.Lock()
	s.cells[k] = c
	s.mu.Unlock()
	l.queue.push(c)
	return c
}

// bring enters a value of k that was read when the ledger was at seq, unless memory has the row. It
// ignores the value if seq is 0, or if a row changed by a later record has left memory since.
func (l *layer[K, V]) bring(k K, v V, seq uint64) {
	if seq != 0 && l.lost <= seq && l.find(k) == nil {
		l.enter(k, v)
	}
}

// fresh is the cell of a row that the file cannot have.
func (l *layer[K, V]) fresh(k K) *cell[K, V] {
	if c := l.find(k); c != nil {
		return c
	}
	var v V
	return l.enter(k, v)
}

// put changes c to v by the record seq.
func (l *layer[K, V]) put(c *cell[K, V], v V, seq uint64) {
	l.touch(c)
	if !c.cur.dirty() {
		l.soiled++
	}
	if c.cur.since == 0 {
		c.cur.since = seq
	}
	c.cur.v, c.cur.at = v, seq
}

// touch notes the value of c before a change, so that the change can be undone.
func (l *layer[K, V]) touch(c *cell[K, V]) {
	l.undo = append(l.undo, undo[K, V]{c, c.cur})
	if !c.in {
		c.in = true
		l.changed = append(l.changed, c)
	}
}

// load enters a row that the table of recent rows has, as of the record seq, at a boot.
func (l *layer[K, V]) load(k K, v V, seq uint64) {
	c := l.enter(k, v)
	c.cur.since, c.cur.at, c.cur.saved = seq, seq, seq
	pinned, recent, _ := c.cur.counts() // the file has it: it is not dirty
	l.pinned.Add(int64(pinned))
	l.recent += recent
	c.pub = c.cur
}

// busy reports whether c belongs into the table of recent rows: it is there with an older value, or
// more than one record has changed it and the table has room.
func (l *layer[K, V]) busy(c *cell[K, V]) bool {
	v := &c.cur
	return v.saved != v.at && (v.saved != 0 || v.at != v.since && l.recent < recentMost)
}

// flushed notes that the value of c is on its way into its own table.
func (l *layer[K, V]) flushed(c *cell[K, V]) {
	l.touch(c)
	c.cur.since, c.cur.saved = 0, 0
}

// recentRests is how many passes in a row must find a recent row unchanged before it goes to its
// own table: who pays a little less often than passes are made would go to and fro.
const recentRests = 4

// rest keeps c in the table of recent rows for another pass. It is false if it has been there long
// enough, or is not there.
func (l *layer[K, V]) rest(c *cell[K, V]) bool {
	if c.cur.saved == 0 || c.cur.rests == recentRests {
		return false
	}
	l.touch(c)
	c.cur.rests++
	return true
}

// save notes that the value of c is on its way into the table of recent rows.
func (l *layer[K, V]) save(c *cell[K, V]) {
	l.touch(c)
	c.cur.saved, c.cur.rests = c.cur.at, 0
}

// mark is where the command's changes stand.
func (l *layer[K, V]) mark() int { return len(l.undo) }

// back undoes the command's changes down to mark.
func (l *layer[K, V]) back(mark int) {
	for i := len(l.undo) - 1; i >= mark; i-- {
		u := &l.undo[i]
		if !u.was.dirty() && u.c.cur.dirty() {
			l.soiled--
		}
		u.c.cur = u.was
	}
	clear(l.undo[mark:])
	l.undo = l.undo[:mark]
}

// keep makes the command's changes the group's.
func (l *layer[K, V]) keep() {
	clear(l.undo)
	l.undo, l.soiled = l.undo[:0], 0
}

// publish shows readers the group's changes.
func (l *layer[K, V]) publish() {
	pinned, dirty := 0, 0
	for _, c := range l.changed {
		p, r, d := c.pub.counts()
		pinned, dirty = pinned-p, dirty-d
		l.recent -= r
		p, r, d = c.cur.counts()
		pinned, dirty = pinned+p, dirty+d
		l.recent += r
		s := l.shard(c.key)
		s.mu.Lock()
		c.pub = c.cur
		s.mu.Unlock()
		c.in = false
	}
	clear(l.changed)
	l.changed = l.changed[:0]
	l.pinned.Add(int64(pinned))
	l.dirty.Add(int64(dirty))
}

// drop undoes the group's changes.
func (l *layer[K, V]) drop() {
	for _, c := range l.changed {
		c.cur, c.in = c.pub, false
	}
	clear(l.changed)
	l.changed = l.changed[:0]
}

// read is what readers see of k; not ok means to look into the file, with a view that begins now.
func (l *layer[K, V]) read(k K) (v V, ok bool) {
	s := l.shard(k)
	s.mu.RLock()
	if c := s.cells[k]; c != nil {
		v, ok = c.pub.v, true
	}
	s.mu.RUnlock()
	return v, ok
}

// cell returns the cell of k, or nil if k is not in memory. The caller passes it to the committer
// and must not read it.
func (l *layer[K, V]) cell(k K) *cell[K, V] {
	s := l.shard(k)
	s.mu.RLock()
	c := s.cells[k]
	s.mu.RUnlock()
	return c
}

// held tells the committer whether a cell that was carried to it is still the one of its row.
func (c *cell[K, V]) held() bool {
	if c == nil || c.gone {
		return false
	}
	c.used = true
	return true
}

// pinnedKeys lists the rows that their own table lags behind.
func (l *layer[K, V]) pinnedKeys() []K {
	n := l.pinned.Load()
	if n == 0 {
		return nil // a node at rest does not go through all that it keeps in memory at every tick
	}
	keys := make([]K, 0, n)
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.RLock()
		for k, c := range s.cells {
			if c.pub.since != 0 {
				keys = append(keys, k)
			}
		}
		s.mu.RUnlock()
	}
	return keys
}

// evictSteps bounds what evict looks at in one go.
const evictSteps = 64

// evict lets go of rows that are as in their table and were not used for a round of the queue,
// while there are more than most of them. It runs between groups.
func (l *layer[K, V]) evict(most int) {
	most += int(l.pinned.Load())
	steps := evictSteps + l.queue.added
	for l.queue.added = 0; steps > 0 && l.queue.size > most; steps-- {
		c := l.queue.pop()
		if c.used || c.pub.since != 0 {
			c.used = false
			l.queue.push(c)
			continue
		}
		s := l.shard(c.key)
		s.mu.Lock()
		delete(s.cells, c.key)
		s.mu.Unlock()
		c.gone, l.lost = true, max(l.lost, c.pub.at)
	}
}

// ring is a queue without bound.
type ring[T any] struct {
	in, out []T
	at      int // of out
	size    int // values in the queue
	added   int // values pushed since the last eviction
}

func (q *ring[T]) push(v T) {
	q.in = append(q.in, v)
	q.size++
	q.added++
}

// pop is the oldest value; the queue must not be empty.
func (q *ring[T]) pop() T {
	if q.at == len(q.out) {
		clear(q.out)
		q.in, q.out, q.at = q.out[:0], q.in, 0
	}
	v := q.out[q.at]
	clear(q.out[q.at : q.at+1])
	q.at++
	q.size--
	return v
}
