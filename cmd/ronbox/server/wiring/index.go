package wiring

import (
	"context"
	"crypto/ed25519"
	"errors"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines/fleet"
	"ronbox/engines/fleet/lines"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/engines/index/peers"
	"ronbox/engines/index/tables"
	"ronbox/httpapi"
	indexapi "ronbox/httpapi/index"
	"ronbox/store"
)

// indexKeyUse is the derivation label of the index's signing key. Another label would change the
// identity of the node.
const indexKeyUse = "ronbox index identity v1"

func indexService() Service {
	return Service{
		Name:     "index",
		Guest:    true,
		on:       func(c *config.Config) bool { return c.Index.Enabled },
		Drain:    func(c *config.Config) unit.Duration { return c.Index.DrainDeadline },
		Buckets:  tables.Buckets(),
		unsummed: tables.Unsummed(),
		Checks:   func(context.Context) []store.Check { return tables.Checks() },
		build:    func(n *Set, c *config.Config) Engine { return n.newIndex(c) },
		API: func(n *Set) httpapi.Service {
			e := engineOf[*indexEngine](n)
			return indexapi.New(e.Engine, e.limits)
		},
		Limits: func(c *config.Config) httpapi.Limits { return indexapi.ServiceLimits(c.Index) },
		Outcome: func(err error) (process.Outcome, bool) {
			const next = "correct the file that is named, or the key"
			return process.Outcome{Code: process.ExitConfig, Next: next}, errors.Is(err, indexapi.ErrAccess)
		},
		Cache: "answers",
	}
}

// indexEngine adapts the index and its peers to the node.
type indexEngine struct {
	*index.Engine
	limits *indexapi.Limits
	peers  []*indexapi.Peer
	config func() *config.Config           // the one in force
	fleet  func(*lines.Lines) []peers.Node // makes peers of nodes; nil without a fleet
}

// Recover reads the certificate and token files of peers and recovers the engine.
func (e *indexEngine) Recover(ctx context.Context) error {
	access, err := indexapi.ReadAccess(e.config().Index)
	if err != nil {
		return err
	}
	e.setAccess(access)
	return e.Engine.Recover(ctx)
}

func (e *indexEngine) setAccess(access map[string]indexapi.Access) {
	for _, p := range e.peers {
		p.SetAccess(access[p.Target()])
	}
}

// PrepareIndex reads the certificate and token files of peers for a reload.
func (n *Set) PrepareIndex(_ context.Context, c *config.Config) (swap, undo func(), err error) {
	keep := func() {}
	e := engineOf[*indexEngine](n)
	if e == nil {
		return keep, keep, nil
	}
	access, err := indexapi.ReadAccess(c.Index)
	return func() { e.setAccess(access) }, keep, err
}

// newIndex wires the index. Its key is derived from the node secret, which is read before Recover.
func (n *Set) newIndex(c *config.Config) *indexEngine {
	e := &indexEngine{config: n.Config, limits: indexapi.NewLimits(c.Index, n.Metrics)}
	asked := make([]name.Peer, 0, len(c.Index.Peers))
	for _, entry := range c.Index.Peers {
		p, err := indexapi.NewPeer(n.Catalog, n.Metrics, entry)
		if err != nil {
			panic("server: invalid peer after Validate: " + err.Error())
		}
		e.peers, asked = append(e.peers, p), append(asked, p)
	}
	e.Engine = index.New(c.Index, index.Deps{
		Catalog: n.Catalog,
		Store:   n.Store,
		Metrics: n.Metrics,
		Log:     n.Log,
		Board:   n.Board,
		Now:     n.Now,
		Wall:    n.Wall,
		Peers:   asked,
		Fleet:   c.Fleet.Enabled,
		Admit:   e.limits.Admit,
		Quiet:   e.limits.Quiet,

		Identity: n.indexKey,
	})
	if c.Fleet.Enabled {
		var nodes indexapi.Nodes
		e.fleet = func(l *lines.Lines) []peers.Node {
			return nodes.Set(l, engineOf[*fleetEngine](n).own, e.peers, n.log)
		}
	}
	return e
}

// indexKey derives the key that is the identity of the node.
func (n *Set) indexKey() ed25519.PrivateKey {
	seed := n.Derive(indexKeyUse)
	return ed25519.NewKeyFromSeed(seed[:])
}

// Reload applies the values that need no restart.
func (e *indexEngine) Reload(c *config.Config) {
	e.limits.Set(c.Index)
	e.Engine.Reload(c.Index)
}

// SetFleet makes the nodes of l that offer the index its peers, beside those of the configuration.
func (e *indexEngine) SetFleet(l *lines.Lines) {
	var view *fleet.View
	if l != nil {
		view = l.View
	}
	e.Engine.SetFleet(view, e.fleet(l))
}

// Close frees the cache and closes the connections to peers.
func (e *indexEngine) Close(context.Context) error {
	for _, p := range e.peers {
		p.Close()
	}
	e.Engine.Close()
	return nil
}
