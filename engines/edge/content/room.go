package content

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/intake"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// room counts the content of the content store and the bytes that running fills have reserved.
type room struct {
	mu       *flow.Mutex
	has      tables.Tally // guarded by mu
	reserved int64        // bytes; guarded by mu
	changes  uint64       // number of changes of has; guarded by mu
	evicted  int64        // URLs since the start; guarded by mu
	// denied is the smallest number of bytes that eviction could not free, at the time deniedAt of
	// changes. Both are guarded by mu.
	denied   int64
	deniedAt uint64
}

// add applies a change of the content.
func (r *room) add(d tables.Tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.has.Add(d)
	r.changes++
}

// reserve adds bytes to the reservations; a negative number releases them. Unlike take it always
// succeeds.
func (r *room) reserve(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved += bytes
}

// set replaces the count of the content.
func (r *room) set(has tables.Tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.has = has
	r.changes++
}

// evict counts evicted URLs.
func (r *room) evict(urls int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.evicted += urls
}

func (r *room) held() (has tables.Tally, reserved int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.has, r.reserved
}

// take reserves need bytes if neither the quota nor the disk is exceeded, and reports whether it
// did.
func (r *room) take(need, quota, disk int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.has.Bytes+r.reserved+need > quota || r.reserved+need > disk {
		return false
	}
	r.reserved += need
	return true
}

// deny records that eviction cannot free so many bytes, until the content changes.
func (r *room) deny(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied, r.deniedAt = bytes, r.changes
}

// mayFree reports whether eviction may free so many bytes. It returns false if all objects
// together have fewer, or if a search of the rows has failed since the content last changed.
func (r *room) mayFree(bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deniedAt == r.changes && r.denied > 0 && bytes >= r.denied {
		return false
	}
	return bytes <= r.has.Bytes
}

// roomTries is the number of tries of a reservation: other fills may take the freed room.
const roomTries = 3

// reserve reserves need bytes for a fill, and waits for evictions until ctx ends.
func (s *Store) reserve(ctx context.Context, need int64) error {
	for range roomTries {
		quota, disk, err := s.bounds()
		if err != nil || s.room.take(need, quota, disk) || s.d.Owner.Shed() && s.room.take(need, quota, disk) {
			return err
		}
		if err := s.write(ctx, roomFor{bytes: need}); err != nil {
			return err
		}
	}
	return asset.ErrFull
}

// Room returns where room for an object that is being received is reserved.
func (s *Store) Room() intake.Room { return storeRoom{s} }

// storeRoom reserves room of the content store and of the disk, and evicts for it.
type storeRoom struct{ s *Store }

func (r storeRoom) Reserve(ctx context.Context, bytes int64) error { return r.s.reserve(ctx, bytes) }

func (r storeRoom) Release(bytes int64) { r.s.room.reserve(-bytes) }

// bounds returns the quota of all objects, and the bytes that they may still take of the disk.
// disk is negative if the disk has too little free space.
func (s *Store) bounds() (quota, disk int64, err error) {
	free, err := s.d.Dir.Free()
	c := s.d.Config().CAS
	return c.MaxBytes.Bytes(), free - c.MinFree.Bytes() - c.Headroom(), err
}

// Usage describes how full the content store is. An object counts for each of its pinned URLs.
type Usage struct {
	Bytes, MaxBytes     int64 // of objects
	Pinned, MaxPinned   int64 // bytes of objects with pinned URLs
	Free                int64 // bytes that objects may still take, of the quota and of the disk
	Objects, URLs, Pins int64
	Evicted             int64 // URLs since the start
}

// Usage returns how full the content store is. It returns ErrAmnesia in amnesia mode.
func (s *Store) Usage() (Usage, error) {
	if s.d.Owner.Amnesia() {
		return Usage{}, asset.ErrAmnesia
	}
	quota, disk, err := s.bounds()
	if err != nil {
		return Usage{}, err
	}
	pinned, _ := s.d.Config().CAS.PinCaps()
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	has, reserved := s.room.has, s.room.reserved
	return Usage{
		Bytes: has.Bytes, MaxBytes: quota, Pinned: has.Pinned, MaxPinned: pinned,
		Free:    max(0, min(quota-has.Bytes, disk)-reserved),
		Objects: has.Objects, URLs: has.URLs, Pins: has.Pins, Evicted: s.room.evicted,
	}, nil
}

// EvictForDisk requests evictions when the disk is short of space because other files have grown.
// It evicts nothing if the eviction of all unpinned objects would not be enough.
func (s *Store) EvictForDisk() {
	if !s.opened.Load() {
		return
	}
	need := s.d.Config().CAS.Headroom()
	_, disk, err := s.bounds()
	if err == nil && disk < 0 && s.d.Owner.Shed() {
		_, disk, err = s.bounds()
	}
	if err != nil || disk >= 0 || !s.room.mayFree(need-disk) {
		return
	}
	// If the queue is full, the next look asks again.
	_ = s.writes.TrySend(&writeJob{roomFor{bytes: max(need, 1)}, flow.NewReply[struct{}]()})
}

// shortOf returns how many bytes and URLs must be evicted to make room for as many more.
func (s *Store) shortOf(bytes, urls int64) (tables.Tally, error) {
	quota, disk, err := s.bounds()
	has, reserved := s.room.held()
	looseBytes, looseURLs := has.Loose()
	short := tables.Tally{URLs: excess(has.URLs, looseURLs, urls, int64(s.d.Config().CAS.MaxURLs))}
	if bytes > 0 {
		short.Bytes = max(0, reserved+bytes-disk, excess(has.Bytes, looseBytes, reserved+bytes, quota))
	}
	return short, err
}

// excess returns how much of has must be evicted for more. If the quota is exceeded, it is at
// least a tenth of the quota, as far as loose allows, so that the next fills need no eviction.
func excess(has, loose, more, quota int64) int64 {
	if has+more <= quota {
		return 0
	}
	return max(has+more-quota, min(loose, has+more-quota/10*9))
}

// makeRoom evicts the least recently used unpinned URLs until there is room for more bytes and
// URLs. If URLs are short, it evicts those of the object with the most URLs first, so that a host
// that answers every path with the same bytes displaces no other objects. It evicts nothing if it
// returns ErrFull.
func (s *Store) makeRoom(ctx context.Context, bytes, urls int64) error {
	short, err := s.shortOf(bytes, urls)
	if err != nil || short == (tables.Tally{}) {
		return err
	}
	if !s.room.mayFree(short.Bytes) {
		return asset.ErrFull
	}
	all, err := s.candidates(ctx, short)
	if err != nil {
		return errors.Join(asset.ErrFull, err)
	}
	var evicted tables.Change
	for left := short; (left.Bytes > 0 || left.URLs > 0) && len(all) > 0; {
		var urls []b3.Digest
		for next := left; (next.Bytes > 0 || next.URLs > 0) && len(urls) < evictBurst && len(all) > 0; all = all[1:] {
			urls = append(urls, all[0].key)
			next.Add(tables.Tally{Bytes: -all[0].of.size, URLs: -1})
		}
		done, err := store.Commit(ctx, s.d.Store, store.Work, tables.Drop{Keys: urls})
		if err != nil {
			return err
		}
		left.Add(done.Tally)
		s.applyChange(ctx, done)
		evicted.Tally.Add(done.Tally)
		s.room.evict(-done.URLs)
	}
	s.d.Owner.Event(asset.Event{Kind: "cas_evict", Result: fmt.Sprint(-evicted.URLs, " URLs"), Size: -evicted.Bytes})
	return nil
}

// candidate is a URL that may be evicted.
type candidate struct {
	key b3.Digest
	of  *evictable
}

// evictable describes an object for eviction.
type evictable struct {
	used time.Time
	urls int
	size int64 // bytes that its last URL frees; 0 if another of its URLs is pinned
}

// candidates returns the URLs that may be evicted, in the order of eviction. It returns ErrFull if
// their eviction would not make up for short.
func (s *Store) candidates(ctx context.Context, short tables.Tally) (all []candidate, err error) {
	pinned, err := s.pinnedPaths(ctx)
	if err != nil {
		return nil, err
	}
	objects, held := map[b3.Digest]*evictable{}, map[b3.Digest]bool{}
	err = s.eachURL(ctx, func(key b3.Digest, row tables.Stored) error {
		o := objects[row.Digest]
		if o == nil {
			o = &evictable{used: s.d.Dir.Used(row.Digest), size: row.Size}
			objects[row.Digest] = o
		}
		o.urls++
		if pinned[key] {
			held[row.Digest] = true
			return nil
		}
		all = append(all, candidate{key, o})
		return nil
	})
	if err != nil {
		return nil, err
	}
	var most tables.Tally
	for name, o := range objects {
		if held[name] {
			o.size = 0
		}
		most.Bytes += o.size
	}
	if short.URLs == 0 { // keep URLs that free no bytes
		all = slices.DeleteFunc(all, func(c candidate) bool { return c.of.size == 0 })
	}
	if most.Bytes < short.Bytes {
		s.room.deny(most.Bytes + 1)
		return nil, asset.ErrFull
	}
	if int64(len(all)) < short.URLs {
		return nil, asset.ErrFull
	}
	slices.SortFunc(all, func(a, b candidate) int {
		if short.URLs > 0 && a.of.urls != b.of.urls {
			return b.of.urls - a.of.urls
		}
		return a.of.used.Compare(b.of.used)
	})
	return all, nil
}

// pinnedPaths returns the keys of the pinned rows of edge/paths.
func (s *Store) pinnedPaths(ctx context.Context) (map[b3.Digest]bool, error) {
	pinned := map[b3.Digest]bool{}
	err := tables.Scan(ctx, s.d.Store, tables.Keys, func(k tables.URLKey, row tables.KeyRow) error {
		if row.Pinned {
			pinned[k.Hash] = true
		}
		return nil
	})
	return pinned, err
}

// eachURL calls visit for every row of edge/paths, which is slow. An error of visit ends it.
func (s *Store) eachURL(ctx context.Context, visit func(b3.Digest, tables.Stored) error) error {
	s.walks.Add(1)
	return tables.Scan(ctx, s.d.Store, tables.Paths, visit)
}
