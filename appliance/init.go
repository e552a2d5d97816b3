package appliance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// ErrNotEmpty says that init was pointed at a directory that holds something.
var ErrNotEmpty = errors.New("directory is not empty")

// InitOptions says what kind of node to make.
type InitOptions struct {
	Dev bool // also a signer, a genesis that it governs, and a token for 30 days
}

// InitResult names what init made.
type InitResult struct {
	DataDir   string `json:"data_dir"`
	URL       string `json:"url"`
	Socket    string `json:"socket"`
	TokenFile string `json:"token_file"`
	SignerKey string `json:"signer_key,omitzero"` // of a dev node
	Genesis   string `json:"genesis,omitzero"`    // payload_b3 of version 1 of a dev node
}

// Init makes a node in cfg's data directory, which must be empty or absent: secret, configuration, database, first
// token. What fails leaves the directory as it was.
func Init(ctx context.Context, cfg *config.Config, o InitOptions) (InitResult, error) {
	if err := config.Validate(cfg); err != nil {
		return InitResult{}, err
	}
	created, err := claimDir(cfg.Node.DataDir)
	if err != nil {
		return InitResult{}, err
	}
	res, err := initIn(ctx, *cfg, o)
	if err != nil {
		return InitResult{}, errors.Join(err, unclaimDir(cfg.Node.DataDir, created))
	}
	return res, nil
}

// claimDir makes dir, or takes it if it is empty, for its owner alone.
func claimDir(dir string) (created bool, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return true, os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return false, err
	}
	if len(entries) > 0 {
		return false, fmt.Errorf("%s: %w", dir, ErrNotEmpty)
	}
	return false, os.Chmod(dir, 0o700)
}

// unclaimDir removes what a failed init made: the directory was empty when it was claimed.
func unclaimDir(dir string, created bool) error {
	if created {
		return os.RemoveAll(dir)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

func initIn(ctx context.Context, cfg config.Config, o InitOptions) (InitResult, error) {
	if _, err := makeSecret(cfg.Path(SecretName)); err != nil {
		return InitResult{}, err
	}
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
		DataDir: cfg.Node.DataDir, URL: "http://" + cfg.Server.Bind, Socket: cfg.SocketPath(), TokenFile: cfg.Path(TokenName),
	}
	cfg.Log.Level = "warn" // who calls init wants its result, not the node's life
	n := assemble(&cfg, Build{}, os.Stderr, time.Now)
	return res, n.offline(ctx, func(ctx context.Context) error { return n.firstSteps(ctx, o, &res) })
}

// firstSteps is what init does through the running parts: the token, and the genesis of a dev node.
func (n *Node) firstSteps(ctx context.Context, o InitOptions, res *InitResult) error {
	if err := n.firstToken(ctx, o.Dev); err != nil {
		return err
	}
	if !o.Dev {
		return nil
	}
	genesis, err := n.devGenesis(ctx)
	if err != nil {
		return err
	}
	res.SignerKey, res.Genesis = n.cfg.Path(SignerName), genesis
	return nil
}

func (n *Node) firstToken(ctx context.Context, dev bool) error {
	spec := auth.MintSpec{Sub: "bootstrap", Scopes: []string{"node.admin"}, TTL: bootstrapTTL, Now: n.now()}
	if dev {
		spec.Sub, spec.TTL = "dev", devTTL
	}
	spec.TTL = min(spec.TTL, n.cfg.Auth.MaxTTL.D())
	t, err := n.mint(ctx, initActor(), spec)
	if err != nil {
		return err
	}
	return writePrivate(n.cfg.Path(TokenName), []byte(t.Token+"\n"))
}

// initActor is who runs init.
func initActor() engines.Actor {
	uid := uint32(os.Getuid())
	return engines.Actor{Principal: "init", UID: &uid}
}

// offline runs work on the store and the engines without sockets, and stops them in order.
func (n *Node) offline(ctx context.Context, work func(context.Context) error) (err error) {
	base := context.WithoutCancel(ctx)
	n.sup = flow.NewSupervisor(base, n.catalog, flow.Hooks{Escalated: n.escalated, Died: n.taskDied})
	defer n.sup.Close()
	if err := n.store.Open(ctx); err != nil {
		return err
	}
	n.sup.Start(n.store.Tasks()...)
	if err = n.recoverParts(ctx); err == nil {
		n.sup.Start(n.registry.Tasks()...)
		err = work(ctx)
	}
	n.closeIntake()
	left := n.sup.Drain("registry", n.drainDeadline(), n.grace())
	n.store.CloseLanes()
	left += n.sup.Drain("store", storeWithin, n.grace())
	if left > 0 {
		return errors.Join(err, errors.New("a task did not stop"))
	}
	n.registry.Close()
	return errors.Join(err, n.store.Close())
}
