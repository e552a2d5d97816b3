package ledger

import (
	"sync"
	"sync/atomic"

	"ronbox/appliance/slab"
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
	cells   *slab.Slab[cell[K, V]]
	spread  func(K) uint64 // a number for a key, which picks its shard
	changed []*cell[K, V]  // by the running group; owned by the committer
	open    []version[V]   // what they have become; owned by the committer
	undo    []undo[K, V]   // of the running command; owned by the committer
	soiled  int            // cells that the running command made dirty; owned by the committer
	size    atomic.Int64   // cells
	hand    uint32         // where eviction goes on; owned by the committer
	added   int            // cells entered since the last eviction; owned by the committer
	pinned  atomic.Int64   // cells that their table lags behind, as of the last group
	// cells that are in the table of recent rows, as of the last group; owned by the committer
	recent int
	dirty  atomic.Int64 // cells that wait to be written, as of the last group
	lost   uint64       // no row that has left memory was changed by a later record; owned by the committer
}

type layerShard[K comparable, V any] struct {
	mu    sync.RWMutex  // a leaf: it covers the fields, and pub and listed of the cells
	cells map[K]uint32  // written by the committer under mu; the committer reads it without
	pins  []*cell[K, V] // those that their table lags behind, and some that it no longer does
}

// publish shows readers the version v of c. Called with mu held.
func (s *layerShard[K, V]) publish(c *cell[K, V], v *version[V]) {
	c.pub = *v
	if v.since != 0 && !c.listed {
		c.listed = true
		s.pins = append(s.pins, c)
	}
}

// cell is one row.
type cell[K comparable, V any] struct {
	key    K
	pub    version[V]    // as of the last synced group; guarded by the shard's mu
	open   int32         // 1 + its place in the layer's changed, 0: it is not there; owned by the committer
	used   atomic.Uint32 // 1: again since it was entered or eviction last looked
	live   bool          // it has a row; owned by the committer
	listed bool          // in the shard's pins; guarded by the shard's mu
}

// version is a row's value, and how far the file has followed it.
type version[V any] struct {
	v     V
	since uint64 // seq of the first record that changed it since it was as in its own table; 0: it is
	at    uint64 // seq of the last record that changed it; 0: none since it came into memory
	saved uint64 // at, as of when it was written to the table of recent rows; 0: it is not there
	rests uint32 // passes since then that found it unchanged
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
	l := &layer[K, V]{spread: spread, cells: slab.New[cell[K, V]]()}
	for i := range l.shards {
		l.shards[i].cells = map[K]uint32{}
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
	i, ok := l.shard(k).cells[k]
	if !ok {
		return nil
	}
	c := l.cells.At(i)
	c.use()
	return c
}

// use notes that c was used again.
func (c *cell[K, V]) use() {
	if c.used.Load() == 0 { // others read it, too
		c.used.Store(1)
	}
}

// cur returns the version of c with the running group. The pointer is good until the next change.
func (l *layer[K, V]) cur(c *cell[K, V]) *version[V] {
	if c.open != 0 {
		return &l.open[c.open-1]
	}
	return &c.pub
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
	i, c := l.cells.Add()
	c.key, c.pub.v, c.live = k, v, true
	s := l.shard(k)
	s.mu.Lock()
	s.cells[k] = i
	s.mu.Unlock()
	l.size.Add(1)
	l.added++
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
	now := l.touch(c)
	if !now.dirty() {
		l.soiled++
	}
	if now.since == 0 {
		now.since = seq
	}
	now.v, now.at = v, seq
}

// touch notes the version of c before a change, so that the change can be undone, and returns the
// one to change.
func (l *layer[K, V]) touch(c *cell[K, V]) *version[V] {
	if c.open == 0 {
		l.changed, l.open = append(l.changed, c), append(l.open, c.pub)
		c.open = int32(len(l.open))
	}
	now := &l.open[c.open-1]
	l.undo = append(l.undo, undo[K, V]{c, *now})
	return now
}

// load enters a row that the table of recent rows has, as of the record seq, at a boot.
func (l *layer[K, V]) load(k K, v V, seq uint64) {
	c := l.enter(k, v)
	s := l.shard(k)
	s.mu.Lock()
	s.publish(c, &version[V]{v: v, since: seq, at: seq, saved: seq})
	s.mu.Unlock()
	pinned, recent, _ := c.pub.counts() // the file has it: it is not dirty
	l.pinned.Add(int64(pinned))
	l.recent += recent
}

// busy reports whether a row belongs into the table of recent rows: it is there with an older
// value, or more than one record has changed it and the table has room.
func (l *layer[K, V]) busy(v *version[V]) bool {
	return v.saved != v.at && (v.saved != 0 || v.at != v.since && l.recent < recentMost)
}

// flushed notes that the value of c is on its way into its own table.
func (l *layer[K, V]) flushed(c *cell[K, V]) {
	now := l.touch(c)
	now.since, now.saved = 0, 0
}

// recentRests is how many passes in a row must find a recent row unchanged before it goes to its
// own table: who pays a little less often than passes are made would go to and fro.
const recentRests = 4

// rest keeps c in the table of recent rows for another pass. It is false if it has been there long
// enough, or is not there.
func (l *layer[K, V]) rest(c *cell[K, V]) bool {
	if now := l.cur(c); now.saved == 0 || now.rests == recentRests {
		return false
	}
	l.touch(c).rests++
	return true
}

// save notes that the value of c is on its way into the table of recent rows.
func (l *layer[K, V]) save(c *cell[K, V]) {
	now := l.touch(c)
	now.saved, now.rests = now.at, 0
}

// mark is where the command's changes stand.
func (l *layer[K, V]) mark() int { return len(l.undo) }

// back undoes the command's changes down to mark.
func (l *layer[K, V]) back(mark int) {
	for i := len(l.undo) - 1; i >= mark; i-- {
		u := &l.undo[i]
		now := l.cur(u.c)
		if !u.was.dirty() && now.dirty() {
			l.soiled--
		}
		*now = u.was
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
	for i, c := range l.changed {
		p, r, d := c.pub.counts()
		pinned, dirty = pinned-p, dirty-d
		l.recent -= r
		p, r, d = l.open[i].counts()
		pinned, dirty = pinned+p, dirty+d
		l.recent += r
		s := l.shard(c.key)
		s.mu.Lock()
		s.publish(c, &l.open[i])
		s.mu.Unlock()
		c.open = 0
	}
	l.forget()
	l.pinned.Add(int64(pinned))
	l.dirty.Add(int64(dirty))
}

// drop undoes the group's changes.
func (l *layer[K, V]) drop() {
	for _, c := range l.changed {
		c.open = 0
	}
	l.forget()
}

// forget ends the group.
func (l *layer[K, V]) forget() {
	clear(l.changed)
	clear(l.open)
	l.changed, l.open = l.changed[:0], l.open[:0]
}

// read is what readers see of k; not ok means to look into the file, with a view that begins now.
func (l *layer[K, V]) read(k K) (v V, ok bool) {
	s := l.shard(k)
	s.mu.RLock()
	i, ok := s.cells[k]
	if ok {
		c := l.cells.At(i)
		c.use()
		v = c.pub.v
	}
	s.mu.RUnlock()
	return v, ok
}

// cell returns the cell of k, or nil if k is not in memory. The caller passes it to the committer
// and must not read it.
func (l *layer[K, V]) cell(k K) *cell[K, V] {
	s := l.shard(k)
	s.mu.RLock()
	i, ok := s.cells[k]
	s.mu.RUnlock()
	if !ok {
		return nil
	}
	return l.cells.At(i)
}

// holds tells the committer whether a cell that was carried to it is that of k.
func (c *cell[K, V]) holds(k K) bool {
	if c == nil || !c.live || c.key != k {
		return false
	}
	c.use()
	return true
}

// pinnedKeys lists the rows that their own table lags behind. It may be called from anywhere.
func (l *layer[K, V]) pinnedKeys() []K {
	keys := make([]K, 0, l.pinned.Load())
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		kept := s.pins[:0]
		for _, c := range s.pins {
			if c.listed = c.pub.since != 0; c.listed {
				keys, kept = append(keys, c.key), append(kept, c)
			}
		}
		clear(s.pins[len(kept):])
		s.pins = kept
		s.mu.Unlock()
	}
	return keys
}
