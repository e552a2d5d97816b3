package near

import (
	"cmp"
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

// Hint says where an object is likely stored, what is known of it, and who asks. Each field may be
// zero.
type Hint struct {
	Owner    string    // id or identity of the node that owns the manifest of the object
	Manifest b3.Digest // the manifest that lists the object
	Name     string    // "name:…", which stands for the manifest
	Most     int64     // bytes of the object by its manifest; a longer one is refused; 0: not known
	Placed   bool      // a placement asks for it, not a caller

	From netip.Addr // network of the caller; the zero Addr has no share
}

// Sized returns h for an object of a size. An empty object is known by its hash.
func (h Hint) Sized(size int64) Hint {
	h.Most = max(size, 1)
	return h
}

// Fetch stores an object that another node of the fleet has, and waits until ctx ends. A request
// waits at most edge.ingress.timeout_secs. The bytes are believed by their hash alone, whichever
// node sent them. Fetch returns nil if the object is stored, ErrNotFound if there is no fleet or no
// node has the object, and a FillError if a node that may have it did not answer well.
func (s *Searcher) Fetch(ctx context.Context, d b3.Digest, h Hint) error {
	n := s.neighbors()
	if n == nil {
		return asset.ErrNotFound
	}
	if err := s.mayFetch(n, d, h); err != nil {
		return err
	}
	if has, err := s.d.Content.Has(ctx, d); has || err != nil {
		return err
	}
	key, within := seekKey{d, h.Most}, s.fetchWithin(h)
	_, err := s.seeks.Do(ctx, key, struct{}{}, within, func(ctx context.Context) (fill.Filled, error) {
		return s.seek(ctx, n, d, h)
	})
	return content.BusyIfFull(err)
}

// seekKey identifies a search. Searches with different limits are not joined: the manifest that
// names the limit may lie.
type seekKey struct {
	object b3.Digest
	most   int64 // as in Hint
}

// mayFetch returns an error if no search may begin now. Otherwise it counts the request.
func (s *Searcher) mayFetch(n *neighbors, d b3.Digest, h Hint) error {
	past, known := s.d.Fills.Past(n.absentKey(d))
	if !known {
		past, known = s.d.Fills.Past(n.longKey(d, h.Most))
	}
	if err := s.d.Content.Ready(); err != nil {
		return err
	}
	switch {
	case s.d.Owner.Draining():
		return flow.ErrClosed
	case h.Placed:
		return nil // the placer has a pace of its own
	case known && past.Reason == asset.UpstreamNotFound:
		return asset.ErrNotFound
	case known:
		return &asset.FillError{
			Reason: past.Reason,
			URL:    d.String(),
			Cause:  errors.New("no node had it a moment ago"),
		}
	}
	if share := s.cfg.Share; share != nil && h.From.IsValid() {
		if ok, wait := share(h.From, s.d.Config().Ingress.RPSLimit); !ok {
			return &asset.RateError{Wait: wait}
		}
	}
	return s.d.Fills.Count()
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
func (s *Searcher) fetchWithin(h Hint) time.Duration {
	if !h.Placed {
		return s.d.Config().Timeout()
	}
	most := h.Most
	if most == 0 {
		most = s.d.Config().Fill.MaxObjectBytes.Bytes()
	}
	return min(fill.LongTry, placedBase+time.Duration(most/placedRate)*time.Second)
}

// seek asks one node after another for an object until one has sent it.
func (s *Searcher) seek(ctx context.Context, n *neighbors, d b3.Digest, h Hint) (f fill.Filled, err error) {
	var failed *asset.FillError
	for node, unknown := range s.sources(ctx, n, d, h) {
		if unknown != nil {
			failed = cmp.Or(failed, unknown)
			continue
		}
		if end, _ := ctx.Deadline(); time.Until(end) < leastTry {
			failed = &asset.FillError{Reason: asset.Timeout, URL: d.String(), Cause: context.DeadlineExceeded}
			break
		}
		f, err = s.fetchFrom(ctx, node, d, h)
		if err == nil {
			if f.New { // an earlier search may have begun the fill, at another node
				s.received(f.From, d, f.Sent, h.Placed)
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
	last := &asset.FillError{Reason: asset.UpstreamNotFound, URL: d.String(), Cause: asset.ErrNotFound}
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
	s.rememberAbsent(n, d, h, last.Reason)
	if last.Reason == asset.UpstreamNotFound {
		return f, asset.ErrNotFound
	}
	return f, last
}

// rememberAbsent remembers that a search has failed, so that the next requests do not repeat it.
func (s *Searcher) rememberAbsent(n *neighbors, d b3.Digest, h Hint, why asset.Reason) {
	key := n.absentKey(d)
	if why == asset.ObjectCap {
		key = n.longKey(d, h.Most)
	}
	s.d.Fills.Refuse(key, why, 0)
}

// fetchFrom fetches an object from one node by a fill, with the workers and the queue of fills. It
// leaves half of the time that is left to the other nodes.
func (s *Searcher) fetchFrom(ctx context.Context, n *neighbor, d b3.Digest, h Hint) (fill.Filled, error) {
	end, _ := ctx.Deadline()
	t := asset.Target{URL: d.String(), Host: n.host, Digest: d, Name: d.String()}
	return s.d.Fills.From(ctx, n, t, max(time.Until(end)/2, leastTry), h.Most)
}

// received is called after each object that a node of the fleet has sent, with the bytes that it
// sent itself.
func (s *Searcher) received(node string, d b3.Digest, size int64, placed bool) {
	kind := "fleet_fetch"
	if placed {
		kind = "fleet_place"
	}
	s.d.Owner.Event(asset.Event{Kind: kind, Of: d.String(), Result: node, Size: size})
	s.d.Owner.Received(node, d, size, placed)
}
