package server

import (
	"context"
	"crypto/ed25519"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/edge"
	"ronbox/engines/index/name"
	"ronbox/httpapi"
	edgeapi "ronbox/httpapi/edge"
	"ronbox/store"
)

func edgeService() service {
	return service{
		name:     "edge",
		guest:    true,
		on:       func(c *config.Config) bool { return c.Edge.Enabled },
		drain:    func(c *config.Config) unit.Duration { return c.Edge.DrainDeadline },
		buckets:  edge.Buckets(),
		unsummed: edge.Unsummed(),
		build: func(n *Node, c *config.Config) engine {
			return edgeEngine{edge.New(c.Edge, edge.Deps{
				Catalog:   n.catalog,
				Store:     n.store,
				Metrics:   n.metrics,
				Log:       n.levels.Logger(),
				Board:     n.board,
				Now:       n.now,
				Lifecycle: n.phase,
				DataDir:   c.Node.DataDir,
				Amnesia:   c.Amnesia.Enabled,
				Names:     n.edgeNames(c),
				Fleet:     n.edgeFleet(c),
				Members:   n.edgeMembers(),
			})}
		},
		api: func(n *Node) httpapi.Service { return edgeapi.New(n.edge(), n.edge().Packs()) },
		// The engine limits the rate of requests that need a fill. Other requests are limited by
		// the slots in flight, of which one network may hold a quarter, because an answer lasts as
		// long as its client takes to read it.
		limits: func(c *config.Config) httpapi.Limits {
			most := c.Edge.Ingress.MaxInflight
			return httpapi.Limits{
				Inflight:        most,
				NetworkInflight: (most + 3) / 4,
				Timeout:         time.Duration(c.Edge.Ingress.TimeoutSecs) * time.Second,
				Streams:         streamLimits(c),
				Body: httpapi.BodyLimits{
					Bytes:    c.Edge.Ingress.BodyBytes.Bytes(),
					Ratio:    c.Edge.Ingress.DecompressMaxRatio,
					Inflated: c.Edge.Ingress.DecompressAbsBytes.Bytes(),
				},
			}
		},
		checks: func(context.Context) []store.Check { return edge.Checks() },
		cache:  "objects", // and tiles
	}
}

// edgeEngine adapts the edge engine to the node.
type edgeEngine struct{ *edge.Engine }

func (e edgeEngine) Reload(c *config.Config) { e.Engine.Reload(c.Edge) }

// edgeFleet returns what the edge needs of the fleet, or nil if it is off.
func (n *Node) edgeFleet(c *config.Config) *edge.FleetConfig {
	if !c.Fleet.Enabled {
		return nil
	}
	return &edge.FleetConfig{
		MaxPlaced: c.Fleet.MaxPlaced.Bytes(),
		Share:     edgeapi.NewShare(n.now),
		Signer: func() (string, ed25519.PrivateKey) {
			key := n.indexKey()
			return string(name.PeerIDOf(key.Public().(ed25519.PublicKey))), key
		},
	}
}

// edgeMembers returns the content stores of the other members of the cluster, or nil if the node is
// alone.
func (n *Node) edgeMembers() edge.Members {
	if m := n.part(); m != nil {
		return m.Objects()
	}
	return nil
}

// edge returns the engine, or nil if it is disabled.
func (n *Node) edge() *edge.Engine { return engineOf[edgeEngine](n).Engine }

// CheckPacksDir returns an error if edge.packs_dir names a missing folder. The default folder may
// be missing.
func CheckPacksDir(cfg *config.Config) error {
	dir := cfg.PacksDir()
	if !cfg.Edge.Enabled || dir == cfg.Path(config.PacksName) {
		return nil
	}
	at, err := os.Stat(dir)
	if err == nil && !at.IsDir() {
		err = &fs.PathError{Op: "stat", Path: dir, Err: syscall.ENOTDIR}
	}
	if err == nil {
		return nil
	}
	return &config.Fault{Key: "edge.packs_dir", Value: strconv.Quote(cfg.Edge.PacksDir), Cause: err,
		Reason: "must be a folder: create it, or mount its disk: " + err.Error()}
}
