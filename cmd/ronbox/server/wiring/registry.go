package wiring

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines/registry"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/httpapi"
	registryhttp "ronbox/httpapi/registry"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
	"ronbox/store"
)

func registryService() Service {
	return Service{
		Name:    "registry",
		Guest:   true,
		on:      func(c *config.Config) bool { return c.Registry.Enabled },
		Drain:   func(c *config.Config) unit.Duration { return c.Registry.DrainDeadline },
		Buckets: registry.Buckets(),
		build: func(n *Set, c *config.Config) Engine {
			e := registryEngine{hub: newHub(n.Catalog, n.Metrics, c), caFile: c.Fleet.CAFile}
			deps := registry.Deps{
				Catalog:       n.Catalog,
				Store:         n.Store,
				Metrics:       n.Metrics,
				Log:           n.Log,
				Board:         n.Board,
				Tracer:        n.Tracer,
				Now:           n.Now,
				Wall:          n.Wall,
				Progress:      n.Progress,
				LogKeyFile:    c.LogKeyPath(),
				HighWaterFile: c.HighWaterPath(),
				Replicated:    n.Clustered,
			}
			if e.hub != nil {
				deps.Hub = e.hub
			}
			e.Engine = registry.New(c.Registry, deps)
			return e
		},
		API: func(n *Set) httpapi.Service {
			api := registryhttp.New(n.Registry())
			if n.Boot.Registry.Follow.URL != "" {
				api = registryhttp.Follower(api, n.Registry())
			}
			return api
		},
		Limits: func(c *config.Config) httpapi.Limits {
			l := c.Registry.Limits
			return httpapi.Limits{
				RPS: l.RPS, Burst: l.RPS, ReadRPS: l.ReadRPS, Inflight: l.Inflight,
				Streams: StreamLimits(c),
			}
		},
		Checks: func(ctx context.Context) []store.Check {
			return []store.Check{tables.Check(ctx, rverify.Options{}, new(*rverify.Report))}
		},
		Init: func(ctx context.Context, n *Set, res *initdir.Founded) (err error) {
			res.SignerKey = n.Boot.Path(config.SignerName)
			res.Genesis, err = n.devGenesis(ctx)
			return err
		},
		Status: func(n *Set, out *nodeapi.Status) { out.Head = n.head() },
		Outcome: func(err error) (process.Outcome, bool) {
			if _, other := errors.AsType[*registry.FollowMismatchError](err); other {
				const next = "correct registry.follow.* in this file, or use another data directory"
				return process.Outcome{Code: process.ExitConfig, Next: next}, true
			}
			_, other := errors.AsType[*registry.GenesisMismatchError](err)
			return process.Outcome{
				Code: process.ExitConfig,
				Next: "set the origin of the log in this file, or use the data directory of the configured log",
			}, other
		},
		Schema: record.SchemaVersion,
		Cache:  "versions",
	}
}

// registryEngine is the registry as the node runs it.
type registryEngine struct {
	*registry.Engine
	hub    *registryhttp.Hub // nil unless the node follows another
	caFile string            // of the hub
}

// Recover makes the hub callable and recovers the engine.
func (e registryEngine) Recover(ctx context.Context) error {
	if e.hub != nil {
		roots, err := caPool(e.caFile)
		if err == nil {
			err = e.hub.Open(roots)
		}
		if err != nil {
			return err
		}
	}
	return e.Engine.Recover(ctx)
}

// Close closes the connections to the hub and frees the memory of the engine.
func (e registryEngine) Close(ctx context.Context) error {
	if e.hub != nil {
		e.hub.Close()
	}
	return e.Engine.Close(ctx)
}

func (e registryEngine) Reload(c *config.Config) { e.Engine.Reload(c.Registry) }

// Registry returns the engine, nil while the service is off.
func (n *Set) Registry() *registry.Engine { return engineOf[registryEngine](n).Engine }

// head returns the last published HEAD, nil before genesis.
func (n *Set) head() *registryapi.Head {
	v := n.Registry().Head()
	if v.Head.Version == 0 {
		return nil
	}
	head := registryapi.Head(v.Doc())
	return &head
}

// devSigner names the one signer of a dev node.
const devSigner = "org:dev#signer"

// devGenesis makes a signer and a log key, and commits a genesis with that signer alone.
func (n *Set) devGenesis(ctx context.Context) (payloadB3 string, err error) {
	key, err := record.NewKey(devSigner, rand.Reader)
	if err != nil {
		return "", fmt.Errorf("signer key: %w", err)
	}
	if err := tokens.WritePrivate(n.Boot.Path(config.SignerName), key.Bytes()); err != nil {
		return "", err
	}
	logKey, err := LogKeyOf(n.Boot, false)
	if err != nil {
		return "", err
	}
	now := n.Wall()
	draft := record.Draft{Version: 1, Full: true, SignerSet: &record.SignerSet{
		Epoch: 1, Threshold: 1, ThresholdGov: 1, Signers: []record.Signer{key.Signer(1)},
		LogKeys: []string{logKey.VKey},
	}}
	payload, _, err := record.Complete(draft.Bytes(), record.Base{Origin: n.Boot.Registry.Origin}, now)
	if err != nil {
		return "", fmt.Errorf("genesis: %w", err)
	}
	approvals := []record.Approval{key.Sign(payload.B3(), now)}
	done, err := n.Registry().Genesis(ctx, tokens.Self("init"), payload.Bytes(), approvals, "init")
	if err != nil {
		return "", fmt.Errorf("commit genesis: %w", err)
	}
	return done.PayloadB3.String(), nil
}

// LogKey is the public half of the key that signs a node's checkpoints.
type LogKey struct {
	File   string `json:"file"`
	Origin string `json:"origin"` // of the log
	VKey   string `json:"vkey"`
	Made   bool   `json:"made"` // by this call
}

// LogKeyOf reads the log key of the node with configuration cfg. If it is missing, it is made with
// create, else the error is fs.ErrNotExist.
func LogKeyOf(cfg *config.Config, create bool) (k LogKey, err error) {
	path := cfg.LogKeyPath()
	k = LogKey{File: cmp.Or(path, cfg.Path(config.LogKeyName)), Origin: cfg.Registry.Origin}
	key, err := checkpoint.ReadKey(path)
	switch {
	case err == nil:
		k.VKey = key.VKey
		return k, nil
	case !errors.Is(err, fs.ErrNotExist) || !create:
		return k, err
	case k.Origin == "":
		return k, fmt.Errorf("%s names no registry.origin, which a log key is made for", cfg.Node.DataDir)
	}
	if err := tokens.MakeDir(filepath.Dir(k.File)); err != nil {
		return k, err
	}
	secret, public, err := note.GenerateKey(rand.Reader, k.Origin)
	if err != nil {
		return k, fmt.Errorf("log key: %w", err)
	}
	k.VKey, k.Made = public, true
	return k, tokens.WritePrivate(k.File, []byte(secret+"\n"))
}
