package appliance

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/config"
	"ronbox/appliance/unit"
	"ronbox/engines/edge"
	"ronbox/httpapi"
	edgeapi "ronbox/httpapi/edge"
	"ronbox/store"
)

// PacksName is the folder of map packs in the data directory, unless edge.packs_dir names another; edgeName has what was fetched.
const (
	PacksName = "packs"
	edgeName  = "edge"
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
				Catalog: n.catalog, Store: n.store, Metrics: n.metrics, Log: n.levels.Logger(), Board: n.board, Now: n.now, Lifecycle: n.phase,
				DataDir: c.Node.DataDir, Amnesia: c.Amnesia.Enabled,
			})}
		},
		api: func(n *Node) httpapi.Service { return edgeapi.New(n.edge(), n.edge().Packs()) },
		// Its own bucket bounds the requests that need a fill; those that need none are bounded by the slots in flight, of which one network may
		// hold a quarter: an answer lasts as long as its client takes to read it.
		limits: func(c *config.Config) httpapi.Limits {
			most := c.Edge.Ingress.MaxInflight
			return httpapi.Limits{Inflight: most, NetworkInflight: (most + 3) / 4, Timeout: time.Duration(c.Edge.Ingress.TimeoutSecs) * time.Second, Streams: streamLimits(c)}
		},
		checks: func(context.Context) []store.Check { return edge.Checks() },
		cache:  "objects", // and tiles
	}
}

// edgeEngine is the edge as the node runs it.
type edgeEngine struct{ *edge.Engine }

func (e edgeEngine) Reload(c *config.Config) { e.Engine.Reload(c.Edge) }

// edge is the engine, nil while it is off.
func (n *Node) edge() *edge.Engine { return engineOf[edgeEngine](n).Engine }

// MapPaths are the paths of the pages that draw the packs in the folder of a configuration.
func MapPaths(cfg *config.Config) (paths []string) {
	if !cfg.Edge.Enabled {
		return nil
	}
	dir := cmp.Or(cfg.Edge.PacksDir, PacksName)
	if !filepath.IsAbs(dir) {
		dir = cfg.Path(dir)
	}
	for _, file := range packFiles(dir) {
		id := filepath.Base(file)
		paths = append(paths, edgeapi.PreviewPath+strings.TrimSuffix(id, filepath.Ext(id)))
	}
	return paths
}

// packFiles are the packs in a folder.
func packFiles(dir string) (files []string) {
	for _, kind := range []edge.PackKind{edge.KindMBTiles, edge.KindPMTiles} {
		found, _ := filepath.Glob(filepath.Join(dir, "*."+string(kind))) // a folder that is not there, or not to be read, has none
		files = append(files, found...)
	}
	slices.Sort(files)
	return files
}

// copyPacks makes the folder of packs of a new node, a copy of another.
func copyPacks(cfg *config.Config, from string) error {
	if len(packFiles(from)) == 0 {
		return fmt.Errorf("packs: %s holds no *.%s and no *.%s", from, edge.KindPMTiles, edge.KindMBTiles)
	}
	return os.CopyFS(cfg.Path(PacksName), os.DirFS(from))
}
