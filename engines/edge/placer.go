package edge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/sites"
	"ronbox/engines/edge/tables"
	"ronbox/engines/fleet"
)

// Bounds of the placer.
const (
	placeEvery  = 30 * time.Second // between two looks at names and at objects that were missing
	placeAtOnce = 4                // objects that are fetched at once
	placeBurst  = 64               // objects that are pinned together
	placeFaults = 16               // failed objects after which the nodes are left alone until the next look
)

// placer keeps here what the registry places here.
type placer struct {
	tick   *flow.Ticker           // nil if the fleet is off
	plans  map[string]*plan       // by id of the placement; owned by the task placer, as are the next three
	kept   map[string]sites.Named // sites that are here in full, by name; never changed
	seen   *fleet.View            // of the last look; nil: none has ended
	epoch  uint64                 // of the rows at its beginning
	states atomic.Pointer[[]Placed]
}

// declarePlacer declares the ticker of the task placer.
func (e *Engine) declarePlacer() {
	e.placer.tick = flow.Every(e.d.Catalog, flow.Spec{
		Service: service, Name: "place_tick", Consumers: []string{taskPlacer}, Doc: "looks at the placements again",
	}, placeEvery)
}

// placerTask returns the task that fetches what the registry places on this node.
func (e *Engine) placerTask() flow.Task {
	return flow.Task{
		Service:    service,
		Name:       taskPlacer,
		Count:      1,
		Restart:    flow.Always,
		Background: true,
		Lanes:      []string{"store.work"},
		Doc:        "fetches and pins what the registry places on this node",
		Run:        e.runPlacer,
	}
}

// runPlacer looks at the placements after each version of the registry, and regularly.
func (e *Engine) runPlacer(ctx context.Context) error {
	defer e.placer.tick.Stop()
	e.placer.plans, e.placer.seen = map[string]*plan{}, nil
	tick := e.placer.tick.C()
	for {
		v, changed := e.near.View()
		if v != nil && e.content.Ready() == nil {
			if err := e.placeAll(ctx, v, changed); err != nil && ctx.Err() == nil {
				e.log.Warn("place", "reason", err.Error(), "next", "the next try is in half a minute")
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
func (e *Engine) placeAll(ctx context.Context, v *fleet.View, changed <-chan struct{}) error {
	if e.settled(ctx, v) {
		return nil
	}
	e.placer.seen = nil
	epoch := e.content.Epoch()
	plans := e.plansOf(v)
	rows, err := e.placedRows(ctx)
	if err != nil {
		return err
	}
	e.serveSites(plans, rows)
	taken := map[b3.Digest]int64{}
	for _, p := range plans {
		e.prepare(ctx, p, rows, taken)
		if p.state.State != PlaceFetching {
			e.takeServed(ctx, p, rows, taken)
		}
	}
	e.placer.states.Store(cloneStates(plans))
	if err := e.clean(ctx, plans, rows); err != nil {
		return err
	}
	for _, p := range plans {
		if p.state.State == PlaceFetching {
			err = errors.Join(err, e.fetchPlan(ctx, p, rows, changed, func() {
				e.placer.states.Store(cloneStates(plans))
			}))
		}
		e.placer.states.Store(cloneStates(plans))
	}
	e.serveSites(plans, rows)
	if err = errors.Join(err, e.clean(ctx, plans, rows)); err == nil {
		e.placer.seen, e.placer.epoch = v, epoch
	}
	return err
}

// plansOf returns the plans of the placements of this node, with the progress of earlier ones.
func (e *Engine) plansOf(v *fleet.View) (plans []*plan) {
	self, _ := v.Node(v.Self)
	old := e.placer.plans
	e.placer.plans = map[string]*plan{}
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
		e.placer.plans[item.ID] = p
		plans = append(plans, p)
	}
	return plans
}

// prepare finds the objects of a placement, and refuses it if they do not fit beside those of
// taken. No object but the manifest is fetched before.
func (e *Engine) prepare(ctx context.Context, p *plan, rows map[string]placedRow, taken map[b3.Digest]int64) {
	err := e.resolve(ctx, p)
	has := int64(0)
	for _, size := range taken {
		has += size
	}
	if err == nil && p.objects == nil {
		err = e.read(ctx, p, e.placedCap()-has)
	}
	p.state.Manifest = p.root
	fault, _ := errors.AsType[*asset.FillError](err)
	bad, unsound := errors.AsType[*asset.SiteError](err)
	switch {
	case unsound:
		p.objects = nil
		p.set(PlaceRefused, "%v", bad)
		return
	case p.unsound != "":
		p.set(PlaceRefused, "%s", p.unsound)
		return
	case p.objects == nil && fault != nil && fault.Reason == asset.ObjectCap:
		p.set(PlaceRefused, "its object is longer than edge.fill.max_object_bytes or fleet.max_placed allows")
		return
	case p.objects == nil && err != nil:
		p.set(PlaceWaiting, "%v", err)
		return
	}
	after := map[b3.Digest]int64{}
	for d, size := range taken {
		after[d] = size
	}
	need := sumOf(p.objects, after)
	if served := rows[placedPrefix+p.Content].digest; p.name() != "" && served != p.root && !served.IsZero() {
		old, _ := e.edition(ctx, served)
		need += sumOf(old, after) // it stays until the new one is complete
	}
	p.state.Objects, p.state.Wanted = len(p.objects), sumOf(p.objects, map[b3.Digest]int64{})
	if why := e.unfit(p, rows, need, has); why != "" {
		p.state.Missing, p.state.Bytes = p.state.Objects, 0
		p.set(PlaceRefused, "%s", why)
		return
	}
	for d, size := range after {
		taken[d] = size
	}
	p.set(PlaceFetching, "")
	if err != nil { // the name cannot be looked up now, but its last manifest is known
		p.set(PlaceFetching, "%v", err)
	}
}

// fetchPlan fetches and pins the missing objects of a placement. It returns errors of the content
// store; why objects are missing is in the state.
func (e *Engine) fetchPlan(
	ctx context.Context,
	p *plan,
	rows map[string]placedRow,
	changed <-chan struct{},
	report func(),
) error {
	epoch := e.content.Epoch()
	if p.checked && p.epoch == epoch {
		p.set(PlaceComplete, "%s", p.state.Reason)
		return nil
	}
	missing := e.missing(p, rows)
	faults := 0
	for burst := range slices.Chunk(missing, placeBurst) {
		select {
		case <-changed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		got, why := e.fetchBurst(ctx, p, burst)
		var pins []tables.Stored
		for _, o := range got {
			row := tables.RowOf(o.Digest, o.Size, "")
			row.URL = placedURL(o.Digest)
			pins = append(pins, row)
		}
		if err := e.pinBurst(ctx, p, pins, rows); err != nil || p.state.State == PlaceRefused {
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
	p.checked, p.epoch = true, epoch
	return e.complete(ctx, p, rows)
}

// missing returns the objects of a plan that are not stored and pinned, the root first and the
// others in a random order, so that objects that no node has do not hold up the rest.
func (e *Engine) missing(p *plan, rows map[string]placedRow) (out []sites.Object) {
	p.state.Bytes = 0
	for _, o := range p.objects {
		if rows[placedURL(o.Digest)].digest == o.Digest && e.content.HasFile(o.Digest) {
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
func (e *Engine) fetchBurst(ctx context.Context, p *plan, burst []sites.Object) (got []sites.Object, why error) {
	var mu sync.Mutex // a leaf
	var next atomic.Int64
	_ = flow.Fan(ctx, min(placeAtOnce, len(burst)), func(ctx context.Context, _ int) error {
		for i := next.Add(1) - 1; i < int64(len(burst)) && ctx.Err() == nil; i = next.Add(1) - 1 {
			o := burst[i]
			err := e.near.Fetch(ctx, o.Digest, p.hint(o))
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

// pinBurst pins objects that are stored. If they do not fit, or have other sizes than their
// manifest says, the placement is refused.
func (e *Engine) pinBurst(ctx context.Context, p *plan, pins []tables.Stored, rows map[string]placedRow) error {
	if len(pins) == 0 {
		return nil
	}
	missing, err := e.content.Place(ctx, pins, b3.Digest{})
	if full, over := errors.AsType[*asset.PinsError](err); over {
		p.set(PlaceRefused, "%v", full)
		return nil
	}
	if err != nil {
		return err
	}
	for _, row := range pins {
		if slices.Contains(missing, row.URL) {
			if b, err := tables.Find(ctx, e.d.Store, tables.Blobs, row.Digest); err == nil && b.Size != row.Size {
				p.unsound = fmt.Sprintf("%s has %d bytes, the manifest says %d", row.Digest, b.Size, row.Size)
				p.set(PlaceRefused, "%s", p.unsound)
			}
			continue
		}
		rows[row.URL] = placedRow{row.Digest, row.Size}
		p.state.Missing--
		p.state.Bytes += row.Size
	}
	return nil
}

// complete switches the name of a placed site to its new manifest, and announces the content.
func (e *Engine) complete(ctx context.Context, p *plan, rows map[string]placedRow) error {
	p.set(PlaceComplete, "%s", p.state.Reason)
	row := tables.RowOf(p.root, -1, "")
	row.URL = placedPrefix + p.Content
	var pins []tables.Stored
	if rows[row.URL].digest != p.root {
		pins = []tables.Stored{row}
	}
	_, err := tables.Find(ctx, e.d.Store, tables.Announced, p.root)
	if err == nil && pins == nil {
		return nil
	}
	if _, err := e.content.Place(ctx, pins, p.root); err != nil {
		return err
	}
	rows[row.URL] = placedRow{digest: p.root}
	e.announcer.Announce(ctx, p.root)
	return nil
}

// clean removes the URLs of objects that no placement names any more. It keeps the edition of a
// site that is served until the next one is complete, and removes nothing while the objects of a
// placement that has begun are not known.
func (e *Engine) clean(ctx context.Context, plans []*plan, rows map[string]placedRow) error {
	keep := map[string]bool{}
	for _, p := range plans {
		served := rows[placedPrefix+p.Content].digest
		if p.state.State != PlaceRefused {
			for _, o := range p.objects {
				keep[placedURL(o.Digest)] = true
			}
		}
		if p.objects == nil && p.name() == "" && !served.IsZero() {
			return nil
		}
		if p.name() == "" || served.IsZero() || p.state.State == PlaceRefused && served == p.root {
			continue
		}
		keep[placedPrefix+p.Content] = true
		if served == p.root && p.objects != nil {
			continue
		}
		old, ok := e.edition(ctx, served)
		if !ok {
			return nil
		}
		for _, o := range old {
			keep[placedURL(o.Digest)] = true
		}
	}
	var gone []string
	for url := range rows {
		if !keep[url] && strings.HasPrefix(url, placedPrefix) {
			gone = append(gone, url)
		}
	}
	return e.unplace(ctx, rows, gone)
}
