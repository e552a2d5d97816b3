package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"ronbox/appliance/clock"
	"ronbox/appliance/flow"
	"ronbox/appliance/systemd"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/upkeep"
	"ronbox/engines"
	"ronbox/httpapi/auth"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Time to live of the token that init writes.
const (
	bootstrapTTL = 24 * time.Hour
	devTTL       = 30 * 24 * time.Hour
)

// ErrNotEmpty is returned by Init for a directory that is not empty.
var ErrNotEmpty = errors.New("directory is not empty")

// InitOptions are the options of Init.
type InitOptions struct {
	// add a signer, a genesis with it, a policy key, a funded account, and a token for 30 days
	Dev      bool
	Systemd  bool     // write systemd units into the directory
	Services []string // that run, as Choose has set them; nil: all
	NoBackup bool     // schedule no snapshots
	Packs    string   // folder of map packs to copy; "": none
	// directory of an export with which the log of a follower begins; "": it begins with the hub
	FromExport string
	Claimed    func() // called once this init owns the directory; may be nil
	// called with the reason if the node that the configuration follows does not answer; may be nil
	Unheard func(why error)
	Made    time.Time // commit time of the binary; zero: unknown
}

// InitResult describes the node that Init has created.
type InitResult struct {
	DataDir   string   `json:"data_dir"`
	URL       string   `json:"url"`
	Socket    string   `json:"socket"`
	TokenFile string   `json:"token_file"`
	Clock     string   `json:"clock_warning,omitzero"` // if the clock of the machine is known to be wrong
	SignerKey string   `json:"signer_key,omitzero"`    // of a dev node
	Genesis   string   `json:"genesis,omitzero"`       // payload_b3 of version 1 of a dev node or a follower
	Follows   string   `json:"follows,omitzero"`       // URL of the node that is followed
	PolicyKey string   `json:"policy_key,omitzero"`    // of a dev node, which trusts it
	Account   string   `json:"account,omitzero"`       // of a dev node, with its asset and amount
	Asset     string   `json:"asset,omitzero"`
	Amount    string   `json:"amount_minor,omitzero"`
	Maps      []string `json:"maps,omitzero"` // URLs of the pages that draw its packs
	Services  []string `json:"services,omitempty"`
	Unit      string   `json:"unit,omitzero"`    // file of the service unit, if it was asked for
	Install   []string `json:"install,omitzero"` // commands that install and start the service, in order
}

// Init creates a node in the data directory of cfg, which must be empty or absent: secret,
// configuration, database, first token. If Init fails, the directory is as before. A killed Init
// leaves a mark that lets the next one start over.
func Init(ctx context.Context, cfg *config.Config, o InitOptions) (InitResult, error) {
	if err := config.Validate(cfg); err != nil {
		return InitResult{}, err
	}
	if cfg.Amnesia.Enabled {
		return InitResult{}, process.ErrForgets
	}
	if cfg.Store.SnapshotDir != "" {
		if err := upkeep.CheckSnapshotDir(cfg.SnapshotDir()); err != nil {
			return InitResult{}, err
		}
	}
	var service *systemd.Install
	if o.Systemd {
		s, err := installOf(cfg)
		if err == nil {
			err = s.Check()
		}
		if err != nil {
			return InitResult{}, err
		}
		service = &s
	}
	if cfg.Registry.Follow.URL != "" {
		unheard, err := lookAtHub(ctx, cfg)
		if err != nil {
			return InitResult{}, err
		}
		if unheard != nil && o.Unheard != nil {
			o.Unheard(unheard)
		}
	}
	made, err := claim(cfg.Node.DataDir)
	if err != nil {
		return InitResult{}, err
	}
	if o.Claimed != nil {
		o.Claimed()
	}
	res, err := initIn(ctx, *cfg, o, service)
	if err != nil {
		return InitResult{}, errors.Join(err, made.undo())
	}
	return res, made.done()
}

func initIn(ctx context.Context, cfg config.Config, o InitOptions, service *systemd.Install) (InitResult, error) {
	begin := clock.New(clock.Options{Built: o.Made}).Status()
	id, err := store.NewIdentity(begin.Reading)
	if err != nil {
		return InitResult{}, err
	}
	if cfg.Registry.Origin == "" && cfg.Registry.Follow.URL == "" {
		cfg.Registry.Origin = "ronbox.local/" + strings.ToLower(id.NodeID)
	}
	res := InitResult{
		DataDir: cfg.Node.DataDir, URL: cfg.URL(), Socket: cfg.SocketPath(), TokenFile: cfg.Path(config.TokenName),
		Clock: clockWarning(&begin), Services: o.Services,
		Follows: cfg.Registry.Follow.URL, Genesis: cfg.Registry.Follow.Genesis,
	}
	set := o.keys(&cfg)
	if o.Dev && cfg.Rewarder.Enabled {
		if res.PolicyKey, err = makePolicyKey(&cfg); err != nil {
			return InitResult{}, err
		}
		set["rewarder.policy_trust_keys"] = cfg.Rewarder.TrustKeys[0]
	}
	if service != nil {
		keepListener(set, &cfg)
	} else if packaged(&cfg) && systemd.Installed("/") {
		res.Install = []string{systemd.Enable}
	}
	text := config.Template(set)
	if err := tokens.WritePrivate(cfg.Path(config.FileName), []byte(text)); err != nil {
		return InitResult{}, err
	}
	if err := store.Create(cfg.Path(config.DatabaseName), id); err != nil {
		return InitResult{}, err
	}
	if service != nil {
		if err := writeUnits(&cfg, *service); err != nil {
			return InitResult{}, fmt.Errorf("units: %w", err)
		}
		res.Unit, res.Install = cfg.Path(systemd.UnitName), service.Steps()
	}
	if o.Packs != "" {
		if err := copyPacks(&cfg, o.Packs); err != nil {
			return InitResult{}, err
		}
		for _, path := range MapPaths(&cfg) {
			res.Maps = append(res.Maps, res.URL+path)
		}
	}
	n, err := verbNode(&cfg, Build{Made: o.Made})
	if err != nil {
		return InitResult{}, err
	}
	if o.FromExport != "" {
		n.begin = func(ctx context.Context) error { return n.beginFrom(ctx, o.FromExport) }
	}
	return res, n.offline(ctx, func(ctx context.Context) error { return n.firstSteps(ctx, o, &res) })
}

// clockWarning returns a warning if the clock of the machine is known to be wrong, else "".
func clockWarning(s *clock.Status) string {
	if !s.BeforeBuild {
		return ""
	}
	return fmt.Sprintf("the clock of the machine (%s) is wrong, because it is before the commit time of this binary "+
		"(%s); once it is set, the token may be out of date: mint another one then (`ronbox token mint`)",
		s.Wall.Format(time.RFC3339), s.Built.UTC().Format(time.RFC3339))
}

// verbNode returns a node for a verb, which logs only warnings.
func verbNode(cfg *config.Config, build Build) (*Node, error) {
	own := *cfg
	own.Log.Level = "warn"
	return assemble(&own, build, Options{}, os.Stderr)
}

// firstSteps creates the first token and the initial state of a dev node with the running parts.
func (n *Node) firstSteps(ctx context.Context, o InitOptions, res *InitResult) error {
	if err := n.firstToken(ctx, o.Dev); err != nil {
		return err
	}
	if n.boot.Registry.Follow.URL != "" {
		return nil // it signs nothing, and its log is that of the hub
	}
	if n.boot.Registry.Enabled {
		if _, err := LogKeyOf(n.boot, true); err != nil {
			return err
		}
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
	spec := auth.MintSpec{Sub: "bootstrap", Scopes: []string{"node.admin"}, TTL: bootstrapTTL, Now: n.wall()}
	if dev {
		spec.Sub, spec.TTL = "dev", devTTL
	}
	spec.TTL = min(spec.TTL, n.boot.Auth.MaxTTL.D())
	t, err := n.MintSpec(ctx, self("init"), "", spec)
	if err != nil {
		return err
	}
	return tokens.WritePrivate(n.boot.Path(config.TokenName), []byte(t.Token+"\n"))
}

// self returns this process as an actor.
func self(principal string) engines.Actor {
	uid := uint32(os.Getuid())
	return engines.Actor{Principal: principal, UID: &uid, Admin: true}
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
	n.endEngines(base)
	n.store.CloseLanes()
	if n.sup.Drain("store", n.within.store, n.grace()) > 0 || n.liveTasks.Load() > 0 {
		return errors.Join(err, errors.New("a task did not stop"))
	}
	n.closeEngines(base)
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
		t, err = n.Mint(ctx, self("offline"), "", r)
		return err
	})
	return t, err
}

// finished returns errUnfinished for a directory that a killed init has left.
func finished(cfg *config.Config) error {
	if !cfg.Amnesia.Enabled && exists(cfg.Path(config.UnfinishedName)) {
		return fmt.Errorf("%s: %w", cfg.Node.DataDir, process.ErrUnfinished)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
