package sites

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/cache"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/site"
)

// Manifest returns the parsed manifest of a name, from memory or from its object. from is the
// network of the caller, as in near.Hint.
func (s *Server) Manifest(ctx context.Context, named Named, from netip.Addr) (*site.Manifest, error) {
	d := named.Manifest
	if p, ok := s.manifests.cache.Get(string(d[:])); ok {
		return p.m, p.err
	}
	o, err := s.object(ctx, d, near.Hint{Owner: named.Owner, Manifest: d, Most: site.MaxBytes, From: from})
	if err != nil {
		return nil, err
	}
	o.Close()
	p, err := s.manifests.flights.Do(ctx, d, struct{}{}, parseWithin, func(ctx context.Context) (parsed, error) {
		return s.parse(ctx, d)
	})
	if err != nil {
		return nil, content.BusyIfFull(err)
	}
	return p.m, p.err
}

// parse parses the stored object of a manifest and keeps the result.
func (s *Server) parse(ctx context.Context, d b3.Digest) (p parsed, err error) {
	o, _, err := s.d.Content.Open(ctx, asset.Target{Digest: d, Name: asset.PathOf(d)})
	if err != nil {
		return p, err
	}
	defer o.Close()
	if o.Size > site.MaxBytes {
		long := fmt.Sprintf("has %d bytes, at most %d are allowed", o.Size, site.MaxBytes)
		p.err = &asset.SiteError{Manifest: d, Cause: &site.Error{Reason: long}}
		return s.manifests.keep(d, p), nil
	}
	raw := o.Bytes
	if err = s.manifests.slots.Acquire(ctx); err != nil {
		return p, err
	}
	defer s.manifests.slots.Release()
	if o.File != nil {
		raw = make([]byte, o.Size)
		if _, err = io.ReadFull(o.File, raw); err != nil {
			return p, err
		}
	}
	if p.m, err = site.Parse(raw); err != nil {
		p.err = &asset.SiteError{Manifest: d, Cause: err}
	}
	return s.manifests.keep(d, p), nil
}

// Bounds of parsed manifests.
const (
	parseWithin   = 10 * time.Second // with the hashing of a large manifest
	parseAtOnce   = 8                // with those that wait for a slot
	parseSlots    = 2                // each may need 64 MiB for a moment, and keeps a core busy
	manifestBytes = 64 << 20         // of all in memory; one of the largest has 33 MiB
	manifestCost  = 512              // bytes of one beside its own
)

// parsed is a manifest in memory, or the reason why it is not sound.
type parsed struct {
	m   *site.Manifest
	err error
}

func (p parsed) cost() int64 {
	if p.m == nil {
		return manifestCost
	}
	return p.m.Cost() + manifestCost
}

// manifests parses manifests, and keeps those that are in use.
type manifests struct {
	flights *flow.Flight[b3.Digest, struct{}, parsed]
	slots   *flow.Slots
	cache   *cache.Cache[string, parsed] // by digest
}

// newManifests declares them in c. readers are HTTP and the tasks that need manifests.
func newManifests(c *flow.Catalog, readers []string) *manifests {
	return &manifests{
		flights: flow.NewFlight[b3.Digest, struct{}, parsed](c, flow.FlightSpec{
			Service: service, Name: "manifest", Waiters: maxWaiters, Calls: parseAtOnce,
		}),
		slots: flow.NewSlots(c, flow.Spec{
			Service: service, Name: "parsings", Cap: parseSlots, Policy: flow.WaitDeadline,
			Producers: readers, Doc: "manifests that are parsed at one time",
		}),
		cache: cache.New[string, parsed](c, cache.Spec[string, parsed]{
			Service:   service,
			Name:      "manifests_set",
			Producers: []string{flow.HTTP},
			Doc:       "parsed manifests of sites",
			Bytes:     manifestBytes,
			Entry:     4 << 10,
		}),
	}
}

// keep keeps p as the manifest d and returns it.
func (s *manifests) keep(d b3.Digest, p parsed) parsed {
	s.cache.Set(string(d[:]), p, p.cost())
	return p
}
