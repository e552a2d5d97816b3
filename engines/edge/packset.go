package edge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/cache"
	"ronbox/engines/edge/pmtiles"
)

// generation is packs by their ids. It is never changed: a scan or a verification publishes another.
type generation map[string]packEntry

// packEntry is a pack as a generation has it.
type packEntry struct {
	info PackInfo
	pack *Pack // held by the generations that have it in a row; nil if it failed
}

func (g generation) ids() []string { return slices.Sorted(maps.Keys(g)) }

// PackSet is the packs of a node. Requests read the current generation; the verifier alone replaces it, and a pack that is in none any more is
// closed once its last request has ended.
type PackSet struct {
	Deps
	event   func(PackInfo) // told of each new state of a pack; must not wait
	dir     string
	current atomic.Pointer[generation]
	jobs    *flow.Queue[*flow.Reply[error]] // scans, answered with their errors
	leaves  *cache.Cache[string, pmtiles.Leaf]
	tiles   *tileMemory
	alerted atomic.Bool // a scan is queued for a pack that has changed in place

	serial     uint64             // of the last pack opened; owned by Recover, then by the verifier, as is
	remembered map[string]packRow // by file name
}

// What packs may take.
const (
	maxPacks  = 256      // each of them holds files open
	tileBytes = 32 << 20 // of tiles in memory
	dirBytes  = 16 << 20 // of decoded PMTiles directories in memory
)

// newPackSet declares the queue and the caches of the packs in a folder, which need not be there. It does no I/O.
func newPackSet(dir string, d Deps, event func(PackInfo)) *PackSet {
	s := &PackSet{Deps: d, event: event, dir: dir, remembered: map[string]packRow{}}
	s.current.Store(&generation{})
	s.jobs = flow.NewQueue[*flow.Reply[error]](d.Catalog, flow.Spec{
		Service: service, Name: "verify_tx", Cap: verifyQueue, Policy: flow.RejectNew, Producers: []string{flow.HTTP, "node.reloader"},
		Consumers: []string{taskVerifier}, Doc: "scans of the packs' folder; full: 429, a scan that waits will see the same folder",
	})
	s.leaves = cache.New[string, pmtiles.Leaf](d.Catalog, cache.Spec[string, pmtiles.Leaf]{
		Service: service, Name: "dirs_set", Producers: []string{flow.HTTP}, Doc: "decoded directories of PMTiles", Bytes: dirBytes, Entry: 32 << 10,
	})
	s.tiles = cache.New[string, Tile](d.Catalog, cache.Spec[string, Tile]{
		Service: service, Name: "tiles_set", Producers: []string{flow.HTTP}, Doc: "tiles, as stored and decoded", Bytes: tileBytes, Entry: 8 << 10,
	})
	return s
}

// Reload has the folder scanned.
func (s *PackSet) Reload() { _ = s.jobs.TrySend(flow.NewReply[error]()) } // full: a scan that waits sees the same

// Purge empties the caches.
func (s *PackSet) Purge() {
	s.leaves.Purge()
	s.tiles.Purge()
}

// Close closes every pack and cache. Requests under way end as they would have.
func (s *PackSet) Close() {
	s.publish(generation{})
	s.leaves.Close()
	s.tiles.Close()
}

// List describes every pack, the failed ones too, by id.
func (s *PackSet) List() []PackInfo {
	g := *s.current.Load()
	out := make([]PackInfo, 0, len(g))
	for _, id := range g.ids() {
		out = append(out, g[id].info)
	}
	return out
}

// Info describes one pack, in whatever state it is.
func (s *PackSet) Info(id string) (PackInfo, error) {
	if e, ok := (*s.current.Load())[id]; ok {
		return e.info, nil
	}
	return PackInfo{}, ErrNoPack
}

// Failed counts the packs that cannot be served.
func (s *PackSet) Failed() (n int) {
	for _, e := range *s.current.Load() {
		if e.pack == nil || e.info.State == PackChanged {
			n++
		}
	}
	return n
}

// hold returns the current entry of a pack that may serve. The caller closes its pack.
func (s *PackSet) hold(id string) (packEntry, error) {
	for {
		e, ok := (*s.current.Load())[id]
		switch {
		case !ok:
			return e, ErrNoPack
		case e.pack == nil || e.info.State == PackChanged:
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

// inPlace is why a pack has changed.
const inPlace = "its file was changed in place: replace packs by renaming"

// changed has the verifier look at a pack whose file is not what it was, and is the error until it has.
func (s *PackSet) changed(id string) error {
	if s.alerted.CompareAndSwap(false, true) && s.jobs.TrySend(flow.NewReply[error]()) != nil {
		s.alerted.Store(false) // the next request asks again
	}
	return &PackError{ID: id, State: PackChanged, Reason: inPlace}
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

// Rescan looks for packs that are new, gone or changed, and returns all of them: once they are verified, or after 1.5 s, when some may be
// verifying yet. After flow.ErrBusy or flow.ErrClosed nothing was begun.
func (s *PackSet) Rescan(ctx context.Context) ([]PackInfo, error) {
	job := flow.NewReply[error]()
	if err := s.jobs.TrySend(job); err != nil {
		return nil, fmt.Errorf("rescan: %w", err)
	}
	late, cancel := context.WithTimeout(ctx, rescanWithin)
	defer cancel()
	failed, err := job.Wait(late)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case late.Err() != nil:
		err = nil
	}
	return s.List(), errors.Join(err, failed)
}

// scan opens what is new in the folder and publishes a generation of what is there. Packs whose files are as they were stay open.
func (s *PackSet) scan(ctx context.Context) error {
	s.alerted.Store(false)
	files, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Log.Warn("packs are as they were", "reason", err.Error(), "next", "ronbox edge packs rescan")
		return fmt.Errorf("scan of packs: %w", err)
	}
	old, next := *s.current.Load(), generation{}
	for _, f := range files {
		path := filepath.Join(s.dir, f.Name())
		info, fault := nameOf(path)
		if f.Name()[0] == '.' || info.Kind != KindPMTiles && info.Kind != KindMBTiles {
			continue
		}
		if other, clash := next[info.ID]; clash {
			fault = fmt.Errorf("%s has this id: rename one of them", other.info.File)
			info.ID = info.File
		}
		if fault == nil && len(next) >= maxPacks {
			fault = fmt.Errorf("there are more than %d packs, each of which holds files open", maxPacks)
		}
		if known := old[info.ID]; fault == nil && known.pack != nil && known.pack.path == path && stampOf(os.Stat(path)) == known.pack.stamp {
			next[info.ID] = known
		} else {
			next[info.ID] = s.open(ctx, path, info, fault, known.pack)
		}
	}
	s.publish(next)
	return nil
}

// open makes the entry of a file that is not open, unless it has a fault already. If was, the pack that it takes the place of, has the same inode,
// the file was changed in place.
func (s *PackSet) open(ctx context.Context, path string, info PackInfo, fault error, was *Pack) packEntry {
	s.serial++
	var p *Pack
	if fault == nil {
		p, fault = openPack(ctx, path, info, s.serial, s.leaves)
	}
	if fault != nil {
		info.State, info.Fault = PackFailed, fault.Error()
		return packEntry{info: info}
	}
	e := packEntry{info: p.info, pack: p}
	if row := s.remembered[info.File]; row.stamp() == p.stamp {
		e.info.verified(row.Digest, row.Tiles)
	} else if was != nil && was.stamp.inode == p.stamp.inode {
		e.info.State, e.info.Fault = PackChanged, inPlace
	}
	return e
}

// publish makes next current, tells of what is new in it, and lets go of packs that it has no more.
func (s *PackSet) publish(next generation) {
	old := *s.current.Swap(&next)
	for id, e := range old {
		now, stays := next[id]
		if !stays {
			e.info.State = PackRemoved
			s.event(e.info)
		}
		if e.pack != nil && e.pack != now.pack {
			e.pack.Close()
		}
	}
	for _, id := range next.ids() {
		if i := next[id].info; i.State != old[id].info.State || i.Version != old[id].info.Version {
			s.event(i)
		}
	}
}
