package edge

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/fill"
)

// Fetch stores an object that another node of the fleet has, and waits until ctx ends. A request
// waits at most edge.ingress.timeout_secs. The bytes are believed by their hash alone, whichever
// node sent them. Fetch returns nil if the object is stored, ErrNotFound if there is no fleet or no
// node has the object, and a FillError if a node that may have it did not answer well.
func (e *Engine) Fetch(ctx context.Context, d b3.Digest, near Near) error {
	n := e.neighbors()
	if n == nil {
		return asset.ErrNotFound
	}
	if err := e.mayFetch(n, d, near); err != nil {
		return err
	}
	if has, err := e.content.Has(ctx, d); has || err != nil {
		return err
	}
	key, within := seekKey{d, near.Most}, e.fetchWithin(near)
	_, err := e.seeks.Do(ctx, key, struct{}{}, within, func(ctx context.Context) (fill.Filled, error) {
		return e.seek(ctx, n, d, near)
	})
	return content.BusyIfFull(err)
}

// seekKey identifies a search. Searches with different limits are not joined: the manifest that
// names the limit may lie.
type seekKey struct {
	object b3.Digest
	most   int64 // as in Near
}

// mayFetch returns an error if no search may begin now. Otherwise it counts the request.
func (e *Engine) mayFetch(n *neighbors, d b3.Digest, near Near) error {
	past, known := e.fills.Past(n.absentKey(d))
	if !known {
		past, known = e.fills.Past(n.longKey(d, near.Most))
	}
	if err := e.content.Ready(); err != nil {
		return err
	}
	switch {
	case e.draining():
		return flow.ErrClosed
	case near.Placed:
		return nil // the placer has a pace of its own
	case known && past.Reason == asset.UpstreamNotFound:
		return asset.ErrNotFound
	case known:
		return &asset.FillError{
			Reason: past.Reason,
			URL:    objectURL(d),
			Cause:  errors.New("no node had it a moment ago"),
		}
	}
	if share := e.d.Fleet.Share; share != nil && near.From.IsValid() {
		if ok, wait := share(near.From, e.Config().Ingress.RPSLimit); !ok {
			return &asset.RateError{Wait: wait}
		}
	}
	return e.fills.Count()
}

// Paces of a fetch that no request waits for.
const (
	placedBase = 30 * time.Second
	placedRate = slowRate // bytes that add a second
)

// leastTry is the shortest try of a node. With less time left, no other node is asked: a try that
// this node cuts off says nothing about the other one.
const leastTry = 500 * time.Millisecond

// fetchWithin returns the longest time of a search.
func (e *Engine) fetchWithin(near Near) time.Duration {
	if !near.Placed {
		return e.Config().Timeout()
	}
	most := near.Most
	if most == 0 {
		most = e.Config().Fill.MaxObjectBytes.Bytes()
	}
	return min(fill.LongTry, placedBase+time.Duration(most/placedRate)*time.Second)
}

// seek asks one node after another for an object until one has sent it.
func (e *Engine) seek(ctx context.Context, n *neighbors, d b3.Digest, near Near) (f fill.Filled, err error) {
	var failed *asset.FillError
	for node := range e.sources(ctx, n, d, near) {
		if end, _ := ctx.Deadline(); time.Until(end) < leastTry {
			failed = &asset.FillError{Reason: asset.Timeout, URL: objectURL(d), Cause: context.DeadlineExceeded}
			break
		}
		f, err = e.fetchFrom(ctx, node, d, near)
		if err == nil {
			if f.New { // an earlier search may have begun the fill, at another node
				e.received(f.From, d, f.Sent, near.Placed)
			}
			return f, nil
		}
		fault, ofNode := errors.AsType[*asset.FillError](err)
		if !ofNode {
			return f, err // the content store, the queue or a shutdown
		}
		if fault.Reason != asset.UpstreamNotFound {
			failed = fault
		}
	}
	last := &asset.FillError{Reason: asset.UpstreamNotFound, URL: objectURL(d), Cause: asset.ErrNotFound}
	switch {
	case errors.Is(context.Cause(ctx), flow.ErrAborted):
		return f, flow.ErrCanceled
	case ctx.Err() != nil:
		last.Reason, last.Cause = asset.Timeout, context.Cause(ctx)
	case failed != nil && failed.Reason == asset.ObjectCap:
		last.Reason, last.Cause = asset.ObjectCap, failed
	case failed != nil:
		last.Reason, last.Cause = asset.UpstreamUnavailable, failed
	}
	e.rememberAbsent(n, d, near, last.Reason)
	if last.Reason == asset.UpstreamNotFound {
		return f, asset.ErrNotFound
	}
	return f, last
}

// rememberAbsent remembers that a search has failed, so that the next requests do not repeat it.
func (e *Engine) rememberAbsent(n *neighbors, d b3.Digest, near Near, why asset.Reason) {
	key := n.absentKey(d)
	if why == asset.ObjectCap {
		key = n.longKey(d, near.Most)
	}
	e.fills.Refuse(key, why, 0)
}

// fetchFrom fetches an object from one node by a fill, with the workers and the queue of fills. It
// leaves half of the time that is left to the other nodes.
func (e *Engine) fetchFrom(ctx context.Context, n *neighbor, d b3.Digest, near Near) (fill.Filled, error) {
	end, _ := ctx.Deadline()
	t := asset.Target{URL: objectURL(d), Host: n.host, Digest: d, Name: objectURL(d)}
	return e.fills.From(ctx, n, t, max(time.Until(end)/2, leastTry), near.Most)
}

// received is called after each object that a node of the fleet has sent, with the bytes that it
// sent itself.
func (e *Engine) received(node string, d b3.Digest, size int64, placed bool) {
	kind := "fleet_fetch"
	if placed {
		kind = "fleet_place"
	}
	e.events.Publish(asset.Event{Kind: kind, Of: d.String(), Result: node, Size: size})
	e.meter.Received(node, d, size, placed)
}

// FetchAsset is Asset for "b3/<hex>" if the object is not stored here: it fetches the object from
// the fleet. Objects of manifests that this node has opened are fetched for everyone, others if
// may returns true. from is the network of the caller, as in Near. It returns ErrNotFound for any
// other path.
func (e *Engine) FetchAsset(ctx context.Context, path string, from netip.Addr, may func() bool) (*asset.Object, error) {
	t, err := asset.ParsePath(path, "")
	if err != nil || t.Digest.IsZero() || e.neighbors() == nil {
		return nil, asset.ErrNotFound
	}
	near, known := e.listing.near(t.Digest)
	if !known && !may() {
		return nil, asset.ErrNotFound
	}
	near.From = from
	ctx, cancel := context.WithTimeout(ctx, e.Config().Timeout())
	defer cancel()
	if err := e.Fetch(ctx, t.Digest, near); err != nil {
		return nil, err
	}
	o, _, err := e.content.Open(ctx, t)
	if err == nil {
		o.Filled = true
	}
	return o, err
}
