package wiring

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/appliance/obs"
	"ronbox/appliance/sig"
	"ronbox/appliance/upstream"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines/fleet"
	"ronbox/engines/fleet/lines"
	"ronbox/engines/index/name"
	"ronbox/engines/rewarder"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Names of the fleet's task and readiness key.
const (
	fleetName   = "fleet"
	fleetViewer = "viewer"
	keyIdentity = "identity" // soft: this node's item is used, and names this node's identity
)

// fleetEvery is the time after which a new HEAD is seen although no event told of it. Events are
// lost under load, and off with registry.bus.emit_updates.
const fleetEvery = 500 * time.Millisecond

func fleetService() Service {
	return Service{
		Name:  fleetName,
		Guest: true,
		on:    func(c *config.Config) bool { return c.Fleet.Enabled },
		build: func(n *Set, c *config.Config) Engine { return n.newFleet(c) },
		Status: func(n *Set, out *nodeapi.Status) {
			e := engineOf[*fleetEngine](n)
			out.Fleet = &nodeapi.FleetStatus{Self: e.cfg.Node}
			if v := e.view.Load(); v != nil {
				out.Fleet.Version, out.Fleet.Nodes, out.Fleet.Faults = v.Version, len(v.Nodes), len(v.Faults)
			}
		},
		Outcome: func(err error) (process.Outcome, bool) {
			const next = "correct fleet.ca_file"
			return process.Outcome{Code: process.ExitConfig, Next: next}, errors.Is(err, errFleetFile)
		},
	}
}

// fleetUser is an engine that uses the view of the fleet.
type fleetUser interface {
	// SetFleet makes l the lines for work that begins from now on. l may be nil. It does not block.
	SetFleet(l *lines.Lines)
}

// fleetEngine computes the view of each HEAD of the registry and hands it to the engines.
type fleetEngine struct {
	n     *Set
	cfg   fleet.Config
	nets  []netip.Prefix
	roots *x509.CertPool // of ca_file; nil: the system's
	tick  *flow.Ticker
	lines *lines.Pool
	view  atomic.Pointer[fleet.View] // nil: the registry has no version

	own  string      // identity of this node; set by Recover
	seen *fleetInput // of view; nil before the first; owned by Recover, then by the viewer
}

// fleetInput holds the inputs of a view and of its use.
type fleetInput struct {
	head b3.Digest // hash of the entry of HEAD; zero: none
	addr string    // of this node's listener, which is never called
}

func (n *Set) newFleet(c *config.Config) *fleetEngine {
	nets, _ := c.Fleet.PrivateNets() // checked by Validate
	n.Board.Add(obs.Probe{Service: fleetName, Key: keyIdentity, Plane: obs.ReadPlane})
	e := &fleetEngine{
		n: n, cfg: c.Fleet, nets: nets,
		tick: flow.Every(n.Catalog, flow.Spec{
			Service: fleetName, Name: "view_tick", Consumers: []string{fleetViewer}, Doc: "a look at HEAD",
		}, fleetEvery),
	}
	e.lines = lines.New(lines.Deps{Catalog: n.Catalog, Metrics: n.Metrics, Rule: e.rule})
	return e
}

// Tasks returns the viewer.
func (e *fleetEngine) Tasks() []flow.Task {
	return []flow.Task{{
		Service: fleetName, Name: fleetViewer, Restart: flow.Always, Background: true,
		Doc: "computes the view of each HEAD and hands it to the index and the edge", Run: e.run,
	}}
}

// errFleetFile is returned when fleet.ca_file cannot be used.
var errFleetFile = errors.New("fleet.ca_file cannot be used")

// Recover reads fleet.ca_file and hands out the view of HEAD, so that the first request meets it.
func (e *fleetEngine) Recover(context.Context) error {
	if e.cfg.CAFile != "" {
		raw, err := os.ReadFile(e.cfg.CAFile)
		if err != nil {
			return fmt.Errorf("%w: %w", errFleetFile, err)
		}
		if e.roots, err = sig.Roots(raw); err != nil {
			return fmt.Errorf("%w: %s %w", errFleetFile, e.cfg.CAFile, err)
		}
	}
	e.own = string(name.PeerIDOf(e.n.indexKey().Public().(ed25519.PublicKey)))
	e.update()
	return nil
}

// run hands out the view of each new HEAD.
func (e *fleetEngine) run(ctx context.Context) error {
	defer e.tick.Stop()
	sub := e.n.Registry().Subscribe(fleetName + "." + fleetViewer)
	defer sub.Close()
	for {
		e.update()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-sub.Ready():
			for _, _, more := sub.Next(); more; _, _, more = sub.Next() {
				continue // HEAD is the newest
			}
			if sub.Closed() {
				return nil // drained
			}
		case <-e.tick.C():
		}
	}
}

// update hands out the view of HEAD if HEAD or the listener has changed.
func (e *fleetEngine) update() {
	head := e.n.Registry().Head()
	now := &fleetInput{head.Head.Hash, e.n.front.Addr()}
	if e.seen != nil && *now == *e.seen {
		return
	}
	v := e.view.Load()
	if head.Head.Version > 0 && (v == nil || now.head != e.seen.head) {
		v = fleet.New(head.Head.Version, head.Genesis(), e.cfg.Node, head.Items.All())
		e.n.log.Info("fleet_view", "version", v.Version, "nodes", len(v.Nodes), "faults", len(v.Faults))
	}
	e.HandOut(v)
	e.n.Board.Set(fleetName, keyIdentity, e.checkSelf(v))
	e.seen = now
	e.view.Store(v) // last: a reader of the view meets engines that use it
}

// HandOut makes v the view of every engine that uses one. v may be nil.
func (e *fleetEngine) HandOut(v *fleet.View) {
	to := e.lines.Set(v)
	for _, r := range e.n.Recovered() {
		if user, ok := r.Engine.(fleetUser); ok {
			user.SetFleet(to)
		}
	}
}

// checkSelf returns an error if this node's item is ignored or names another identity. A node
// without an item is sound: its item may come with a later version.
func (e *fleetEngine) checkSelf(v *fleet.View) error {
	if v == nil || v.Self == "" {
		return nil
	}
	if n, ok := v.Node(v.Self); ok && n.Identity != e.own {
		return fmt.Errorf("%s is the item of %s, and this node is %s", v.Self, n.Identity, e.own)
	}
	for _, f := range v.Faults {
		if f.ID == v.Self {
			return fmt.Errorf("%s is ignored: %s %s", v.Self, f.Field, f.Reason)
		}
	}
	return nil
}

// rule returns the rule by which this node calls the nodes of v.
func (e *fleetEngine) rule(v *fleet.View) upstream.NodeRule {
	rule := upstream.NodeRule{Allow: e.nets, Roots: e.roots}
	if self, ok := v.Node(v.Self); ok {
		rule.Plain = strings.HasPrefix(self.Endpoint, "http:")
	}
	if own, err := netip.ParseAddrPort(e.n.front.Addr()); err == nil {
		rule.Own = []netip.AddrPort{own}
	}
	return rule
}

// CheckFleet warns if this node's item cannot be used, and of items that are ignored.
func (n *Set) CheckFleet() []host.Finding {
	e := engineOf[*fleetEngine](n)
	if e == nil {
		return nil
	}
	f := host.Finding{Check: fleetName, Level: host.OK, Seen: "the registry has no version yet"}
	v := e.view.Load()
	if v != nil {
		f.Seen = fmt.Sprintf("%d nodes at version %d", len(v.Nodes), v.Version)
	}
	switch err := e.checkSelf(v); {
	case err != nil:
		f.Level, f.Seen = host.Warn, err.Error()
		f.Advice = "correct fleet.node, or propose an item with the identity of `ronbox index identity`"
	case v != nil && len(v.Faults) > 0:
		bad := v.Faults[0]
		f.Seen += fmt.Sprintf("; %d faults in its items, such as %s: %s %s",
			len(v.Faults), bad.ID, bad.Field, bad.Reason)
		f.Level, f.Advice = host.Warn, "propose corrected items; `ronbox registry lint` checks them before"
	}
	return []host.Finding{f}
}

// Reload does nothing: every key of the section needs a restart.
func (e *fleetEngine) Reload(*config.Config) {}

// Purge does nothing: there is no cache.
func (e *fleetEngine) Purge() {}

// Close closes the connections to the nodes.
func (e *fleetEngine) Close(context.Context) error {
	e.lines.Close()
	return nil
}

// errRegistryOut is returned while the registry is shut out because its rows are damaged.
var errRegistryOut = errors.New("the registry is damaged")

// policyPins returns the function by which the rewarder reads the pinned policies, or nil if the
// fleet is off.
func (n *Set) policyPins(c *config.Config) rewarder.PinsOf {
	if !c.Fleet.Enabled {
		return nil
	}
	return func(r store.Reader, tenant string) (p rewarder.Pins, err error) {
		if !slices.ContainsFunc(n.Recovered(), func(one Running) bool { return one.Name == "registry" }) {
			return p, errRegistryOut
		}
		head, err := n.Registry().HeadIn(r)
		if err != nil {
			return p, err
		}
		v := engineOf[*fleetEngine](n).view.Load()
		if v == nil || v.Version != head.Head.Version || v.Genesis != head.Genesis() { // the viewer is late
			v = fleet.New(head.Head.Version, head.Genesis(), c.Fleet.Node, head.Items.All())
		}
		p.Version = v.Version
		pins, bad := v.PinsOf(tenant)
		for _, pin := range pins {
			p.Pins = append(p.Pins, rewarder.Pin{ID: pin.ID, Policy: pin.Policy, Hash: pin.Digest})
		}
		for _, pin := range bad {
			p.Pins = append(p.Pins, rewarder.Pin{ID: pin.ID, Fault: pin.Field + " " + pin.Reason})
		}
		return p, nil
	}
}
