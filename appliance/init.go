package appliance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/store"
)

// Lives of the token that init writes.
const (
	bootstrapTTL = 24 * time.Hour
	devTTL       = 30 * 24 * time.Hour
)

// errForgets says that there is nothing to make, or to find, for a node that is only memory.
var errForgets = errors.New("amnesia.enabled is set: nothing of the node is on a disk")

// ErrNotEmpty says that init was pointed at a directory that holds something.
var ErrNotEmpty = errors.New("directory is not empty")

// InitOptions says what kind of node to make.
type InitOptions struct {
	Dev     bool // also a signer, a genesis that it governs, an account with money, and a token for 30 days
	Systemd bool // also the units of a service manager, in the directory
}

// InitResult names what init made.
type InitResult struct {
	DataDir   string `json:"data_dir"`
	URL       string `json:"url"`
	Socket    string `json:"socket"`
	TokenFile string `json:"token_file"`
	SignerKey string `json:"signer_key,omitzero"` // of a dev node
	Genesis   string `json:"genesis,omitzero"`    // payload_b3 of version 1 of a dev node
	Account   string `json:"account,omitzero"`    // of a dev node, and what is in it
	Asset     string `json:"asset,omitzero"`
	Amount    string `json:"amount_minor,omitzero"`
	Unit      string `json:"unit,omitzero"` // file of the service unit, if it was asked for
}

// Init makes a node in cfg's data directory, which must be empty or absent: secret, configuration, database, first
// token. What fails leaves the directory as it was; what is killed leaves a mark, by which the next one begins anew.
func Init(ctx context.Context, cfg *config.Config, o InitOptions) (InitResult, error) {
	if err := config.Validate(cfg); err != nil {
		return InitResult{}, err
	}
	if cfg.Amnesia.Enabled {
		return InitResult{}, errForgets
	}
	made, err := claim(cfg.Node.DataDir)
	if err != nil {
		return InitResult{}, err
	}
	res, err := initIn(ctx, *cfg, o)
	if err != nil {
		return InitResult{}, errors.Join(err, made.undo())
	}
	return res, made.done()
}

func initIn(ctx context.Context, cfg config.Config, o InitOptions) (InitResult, error) {
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		return InitResult{}, err
	}
	if cfg.Registry.Origin == "" {
		cfg.Registry.Origin = "ronbox.local/" + strings.ToLower(id.NodeID)
	}
	text := config.Template(map[string]string{"registry.origin": cfg.Registry.Origin})
	if err := writePrivate(cfg.Path(config.FileName), []byte(text)); err != nil {
		return InitResult{}, err
	}
	if err := store.Create(cfg.Path(DatabaseName), id); err != nil {
		return InitResult{}, err
	}
	res := InitResult{
		DataDir: cfg.Node.DataDir, URL: address(&cfg), Socket: cfg.SocketPath(), TokenFile: cfg.Path(TokenName),
	}
	if o.Systemd {
		if res.Unit, err = writeUnits(&cfg); err != nil {
			return InitResult{}, fmt.Errorf("units: %w", err)
		}
	}
	n, err := quiet(&cfg, Build{})
	if err != nil {
		return InitResult{}, err
	}
	return res, n.offline(ctx, func(ctx context.Context) error { return n.firstSteps(ctx, o, &res) })
}

// quiet is a node that works for a verb: who calls it wants the result, not the node's life.
func quiet(cfg *config.Config, build Build) (*Node, error) {
	own := *cfg
	own.Log.Level = "warn"
	return assemble(&own, build, Options{}, os.Stderr, time.Now)
}

// address is where the node will be reached over TCP.
func address(cfg *config.Config) string {
	if cfg.TLS.Enabled {
		return "https://" + cfg.Server.Bind
	}
	return "http://" + cfg.Server.Bind
}

// firstSteps is what init does through the running parts: the token, and the genesis and the money of a dev node.
func (n *Node) firstSteps(ctx context.Context, o InitOptions, res *InitResult) error {
	if err := n.firstToken(ctx, o.Dev); err != nil {
		return err
	}
	if !o.Dev {
		return nil
	}
	if n.registry != nil {
		genesis, err := n.devGenesis(ctx)
		if err != nil {
			return err
		}
		res.SignerKey, res.Genesis = n.boot.Path(SignerName), genesis
	}
	return n.fundDev(ctx, res)
}

func (n *Node) firstToken(ctx context.Context, dev bool) error {
	spec := auth.MintSpec{Sub: "bootstrap", Scopes: []string{"node.admin"}, TTL: bootstrapTTL, Now: n.now()}
	if dev {
		spec.Sub, spec.TTL = "dev", devTTL
	}
	spec.TTL = min(spec.TTL, n.boot.Auth.MaxTTL.D())
	t, err := n.mint(ctx, self("init"), "", spec)
	if err != nil {
		return err
	}
	return writePrivate(n.boot.Path(TokenName), []byte(t.Token+"\n"))
}

// self is this process as an actor.
func self(principal string) engines.Actor {
	uid := uint32(os.Getuid())
	return engines.Actor{Principal: principal, UID: &uid, Admin: true}
}

// offline runs work on the store and the engines without sockets, and stops them in order.
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
	if err = n.recoverParts(ctx); err == nil {
		n.startEngines()
		err = work(ctx)
	}
	n.closeIntake()
	n.drainEngines(base)
	n.endEngines(base)
	n.store.CloseLanes()
	if n.sup.Drain("store", storeWithin, n.grace()) > 0 || n.inside.Load() > 0 {
		return errors.Join(err, errors.New("a task did not stop"))
	}
	n.closeEngines()
	return errors.Join(err, n.store.Close())
}
