package lines

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/fleet"
)

// Deps holds the dependencies of a Pool.
type Deps struct {
	Catalog *flow.Catalog
	Metrics *obs.Metrics // nil: none
	// Rule returns the rule by which this node calls the nodes of a view.
	Rule func(*fleet.View) upstream.NodeRule
}

// Pool holds the lines to the nodes of the current view. Now may be called from any goroutine; Set
// and Close must not be called concurrently.
type Pool struct {
	d   Deps
	now atomic.Pointer[Lines]
}

// New returns a pool without lines. It does no I/O.
func New(d Deps) *Pool { return &Pool{d: d} }

// Now returns the current lines. They are nil without a view.
func (p *Pool) Now() *Lines { return p.now.Load() }

// Set makes v the current view, and returns its lines. Lines that still fit are kept, others are
// shut. v may be nil. Set does not block.
func (p *Pool) Set(v *fleet.View) *Lines {
	old, next := p.now.Load(), (*Lines)(nil)
	kept := map[*Line]bool{}
	if v != nil {
		next = &Lines{View: v}
		rule := p.d.Rule(v)
		for _, n := range v.Nodes {
			one := Node{Node: n}
			if at, err := url.Parse(n.Endpoint); err == nil {
				one.Host = at.Host
			}
			if one.Line, one.Fault = p.line(old, n, rule); one.Line != nil {
				kept[one.Line] = true
			}
			next.nodes = append(next.nodes, one)
		}
	}
	p.now.Store(next)
	if old != nil {
		for _, n := range old.nodes {
			if n.Line != nil && !kept[n.Line] {
				n.Line.transport.Shut()
			}
		}
	}
	return next
}

// Close shuts every line.
func (p *Pool) Close() { p.Set(nil) }

// line returns the line of old to a node, if it still fits, or a new one.
func (p *Pool) line(old *Lines, n fleet.Node, rule upstream.NodeRule) (*Line, error) {
	pins := make([]upstream.Pin, len(n.SPKI))
	for i, text := range n.SPKI {
		pin, err := upstream.ParsePin(text)
		if err != nil {
			return nil, fmt.Errorf("spki of %s: %w", n.ID, err)
		}
		pins[i] = pin
	}
	spec, err := rule.Spec(n.Endpoint, pins, upstream.Spec{Timeout: connectWithin})
	if err != nil {
		return nil, fmt.Errorf("endpoint of %s: %w", n.ID, err)
	}
	if was, ok := old.Node(n.ID); ok && was.Line != nil && was.Endpoint == n.Endpoint && was.Line.fits(pins, rule) {
		return was.Line, nil
	}
	return &Line{
		base:      strings.TrimSuffix(n.Endpoint, "/"),
		pins:      pins,
		rule:      rule,
		deps:      &p.d,
		transport: upstream.NewTransport(spec),
	}, nil
}

// connectWithin bounds a dial and a handshake. A try has a shorter timeout of its own.
const connectWithin = 10 * time.Second

// Lines are the lines to the nodes of one view. They are immutable. A nil *Lines has no node.
type Lines struct {
	View  *fleet.View
	nodes []Node // by id
}

// Node is a node of a view with its line.
type Node struct {
	fleet.Node
	Host  string // in its endpoint, with the port; "" if the endpoint is malformed
	Line  *Line  // nil if the node must not be called
	Fault error  // why
}

// Node returns the node with an id, which may be this node itself.
func (l *Lines) Node(id string) (Node, bool) {
	if l == nil {
		return Node{}, false
	}
	at, ok := slices.BinarySearchFunc(l.nodes, id, func(n Node, id string) int { return strings.Compare(n.ID, id) })
	if !ok {
		return Node{}, false
	}
	return l.nodes[at], true
}

// With returns the other nodes that offer a service, by id, with those that must not be called.
func (l *Lines) With(service string) (out []Node) {
	if l == nil {
		return nil
	}
	for _, n := range l.nodes {
		if n.ID != l.View.Self && n.Has(service) {
			out = append(out, n)
		}
	}
	return out
}

// Line is the way to a node.
type Line struct {
	base      string // the endpoint, without a trailing slash
	pins      []upstream.Pin
	rule      upstream.NodeRule
	deps      *Deps
	transport *upstream.Transport
}

// URL returns the URL of a path of the node.
func (l *Line) URL(path string) string { return l.base + path }

// Client returns a client that makes its calls over the line, with the labels, the bounds and the
// breaker of s.
func (l *Line) Client(s upstream.Spec) *upstream.Client {
	return l.transport.Client(l.deps.Catalog, l.deps.Metrics, s)
}

// fits reports whether the line may be used under pins and rule.
func (l *Line) fits(pins []upstream.Pin, rule upstream.NodeRule) bool {
	return slices.Equal(l.pins, pins) && l.rule.Plain == rule.Plain && l.rule.Roots == rule.Roots &&
		slices.Equal(l.rule.Allow, rule.Allow) && slices.Equal(l.rule.Own, rule.Own)
}
