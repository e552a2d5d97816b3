package near

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/origin"
)

// Bounds of a search.
const (
	wave        = 5               // nodes that are asked at once whether they have an object
	namesWithin = 2 * time.Second // for the providers that the index finds
	probesMost  = 64              // such questions at one time, over all searches
)

// sources returns the nodes to fetch an object from, each once: the owner of its manifest, the
// nodes of placements that have it, its providers in the index, and then all others. The owner and
// the providers are asked for the object itself. The others are first asked in waves whether they
// have it, and only those that do are returned. For a wave in which none does, the failure of a
// node that did not answer well is returned in their place.
func (s *Searcher) sources(ctx context.Context, n *neighbors, d b3.Digest,
	h Hint) iter.Seq2[*neighbor, *asset.FillError] {
	return func(yield func(*neighbor, *asset.FillError) bool) {
		seen := map[*neighbor]bool{nil: true}
		fresh := func(all []*neighbor) (out []*neighbor) {
			for _, one := range all {
				if !seen[one] {
					seen[one] = true
					out = append(out, one)
				}
			}
			return out
		}
		each := func(all []*neighbor) bool {
			for _, one := range all {
				if ctx.Err() != nil || !yield(one, nil) {
					return false
				}
			}
			return true
		}
		if !each(fresh([]*neighbor{n.byName[h.Owner]})) ||
			!s.waves(ctx, d, fresh(n.placed(d, h)), yield) ||
			!each(fresh(s.providers(ctx, n, d, h))) {
			return
		}
		s.waves(ctx, d, fresh(n.ordered(d)), yield)
	}
}

// providers returns the nodes that have announced an object or its manifest.
func (s *Searcher) providers(ctx context.Context, n *neighbors, d b3.Digest, h Hint) (out []*neighbor) {
	if s.d.Names == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	of := d
	if !h.Manifest.IsZero() {
		of = h.Manifest // its objects are not announced one by one
	}
	ids, err := s.d.Names.Providers(ctx, of)
	if err != nil {
		s.d.Log.Debug("fleet.providers", "digest", of.String(), "reason", err.Error())
	}
	for _, id := range ids {
		out = append(out, n.byName[id])
	}
	return out
}

// waves asks nodes in groups whether they have an object, and calls yield with those that do, and
// with an error for a group in which no node has it and some may. It returns false if ctx ended or
// yield did not ask for more.
func (s *Searcher) waves(ctx context.Context, d b3.Digest, all []*neighbor,
	yield func(*neighbor, *asset.FillError) bool) bool {
	for group := range slices.Chunk(all, wave) {
		for len(group) > 0 && ctx.Err() == nil {
			holder, failed := s.probe(ctx, d, group)
			if (holder != nil || failed != nil) && !yield(holder, failed) {
				return false
			}
			if holder == nil {
				break
			}
			// If that node failed, the rest of the group is asked again.
			group = slices.DeleteFunc(slices.Clone(group), func(n *neighbor) bool { return n == holder })
		}
	}
	return ctx.Err() == nil
}

// errHolds ends the other questions of a wave.
var errHolds = errors.New("a node has the object")

// probe asks nodes at once whether they have an object. It returns the first that says so. Without
// one it returns the failure of a node that did not answer well and may have the object, or nil.
func (s *Searcher) probe(ctx context.Context, d b3.Digest, group []*neighbor) (*neighbor, *asset.FillError) {
	found := make(chan *neighbor, len(group))         //rawchan: holds every answer, so nothing waits for it
	failed := make(chan *asset.FillError, len(group)) //rawchan: as found
	_ = flow.Fan(ctx, len(group), func(ctx context.Context, i int) error {
		if s.asks.Acquire(ctx) != nil {
			return nil // the search has ended
		}
		defer s.asks.Release()
		r := upstream.Request{Head: true, Timeout: s.cfg.ProbeWithin}
		if err := group[i].Ask(ctx, d, r, nil); err != nil {
			if ctx.Err() != nil {
				return nil // the search has ended, and the node is not to blame
			}
			group[i].Stalled(err, 0, s.cfg.ProbeWithin)
			// A node that must not be asked would fail every search.
			if why := origin.ReasonOf(err); why != asset.UpstreamNotFound && why != asset.NotAllowed {
				failed <- &asset.FillError{Reason: why, URL: d.String(), Cause: err}
			}
			return nil
		}
		found <- group[i]
		return errHolds
	})
	select {
	case n := <-found:
		return n, nil
	default:
	}
	select {
	case f := <-failed:
		return nil, f
	default:
		return nil, nil
	}
}
