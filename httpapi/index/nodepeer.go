package index

import (
	"fmt"
	"net/url"
	"slices"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/fleet"
)

// nodeRule is the part of a node's item, and of this node's own rule, that its calls depend on.
type nodeRule struct {
	upstream.NodeRule
	pins []upstream.Pin
}

// NewNodePeer returns the peer for a node of the fleet, which is called under rule. It returns an
// error if the endpoint of the node must not be called. NewNodePeer does no I/O.
func NewNodePeer(c *flow.Catalog, m *obs.Metrics, n fleet.Node, rule upstream.NodeRule) (*Peer, error) {
	target, err := NodeTarget(n)
	if err != nil {
		return nil, err
	}
	p := &Peer{catalog: c, metrics: m, target: target}
	a, err := p.nodeAccess(n, rule)
	if err != nil {
		return nil, err
	}
	p.region.Store(&n.Region)
	p.access.Store(a)
	return p, nil
}

// NodeTarget returns the host and port in the endpoint of a node. They identify its peer.
func NodeTarget(n fleet.Node) (string, error) {
	at, err := url.Parse(n.Endpoint)
	if err != nil {
		return "", fmt.Errorf("endpoint of %s: %w", n.ID, err)
	}
	return at.Host, nil
}

// SetNode uses a newer version of the node's item, with the same host and port, for calls that
// begin from now on. It keeps the open connections if the item allows the same. On an error the
// peer stays as it was, and must not be asked.
func (p *Peer) SetNode(n fleet.Node, rule upstream.NodeRule) error {
	next, err := p.nodeAccess(n, rule)
	if err != nil {
		return err
	}
	p.region.Store(&n.Region)
	if now := p.access.Load(); now.base != next.base || !now.node.equal(next.node) {
		p.access.Swap(next).client.Close()
	}
	return nil
}

// nodeAccess returns the client for calls of a node.
func (p *Peer) nodeAccess(n fleet.Node, rule upstream.NodeRule) (*access, error) {
	pins := make([]upstream.Pin, len(n.SPKI))
	for i, text := range n.SPKI {
		pin, err := upstream.ParsePin(text)
		if err != nil {
			return nil, fmt.Errorf("spki of %s: %w", n.ID, err)
		}
		pins[i] = pin
	}
	spec, err := rule.Spec(n.Endpoint, pins, p.spec())
	if err != nil {
		return nil, fmt.Errorf("endpoint of %s: %w", n.ID, err)
	}
	client := upstream.New(p.catalog, p.metrics, spec)
	return &access{base: n.Endpoint, node: &nodeRule{rule, pins}, client: client, header: header()}, nil
}

// equal reports whether two rules allow the same.
func (r *nodeRule) equal(o *nodeRule) bool {
	return r != nil && o != nil && r.Plain == o.Plain && r.Roots == o.Roots && slices.Equal(r.Allow, o.Allow) &&
		slices.Equal(r.Own, o.Own) && slices.Equal(r.pins, o.pins)
}
