package edge

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/cas"
	"ronbox/store"
)

// Sources of an Object.
const (
	FromPack = "pack"
	FromCAS  = "cas"
	FromHot  = "hot"
)

// Object is the bytes of an asset, whole. Close it.
type Object struct {
	Digest b3.Digest
	Size   int64
	Type   string // media type
	// Bytes are all of it if it has at most 1 MiB and is not a pack: shared, never to be written. Else File has them.
	Bytes []byte
	File  io.ReadSeeker // an *os.File where the system has one, for this reader alone

	From      string // FromPack, FromCAS or FromHot
	Immutable bool   // the path names the bytes
	Filled    bool   // it was fetched for this request
	etag      string // "": not made yet
	close     func()
}

// ETag is the strong entity tag of the object.
func (o *Object) ETag() string {
	if o.etag == "" {
		o.etag = `"` + o.Digest.String() + `"`
	}
	return o.etag
}

// Close lets the object go.
func (o *Object) Close() {
	if o.close != nil {
		o.close()
	}
}

// Asset gives what a path below /edge/assets/, decoded, stands for: a pack file, a stored object, or, in live mode, one that is fetched now.
// For that it waits until ctx ends, and no longer than edge.ingress.timeout_secs; the fill goes on then. Errors are those of errors.go, and
// those of packs.
func (e *Engine) Asset(ctx context.Context, path string) (*Object, error) {
	if o := e.warm(path); o != nil {
		return o, nil
	}
	t, err := parsePath(path)
	var o *Object
	switch {
	case err != nil:
		return nil, err
	case t.pack != "":
		return e.packs.File(t.pack)
	default:
		o, _, err = e.stored(ctx, path, t)
	}
	if t.url == "" || e.Config().Mode != ModeLive || !isMiss(err) {
		return o, err
	}
	within := e.Config().timeout()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if _, err = e.fill(ctx, &fillJob{target: t, path: path, try: within}); err != nil {
		return nil, err
	}
	if o, _, err = e.stored(ctx, path, t); err == nil {
		o.Filled = true
	}
	return o, err
}

// isMiss reports whether there is nothing that could be served.
func isMiss(err error) bool { return errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) }

// hotEntry is an object under the path that it was asked for by. Of a large one, without its bytes, it says that its use is noted.
type hotEntry struct {
	Object
	path  string
	epoch atomic.Uint64 // of the rows, in which the path led to it
}

// Bounds of what is kept in memory.
const (
	hotBytes    = 64 << 20         // of all objects
	hotObject   = 1 << 20          // bytes; an object up to it is held in memory whole, and hashed when it is read from the disk
	hotOverhead = 512              // bytes beside its own and its path
	hotFor      = 10 * time.Minute // until its use is noted again, which writes to the disk, and a small one's file is read
)

// warm is the object that a path leads to, if it is in memory and no row has changed since it was looked up.
func (e *Engine) warm(path string) *Object {
	hit, ok := e.hot.Get(path)
	if !ok || hit.path != path || hit.Bytes == nil || hit.epoch.Load() != e.epoch.Load() {
		return nil
	}
	o := hit.Object
	return &o
}

// stored opens what is stored of a digest or a URL. A row that does not read is dropped, and is a miss then. A row that is replaced may lose its file to a reader that has just looked it up, who looks
// again then.
func (e *Engine) stored(ctx context.Context, path string, t target) (o *Object, row Stored, err error) {
	for mended := false; ; {
		epoch := e.epoch.Load()
		o, row, err = e.lookUp(ctx, path, t, epoch)
		switch {
		case errors.Is(err, store.ErrCorrupt) && !mended:
			mended = true // once: a row that stays damaged is answered
			err = errors.Join(err, e.mendSoon(ctx, mendWithin))
			if e.epoch.Load() == epoch {
				return o, row, err
			}
		case !errors.Is(err, ErrNotFound) || e.epoch.Load() == epoch:
			return o, row, err
		}
	}
}

// lookUp is one look of stored, in an epoch of the rows.
func (e *Engine) lookUp(ctx context.Context, path string, t target, epoch uint64) (o *Object, row Stored, err error) {
	if t.url != "" {
		row, err = find(ctx, e, paths, pathKey(t.url))
	} else {
		var b blobRow
		b, err = find(ctx, e, blobs, t.digest)
		row = Stored{Digest: t.digest, Size: b.Size, Type: b.Type}
	}
	if err != nil {
		return nil, row, err
	}
	hit, hot := e.hot.Get(path)
	if hot = hot && hit.path == path && hit.Digest == row.Digest && hit.Type == row.Type; hot {
		hit.epoch.Store(epoch)
	}
	if hot && hit.Bytes != nil {
		o := hit.Object
		return &o, row, nil
	}
	if o, err = e.open(ctx, row.Digest, row.Size); err != nil {
		return nil, row, err
	}
	o.Type, o.Immutable = row.Type, t.url == ""
	if o.ETag(); !hot {
		entry := &hotEntry{Object: *o, path: path}
		entry.From, entry.File, entry.close = FromHot, nil, nil
		entry.epoch.Store(epoch)
		e.hot.SetFor(path, entry, int64(len(o.Bytes)+len(path))+hotOverhead, hotFor)
		e.cas.Use(row.Digest, e.now())
	}
	return o, row, nil
}

// open opens an object. Up to 1 MiB it is hashed before any of it is seen, a larger one once before its first use in this process; one that is
// not what its name says is set aside. A row whose file is
// gone is a miss: the snapshot of a node holds the rows, not the files.
func (e *Engine) open(ctx context.Context, name b3.Digest, size int64) (*Object, error) {
	o, err := e.load(ctx, name, size)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNotFound
	case errors.Is(err, cas.ErrCorrupt):
		return nil, errors.Join(ErrCorrupt, e.setAside(ctx, name, err))
	}
	return o, err
}

// load reads an object from the disk. It gives fs.ErrNotExist or cas.ErrCorrupt, and an Object that may be closed all the same.
func (e *Engine) load(ctx context.Context, name b3.Digest, size int64) (o *Object, err error) {
	o = &Object{Digest: name, Size: size, From: FromCAS}
	if size <= hotObject {
		o.Bytes, err = e.cas.Read(name, size)
		return o, err
	}
	if err = e.sums.check(ctx, e.cas, name, size); err != nil {
		return o, err
	}
	f, err := e.cas.Open(name, size)
	o.File, o.close = f, func() { _ = f.Close() }
	return o, err
}

// Bounds of what a request waits for the CAS writer.
const mendWithin = 2 * time.Second

// asideJob is the change that sets an object aside which was met in the state that cause describes.
func asideJob(name b3.Digest, cause error) *writeJob {
	j := &writeJob{aside: name}
	if bad, ok := errors.AsType[*cas.CorruptError](cause); ok {
		j.bad = bad.File
	}
	return j
}

// setAside has an object taken out of the content store. It does not wait for room, and 2 s at most for the answer.
func (e *Engine) setAside(ctx context.Context, name b3.Digest, cause error) error {
	return e.writeSoon(ctx, asideJob(name, cause), mendWithin)
}

// mendSoon has damaged rows dropped. It does not wait for room, and for the answer only so long.
func (e *Engine) mendSoon(ctx context.Context, within time.Duration) error {
	return e.writeSoon(ctx, &writeJob{mend: true}, within)
}

// writeSoon hands a change to the writer if there is room.
func (e *Engine) writeSoon(ctx context.Context, j *writeJob, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	j.reply = flow.NewReply[struct{}]()
	if err := e.writes.TrySend(j); err != nil {
		return err
	}
	_, err := j.reply.Wait(ctx)
	return err
}
