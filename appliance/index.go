package appliance

import (
	"context"
	"crypto/ed25519"

	"ronbox/appliance/config"
	"ronbox/appliance/unit"
	"ronbox/engines/index"
	"ronbox/httpapi"
	indexapi "ronbox/httpapi/index"
	"ronbox/store"
)

// indexKeyUse is the use of the node secret that the index signs by. Another one would make this node a stranger to all who trust it.
const indexKeyUse = "ronbox index identity v1"

func indexService() service {
	return service{
		name:     "index",
		guest:    true,
		on:       func(c *config.Config) bool { return c.Index.Enabled },
		drain:    func(c *config.Config) unit.Duration { return c.Index.DrainDeadline },
		buckets:  index.Buckets(),
		unsummed: index.Unsummed(),
		checks:   func(context.Context) []store.Check { return index.Checks() },
		build:    func(n *Node, c *config.Config) engine { return n.newIndex(c) },
		api: func(n *Node) httpapi.Service {
			e := engineOf[*indexEngine](n)
			return indexapi.New(e.Engine, e.limits)
		},
		limits: func(c *config.Config) httpapi.Limits { return indexapi.ServiceLimits(c.Index) },
		cache:  "answers",
	}
}

// indexEngine is the index as the node runs it, with the peers that it asks.
type indexEngine struct {
	*index.Engine
	limits *indexapi.Limits
	peers  []*indexapi.Peer
}

// newIndex wires the index. Its key is derived from the node secret, which is read before it recovers.
func (n *Node) newIndex(c *config.Config) *indexEngine {
	e := &indexEngine{limits: indexapi.NewLimits(c.Index, n.metrics)}
	asked := make([]index.Peer, 0, len(c.Index.Peers))
	for _, entry := range c.Index.Peers {
		p, err := indexapi.NewPeer(n.catalog, n.metrics, entry)
		if err != nil {
			panic("appliance: a peer that Validate has let through: " + err.Error())
		}
		e.peers, asked = append(e.peers, p), append(asked, p)
	}
	e.Engine = index.New(c.Index, index.Deps{
		Catalog: n.catalog, Store: n.store, Metrics: n.metrics, Log: n.levels.Logger(), Board: n.board, Now: n.now, Peers: asked, Admit: e.limits.Admit,
		Identity: func() ed25519.PrivateKey {
			seed := n.Derive(indexKeyUse)
			return ed25519.NewKeyFromSeed(seed[:])
		},
	})
	return e
}

// Reload takes the values that need no restart.
func (e *indexEngine) Reload(c *config.Config) {
	e.limits.Set(c.Index)
	e.Engine.Reload(c.Index)
}

// Close frees the cache and the connections to peers.
func (e *indexEngine) Close(context.Context) error {
	for _, p := range e.peers {
		p.Close()
	}
	e.Engine.Close()
	return nil
}
