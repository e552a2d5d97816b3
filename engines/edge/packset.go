package edge

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/cache"
	"ronbox/engines/edge/pmtiles"
)

// PackSet is the packs of a node. Requests read the current generation. Scans, the opener and the verifiers replace it,
// and a pack that is in none any more is closed once its last request has ended.
type PackSet struct {
	Deps
	event   func(PackInfo) // called with each new state of a pack; must not wait
	dir     string
	env     *packEnv
	current atomic.Pointer[generation]
	moved   *flow.Watch[struct{}] // changes with current
	jobs    *flow.Queue[scanJob]
	leaves  *cache.Cache[string, pmtiles.Leaf]
	tiles   *tileMemory
	alerted atomic.Bool   // a scan is queued for a pack that has changed in place
	serial  atomic.Uint64 // of the last pack opened
	dirty   atomic.Bool   // rows of current are not in the file
	saving  atomic.Bool   // a caller of remember is writing them
}

// What packs may take.
const (
	maxPacks  = 256      // each of them holds files open
	tileBytes = 32 << 20 // of tiles in memory
	dirBytes  = 16 << 20 // of decoded PMTiles directories in memory
)

// newPackSet declares the queue and the caches of the packs in a folder, which need not be there. It does no I/O.
func newPackSet(dir string, cfg PacksConfig, d Deps, event func(PackInfo)) *PackSet {
	s := &PackSet{Deps: d, event: event, dir: dir}
	s.current.Store(&generation{})
	s.moved = flow.NewWatch(d.Catalog, flow.Spec{
		Service: service, Name: "packs", Producers: []string{taskScanner, taskOpener, taskVerifier},
		Consumers: []string{flow.HTTP, taskOpener, taskVerifier}, Doc: "changes whenever a pack does",
	}, struct{}{})
	s.jobs = flow.NewQueue[scanJob](d.Catalog, flow.Spec{
		Service: service, Name: "verify_tx", Cap: verifyQueue, Policy: flow.RejectNew, Producers: []string{flow.HTTP, "node.reloader"},
		Consumers: []string{taskScanner}, Doc: "scans of the packs' folder; full: 429, a scan that waits will see the same folder",
	})
	s.leaves = cache.New[string, pmtiles.Leaf](d.Catalog, cache.Spec[string, pmtiles.Leaf]{
		Service: service, Name: "dirs_set", Producers: []string{flow.HTTP}, Doc: "decoded directories of PMTiles", Bytes: dirBytes, Entry: 32 << 10,
	})
	s.tiles = cache.New[string, Tile](d.Catalog, cache.Spec[string, Tile]{
		Service: service, Name: "tiles_set", Producers: []string{flow.HTTP}, Doc: "tiles, as stored and decoded", Bytes: tileBytes, Entry: 8 << 10,
	})
	s.env = &packEnv{cfg: cfg, leaves: s.leaves, slots: pmtiles.NewSlots()}
	return s
}

// Reload has the folder scanned, and files opened again that were refused.
func (s *PackSet) Reload() { _ = s.scanLater(true) } // full: a scan that waits sees the same

func (s *PackSet) scanLater(retry bool) error {
	return s.jobs.TrySend(scanJob{retry: retry, reply: flow.NewReply[error]()})
}

// Purge empties the caches.
func (s *PackSet) Purge() {
	s.leaves.Purge()
	s.tiles.Purge()
}

// Close closes every pack and cache. Requests under way end as they would have.
func (s *PackSet) Close() {
	s.update(func(next *generation) { *next = generation{} })
	s.leaves.Close()
	s.tiles.Close()
}

// List describes every pack, the failed ones too, by id.
func (s *PackSet) List() []PackInfo {
	g := s.current.Load()
	out := make([]PackInfo, 0, len(g.packs))
	for _, id := range g.ids() {
		out = append(out, g.packs[id].info)
	}
	return out
}

// Info describes one pack, in whatever state it is.
func (s *PackSet) Info(id string) (PackInfo, error) {
	if e, ok := s.current.Load().packs[id]; ok {
		return e.info, nil
	}
	return PackInfo{}, ErrNoPack
}

// Failed counts the packs that cannot be served.
func (s *PackSet) Failed() (n int) {
	for _, e := range s.current.Load().packs {
		if e.info.State == PackFailed || e.info.State == PackChanged {
			n++
		}
	}
	return n
}

// hold returns the current entry of a pack that may serve. The caller closes its pack.
func (s *PackSet) hold(id string) (packEntry, error) {
	for {
		e, ok := s.current.Load().packs[id]
		switch {
		case !ok:
			return e, ErrNoPack
		case !e.serves():
			return e, &PackError{ID: id, State: e.info.State, Reason: e.info.Fault}
		case !e.pack.hold():
			continue // a newer generation was published before this one let go of it
		case e.pack.unchanged():
			return e, nil
		}
		e.pack.Close()
		return e, s.changed(id)
	}
}

// changed has the folder scanned for a pack whose file is not what it was, and returns the error until it is.
func (s *PackSet) changed(id string) error {
	if s.alerted.CompareAndSwap(false, true) && s.scanLater(false) != nil {
		s.alerted.Store(false) // the next request asks again
	}
	return &PackError{ID: id, State: PackChanged, Reason: changedInPlace}
}

// Tile reads a tile of a pack and brings it into a coding that is accepted. Errors: ErrNoPack, ErrBadTile, ErrOutside, ErrNoTile, ErrCoding, a
// PackError, or the cause of ctx.
func (s *PackSet) Tile(ctx context.Context, at TileRef, accept func(Coding) bool) (Tile, error) {
	e, err := s.hold(at.Pack)
	if err != nil {
		return Tile{}, err
	}
	defer e.pack.Close()
	t, err := e.pack.tile(ctx, at, accept, s.tiles)
	if errors.Is(err, ErrPackFailed) && !e.pack.unchanged() {
		err = s.changed(at.Pack)
	}
	t.Version = e.info.Version
	return t, err
}

// File opens the file of a PMTiles pack whose digest is known: an *os.File of the caller's own, or where its name stands for another file by now a
// view of the one that is open. Until it is closed the pack's generation lasts. Errors: ErrNoPack, ErrNoRaw or a PackError.
func (s *PackSet) File(id string) (*Object, error) {
	e, err := s.hold(id)
	switch {
	case err != nil:
		return nil, err
	case e.info.Kind != KindPMTiles:
		err = ErrNoRaw
	case e.info.State != PackVerified:
		err = &PackError{ID: id, State: e.info.State, Reason: "its digest is not known yet"}
	default:
		file, end := e.pack.view()
		return &Object{Digest: e.info.Digest, Size: e.info.Size, Type: "application/vnd.pmtiles", File: file, From: FromPack, close: end}, nil
	}
	e.pack.Close()
	return nil, err
}

// rescanWithin is how long a caller of Rescan waits: a verification takes as long as reading the whole file.
const rescanWithin = 1500 * time.Millisecond

// Rescan looks for packs that are new, gone or changed, and returns all of them: once each is verified or has failed, or
// after 1.5 s, when some may be opening or verifying yet. Files that were refused are opened again. After flow.ErrBusy or
// flow.ErrClosed nothing was begun.
func (s *PackSet) Rescan(ctx context.Context) ([]PackInfo, error) {
	job := scanJob{retry: true, reply: flow.NewReply[error]()}
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

// settle waits until every pack is verified or has failed, and that is remembered. The error is the cause of ctx.
func (s *PackSet) settle(ctx context.Context) error {
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
