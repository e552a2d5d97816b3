package placed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/announce"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/sites"
	"ronbox/engines/edge/tables"
	"ronbox/engines/fleet"
	"ronbox/store"
)

// Bounds of the placer.
const (
	placeEvery  = 30 * time.Second // between two looks at names and at objects that were missing
	placeAtOnce = 4                // objects that are fetched at once
	placeBurst  = 64               // objects that are pinned together
	placeFaults = 16               // failed objects after which the nodes are left alone until the next look
)

// service is the name of the edge in metrics, logs and the catalogue.
const service = "edge"

// TaskName is the task that fetches and pins what is placed here. It exists only in a fleet.
const TaskName = "placer"

// Config holds the settings of a Placer.
type Config struct {
	MaxPlaced int64                 // bytes that placements may keep here; 0: half of edge.cas.max_bytes
	Edge      func() *config.Config // current
}

// Deps holds the dependencies of a Placer.
type Deps struct {
	Catalog   *flow.Catalog
	Store     *store.Store
	Log       hclog.Logger
	Content   *content.Store
	Near      *near.Searcher
	Sites     *sites.Server
	Announcer *announce.Announcer
	Names     sites.Names // nil if the index is off
}

// Placer keeps here what the registry places here. A nil *Placer is that of a node without a fleet.
type Placer struct {
	cfg    Config
	d      Deps
	tick   *flow.Ticker
	states atomic.Pointer[[]Placement]

	// Owned by the task placer.
	plans map[string]*plan       // by id of the placement
	kept  map[string]sites.Named // sites that are here in full, by name; never changed
	seen  *fleet.View            // of the last look; nil: none has ended
	epoch uint64                 // of the rows at its beginning
}

// New returns a Placer, and declares its ticker. It starts nothing.
func New(cfg Config, d Deps) *Placer {
	return &Placer{cfg: cfg, d: d, tick: flow.Every(d.Catalog, flow.Spec{
		Service: service, Name: "place_tick", Consumers: []string{TaskName}, Doc: "looks at the placements again",
	}, placeEvery)}
}

// Tasks returns the task that fetches what the registry places on this node, in a fleet.
func (r *Placer) Tasks() []flow.Task {
	if r == nil {
		return nil
	}
	return []flow.Task{{
		Service:    service,
		Name:       TaskName,
		Count:      1,
		Restart:    flow.Always,
		Background: true,
		Lanes:      []string{"store.work"},
		Doc:        "fetches and pins what the registry places on this node",
		Run:        r.run,
	}}
}

// run looks at the placements after each version of the registry, and regularly.
func (r *Placer) run(ctx context.Context) error {
	defer r.tick.Stop()
	r.plans, r.seen = map[string]*plan{}, nil
	tick := r.tick.C()
	for {
		v, changed := r.d.Near.View()
		if v != nil && r.d.Content.Ready() == nil {
			if err := r.placeAll(ctx, v, changed); err != nil && ctx.Err() == nil {
				r.d.Log.Warn("place", "reason", err.Error(), "next", "the next try is in half a minute")
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-tick:
		}
	}
}

// placeAll fetches and pins what a version of the registry places here, and unpins what it places
// here no more. It stops early when changed is closed.
func (r *Placer) placeAll(ctx context.Context, v *fleet.View, changed <-chan struct{}) error {
	if r.settled(ctx, v) {
		return nil
	}
	r.seen = nil
	epoch := r.d.Content.Epoch()
	plans := r.plansOf(v)
	rows, err := r.rows(ctx)
	if err != nil {
		return err
	}
	r.serveSites(plans, rows)
	taken := map[b3.Digest]int64{}
	for _, p := range plans {
		r.prepare(ctx, p, rows, taken)
		if p.state.State != Fetching {
			r.takeServed(ctx, p, rows, taken)
		}
	}
	r.states.Store(cloneStates(plans))
	if err := r.clean(ctx, plans, rows); err != nil {
		return err
	}
	for _, p := range plans {
		if p.state.State == Fetching {
			err = errors.Join(err, r.fetchPlan(ctx, p, rows, changed, func() {
				r.states.Store(cloneStates(plans))
			}))
		}
		r.serveSites(plans, rows) // before the state says that it is complete
		r.states.Store(cloneStates(plans))
	}
	if err = errors.Join(err, r.clean(ctx, plans, rows)); err == nil {
		r.seen, r.epoch = v, epoch
	}
	return err
}

// plansOf returns the plans of the placements of this node, with the progress of earlier ones.
func (r *Placer) plansOf(v *fleet.View) (plans []*plan) {
	self, _ := v.Node(v.Self)
	old := r.plans
	r.plans = map[string]*plan{}
	for _, item := range v.Placements {
		if item.Region != "" && item.Region != self.Region {
			continue
		}
		p := old[item.ID]
		if p == nil || p.Content != item.Content {
			p = &plan{}
		}
		p.Placement = fleet.Placement{ID: item.ID, Region: item.Region, Content: item.Content}
		p.state.ID, p.state.Content = item.ID, item.Content
		r.plans[item.ID] = p
		plans = append(plans, p)
	}
	return plans
}

// prepare finds the objects of a placement, and refuses it if they do not fit beside those of
// taken. No object but the manifest is fetched before.
func (r *Placer) prepare(ctx context.Context, p *plan, rows map[string]placedRow, taken map[b3.Digest]int64) {
	err := r.resolve(ctx, p)
	has := int64(0)
	for _, size := range taken {
		has += size
	}
	if err == nil && p.objects == nil {
		err = r.read(ctx, p, r.most()-has)
	}
	p.state.Manifest = p.root
	fault, _ := errors.AsType[*asset.FillError](err)
	bad, unsound := errors.AsType[*asset.SiteError](err)
	switch {
	case unsound:
		p.objects = nil
		p.set(Refused, "%v", bad)
		return
	case p.unsound != "":
		p.set(Refused, "%s", p.unsound)
		return
	case p.objects == nil && fault != nil && fault.Reason == asset.ObjectCap:
		p.set(Refused, "its object is longer than edge.fill.max_object_bytes or fleet.max_placed allows")
		return
	case p.objects == nil && err != nil:
		p.set(Waiting, "%v", err)
		return
	}
	after := map[b3.Digest]int64{}
	for d, size := range taken {
		after[d] = size
	}
	need := sumOf(p.objects, after)
	if served := rows[Prefix+p.Content].digest; p.name() != "" && served != p.root && !served.IsZero() {
		old, _ := r.edition(ctx, served)
		need += sumOf(old, after) // it stays until the new one is complete
	}
	p.state.Objects, p.state.Wanted = len(p.objects), sumOf(p.objects, map[b3.Digest]int64{})
	if why := r.unfit(p, rows, need, has); why != "" {
		p.state.Missing, p.state.Bytes = p.state.Objects, 0
		p.set(Refused, "%s", why)
		return
	}
	for d, size := range after {
		taken[d] = size
	}
	p.set(Fetching, "")
	if err != nil { // the name cannot be looked up now, but its last manifest is known
		p.set(Fetching, "%v", err)
	}
}

// fetchPlan fetches and pins the missing objects of a placement. It returns errors of the content
// store; why objects are missing is in the state.
func (r *Placer) fetchPlan(
	ctx context.Context,
	p *plan,
	rows map[string]placedRow,
	changed <-chan struct{},
	report func(),
) error {
	epoch := r.d.Content.Epoch()
	if p.checked && p.epoch == epoch {
		p.set(Complete, "%s", p.state.Reason)
		return nil
	}
	missing := r.missing(p, rows)
	faults := 0
	for burst := range slices.Chunk(missing, placeBurst) {
		select {
		case <-changed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		got, why := r.fetchBurst(ctx, p, burst)
		var pins []tables.Stored
		for _, o := range got {
			row := tables.RowOf(o.Digest, o.Size, "")
			row.URL = urlOf(o.Digest)
			pins = append(pins, row)
		}
		if err := r.pinBurst(ctx, p, pins, rows); err != nil || p.state.State == Refused {
			return err
		}
		if why != nil {
			p.state.Reason = why.Error()
		}
		report()
		if faults += len(burst) - len(got); faults >= placeFaults {
			return nil
		}
	}
	if p.state.Missing > 0 {
		return nil
	}
	if err := r.complete(ctx, p, rows); err != nil || p.state.State == Refused {
		return err
	}
	p.set(Complete, "%s", p.state.Reason)
	p.checked, p.epoch = true, epoch
	return nil
}

// missing returns the objects of a plan that are not stored and pinned, the root first and the
// others in a random order, so that objects that no node has do not hold up the rest.
func (r *Placer) missing(p *plan, rows map[string]placedRow) (out []sites.Object) {
	p.state.Bytes = 0
	for _, o := range p.objects {
		if rows[urlOf(o.Digest)].digest == o.Digest && r.d.Content.HasFile(o.Digest) {
			p.state.Bytes += o.Size
			continue
		}
		out = append(out, o)
	}
	p.state.Missing = len(out)
	if len(out) > 0 && out[0].Digest == p.root {
		rand.Shuffle(len(out)-1, func(i, j int) { out[i+1], out[j+1] = out[j+1], out[i+1] })
	} else {
		rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out
}

// fetchBurst fetches objects, a few at once. It returns those that are stored, and one of the
// errors.
func (r *Placer) fetchBurst(ctx context.Context, p *plan, burst []sites.Object) (got []sites.Object, why error) {
	var mu sync.Mutex // a leaf
	var next atomic.Int64
	_ = flow.Fan(ctx, min(placeAtOnce, len(burst)), func(ctx context.Context, _ int) error {
		for i := next.Add(1) - 1; i < int64(len(burst)) && ctx.Err() == nil; i = next.Add(1) - 1 {
			o := burst[i]
			err := r.d.Near.Fetch(ctx, o.Digest, p.hint(o))
			mu.Lock()
			if err == nil {
				got = append(got, o)
			} else {
				why = fmt.Errorf("%s: %w", o.Digest, err)
			}
			mu.Unlock()
		}
		return nil
	})
	return got, why
}
