package wiring

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"ronbox/appliance/host"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/upkeep"
	"ronbox/engines/rewarder"
	"ronbox/httpapi"
	rewarderapi "ronbox/httpapi/rewarder"
	"ronbox/store"
)

// rewarderSweepEvery is the period of sweeps of uploads. rewarder.inputs.keep is at least an hour.
const rewarderSweepEvery = time.Hour

func rewarderService() Service {
	return Service{
		Name:    "rewarder",
		Guest:   true,
		on:      func(c *config.Config) bool { return c.Rewarder.Enabled },
		Drain:   func(c *config.Config) unit.Duration { return c.Rewarder.DrainDeadline },
		Buckets: rewarder.Buckets(),
		build: func(n *Set, c *config.Config) Engine {
			return rewarderEngine{rewarder.New(c.Rewarder, rewarder.Deps{
				Catalog:    n.Catalog,
				Store:      n.Store,
				Ledger:     n.Ledger(),
				Metrics:    n.Metrics,
				Log:        n.Log,
				Board:      n.Board,
				Now:        n.Now,
				Artifacts:  artifactDir(c),
				Replicated: n.Clustered,
				Pins:       n.policyPins(c),
				Step:       n.RunStep,
			})}
		},
		Jobs: func(n *Set, _ time.Time) []*upkeep.Job {
			e := engineOf[rewarderEngine](n)
			return []*upkeep.Job{{Name: "rewarder_sweep", Every: upkeep.Fixed(rewarderSweepEvery), Do: e.Sweep}}
		},
		Checks: func(context.Context) []store.Check { return rewarder.Checks() },
		API:    func(n *Set) httpapi.Service { return rewarderapi.New(engineOf[rewarderEngine](n).Engine) },
		Limits: func(c *config.Config) httpapi.Limits {
			l := c.Rewarder.Limits
			return httpapi.Limits{
				RPS: l.RPS, Burst: l.Burst, ReadRPS: l.ReadRPS, Inflight: l.Inflight, Streams: StreamLimits(c),
				PerTenant: httpapi.Rate{RPS: l.PerTenantRPS, Burst: l.PerTenantRPS},
			}
		},
	}
}

// artifactDir returns the folder of artifact files, or "" if none are written: with amnesia, they
// may only be written to memory.
func artifactDir(c *config.Config) string {
	dir := cmp.Or(c.Rewarder.ArtifactDir, c.Path(config.RewarderName))
	if !filepath.IsAbs(dir) {
		dir = c.Path(dir)
	}
	if c.Amnesia.Enabled {
		if fs, err := host.ReadFileSystem(dir); err != nil || !fs.Memory {
			return ""
		}
	}
	return dir
}

// rewarderEngine adapts the rewarder to the node.
type rewarderEngine struct{ *rewarder.Engine }

func (e rewarderEngine) Reload(c *config.Config) { e.Engine.Reload(c.Rewarder) }
