package extract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/paulmach/orb"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/pmtiles"
	"ronbox/store"
)

// Errors of Begin.
var (
	// ErrFull is returned if as many extracts are waiting as are kept.
	ErrFull = fmt.Errorf("%d extracts are waiting", mostExtracts)
	// ErrAnother is returned for a pack of which another extract is under way.
	ErrAnother = errors.New("another extract of this pack is under way: remove it first")
)

// ManyError is returned for an extract of too many tiles. Zoom is the highest level for which they
// are few enough; -1: there is none.
type ManyError struct{ Zoom, Most int }

func (e *ManyError) Error() string {
	if e.Zoom < 0 {
		return fmt.Sprintf("more than edge.extract.max_tiles = %d tiles: ask for a smaller region", e.Most)
	}
	return fmt.Sprintf("more than edge.extract.max_tiles = %d tiles: those up to zoom level %d are few enough", e.Most,
		e.Zoom)
}

// Request asks for an extract.
type Request struct {
	Pack    string
	URL     string      // https://<host of edge.allow>/<path>, optionally with a query
	BBox    *[4]float64 // west, south, east, north in degrees; nil: all, or Region
	Region  []byte      // GeoJSON; nil: none
	MinZoom uint8
	MaxZoom *uint8 // nil: that of the source
	DryRun  bool   // only plan
}

// Begin plans an extract: it reads the directories of the source, and knows all that it will read.
// The task then reads the tiles. A repetition of a request that is not done and has not failed
// returns the extract as it is. The errors are those of package asset, a *RegionError, *ManyError,
// *pack.RefusedError or *pack.RoomError, pack.ErrName, ErrFull, ErrAnother, ErrNoRanges,
// ErrChanged, store.ErrNotLeader before Recover, and the cause of ctx.
func (x *Extractor) Begin(ctx context.Context, q Request) (Info, error) {
	p, region, err := x.planOf(q)
	if err != nil {
		return Info{}, err
	}
	if err = x.turn.Acquire(ctx); err != nil {
		return Info{}, err
	}
	defer x.turn.Release()
	if !q.DryRun {
		if i, known, err := x.known(p); known || err != nil {
			return i, err
		}
	}
	part, err := x.look(ctx, &p, region, q)
	if err != nil {
		return Info{}, err
	}
	room, err := x.d.Packs.Reserve(p.file(), 0, part.Size)
	if err != nil {
		return Info{}, err
	}
	if q.DryRun {
		room.End()
		p.State = Planning
		return p.info(), nil
	}
	i, err := x.add(p, part, room)
	if err != nil {
		room.End()
	}
	return i, err
}

// planOf checks a request.
func (x *Extractor) planOf(q Request) (p plan, region orb.MultiPolygon, err error) {
	x.mu.Lock()
	recovered := x.all != nil
	x.mu.Unlock()
	switch {
	case x.d.Amnesia:
		return p, nil, asset.ErrAmnesia
	case !recovered:
		return p, nil, store.ErrNotLeader
	case x.d.Config().Mode != config.ModeLive:
		return p, nil, asset.ErrOffline
	}
	p = plan{Pack: q.Pack, Asked: [2]int{int(q.MinZoom), math.MaxUint8}, Added: x.d.Now().UTC()}
	if q.MaxZoom != nil {
		p.Asked[1] = int(*q.MaxZoom)
	}
	switch {
	case q.BBox != nil && q.Region != nil:
		err = &RegionError{"/region", "is not possible together with bbox"}
	case q.Region != nil:
		p.Region = b3.Sum(q.Region).String()
		region, err = parseRegion(q.Region)
		p.BBox = boundsOf(region)
	case q.BBox != nil:
		p.BBox = *q.BBox
		region, err = parseBBox(p.BBox)
	default:
		p.BBox = world
		region, err = parseBBox(p.BBox)
	}
	if err == nil && p.Asked[0] > p.Asked[1] {
		err = &RegionError{"/min_zoom", "is above max_zoom"}
	}
	if err == nil {
		_, err = x.d.Packs.MayAdd(p.file())
	}
	if err == nil {
		var t asset.Target
		t, _, err = asset.ParseURL(q.URL)
		p.URL = t.URL
	}
	return p, region, err
}

// known returns the extract of a repeated request, or an error if there may be no new one.
func (x *Extractor) known(p plan) (i Info, known bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	open := 0
	for _, j := range x.all {
		if j.State == Reading {
			open++
		}
	}
	switch j := x.all[p.Pack]; {
	case j != nil && j.State == Reading && j.same(p) && j.removed == nil:
		return j.info(), true, nil
	case j != nil && (j.State == Reading || j.removed != nil):
		return i, false, ErrAnother
	case open >= mostExtracts:
		return i, false, ErrFull
	}
	return i, false, nil
}

// look reads the directories of the source. It completes p.
func (x *Extractor) look(ctx context.Context, p *plan, region orb.MultiPolygon, q Request) (*pmtiles.Part, error) {
	t, _, err := asset.ParseURL(p.URL)
	if err != nil {
		return nil, err
	}
	s := source{Target: t, asked: new(atomic.Int64)}
	begin, err := x.first(ctx, &s)
	if err != nil {
		return nil, err
	}
	r, err := pmtiles.Open(bytes.NewReader(begin), s.size, pmtiles.Options{}) // reads no more
	if err != nil {
		return nil, refused(err)
	}
	most := x.d.Config().Extract.MaxTiles
	low, high := max(q.MinZoom, r.MinZoom), uint8(min(p.Asked[1], int(r.MaxZoom)))
	if low > high {
		return nil, &RegionError{"/min_zoom",
			fmt.Sprintf("the source has the zoom levels %d to %d", r.MinZoom, r.MaxZoom)}
	}
	spans, reached, err := pmtiles.Spans(ctx, region, low, high, most)
	if err != nil {
		return nil, err
	}
	part, err := r.Part(ctx, pmtiles.Wanted{Spans: spans, Most: most, Bounds: p.BBox},
		func(ctx context.Context, all []pmtiles.Section, each func([]byte) error) error {
			return x.sections(ctx, s, all, each)
		})
	many, ok := errors.AsType[*pmtiles.ManyError](err)
	if ok {
		reached = min(reached, many.Zoom)
	}
	switch {
	case (err == nil || ok) && reached < int(high):
		if reached < int(low) {
			reached = -1
		}
		return nil, &ManyError{Zoom: reached, Most: most}
	case errors.Is(err, pmtiles.ErrNoTiles):
		return nil, &RegionError{"/region", "the source has no tile there"}
	case err != nil:
		return nil, refused(err)
	}
	p.MinZoom, p.MaxZoom, p.Tiles, p.Bytes = part.MinZoom, part.MaxZoom, part.Tiles, part.Size
	p.ETag, p.Source, p.Requests = s.etag, s.size, s.asked.Load()
	return part, nil
}

// refused converts the error of an archive that does not read.
func refused(err error) error {
	if errors.Is(err, pmtiles.ErrUnfit) {
		return &pack.RefusedError{Faults: []string{err.Error()}}
	}
	return err
}

// add makes the folder of a plan. It drops the oldest extracts that are done or have failed if
// there are too many.
func (x *Extractor) add(p plan, part *pmtiles.Part, room *pack.Allowance) (Info, error) {
	if x.d.Owner.Draining() {
		return Info{}, flow.ErrClosed
	}
	if !x.replaces(p.Pack) {
		return Info{}, ErrAnother
	}
	dir := filepath.Join(x.d.Packs.Dir(), folderName)
	j := &job{folder: folder(filepath.Join(dir, p.Pack)), room: room}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		p, err = j.folder.create(p, part, x.synced)
	}
	if err != nil {
		return Info{}, pack.OfDisk(err)
	}
	j.plan = p
	j.done.Store(p.Head)
	x.mu.Lock()
	x.all[p.Pack] = j
	var old []*job
	for _, o := range x.sorted() {
		if len(x.all) > mostExtracts && o.State != Reading {
			old = append(old, o)
			delete(x.all, o.Pack)
		}
	}
	i := j.info()
	x.mu.Unlock()
	for _, o := range old {
		_ = os.RemoveAll(string(o.folder)) // the next start reads it again
	}
	x.d.Owner.Event(asset.Event{Kind: "extract", Of: p.Pack, Result: string(i.State), Size: p.Bytes})
	x.moved.Store(struct{}{})
	return i, nil
}

// replaces forgets an ended extract of a pack, whose folder the next one takes over. It reports
// false if the ended one is being removed.
func (x *Extractor) replaces(pack string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.all[pack]; old != nil && old.removed != nil {
		return false
	}
	delete(x.all, pack)
	return true
}
