package content

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// IsMiss reports whether err means that there is nothing to serve.
func IsMiss(err error) bool {
	return errors.Is(err, asset.ErrNotFound) || errors.Is(err, asset.ErrCorrupt)
}

// hotEntry is an object in memory, under the name by which it was requested. The entry of a large
// object has no bytes; it only records that the use of the object was noted.
type hotEntry struct {
	asset.Object
	name  string
	read  time.Time     // when the object was read from the disk
	epoch atomic.Uint64 // of the rows, when the name last led to the object
}

// renewed returns the entry of an object that its host has confirmed since.
func (h *hotEntry) renewed(row tables.Stored) *hotEntry {
	next := &hotEntry{Object: h.Object, name: h.name, read: h.read}
	next.Checked, next.Fresh, next.Demand = row.Checked, row.Fresh, row.Demand
	return next
}

// cost returns the bytes of the entry.
func (h *hotEntry) cost() int64 { return int64(len(h.Bytes)+len(h.name)) + hotOverhead }

// Bounds of the memory for objects.
const (
	hotBytes = 64 << 20 // of all objects
	// hotObject is the largest object, in bytes, that is held in memory. An object of up to this
	// size is hashed each time it is read from the disk.
	hotObject   = 1 << 20
	hotOverhead = 512 // bytes of an entry beside its object and its name
	// hotFor is how long an entry lives. The next request then reads a small object from the disk
	// again and notes the use of the object, which writes to the disk.
	hotFor = 10 * time.Minute
)

// hotEntry returns the entry of a name, if it is in memory and not older than hotFor.
func (s *Store) hotEntry(name string) (*hotEntry, bool) {
	hit, ok := s.hot.Get(name)
	return hit, ok && hit.name == name && time.Since(hit.read) < hotFor
}

// Warm returns the object of a name if the name is in memory and no row has changed since its
// lookup. A large object must have been hashed; Warm opens its file, and returns nil if that fails.
func (s *Store) Warm(name string) *asset.Object {
	hit, ok := s.hotEntry(name)
	if !ok || hit.epoch.Load() != s.epoch.Load() {
		return nil
	}
	o := hit.Object
	if o.Bytes == nil && (!s.sums.has(o.Digest) || s.openFile(&o) != nil) {
		return nil
	}
	return &o
}

// Open opens the stored object of a digest or a URL. It drops a row that does not read and
// returns ErrNotFound. If a row is replaced while Open opens its file, Open looks again.
func (s *Store) Open(ctx context.Context, t asset.Target) (o *asset.Object, row tables.Stored, err error) {
	for mended := false; ; {
		epoch := s.epoch.Load()
		o, row, err = s.lookUp(ctx, t, epoch)
		switch {
		case errors.Is(err, store.ErrCorrupt) && !mended:
			mended = true // once: if the row stays damaged, its error is returned
			err = errors.Join(err, s.repairSoon(ctx))
			if s.epoch.Load() == epoch {
				return o, row, err
			}
		case !errors.Is(err, asset.ErrNotFound) || s.epoch.Load() == epoch:
			return o, row, err
		}
	}
}

// rowOf returns the row of a URL, or its row from a file of an earlier schema, which may spell the
// URL in another way.
func (s *Store) rowOf(ctx context.Context, t asset.Target) (tables.Stored, error) {
	row, err := tables.Find(ctx, s.d.Store, tables.Paths, tables.PathKey(t.URL))
	if t.Old == "" || !errors.Is(err, asset.ErrNotFound) {
		return row, err
	}
	old, oldErr := tables.Find(ctx, s.d.Store, tables.Paths, tables.PathKey(t.Old))
	if errors.Is(oldErr, asset.ErrNotFound) || old.Checked != 0 {
		return row, err // that spelling now names another object
	}
	return old, oldErr
}

// Spelled returns the URL of a target as its row spells it.
func (s *Store) Spelled(ctx context.Context, t asset.Target) (string, error) {
	row, err := s.rowOf(ctx, t)
	return cmp.Or(row.URL, t.URL), asset.Ignore(err, asset.ErrNotFound)
}

// lookUp makes one attempt of Open, in an epoch of the rows.
func (s *Store) lookUp(ctx context.Context, t asset.Target, epoch uint64) (
	o *asset.Object,
	row tables.Stored,
	err error,
) {
	if t.URL != "" {
		row, err = s.rowOf(ctx, t)
	} else {
		var b tables.BlobRow
		b, err = tables.Find(ctx, s.d.Store, tables.Blobs, t.Digest)
		row = tables.Stored{Digest: t.Digest, Size: b.Size, Type: b.Type}
	}
	if err != nil {
		return nil, row, err
	}
	hit, hot := s.hotEntry(t.Name)
	if hot = hot && hit.Digest == row.Digest && hit.Type == row.Type; hot {
		if hit.Checked != row.Checked {
			hit = hit.renewed(row)
			s.hot.Set(t.Name, hit, hit.cost())
		}
		hit.epoch.Store(epoch)
	}
	if hot && hit.Bytes != nil {
		o := hit.Object
		return &o, row, nil
	}
	if o, err = s.read(ctx, row.Digest, row.Size); err != nil {
		return nil, row, err
	}
	o.Type, o.Immutable = row.Type, t.URL == ""
	o.Checked, o.Fresh, o.Demand = row.Checked, row.Fresh, row.Demand
	o.ETag()
	if t.Old != "" && row.URL == t.Old { // a row of the URL itself would not end the entry
		s.d.Dir.Use(row.Digest, s.d.Now())
	} else if !hot {
		entry := &hotEntry{Object: *o, name: t.Name, read: time.Now()}
		entry.From, entry.File, entry.OnClose = asset.FromHot, nil, nil
		entry.epoch.Store(epoch)
		s.hot.Set(t.Name, entry, entry.cost())
		s.d.Dir.Use(row.Digest, s.d.Now())
	}
	return o, row, nil
}

// read opens an object. It hashes an object of up to 1 MiB before it returns any of its bytes, and
// a larger one before its first use in this process. If the hash differs from the name, the object
// is set aside. A row without a file is a miss: the snapshot of a node holds rows but no files.
func (s *Store) read(ctx context.Context, name b3.Digest, size int64) (*asset.Object, error) {
	o, err := s.loadAnywhere(ctx, name, size)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, asset.ErrNotFound
	case errors.Is(err, cas.ErrCorrupt):
		return nil, errors.Join(asset.ErrCorrupt, s.quarantineSoon(ctx, name, err))
	case ofDisk(err):
		return nil, s.Failed(err)
	}
	return o, err
}

// load reads an object from the disk. It returns fs.ErrNotExist or cas.ErrCorrupt. The returned
// Object is never nil and may be closed after an error too.
func (s *Store) load(ctx context.Context, name b3.Digest, size int64) (o *asset.Object, err error) {
	o = &asset.Object{Digest: name, Size: size, From: asset.FromCAS}
	if size <= hotObject {
		o.Bytes, err = s.d.Dir.Read(name, size)
		return o, err
	}
	if err = s.sums.check(ctx, s.d.Dir, name, size); err != nil {
		return o, err
	}
	return o, s.openFile(o)
}

// openFile opens the file of an object.
func (s *Store) openFile(o *asset.Object) error {
	f, err := s.d.Dir.Share(o.Digest, o.Size)
	if err == nil {
		o.From, o.File, o.OnClose = asset.FromCAS, f.SectionReader, f.Close
	}
	return err
}

// repairWithin bounds the time for which a request waits for the CAS writer.
const repairWithin = 2 * time.Second

// corrupt returns the object of a name that a reader failed to read with cause.
func corrupt(name b3.Digest, cause error) corruptObject {
	one := corruptObject{name: name}
	if bad, ok := errors.AsType[*cas.CorruptError](cause); ok {
		one.bad = bad.File
	}
	return one
}

// quarantineSoon asks the CAS writer to quarantine an object. It fails if the queue is full, and
// waits at most repairWithin for the result.
func (s *Store) quarantineSoon(ctx context.Context, name b3.Digest, cause error) error {
	return s.writeSoon(ctx, &setAside{all: []corruptObject{corrupt(name, cause)}}, repairWithin)
}

// Repair drops damaged rows. It fails if the queue of the CAS writer is full, and waits at most
// 20 s for the result.
func (s *Store) Repair(ctx context.Context) error {
	return s.writeSoon(ctx, repairRows{}, writeWithin)
}

// repairSoon is Repair, for a request.
func (s *Store) repairSoon(ctx context.Context) error {
	return s.writeSoon(ctx, repairRows{}, repairWithin)
}

// writeSoon sends a change to the CAS writer and waits at most within for its result. It fails if
// the queue is full, and before Recover: no CAS writer runs then.
func (s *Store) writeSoon(ctx context.Context, c change, within time.Duration) error {
	if !s.begun.Load() {
		return asset.ErrStore
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	j := &writeJob{c, flow.NewReply[struct{}]()}
	if err := s.writes.TrySend(j); err != nil {
		return err
	}
	_, err := j.reply.Wait(ctx)
	return err
}

// sums holds the objects over 1 MiB that this process has hashed. They are too large to be hashed
// at each read, so they are hashed once, before their first use. There are at most
// edge.cas.max_bytes / 1 MiB of them.
type sums struct {
	flights *flow.Flight[b3.Digest, struct{}, struct{}]
	slots   *flow.Slots

	mu   sync.Mutex             // a leaf
	good map[b3.Digest]struct{} // guarded by mu
}

// Bounds of the hashing of large objects.
const (
	hashAtOnce = 2                // objects at the same time; each keeps a core busy
	hashWithin = 10 * time.Minute // for one object, with the wait for a slot
)

func newSums(c *flow.Catalog, calls int) *sums {
	return &sums{
		flights: flow.NewFlight[b3.Digest, struct{}, struct{}](c, flow.FlightSpec{
			Service: service, Name: "hash", Shards: 4, Waiters: maxWaiters, Calls: calls,
		}),
		slots: flow.NewSlots(c, flow.Spec{
			Service: service, Name: "hashings", Cap: hashAtOnce, Policy: flow.WaitDeadline,
			Producers: []string{flow.HTTP}, Doc: "objects over 1 MiB that are hashed at one time",
		}),
		good: map[b3.Digest]struct{}{},
	}
}

func (s *sums) has(name b3.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.good[name]
	return ok
}

// add records that the bytes of an object match its name.
func (s *sums) add(name b3.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.good[name] = struct{}{}
}

// forget causes an object to be hashed again before its next use.
func (s *sums) forget(name b3.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.good, name)
}

// check hashes an object unless that was done before. Concurrent callers share one reading. It
// waits until ctx ends; the reading continues after that. It returns the errors of cas.Dir.Verify,
// flow.ErrBusy or the cause of ctx.
func (s *sums) check(ctx context.Context, d *cas.Dir, name b3.Digest, size int64) error {
	if s.has(name) {
		return nil
	}
	_, err := s.flights.Do(ctx, name, struct{}{}, hashWithin, func(ctx context.Context) (none struct{}, err error) {
		if s.has(name) {
			return none, nil
		}
		if err = s.slots.Acquire(ctx); err != nil {
			return none, fmt.Errorf("hash %s: %w", name, err)
		}
		defer s.slots.Release()
		if err = d.Verify(name, size, func(int) error { return context.Cause(ctx) }); err == nil {
			s.add(name)
		}
		return none, err
	})
	if errors.Is(err, flow.ErrFlightFull) {
		return flow.ErrBusy
	}
	return err
}
