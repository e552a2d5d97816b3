package edge

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/site"
)

// manifest returns the parsed manifest of a name, from memory or from its object. from is the
// network of the caller, as in Near.
func (e *Engine) manifest(ctx context.Context, named Named, from netip.Addr) (*site.Manifest, error) {
	d := named.Manifest
	if p, ok := e.manifests.get(d); ok {
		return p.m, p.err
	}
	o, err := e.object(ctx, d, Near{Owner: named.Owner, Manifest: d, Most: site.MaxBytes, From: from})
	if err != nil {
		return nil, err
	}
	o.Close()
	p, err := e.manifests.flights.Do(ctx, d, struct{}{}, parseWithin, func(ctx context.Context) (parsed, error) {
		return e.parse(ctx, d)
	})
	if err != nil {
		return nil, busyIfFull(err)
	}
	return p.m, p.err
}

// parse parses the stored object of a manifest and keeps the result.
func (e *Engine) parse(ctx context.Context, d b3.Digest) (p parsed, err error) {
	o, _, err := e.stored(ctx, target{digest: d, name: assetOf(d)})
	if err != nil {
		return p, err
	}
	defer o.Close()
	if o.Size > site.MaxBytes {
		long := fmt.Sprintf("has %d bytes, at most %d are allowed", o.Size, site.MaxBytes)
		p.err = &SiteError{d, &site.Error{Reason: long}}
		return e.manifests.put(d, p), nil
	}
	raw := o.Bytes
	select {
	case e.manifests.slots <- struct{}{}:
	case <-ctx.Done():
		return p, context.Cause(ctx)
	}
	defer func() { <-e.manifests.slots }()
	if o.File != nil {
		raw = make([]byte, o.Size)
		if _, err = io.ReadFull(o.File, raw); err != nil {
			return p, err
		}
	}
	if p.m, err = site.Parse(raw); err != nil {
		p.err = &SiteError{d, err}
	}
	return e.manifests.put(d, p), nil
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
	m    *site.Manifest
	err  error
	used uint64 // position in the order of uses
}

func (p *parsed) cost() int64 {
	if p.m == nil {
		return manifestCost
	}
	return p.m.Cost() + manifestCost
}

// manifests holds the manifests that were used last.
type manifests struct {
	flights *flow.Flight[b3.Digest, struct{}, parsed]
	slots   chan struct{}

	mu   sync.Mutex            // a leaf
	all  map[b3.Digest]*parsed // guarded by mu; nil before the first put
	sum  int64                 // cost of all; guarded by mu
	uses uint64                // guarded by mu
}

func newManifests(c *flow.Catalog) *manifests {
	return &manifests{
		flights: flow.NewFlight[b3.Digest, struct{}, parsed](c, flow.FlightSpec{
			Service: service, Name: "manifest", Waiters: maxWaiters, Calls: parseAtOnce,
		}),
		slots: make(chan struct{}, parseSlots), //rawchan: a semaphore
	}
}

func (s *manifests) get(d b3.Digest) (p parsed, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.all[d]
	if held == nil {
		return p, false
	}
	s.uses++
	held.used = s.uses
	return *held, true
}

// put keeps p and returns it. It drops the manifests that were used least recently, if there are
// too many.
func (s *manifests) put(d b3.Digest, p parsed) parsed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[b3.Digest]*parsed{}
	}
	if s.all[d] != nil {
		return p
	}
	for s.sum+p.cost() > manifestBytes {
		s.dropOldest()
	}
	s.uses++
	p.used = s.uses
	s.all[d] = &p
	s.sum += p.cost()
	return p
}

// dropOldest is called with mu held.
func (s *manifests) dropOldest() {
	var at b3.Digest
	var oldest *parsed
	for d, p := range s.all {
		if oldest == nil || p.used < oldest.used {
			at, oldest = d, p
		}
	}
	delete(s.all, at)
	s.sum -= oldest.cost()
}

// purge drops all manifests.
func (s *manifests) purge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.sum = nil, 0
}
