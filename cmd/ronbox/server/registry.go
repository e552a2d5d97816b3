package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"ronbox/appliance/host"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines/registry"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/httpapi"
	registryhttp "ronbox/httpapi/registry"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
	"ronbox/store"
)

func registryService() service {
	return service{
		name:    "registry",
		guest:   true,
		on:      func(c *config.Config) bool { return c.Registry.Enabled },
		drain:   func(c *config.Config) unit.Duration { return c.Registry.DrainDeadline },
		buckets: registry.Buckets(),
		build: func(n *Node, c *config.Config) engine {
			e := registryEngine{hub: newHub(n.catalog, n.metrics, c), caFile: c.Fleet.CAFile}
			deps := registry.Deps{
				Catalog:       n.catalog,
				Store:         n.store,
				Metrics:       n.metrics,
				Log:           n.levels.Logger(),
				Board:         n.board,
				Tracer:        n.tracer,
				Now:           n.now,
				Wall:          n.wall,
				Progress:      n.bootProgress,
				LogKeyFile:    c.LogKeyPath(),
				HighWaterFile: c.HighWaterPath(),
				Replicated:    n.member != nil,
			}
			if e.hub != nil {
				deps.Hub = e.hub
			}
			e.Engine = registry.New(c.Registry, deps)
			return e
		},
		api: func(n *Node) httpapi.Service {
			api := registryhttp.New(n.registry())
			if n.boot.Registry.Follow.URL != "" {
				api = registryhttp.Follower(api, n.registry())
			}
			return api
		},
		limits: func(c *config.Config) httpapi.Limits {
			l := c.Registry.Limits
			return httpapi.Limits{
				RPS: l.RPS, Burst: l.RPS, ReadRPS: l.ReadRPS, Inflight: l.Inflight,
				Streams: streamLimits(c),
			}
		},
		checks: func(ctx context.Context) []store.Check {
			return []store.Check{registry.Check(ctx, rverify.Options{}, new(*rverify.Report))}
		},
		init: func(ctx context.Context, n *Node, res *initdir.Founded) (err error) {
			res.SignerKey = n.boot.Path(config.SignerName)
			res.Genesis, err = n.devGenesis(ctx)
			return err
		},
		status: func(n *Node, out *nodeapi.Status) { out.Head = n.head() },
		outcome: func(err error) (process.Outcome, bool) {
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
		schema: record.SchemaVersion,
		cache:  "versions",
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

// registry returns the engine, nil while the service is off.
func (n *Node) registry() *registry.Engine { return engineOf[registryEngine](n).Engine }

// head returns the last published HEAD, nil before genesis.
func (n *Node) head() *registryapi.Head {
	v := n.registry().Head()
	if v.Head.Version == 0 {
		return nil
	}
	head := registryapi.Head(v.Doc())
	return &head
}

// devSigner names the one signer of a dev node.
const devSigner = "org:dev#signer"

// devGenesis makes a signer and a log key, and commits a genesis with that signer alone.
func (n *Node) devGenesis(ctx context.Context) (payloadB3 string, err error) {
	key, err := record.NewKey(devSigner, rand.Reader)
	if err != nil {
		return "", fmt.Errorf("signer key: %w", err)
	}
	if err := tokens.WritePrivate(n.boot.Path(config.SignerName), key.Bytes()); err != nil {
		return "", err
	}
	logKey, err := LogKeyOf(n.boot, false)
	if err != nil {
		return "", err
	}
	now := n.wall()
	draft := record.Draft{Version: 1, Full: true, SignerSet: &record.SignerSet{
		Epoch: 1, Threshold: 1, ThresholdGov: 1, Signers: []record.Signer{key.Signer(1)},
		LogKeys: []string{logKey.VKey},
	}}
	payload, _, err := record.Complete(draft.Bytes(), record.Base{Origin: n.boot.Registry.Origin}, now)
	if err != nil {
		return "", fmt.Errorf("genesis: %w", err)
	}
	approvals := []record.Approval{key.Sign(payload.B3(), now)}
	done, err := n.registry().Genesis(ctx, tokens.Self("init"), payload.Bytes(), approvals, "init")
	if err != nil {
		return "", fmt.Errorf("commit genesis: %w", err)
	}
	return done.PayloadB3.String(), nil
}

// checkLogKey reports a missing log key. The key is not needed if the signer set admits no log key.
// If the node is running, only the key file is checked.
func checkLogKey(ctx context.Context, cfg *config.Config, running bool) []host.Finding {
	path := cfg.LogKeyPath()
	if path == "" || !cfg.Registry.Enabled || cfg.Registry.Follow.URL != "" {
		return nil
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // present, or reported by the check of private files
	}
	needless := false
	if !running {
		// other checks report a file that cannot be read
		_ = readOffline(ctx, cfg.Path(config.DatabaseName), func(r store.Reader, _ store.Info) error {
			set, err := rverify.SignersInForce(registry.NewSource(r))
			needless = err == nil && set != nil && len(set.LogKeys) == 0
			return err
		})
	}
	if needless {
		return nil
	}
	return []host.Finding{
		{
			Check: "log_key",
			Level: host.Bad,
			Seen:  path + " is missing: the registry commits, and signs no checkpoint",
			Advice: "put it back from its backup; if it is lost, have the signers admit another one: " +
				"`ronbox registry log key`, then `registry signers propose --log-key`",
		},
	}
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
