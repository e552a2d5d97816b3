package pack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/cache"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/pmtiles"
	"ronbox/store"
)

// Set is the set of packs of a node. Requests read the current generation; scans, the opener
// and the verifiers replace it. A pack that is no longer in a generation is closed after its last
// request.
type Set struct {
	Deps
	dir     string
	env     *shared
	current atomic.Pointer[generation]
	moved   *flow.Watch[struct{}] // changes with current
	jobs    *flow.Queue[scanJob]
	looks   *flow.Ticker // nil if only jobs scan
	leaves  *cache.Cache[string, pmtiles.Leaf]
	tiles   *memory
	unread  atomic.Bool   // the last scan could not read the folder
	alerted atomic.Bool   // a scan is queued for a pack that was changed in place
	serial  atomic.Uint64 // of the last opened pack
	// uploading is the number of bytes that uploads and extracts may take of edge.packs.max_bytes.
	uploading atomic.Int64
	naming    *flow.Slots // of the one upload or extract that gets its name
	sweep     func()      // removeUploads, once
	dirty     atomic.Bool // the rows of current differ from the file
	saving    atomic.Bool // a call of remember writes them
	stands    bool        // the caches are open; owned by Stand
}

// Deps holds the dependencies of a Set.
type Deps struct {
	Catalog *flow.Catalog
	Store   *store.Store
	Log     hclog.Logger
	DataDir string
	Amnesia bool       // nothing is written to a disk: no pack is put or removed
	Spare   int64      // bytes that an upload leaves free on the disk
	Event   func(Info) // called with each new state of a pack; must not block
	Synced  func()     // called after each sync of a new pack and its folder; nil except in tests
}

// Bounds of all packs.
const (
	maxPacks  = 256      // each holds open files
	tileBytes = 32 << 20 // of cached tiles
	dirBytes  = 16 << 20 // of cached PMTiles directories
)

// New declares the queue and the caches of the packs in a folder, which may be missing. A relative
// dir is below the data directory, and "" is the folder packs in it. New does no I/O.
func New(dir string, cfg Config, d Deps) *Set {
	if dir = cmp.Or(dir, "packs"); !filepath.IsAbs(dir) {
		dir = filepath.Join(d.DataDir, dir)
	}
	s := &Set{Deps: d, dir: dir}
	s.sweep = sync.OnceFunc(s.removeUploads)
	s.current.Store(&generation{})
	s.moved = flow.NewWatch(d.Catalog, flow.Spec{
		Service: service, Name: "packs", Producers: []string{TaskScanner, TaskOpener, TaskVerifier},
		Consumers: []string{flow.HTTP, TaskOpener, TaskVerifier}, Doc: "changes whenever a pack does",
	}, struct{}{})
	s.jobs = flow.NewQueue[scanJob](d.Catalog, flow.Spec{
		Service:   service,
		Name:      "verify_tx",
		Cap:       verifyQueue,
		Policy:    flow.RejectNew,
		Producers: []string{flow.HTTP, "node.reloader"},
		Consumers: []string{TaskScanner},
		Doc:       "scans of the folder of packs; full: 429, a queued scan sees the same folder",
	})
	if every := cfg.Watch.D(); every > 0 {
		s.looks = flow.Every(d.Catalog, flow.Spec{
			Service: service, Name: "pack_looks", Consumers: []string{TaskScanner},
			Doc: "a look at the folder of packs",
		}, every)
	}
	s.naming = flow.NewSlots(d.Catalog, flow.Spec{
		Service: service, Name: "pack_naming", Cap: 1, Policy: flow.WaitDeadline,
		Producers: []string{flow.HTTP, "extractor"}, Doc: "uploads and extracts that get their names",
	})
	s.leaves = cache.New[string, pmtiles.Leaf](d.Catalog, cache.Spec[string, pmtiles.Leaf]{
		Service:   service,
		Name:      "dirs_set",
		Producers: []string{flow.HTTP},
		Doc:       "decoded directories of PMTiles",
		Bytes:     dirBytes,
		Entry:     32 << 10,
	})
	s.tiles = cache.New[string, Tile](d.Catalog, cache.Spec[string, Tile]{
		Service:   service,
		Name:      "tiles_set",
		Producers: []string{flow.HTTP},
		Doc:       "tiles, as stored and decoded",
		Bytes:     tileBytes,
		Entry:     8 << 10,
	})
	s.env = &shared{cfg: cfg, leaves: s.leaves, slots: pmtiles.NewSlots(), room: newRoom(d.Catalog)}
	return s
}

// Reload queues a scan of the folder that also opens refused files again.
func (s *Set) Reload() { _ = s.scanLater(lookAgain) } // if the queue is full, a queued scan does the same

func (s *Set) scanLater(how looks) error {
	return s.jobs.TrySend(scanJob{how: how, reply: flow.NewReply[error]()})
}

// Purge empties the caches.
func (s *Set) Purge() {
	s.leaves.Purge()
	s.tiles.Purge()
}

func (s *Set) openCaches() error { return errors.Join(s.leaves.Open(), s.tiles.Open()) }

// Close releases every pack and closes the caches. Running requests end normally.
func (s *Set) Close() {
	s.update(func(next *generation) { *next = generation{} })
	s.leaves.Close()
	s.tiles.Close()
}

// List describes every pack, including failed ones, by id.
func (s *Set) List() []Info {
	g := s.current.Load()
	out := make([]Info, 0, len(g.packs))
	for _, id := range g.ids() {
		out = append(out, g.packs[id].info)
	}
	return out
}

// Info describes one pack in any state. It returns ErrMissing if there is no such pack.
func (s *Set) Info(id string) (Info, error) {
	if e, ok := s.current.Load().packs[id]; ok {
		return e.info, nil
	}
	return Info{}, ErrMissing
}

// Failed returns the number of packs that cannot be served.
func (s *Set) Failed() (n int) {
	for _, e := range s.current.Load().packs {
		if e.info.State == asset.PackFailed || e.info.State == asset.PackChanged {
			n++
		}
	}
	return n
}

// hold returns the current entry of a pack that serves, with a reference that the caller must
// close.
func (s *Set) hold(id string) (entry, error) {
	for {
		e, ok := s.current.Load().packs[id]
		switch {
		case !ok:
			return e, ErrMissing
		case !e.serves():
			return e, &Error{ID: id, State: e.info.State, Reason: e.info.Fault}
		case !e.pack.hold():
			continue // a newer generation was published, and this one has released the pack
		case e.pack.unchanged():
			return e, nil
		}
		e.pack.Close()
		return e, s.changed(id)
	}
}

// changed queues a scan of the folder because the file of a pack has changed, and returns the error
// of such a pack.
func (s *Set) changed(id string) error {
	how := lookWatch // the file may still be growing
	if s.env.cfg.Watch == 0 {
		how = lookAtOnce
	}
	if s.alerted.CompareAndSwap(false, true) && s.scanLater(how) != nil {
		s.alerted.Store(false) // the next request tries again
	}
	return &Error{ID: id, State: asset.PackChanged, Reason: changedInPlace}
}

// Tile reads a tile of a pack in a coding that accept admits. The caller must close it. It returns
// ErrMissing, ErrBadTile, ErrOutside, ErrNoTile, ErrCoding, ErrTooLarge, an Error or the cause of
// ctx.
func (s *Set) Tile(ctx context.Context, at TileRef, accept func(Coding) bool) (Tile, error) {
	e, err := s.hold(at.Pack)
	if err != nil {
		return Tile{}, err
	}
	defer e.pack.Close()
	t, err := e.pack.tile(ctx, at, e.info.Format, accept, s.tiles)
	if errors.Is(err, ErrFailed) && !e.pack.unchanged() {
		err = s.changed(at.Pack)
	}
	t.Version = e.info.Version
	return t, err
}

// File opens the file of a verified PMTiles pack. The Object holds a reference of the pack until it
// is closed. It returns ErrMissing, ErrNoRaw or a Error.
func (s *Set) File(id string) (*asset.Object, error) {
	e, err := s.hold(id)
	switch {
	case err != nil:
		return nil, err
	case e.info.Kind != PMTiles:
		err = ErrNoRaw
	case e.info.State != asset.PackVerified:
		err = &Error{ID: id, State: e.info.State, Reason: "its digest is not known yet"}
	default:
		return &asset.Object{
			Digest:  e.info.Digest,
			Size:    e.info.Size,
			Type:    "application/vnd.pmtiles",
			File:    io.NewSectionReader(e.pack.file, 0, e.pack.stamp.size),
			From:    asset.FromPack,
			OnClose: e.pack.Close,
		}, nil
	}
	e.pack.Close()
	return nil, err
}

// rescanWithin bounds the wait of Rescan: a verification reads whole files.
const rescanWithin = 1500 * time.Millisecond

// Rescan scans the folder, with refused files, and returns all packs. It waits until each pack is
// verified or has failed, at most 1.5 s; some may still be opening or verifying then. After
// flow.ErrBusy or flow.ErrClosed no scan was begun.
func (s *Set) Rescan(ctx context.Context) ([]Info, error) {
	job := scanJob{how: lookAgain, reply: flow.NewReply[error]()}
	if err := s.jobs.TrySend(job); err != nil {
		return nil, fmt.Errorf("rescan: %w", err)
	}
	late, cancel := context.WithTimeout(ctx, rescanWithin)
	defer cancel()
	failed, err := job.reply.Wait(late)
	if err = errors.Join(failed, err); err == nil {
		err = s.settle(late)
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case late.Err() != nil:
		err = nil
	}
	return s.List(), err
}

// settle waits until every pack is verified or has failed, and until the results are in the file.
// It returns the cause of ctx if ctx ends first.
func (s *Set) settle(ctx context.Context) error {
	for {
		_, moved := s.moved.Load()
		if s.current.Load().settled() && !s.dirty.Load() && !s.saving.Load() {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Stand opens and checks the packs of the folder without tasks and without a write, as on a member
// that does not lead. A bad row of digests counts as none. The caller may repeat it, and calls
// Recover when the node leads, but never both at once.
func (s *Set) Stand(ctx context.Context) error {
	if !s.stands {
		if err := s.openCaches(); err != nil {
			return fmt.Errorf("read the packs: %w", err)
		}
		s.stands = true
	}
	if !s.Amnesia {
		s.sweep()
	}
	if rows, err := s.readRows(ctx); err == nil {
		s.update(func(next *generation) { next.rows = rows })
	}
	_ = s.scan(lookAtOnce) // scan logs its error
	for ctx.Err() == nil {
		g := s.current.Load()
		if id := g.unopened(); id != "" {
			s.open(ctx, g.packs[id])
			continue
		}
		p := g.unchecked()
		if p == nil {
			return nil
		}
		r, err := s.check(ctx, p, result{})
		if ctx.Err() == nil && (err != nil || len(r.Faults) > 0) {
			s.judge(p, r, err, func(*generation) {})
		}
		p.Close()
	}
	return context.Cause(ctx)
}
