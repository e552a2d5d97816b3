package appliance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/appliance/systemd"
	"ronbox/appliance/tokens"
	"ronbox/engines"
	"ronbox/httpapi/auth"
	nodeapi "ronbox/httpapi/node"
	"ronbox/store"
)

// Lives of the token that init writes.
const (
	bootstrapTTL = 24 * time.Hour
	devTTL       = 30 * 24 * time.Hour
)

// errForgets is returned by verbs that need files, for a node that has none.
var errForgets = errors.New("amnesia.enabled is set: nothing of the node is on a disk")

// ErrNotEmpty is returned when init was pointed at a directory that holds something.
var ErrNotEmpty = errors.New("directory is not empty")

// InitOptions are the kind of node to make.
type InitOptions struct {
	Dev     bool   // also a signer, a genesis that it governs, a key for policies, an account with money, and a token for 30 days
	Systemd bool   // also the units of a service manager, in the directory
	Packs   string // folder whose map packs are copied; "": none
}

// InitResult lists the things that init made.
type InitResult struct {
	DataDir   string   `json:"data_dir"`
	URL       string   `json:"url"`
	Socket    string   `json:"socket"`
	TokenFile string   `json:"token_file"`
	SignerKey string   `json:"signer_key,omitzero"` // of a dev node
	Genesis   string   `json:"genesis,omitzero"`    // payload_b3 of version 1 of a dev node
	PolicyKey string   `json:"policy_key,omitzero"` // of a dev node, which trusts it
	Account   string   `json:"account,omitzero"`    // of a dev node, with its asset and amount
	Asset     string   `json:"asset,omitzero"`
	Amount    string   `json:"amount_minor,omitzero"`
	Maps      []string `json:"maps,omitzero"` // URLs of the pages that draw its packs
	Unit      string   `json:"unit,omitzero"` // file of the service unit, if it was asked for
}

// Init makes a node in cfg's data directory, which must be empty or absent: secret, configuration, database, first
// token. An init that fails leaves the directory as it was; one that is killed leaves a mark, by which the next one begins anew.
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
	res := InitResult{
		DataDir: cfg.Node.DataDir, URL: address(&cfg), Socket: cfg.SocketPath(), TokenFile: cfg.Path(TokenName),
	}
	set := map[string]string{"registry.origin": cfg.Registry.Origin}
	if o.Dev {
		if res.PolicyKey, err = makePolicyKey(&cfg); err != nil {
			return InitResult{}, err
		}
		set["rewarder.policy_trust_keys"] = cfg.Rewarder.TrustKeys[0]
	}
	text := config.Template(set)
	if err := tokens.WritePrivate(cfg.Path(config.FileName), []byte(text)); err != nil {
		return InitResult{}, err
	}
	if err := store.Create(cfg.Path(DatabaseName), id); err != nil {
		return InitResult{}, err
	}
	if o.Systemd {
		if res.Unit, err = writeUnits(&cfg); err != nil {
			return InitResult{}, fmt.Errorf("units: %w", err)
		}
	}
	if o.Packs != "" {
		if err := copyPacks(&cfg, o.Packs); err != nil {
			return InitResult{}, err
		}
		for _, path := range MapPaths(&cfg) {
			res.Maps = append(res.Maps, res.URL+path)
		}
	}
	n, err := verbNode(&cfg, Build{})
	if err != nil {
		return InitResult{}, err
	}
	return res, n.offline(ctx, func(ctx context.Context) error { return n.firstSteps(ctx, o, &res) })
}

// verbNode is a node that works for a verb, and logs warnings only.
func verbNode(cfg *config.Config, build Build) (*Node, error) {
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

// firstSteps are done through the running parts: the token, and the first state of a dev node's services.
func (n *Node) firstSteps(ctx context.Context, o InitOptions, res *InitResult) error {
	if err := n.firstToken(ctx, o.Dev); err != nil {
		return err
	}
	if _, err := LogKeyOf(n.boot, true); err != nil {
		return err
	}
	if !o.Dev {
		return nil
	}
	for _, r := range n.engines {
		if r.init == nil {
			continue
		}
		if err := r.init(ctx, n, res); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) firstToken(ctx context.Context, dev bool) error {
	spec := auth.MintSpec{Sub: "bootstrap", Scopes: []string{"node.admin"}, TTL: bootstrapTTL, Now: n.now()}
	if dev {
		spec.Sub, spec.TTL = "dev", devTTL
	}
	spec.TTL = min(spec.TTL, n.boot.Auth.MaxTTL.D())
	t, err := n.MintSpec(ctx, self("init"), "", spec)
	if err != nil {
		return err
	}
	return tokens.WritePrivate(n.boot.Path(TokenName), []byte(t.Token+"\n"))
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
	if n.sup.Drain("store", n.within.store, n.grace()) > 0 || n.liveTasks.Load() > 0 {
		return errors.Join(err, errors.New("a task did not stop"))
	}
	n.closeEngines(base)
	return errors.Join(err, n.store.Close())
}

// writeUnits puts the units of this binary on this directory into it, for an administrator to copy, and names the service.
func writeUnits(cfg *config.Config) (string, error) {
	binary, err := os.Executable()
	if err != nil {
		return "", err
	}
	owner, err := user.Current()
	if err != nil {
		return "", err
	}
	for _, u := range []struct{ name, text string }{
		{systemd.UnitName, systemd.Unit(binary, cfg.Node.DataDir, owner.Username)},
		{systemd.HTTPSocketName, systemd.HTTPSocket(cfg.Server.Bind)},
		{systemd.AdminSocketName, systemd.AdminSocket(cfg.SocketPath(), owner.Username)},
	} {
		if err := os.WriteFile(filepath.Join(cfg.Node.DataDir, u.name), []byte(u.text), 0o600); err != nil {
			return "", err
		}
	}
	return cfg.Path(systemd.UnitName), nil
}

// MintOffline makes a token with the keys of a stopped node, which must not run: store.ErrLocked. A reader of the
// node secret may mint anything.
func MintOffline(ctx context.Context, cfg *config.Config, build Build, r nodeapi.MintRequest) (t nodeapi.Token, err error) {
	if err := config.Validate(cfg); err != nil {
		return t, err
	}
	if cfg.Amnesia.Enabled {
		return t, errForgets
	}
	n, err := verbNode(cfg, build)
	if err != nil {
		return t, err
	}
	err = n.offline(ctx, func(ctx context.Context) error {
		t, err = n.Mint(ctx, self("offline"), "", r)
		return err
	})
	return t, err
}

// UnfinishedName marks a directory that an init fills, and one that was killed has left half filled. It is locked while the init lives.
const UnfinishedName = "init.unfinished"

// errUnfinished says that a directory is not a node yet.
var errUnfinished = errors.New("an init of this directory was interrupted")

// finished refuses a directory that a killed init has left.
func finished(cfg *config.Config) error {
	if !cfg.Amnesia.Enabled && exists(cfg.Path(UnfinishedName)) {
		return fmt.Errorf("%s: %w", cfg.Node.DataDir, errUnfinished)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
