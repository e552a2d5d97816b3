package wiring

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

func edgeService() Service {
	return Service{
		Name:     "edge",
		Guest:    true,
		on:       func(c *config.Config) bool { return c.Edge.Enabled },
		Drain:    func(c *config.Config) unit.Duration { return c.Edge.DrainDeadline },
		Buckets:  edge.Buckets(),
		unsummed: edge.Unsummed(),
		build: func(n *Set, c *config.Config) Engine {
			return edgeEngine{edge.New(c.Edge, edge.Deps{
				Catalog:   n.Catalog,
				Store:     n.Store,
				Metrics:   n.Metrics,
				Log:       n.Log,
				Board:     n.Board,
				Now:       n.Now,
				Lifecycle: n.Phase,
				DataDir:   c.Node.DataDir,
				Amnesia:   c.Amnesia.Enabled,
				Names:     namesFor(n, c),
				Fleet:     n.edgeFleet(c),
				Members:   n.Members,
			})}
		},
		API: func(n *Set) httpapi.Service { return edgeapi.New(n.Edge(), n.Edge().Packs(), n.Edge().Extracts()) },
		// The engine limits the rate of requests that need a fill. Other requests are limited by
		// the slots in flight, of which one network may hold a quarter, because an answer lasts as
		// long as its client takes to read it.
		Limits: func(c *config.Config) httpapi.Limits {
			most := c.Edge.Ingress.MaxInflight
			return httpapi.Limits{
				Inflight:        most,
				NetworkInflight: (most + 3) / 4,
				Timeout:         time.Duration(c.Edge.Ingress.TimeoutSecs) * time.Second,
				Streams:         StreamLimits(c),
				Body: httpapi.BodyLimits{
					Bytes:    c.Edge.Ingress.BodyBytes.Bytes(),
					Ratio:    c.Edge.Ingress.DecompressMaxRatio,
					Inflated: c.Edge.Ingress.DecompressAbsBytes.Bytes(),
				},
			}
		},
		Checks: func(context.Context) []store.Check { return edge.Checks() },
		Cache:  "objects", // and tiles
	}
}

// edgeEngine adapts the edge engine to the node.
type edgeEngine struct{ *edge.Engine }

func (e edgeEngine) Reload(c *config.Config) { e.Engine.Reload(c.Edge) }

// edgeFleet returns what the edge needs of the fleet, or nil if it is off.
func (n *Set) edgeFleet(c *config.Config) *edge.FleetConfig {
	if !c.Fleet.Enabled {
		return nil
	}
	return &edge.FleetConfig{
		MaxPlaced: c.Fleet.MaxPlaced.Bytes(),
		Share:     edgeapi.NewShare(n.Now),
		Signer: func() (string, ed25519.PrivateKey) {
			key := n.indexKey()
			return string(name.PeerIDOf(key.Public().(ed25519.PublicKey))), key
		},
	}
}

// Edge returns the engine, or nil if it is disabled.
func (n *Set) Edge() *edge.Engine { return engineOf[edgeEngine](n).Engine }

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
