package edge

import (
	"context"
	"net/netip"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/meter"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/placed"
	"ronbox/engines/edge/sites"
	"ronbox/engines/fleet"
	"ronbox/engines/fleet/lines"
)

// FleetConfig holds the settings of [fleet] that the edge uses. They need a restart.
type FleetConfig struct {
	MaxPlaced int64        // bytes that placements may keep here; 0: half of edge.cas.max_bytes
	Signer    meter.Signer // signs the statements of usage; nil: nothing is counted

	// Share takes a token of the share that a network has of rps searches a second, or returns the
	// time until the next token. nil: no share. It does not block.
	Share func(network netip.Addr, rps int) (ok bool, wait time.Duration)
}

// newFleet makes the server of sites and, in a fleet, what fetches from other nodes.
func (e *Engine) newFleet() {
	readers := []string{flow.HTTP}
	if e.d.Fleet != nil {
		readers = append(readers, placed.TaskName)
		e.near = near.New(near.Config{
			Readers:   []string{flow.HTTP, placed.TaskName, meter.TaskName},
			Searchers: []string{flow.HTTP, content.TaskScrubber, placed.TaskName},
			Share:     e.d.Fleet.Share,
		}, near.Deps{
			Catalog: e.d.Catalog,
			Log:     e.log,
			Config:  e.Config,
			Content: e.content,
			Fills:   e.fills,
			Names:   e.d.Names,
			Owner:   owner{e},
		})
	}
	e.sites = sites.New(readers, sites.Deps{
		Catalog: e.d.Catalog,
		Config:  e.Config,
		Now:     func() time.Time { return e.now() },
		Content: e.content,
		Near:    e.near,
		Names:   e.d.Names,
	})
	if e.d.Fleet != nil {
		e.newPlacer()
	}
}

// newPlacer makes the placer and the meter.
func (e *Engine) newPlacer() {
	e.placer = placed.New(placed.Config{MaxPlaced: e.d.Fleet.MaxPlaced, Edge: e.Config}, placed.Deps{
		Catalog:   e.d.Catalog,
		Store:     e.d.Store,
		Log:       e.log,
		Content:   e.content,
		Near:      e.near,
		Sites:     e.sites,
		Announcer: e.announcer,
		Names:     e.d.Names,
	})
	if e.d.Fleet.Signer != nil {
		e.meter = meter.New(meter.Deps{
			Catalog: e.d.Catalog,
			Store:   e.d.Store,
			Log:     e.log,
			Now:     e.now,
			Signer:  e.d.Fleet.Signer,
			View:    e.view,
			Damaged: func(what string) { e.damaged("row", what) },
		})
	}
}

// SetFleet tells the engine the lines of a version of the registry; nil means none. Nodes whose
// lines stay keep their breakers. It is a no-op in an engine without Deps.Fleet. It must not be
// called concurrently.
func (e *Engine) SetFleet(l *lines.Lines) { e.near.Set(l) }

// view returns the current version of the registry, or nil.
func (e *Engine) view() *fleet.View {
	v, _ := e.near.View()
	return v
}

// Fetch stores an object that another node of the fleet has, as package near describes.
func (e *Engine) Fetch(ctx context.Context, d b3.Digest, h near.Hint) error {
	return e.near.Fetch(ctx, d, h)
}

// FetchAsset is Asset for "b3/<hex>" if the object is not stored here: it fetches the object from
// the fleet, as package sites describes. Objects of manifests that this node has opened are fetched
// for everyone, others if may returns true. from is the network of the caller.
func (e *Engine) FetchAsset(ctx context.Context, path string, from netip.Addr, may func() bool) (*asset.Object, error) {
	return e.sites.Fetch(ctx, path, from, may)
}

// Site returns a file of a site, as package sites describes.
func (e *Engine) Site(ctx context.Context, r sites.Request) (sites.File, error) {
	return e.sites.File(ctx, r)
}

// Placements returns the placements of this node, by id. It is empty without a fleet.
func (e *Engine) Placements() []placed.Placement { return e.placer.List() }

// Statement returns the signed statement of an epoch. It returns an error of package meter if the
// epoch has no statement or is not final.
func (e *Engine) Statement(ctx context.Context, epoch uint64) (signed []byte, err error) {
	return e.meter.Statement(ctx, epoch)
}
