package extract

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/pack"
)

// service is the name of the edge in metrics, logs and the catalogue.
const service = "edge"

// TaskName is the task that reads extracts.
const TaskName = "extractor"

// mostExtracts bounds the extracts that are kept, of which some may be done or have failed.
const mostExtracts = 8

// Owner is the engine, as far as extracts need it. Its methods are safe for concurrent use.
type Owner interface {
	Event(asset.Event)
	Draining() bool
	// Ask requests an object from a host, as package origin describes.
	Ask(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error
}

// Deps holds the dependencies of an Extractor. Metrics may be nil.
type Deps struct {
	Catalog *flow.Catalog
	Metrics *obs.Metrics
	Log     hclog.Logger
	Config  func() *config.Config
	Now     func() time.Time // wall clock
	Packs   *pack.Set
	Amnesia bool
	Owner   Owner
	Synced  func() // called after each sync of a part and of its plan; only tests set it
}

// Extractor makes packs of some tiles of archives at hosts. Its methods may be called from any
// goroutine.
type Extractor struct {
	d     Deps
	moved *flow.Watch[struct{}] // changes with all
	turn  *flow.Slots           // plans are made one at a time
	bytes func(int)             // counts
	pace  pace

	mu  sync.Mutex      // a leaf
	all map[string]*job // by pack; nil before Recover; guarded by mu
}

// job is an extract of the folder.
type job struct {
	folder folder
	asked  atomic.Int64 // requests since the process began
	done   atomic.Int64 // bytes of the part
	rate   atomic.Int64 // bytes a second, 0 if unknown

	// Guarded by the mutex of the Extractor. While the job is busy the task alone changes them.
	plan
	room     *pack.Allowance    // nil if none is reserved
	checking bool               // all bytes are here
	last     error              // of the last try
	fails    int                // since the last progress
	before   int64              // bytes of the part at the last failure
	due      time.Time          // of the next try
	stop     context.CancelFunc // ends the work of the task; nil: it does not work on the job
	removed  chan struct{}      // closed when a removed job is gone; nil: it is not removed
}

// Info describes an extract.
type Info struct {
	Pack             string
	URL              string // without its query
	BBox             [4]float64
	MinZoom, MaxZoom uint8
	State            State
	Tiles            uint64
	Bytes, Done      int64
	Requests         int64
	Left             time.Duration // until all bytes are here; 0 if unknown
	ETag, Fault      string
	Refused          bool // a failed one was read in full, and its pack would not be served
}

// New returns an Extractor, and declares its channels and its metric. It does no I/O and starts
// nothing.
func New(d Deps) *Extractor {
	d.Metrics.Declare(obs.Family{
		Name: "edge_extract_bytes_total", Type: obs.Counter,
		Help: "Bytes of hosts that were read for extracts.",
	})
	return &Extractor{
		d:     d,
		bytes: d.Metrics.Counter("edge_extract_bytes_total", service),
		moved: flow.NewWatch(d.Catalog, flow.Spec{
			Service: service, Name: "extracts", Producers: []string{flow.HTTP}, Consumers: []string{TaskName},
			Doc: "changes whenever an extract begins or is removed",
		}, struct{}{}),
		turn: flow.NewSlots(d.Catalog, flow.Spec{
			Service: service, Name: "extract_turn", Cap: 1, Policy: flow.WaitDeadline, Producers: []string{flow.HTTP},
			Doc: "extracts that are planned at one time",
		}),
	}
}

// Tasks returns the task that reads extracts.
func (x *Extractor) Tasks() []flow.Task {
	return []flow.Task{{
		Service:    service,
		Name:       TaskName,
		Count:      1,
		Restart:    flow.Always,
		Background: true,
		Doc:        "reads extracts from their hosts, one at a time",
		Run:        x.run,
	}}
}

// Recover reads the folder of extracts. What is no extract is removed.
func (x *Extractor) Recover() {
	all := map[string]*job{}
	if !x.d.Amnesia {
		dir := filepath.Join(x.d.Packs.Dir(), folderName)
		entries, _ := os.ReadDir(dir) // without it there is no extract
		for _, e := range entries {
			f := folder(filepath.Join(dir, e.Name()))
			p, err := f.read()
			if err != nil {
				x.d.Log.Warn("an extract is removed", "pack", e.Name(), "reason", err.Error(), "next", "begin it again")
				_ = os.RemoveAll(string(f)) // the next start tries again
				continue
			}
			j := &job{folder: f, plan: p}
			if p.State == Reading { // without room the task tries again
				j.room, _ = x.d.Packs.Reserve(p.file(), p.Synced, p.Bytes)
			}
			if at, err := os.Stat(f.path(partName)); err == nil {
				j.done.Store(at.Size())
			}
			all[p.Pack] = j
		}
	}
	x.mu.Lock()
	x.all = all
	x.mu.Unlock()
	x.moved.Store(struct{}{})
}

// List describes the extracts, the oldest first.
func (x *Extractor) List() []Info {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := []Info{}
	for _, j := range x.sorted() {
		out = append(out, j.info())
	}
	return out
}

// sorted returns the jobs, the oldest first. The caller holds mu.
func (x *Extractor) sorted() []*job {
	return slices.SortedFunc(maps.Values(x.all), func(a, b *job) int {
		return cmp.Or(a.Added.Compare(b.Added), cmp.Compare(a.Pack, b.Pack))
	})
}

// info describes a job. The caller holds mu.
func (j *job) info() Info {
	i := j.plan.info()
	i.Done, i.Requests = j.done.Load(), j.Requests+j.asked.Load()
	switch {
	case j.State == Done:
		i.Done = i.Bytes
	case j.State == Failed:
		i.Done = 0
	case j.checking:
		i.State = Checking
	case j.stop == nil:
		i.State = Waiting
		if j.last != nil {
			i.Fault = j.last.Error()
		}
	default:
		if rate := j.rate.Load(); rate > 0 {
			i.Left = time.Duration(float64(i.Bytes-i.Done) / float64(rate) * float64(time.Second))
		}
	}
	return i
}

// info describes a plan.
func (p plan) info() Info {
	return Info{
		Pack: p.Pack, URL: asset.Shown(p.URL), BBox: p.BBox, MinZoom: p.MinZoom, MaxZoom: p.MaxZoom, State: p.State,
		Tiles: p.Tiles, Bytes: p.Bytes, ETag: p.ETag, Fault: p.Fault, Refused: p.Refused,
	}
}

// Remove removes an extract, with all that was read of it. A pack that it has become stays. It
// returns pack.ErrMissing if there is no such extract, asset.ErrDisk or the cause of ctx.
func (x *Extractor) Remove(ctx context.Context, id string) error {
	x.mu.Lock()
	j := x.all[id]
	if j == nil {
		x.mu.Unlock()
		return pack.ErrMissing
	}
	working, first := j.stop != nil, j.removed == nil
	if first {
		j.removed = make(chan struct{})
	}
	if working {
		j.stop()
	}
	gone := j.removed
	x.mu.Unlock()
	if first && !working {
		return x.drop(j)
	}
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// drop removes a job that nobody works on. A folder that stays after an error is read again by the
// next start.
func (x *Extractor) drop(j *job) error {
	err := os.RemoveAll(string(j.folder))
	x.mu.Lock()
	if x.all[j.Pack] == j {
		delete(x.all, j.Pack)
	}
	x.mu.Unlock()
	j.release()
	close(j.removed)
	return pack.OfDisk(err)
}

// release returns the room of a job that nobody works on.
func (j *job) release() {
	if j.room != nil {
		j.room.End()
		j.room = nil
	}
}
