package edge

import (
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
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// Asset returns the object at a path below /edge/assets/: a pack file, a stored object or, in live
// mode, an object that is fetched now. The path is decoded, the query is not. Asset waits for a
// fetch until ctx ends, and at most edge.ingress.timeout_secs; the fetch continues after that. It
// returns the errors of errors.go and those of packs.
func (e *Engine) Asset(ctx context.Context, path, query string) (*asset.Object, error) {
	if o := e.warm(asset.NameOf(path, query)); o != nil {
		return o, nil
	}
	t, err := asset.ParsePath(path, query)
	var o *asset.Object
	switch {
	case err != nil:
		return nil, err
	case t.Pack != "":
		return e.packs.File(t.Pack)
	default:
		o, _, err = e.stored(ctx, t)
	}
	if t.URL == "" || e.Config().Mode != config.ModeLive || !isMiss(err) {
		return o, err
	}
	within := e.Config().Timeout()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if _, err = e.fill(ctx, &fillJob{Target: t, path: asset.ShownPath(path, query), try: within}); err != nil {
		return nil, err
	}
	if o, _, err = e.stored(ctx, t); err == nil {
		o.Filled = true
	}
	return o, err
}

// isMiss reports whether err means that there is nothing to serve.
func isMiss(err error) bool {
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
func (e *Engine) hotEntry(name string) (*hotEntry, bool) {
	hit, ok := e.hot.Get(name)
	return hit, ok && hit.name == name && time.Since(hit.read) < hotFor
}

// warm returns the object of a name if it is in memory and no row has changed since its lookup.
func (e *Engine) warm(name string) *asset.Object {
	hit, ok := e.hotEntry(name)
	if !ok || hit.Bytes == nil || hit.epoch.Load() != e.epoch.Load() {
		return nil
	}
	o := hit.Object
	return &o
}

// stored opens the stored object of a digest or a URL. It drops a row that does not read and
// returns ErrNotFound. If a row is replaced while stored opens its file, stored looks again.
func (e *Engine) stored(ctx context.Context, t asset.Target) (o *asset.Object, row tables.Stored, err error) {
	for mended := false; ; {
		epoch := e.epoch.Load()
		o, row, err = e.lookUp(ctx, t, epoch)
		switch {
		case errors.Is(err, store.ErrCorrupt) && !mended:
			mended = true // once: if the row stays damaged, its error is returned
			err = errors.Join(err, e.repairSoon(ctx, repairWithin))
			if e.epoch.Load() == epoch {
				return o, row, err
			}
		case !errors.Is(err, asset.ErrNotFound) || e.epoch.Load() == epoch:
			return o, row, err
		}
	}
}

// lookUp makes one attempt of stored, in an epoch of the rows.
func (e *Engine) lookUp(ctx context.Context, t asset.Target, epoch uint64) (
	o *asset.Object,
	row tables.Stored,
	err error,
) {
	if t.URL != "" {
		row, err = tables.Find(ctx, e.d.Store, tables.Paths, tables.PathKey(t.URL))
	} else {
		var b tables.BlobRow
		b, err = tables.Find(ctx, e.d.Store, tables.Blobs, t.Digest)
		row = tables.Stored{Digest: t.Digest, Size: b.Size, Type: b.Type}
	}
	if err != nil {
		return nil, row, err
	}
	hit, hot := e.hotEntry(t.Name)
	if hot = hot && hit.Digest == row.Digest && hit.Type == row.Type; hot {
		hit.epoch.Store(epoch)
	}
	if hot && hit.Bytes != nil {
		o := hit.Object
		return &o, row, nil
	}
	if o, err = e.open(ctx, row.Digest, row.Size); err != nil {
		return nil, row, err
	}
	o.Type, o.Immutable = row.Type, t.URL == ""
	if o.ETag(); !hot {
		entry := &hotEntry{Object: *o, name: t.Name, read: time.Now()}
		entry.From, entry.File, entry.OnClose = asset.FromHot, nil, nil
		entry.epoch.Store(epoch)
		e.hot.Set(t.Name, entry, int64(len(o.Bytes)+len(t.Name))+hotOverhead)
		e.cas.Use(row.Digest, e.now())
	}
	return o, row, nil
}

// open opens an object. It hashes an object of up to 1 MiB before it returns any of its bytes, and
// a larger one before its first use in this process. If the hash differs from the name, the object
// is set aside. A row without a file is a miss: the snapshot of a node holds rows but no files.
func (e *Engine) open(ctx context.Context, name b3.Digest, size int64) (*asset.Object, error) {
	o, err := e.loadAnywhere(ctx, name, size)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, asset.ErrNotFound
	case errors.Is(err, cas.ErrCorrupt):
		return nil, errors.Join(asset.ErrCorrupt, e.quarantineSoon(ctx, name, err))
	case ofDisk(err):
		return nil, e.failed(err)
	}
	return o, err
}

// load reads an object from the disk. It returns fs.ErrNotExist or cas.ErrCorrupt. The returned
// Object is never nil and may be closed after an error too.
func (e *Engine) load(ctx context.Context, name b3.Digest, size int64) (o *asset.Object, err error) {
	o = &asset.Object{Digest: name, Size: size, From: asset.FromCAS}
	if size <= hotObject {
		o.Bytes, err = e.cas.Read(name, size)
		return o, err
	}
	if err = e.sums.check(ctx, e.cas, name, size); err != nil {
		return o, err
	}
	f, err := e.cas.Open(name, size)
	o.File, o.OnClose = f, func() { _ = f.Close() }
	return o, err
}

// repairWithin bounds the time for which a request waits for the CAS writer.
const repairWithin = 2 * time.Second

// quarantineJob returns the job that sets an object aside after a reader failed with cause.
func quarantineJob(name b3.Digest, cause error) *writeJob {
	one := corruptObject{name: name}
	if bad, ok := errors.AsType[*cas.CorruptError](cause); ok {
		one.bad = bad.File
	}
	return &writeJob{aside: []corruptObject{one}}
}

// quarantineSoon asks the CAS writer to quarantine an object. It fails if the queue is full, and
// waits at most repairWithin for the result.
func (e *Engine) quarantineSoon(ctx context.Context, name b3.Digest, cause error) error {
	return e.writeSoon(ctx, quarantineJob(name, cause), repairWithin)
}

// repairSoon asks the CAS writer to drop damaged rows. It fails if the queue is full, and waits at
// most within for the result.
func (e *Engine) repairSoon(ctx context.Context, within time.Duration) error {
	return e.writeSoon(ctx, &writeJob{repair: true}, within)
}

// writeSoon sends a job to the CAS writer and waits at most within for its result. It fails if the
// queue is full, and before Recover: no CAS writer runs then.
func (e *Engine) writeSoon(ctx context.Context, j *writeJob, within time.Duration) error {
	if e.origins.Load() == nil {
		return asset.ErrStore
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	j.reply = flow.NewReply[struct{}]()
	if err := e.writes.TrySend(j); err != nil {
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
	slots   chan struct{}

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
		//rawchan: slots is a semaphore, not a queue
		slots: make(chan struct{}, hashAtOnce), good: map[b3.Digest]struct{}{},
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
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return none, fmt.Errorf("hash %s: %w", name, context.Cause(ctx))
		}
		defer func() { <-s.slots }()
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
