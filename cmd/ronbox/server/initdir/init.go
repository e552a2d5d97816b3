package initdir

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/clock"
	"ronbox/appliance/systemd"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/upkeep"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// ErrNotEmpty is returned by Init for a directory that is not empty.
var ErrNotEmpty = errors.New("directory is not empty")

// Options are the options of Init.
type Options struct {
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

// Result describes the node that Init has created.
type Result struct {
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

// Hooks are the steps of an init that need the parts of a node.
type Hooks struct {
	// LookAtHub returns an error if the log of the configured hub cannot be followed. unheard is
	// the reason if the hub did not answer: the node then follows it later.
	LookAtHub func(ctx context.Context, cfg *config.Config) (unheard, err error)
	// Found creates the first state in the new file.
	Found func(ctx context.Context, cfg *config.Config, o Options) (Founded, error)
}

// Founded is the first state of the file of a node.
type Founded struct {
	Token string // the first one

	// of a dev node; a value is empty without its service
	SignerKey, Genesis     string
	Account, Asset, Amount string
}

// Make creates a node in the data directory of cfg, which must be empty or absent: secret,
// configuration, database, first token. If Make fails, the directory is as before. A killed Make
// leaves a mark that lets the next one start over.
func Make(ctx context.Context, cfg *config.Config, o Options, h Hooks) (Result, error) {
	if err := config.Validate(cfg); err != nil {
		return Result{}, err
	}
	if cfg.Amnesia.Enabled {
		return Result{}, process.ErrForgets
	}
	if cfg.Store.SnapshotDir != "" {
		if err := upkeep.CheckSnapshotDir(cfg.SnapshotDir()); err != nil {
			return Result{}, err
		}
	}
	var service *systemd.Install
	if o.Systemd {
		s, err := installOf(cfg)
		if err == nil {
			err = s.Check()
		}
		if err != nil {
			return Result{}, err
		}
		service = &s
	}
	if cfg.Registry.Follow.URL != "" {
		unheard, err := h.LookAtHub(ctx, cfg)
		if err != nil {
			return Result{}, err
		}
		if unheard != nil && o.Unheard != nil {
			o.Unheard(unheard)
		}
	}
	made, err := claim(cfg.Node.DataDir)
	if err != nil {
		return Result{}, err
	}
	if o.Claimed != nil {
		o.Claimed()
	}
	res, err := initIn(ctx, *cfg, o, h, service)
	if err != nil {
		return Result{}, errors.Join(err, made.undo())
	}
	return res, made.done()
}

// initIn creates the files of the node in its directory.
func initIn(
	ctx context.Context,
	cfg config.Config,
	o Options,
	h Hooks,
	service *systemd.Install,
) (Result, error) {
	begin := clock.New(clock.Options{Built: o.Made}).Status()
	id, err := store.NewIdentity(begin.Reading)
	if err != nil {
		return Result{}, err
	}
	if cfg.Registry.Origin == "" && cfg.Registry.Follow.URL == "" {
		cfg.Registry.Origin = "ronbox.local/" + strings.ToLower(id.NodeID)
	}
	res := Result{
		DataDir: cfg.Node.DataDir, URL: cfg.URL(), Socket: cfg.SocketPath(), TokenFile: cfg.Path(config.TokenName),
		Clock: clockWarning(&begin), Services: o.Services,
		Follows: cfg.Registry.Follow.URL, Genesis: cfg.Registry.Follow.Genesis,
	}
	set := o.keys(&cfg)
	if o.Dev && cfg.Rewarder.Enabled {
		if res.PolicyKey, err = makePolicyKey(&cfg); err != nil {
			return Result{}, err
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
		return Result{}, err
	}
	if err := store.Create(cfg.Path(config.DatabaseName), id); err != nil {
		return Result{}, err
	}
	if service != nil {
		if err := writeUnits(&cfg, *service); err != nil {
			return Result{}, fmt.Errorf("units: %w", err)
		}
		res.Unit, res.Install = cfg.Path(systemd.UnitName), service.Steps()
	}
	if o.Packs != "" {
		if err := CopyPacks(&cfg, o.Packs); err != nil {
			return Result{}, err
		}
		for _, path := range MapPaths(&cfg) {
			res.Maps = append(res.Maps, res.URL+path)
		}
	}
	made, err := h.Found(ctx, &cfg, o)
	if err != nil {
		return Result{}, err
	}
	res.add(made)
	return res, tokens.WritePrivate(res.TokenFile, []byte(made.Token+"\n"))
}

// add adds the first state of the file.
func (res *Result) add(made Founded) {
	res.SignerKey, res.Genesis = made.SignerKey, cmp.Or(made.Genesis, res.Genesis)
	res.Account, res.Asset, res.Amount = made.Account, made.Asset, made.Amount
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

// IsDev reports whether init --dev has made the node: it holds keys that only such a node has.
func IsDev(cfg *config.Config) bool {
	return slices.ContainsFunc([]string{config.SignerName, config.PolicyKeyName}, func(name string) bool {
		_, err := os.Lstat(cfg.Path(name))
		return err == nil
	})
}

// Finished returns process.ErrUnfinished for a directory that a killed init has left.
func Finished(cfg *config.Config) error {
	if cfg.Amnesia.Enabled {
		return nil
	}
	if _, err := os.Lstat(cfg.Path(config.UnfinishedName)); err != nil {
		return nil
	}
	return fmt.Errorf("%s: %w", cfg.Node.DataDir, process.ErrUnfinished)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// makePolicyKey creates the key that signs the policies of a dev node, and adds it to the trusted
// keys of the configuration.
func makePolicyKey(cfg *config.Config) (path string, err error) {
	key, err := record.NewKey(rand.Reader)
	if err != nil {
		return "", fmt.Errorf("policy key: %w", err)
	}
	path = cfg.Path(config.PolicyKeyName)
	if err := tokens.MakeDir(filepath.Dir(path)); err != nil {
		return "", err
	}
	cfg.Rewarder.TrustKeys = []string{key.Public()}
	return path, tokens.WritePrivate(path, key.Bytes())
}
