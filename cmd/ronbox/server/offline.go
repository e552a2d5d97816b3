package server

import (
	"context"
	"errors"
	"os"
	"time"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/httpapi/auth"
	nodeapi "ronbox/httpapi/wire/node"
)

// Time to live of the token that init writes.
const (
	bootstrapTTL = 24 * time.Hour
	devTTL       = 30 * 24 * time.Hour
)

// Init creates a node in the data directory of cfg, see [initdir.Make].
func Init(ctx context.Context, cfg *config.Config, o initdir.Options) (initdir.Result, error) {
	return initdir.Make(ctx, cfg, o, initdir.Hooks{LookAtHub: wiring.LookAtHub, Found: found})
}

// found creates the first token of a node with a new file, and the state of a dev node.
func found(ctx context.Context, cfg *config.Config, o initdir.Options) (out initdir.Founded, err error) {
	n, err := verbNode(cfg, Build{Made: o.Made})
	if err != nil {
		return out, err
	}
	if o.FromExport != "" {
		n.begin = func(ctx context.Context) error { return n.services.BeginFrom(ctx, o.FromExport) }
	}
	return out, n.offline(ctx, func(ctx context.Context) error { return n.firstSteps(ctx, o.Dev, &out) })
}

// firstSteps creates the first token and the initial state of a dev node with the running parts.
func (n *Node) firstSteps(ctx context.Context, dev bool, out *initdir.Founded) (err error) {
	if out.Token, err = n.firstToken(ctx, dev); err != nil {
		return err
	}
	if n.boot.Registry.Follow.URL != "" {
		return nil // it signs nothing, and its log is that of the hub
	}
	if n.boot.Registry.Enabled {
		if _, err := wiring.LogKeyOf(n.boot, true); err != nil {
			return err
		}
	}
	if !dev {
		return nil
	}
	for _, r := range n.services.Engines() {
		if r.Init == nil {
			continue
		}
		if err := r.Init(ctx, n.services, out); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) firstToken(ctx context.Context, dev bool) (string, error) {
	spec := auth.MintSpec{Sub: "bootstrap", Scopes: []string{"node.admin"}, TTL: bootstrapTTL, Now: n.wall()}
	if dev {
		spec.Sub, spec.TTL = "dev", devTTL
	}
	spec.TTL = min(spec.TTL, n.boot.Auth.MaxTTL.D())
	t, err := n.MintSpec(ctx, tokens.Self("init"), "", spec)
	return t.Token, err
}

// verbNode returns a node for a verb, which logs only warnings.
func verbNode(cfg *config.Config, build Build) (*Node, error) {
	own := *cfg
	own.Log.Level = "warn"
	return assemble(&own, build, Options{}, os.Stderr)
}

// offline runs work with the store and the engines but without sockets, and stops them in order.
func (n *Node) offline(ctx context.Context, work func(context.Context) error) (err error) {
	base := context.WithoutCancel(ctx)
	n.sup = flow.NewSupervisor(base, n.catalog, flow.Hooks{Escalated: n.escalated, Died: n.taskDied})
	defer n.sup.Close()
	n.sup.Start(n.logWriter())
	defer func() { err = errors.Join(err, n.closeTracer(base)) }()
	if err := n.openFile(ctx); err != nil {
		return err
	}
	if err := n.store.Prepare(ctx); err != nil {
		return errors.Join(err, n.store.Close())
	}
	n.sup.Start(n.store.Tasks()...)
	if err = n.recoverParts(ctx); err == nil && n.begin != nil {
		err = n.begin(ctx)
	}
	if err == nil {
		n.startEngines()
		err = work(ctx)
	}
	n.closeIntake()
	n.drainEngines(base)
	n.services.End(base)
	n.store.CloseLanes()
	if n.sup.Drain("store", n.within.store, n.grace()) > 0 || n.liveTasks.Load() > 0 {
		return errors.Join(err, errors.New("a task did not stop"))
	}
	n.services.Close(base)
	return errors.Join(err, n.store.Close())
}

// MintOffline creates a token with the keys of a stopped node. It returns store.ErrLocked if the
// node runs. Reading the node secret is permission to mint any token.
func MintOffline(
	ctx context.Context,
	cfg *config.Config,
	build Build,
	r nodeapi.MintRequest,
) (t nodeapi.Token, err error) {
	if err := config.Validate(cfg); err != nil {
		return t, err
	}
	if cfg.Amnesia.Enabled {
		return t, process.ErrForgets
	}
	n, err := verbNode(cfg, build)
	if err != nil {
		return t, err
	}
	err = n.offline(ctx, func(ctx context.Context) error {
		t, err = n.Mint(ctx, tokens.Self("offline"), "", r)
		return err
	})
	return t, err
}
