package near

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/origin"
	"ronbox/engines/fleet"
	"ronbox/engines/fleet/lines"
)

// HopHeader asks a node to answer from its own store. It gives the sender no rights. Nodes send it
// when they ask each other, so that only the node that a client asked looks elsewhere.
const HopHeader = "Ron-Hop-Budget"

// neighbors holds the other nodes of one view that have an edge. It is immutable once it is
// current.
type neighbors struct {
	view   *fleet.View
	region string      // of this node's item; "": none
	nodes  []*neighbor // by id
	byName map[string]*neighbor
}

// neighbor is another node of the fleet.
type neighbor struct {
	fleet.Node
	*line
	host string // with its port, as lanes of work_tx are named
}

// line is the way to a node, with its breaker. It is kept as long as the line of the pool is.
type line struct {
	origin.Host
	to      *lines.Line
	breaker *flow.Breaker
}

// Weights of failures in the breaker of a node, which counts a good answer as 1 and opens if most
// of 20 results failed.
const (
	lieWeight   = 20 // bytes with another hash than the one that was asked for
	stallWeight = 5  // a body that broke off, or that came too slowly
)

// lineOver returns the line of a node whose line of the pool has stayed, or nil.
func (n *neighbors) lineOver(want lines.Node) *line {
	if n == nil {
		return nil
	}
	if has := n.byName[want.ID]; has != nil && has.to == want.Line {
		return has.line
	}
	return nil
}

// Name returns the node's id.
func (n *neighbor) Name() string { return n.ID }

// Ask requests an object from the store of the node, or the rest of it if the header of r has a
// Range. It calls take with an answer that may be stored.
func (n *neighbor) Ask(
	ctx context.Context,
	d b3.Digest,
	r upstream.Request,
	take func(*upstream.Answer) error,
) error {
	r.URL = n.to.URL("/edge/assets/" + asset.PathOf(d))
	r.Blame = func(err error) bool { return n.Blames(r.URL, err, time.Now()) }
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set(HopHeader, "0")
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "ronbox")
	return n.Get(ctx, r, func(a *upstream.Answer) error {
		if r.Head {
			return nil
		}
		part := a.Status == http.StatusPartialContent && r.Header.Get("Range") != ""
		if err := origin.Storable(a, part); err != nil {
			return err
		}
		return take(a)
	})
}

// Lied counts bytes with a wrong hash against the node, which sent all of them.
func (n *neighbor) Lied() { n.fault(lieWeight) }

// Stalled counts an answer that broke off against its node, and one that timed out unless its bytes
// came at slowRate.
func (l *line) Stalled(err error, got int64, took time.Duration) {
	if err == nil || upstream.IsOwn(err) || errors.Is(err, context.Canceled) {
		return
	}
	switch origin.ReasonOf(err) {
	case asset.Timeout:
		if got > 0 && float64(got) >= slowRate*took.Seconds() {
			return
		}
		l.fault(stallWeight)
	case asset.UpstreamTruncated:
		l.fault(stallWeight)
	}
}

// fault counts a failure of a node that its status did not show.
func (l *line) fault(weight int) {
	if pass, ok := l.breaker.Permit(); ok {
		l.breaker.Record(pass, flow.Failed, weight)
	}
	l.breaker.Step(time.Now())
}

// absentKey returns the key under which a failed search is remembered. Another version of the
// registry may name another node that has the object.
func (n *neighbors) absentKey(d b3.Digest) string {
	return fmt.Sprint(d, "@", n.view.Version)
}

// longKey returns the key under which it is remembered that an object is longer than most, which
// says nothing of searches with another limit.
func (n *neighbors) longKey(d b3.Digest, most int64) string {
	return fmt.Sprint(n.absentKey(d), ">", most)
}

// slowRate is the number of bytes a second below which a node counts as too slow.
const slowRate = 64 << 10

// placed returns the nodes of the regions in which an object or its manifest is placed.
func (n *neighbors) placed(d b3.Digest, h Hint) []*neighbor {
	regions := map[string]bool{}
	for _, p := range n.view.Placements {
		if p.Content == d.String() || p.Content == h.Manifest.String() || h.Name != "" && p.Content == h.Name {
			regions[p.Region] = true
		}
	}
	if len(regions) == 0 {
		return nil
	}
	return slices.DeleteFunc(n.ordered(d), func(one *neighbor) bool { return !regions[one.Region] && !regions[""] })
}

// ordered returns all nodes: first those of this node's region, and within a region in an order
// that differs between objects, so that no node is asked first for all of them.
func (n *neighbors) ordered(d b3.Digest) []*neighbor {
	weight := make(map[*neighbor]b3.Digest, len(n.nodes))
	for _, one := range n.nodes {
		weight[one] = b3.Sum(append([]byte(one.ID), d[:]...))
	}
	far := func(one *neighbor) int {
		if n.region != "" && one.Region == n.region {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(slices.Values(n.nodes), func(a, b *neighbor) int {
		x, y := weight[a], weight[b]
		return cmp.Or(far(a)-far(b), bytes.Compare(x[:], y[:]))
	})
}
