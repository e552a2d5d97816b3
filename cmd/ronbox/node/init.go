package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ronbox/appliance/host"
	"ronbox/appliance/systemd"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/checkup"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines"
	nodehttp "ronbox/httpapi/node"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
	"ronbox/store/lock"
)

// initDoc is the output of init.
type initDoc = initdir.Result

type initFlags struct {
	dev, start, systemd bool
	packs               string
	follow, genesis     string
	fromExport          string
	noBackup            bool
	services, assets    []string
}

func (a app) initCmd() *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create a node: directory, secret, configuration, database and first token",
		Long: `Create a node: directory, secret, configuration, database and first token.

The data directory must be empty or absent. --dev adds a signer key, a genesis that
this key alone governs, and a funded account: use it for trials, not for a registry or a
ledger that others trust. --packs copies map packs into the node. --start checks the
machine as ` + "`ronbox doctor`" + ` does and serves the node, whether new or existing. --systemd
writes systemd units beside the configuration and prints the commands that install and
start the service, which runs as the system user ronbox if root runs init, else as the
calling user. A binary in a home or temporary directory, and a data directory in /tmp or
/run, are refused: a service cannot see them, or they are lost at a reboot.

--services runs only the named services; without it all run: registry, wallet, rewarder,
edge and index. The configuration has the others off. --asset names an asset that the
wallet declares, with the number of decimals that people write, and may be repeated.

The configuration schedules a snapshot a day, the first one 10 minutes after the start,
into the folder snapshots of the data directory, or for a package into
/var/backups/ronbox. --no-backup schedules none; ` + "`ronbox doctor`" + ` then warns.

--follow makes a node whose registry is a verified copy of the log of another node, which
--genesis names by the payload hash of its version 1. It takes no versions of its own. If
that node has pruned its log, the copy begins where that log does; --from-export begins
it with an export of the log instead (ronbox registry export), which may reach back
further, and is verified as what the other node sends is.`,
		Example: `  ronbox --data-dir data init --dev --start
  ronbox --data-dir data init --dev --packs testdata/packs --start
  ronbox --data-dir data init --services wallet,edge --asset eur:2
  ronbox --data-dir site init --follow https://hub.example:8443 --genesis b3:4487…
  sudo /usr/local/bin/ronbox --data-dir /var/lib/ronbox init --systemd`,
	}
	cmd.Flags().
		BoolVar(&f.dev, "dev", false, "add a 1-of-1 signer, its genesis, a funded account, and a token with all scopes")
	cmd.Flags().BoolVar(&f.systemd, "systemd", false, "write systemd units")
	cmd.Flags().StringVar(&f.packs, "packs", "", "copy the map packs from this `directory`")
	cmd.Flags().BoolVar(&f.start, "start", false, "serve the node, whether new or existing")
	cmd.Flags().StringVar(&f.follow, "follow", "", "copy the registry of the node at this `URL`")
	cmd.Flags().StringVar(&f.genesis, "genesis", "", "payload `hash` of version 1 of that registry")
	cmd.Flags().StringVar(&f.fromExport, "from-export", "", "begin the copy with the export in this `directory`")
	cmd.Flags().StringSliceVar(&f.services, "services", nil, "run only these services, of "+
		strings.Join(config.ServiceNames(), ", ")+" (`NAMES` between commas)")
	cmd.Flags().StringArrayVar(&f.assets, "asset", nil,
		"declare this asset: `NAME[:DECIMALS]`; may be repeated (default ron)")
	cmd.Flags().BoolVar(&f.noBackup, "no-backup", false, "schedule no snapshots")
	cmd.MarkFlagsRequiredTogether("follow", "genesis")
	cmd.MarkFlagsMutuallyExclusive("follow", "dev")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.start && systemd.Resumed() { // a later life of the node, which has its port already
			return a.serve(cmd.Context(), false)
		}
		if err := a.Verb(func(ctx context.Context, _ []string) error { return a.init(ctx, f) })(cmd, nil); err != nil ||
			!f.start {
			return err
		}
		return a.serve(cmd.Context(), true)
	}
	return cmd
}

// init creates the node. With --start an existing node is left unchanged, and the machine is
// checked.
func (a app) init(ctx context.Context, f initFlags) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	exists := cli.Exists(cfg.Path(config.DatabaseName))
	if follows := &cfg.Registry.Follow; f.follow != "" {
		if exists && (follows.URL != f.follow || follows.Genesis != f.genesis) {
			return cli.Fail(cli.ExitFailed, "not_empty", "choose an empty --data-dir",
				"%s is a node already, and it does not follow %s", cfg.Node.DataDir, f.follow)
		}
		follows.URL, follows.Genesis = f.follow, f.genesis
		if err := cfg.Registry.Validate(); err != nil {
			return cli.Usage("--follow: %w", err)
		}
	}
	if f.fromExport != "" && cfg.Registry.Follow.URL == "" {
		return cli.Usage("--from-export: needs --follow and --genesis")
	}
	if err := f.choose(cfg); err != nil {
		return err
	}
	if f.start && exists {
		if runs := lock.Holder(cfg.Path(config.DatabaseName)); runs != nil {
			return a.runsAlready(cfg, runs)
		}
		hold(cfg)
		a.Say("%s is a node already", cfg.Node.DataDir)
	} else if err := a.makeNode(ctx, cfg, f); err != nil {
		return err
	}
	if !f.start {
		return nil
	}
	if cfg, err = a.Config(); err != nil { // init wrote the file
		return err
	}
	return a.checkMachine(checkup.Of(ctx, cfg, a.Build.Made, false))
}

// choose applies --services and --asset to cfg.
func (f initFlags) choose(cfg *config.Config) error {
	if f.services != nil {
		if err := config.Choose(cfg, f.services); err != nil {
			return cli.Usage("--services: %w", err)
		}
		if f.packs != "" && !cfg.Edge.Enabled {
			return cli.Usage("--packs: the edge serves map packs: add edge to --services")
		}
	}
	for _, asset := range f.assets {
		name, decimals, given := strings.Cut(asset, ":")
		if err := engines.CheckAsset(name); err != nil {
			return cli.Usage("--asset %q: %w", asset, err)
		}
		if n, err := strconv.Atoi(decimals); given && (err != nil || n < 0 || n > engines.MaxDecimals) {
			return cli.Usage("--asset %q: decimals must be a number from 0 to %d", asset, engines.MaxDecimals)
		}
	}
	if f.assets != nil {
		cfg.Wallet.Assets = f.assets
	}
	return nil
}

// hold locks the secret of a node until the process ends, so that verbs wait for the node: nothing
// else is locked between init and serve. Without the lock they only wait less.
func hold(cfg *config.Config) {
	if fd, err := unix.Open(cfg.Path(config.SecretName), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	}
}

// runsAlready returns the failure to serve a node that another process serves.
func (a app) runsAlready(cfg *config.Config, by *store.LockedError) error {
	self := unit.Shell(os.Args[0], "--data-dir", cfg.Node.DataDir)
	return cli.Fail(
		cli.ExitLocked,
		"running",
		fmt.Sprintf("use it from here (`%s status`), or stop it (`%[1]s drain`); "+
			"a second node needs another --data-dir, and another port in RONBOX_SERVER__BIND", self),
		"the node of %s runs already, as process %d (%s)",
		cfg.Node.DataDir,
		by.PID,
		by.Command,
	)
}

func (a app) makeNode(ctx context.Context, cfg *config.Config, f initFlags) error {
	o := initdir.Options{
		Dev: f.dev, Systemd: f.systemd, Packs: f.packs, FromExport: f.fromExport, Made: a.Build.Made,
		Services: f.services, NoBackup: f.noBackup,
	}
	if f.start {
		o.Claimed = func() { hold(cfg) }
	}
	o.Unheard = func(why error) {
		a.Say("warning: %s does not answer: %v\n  -> the node follows it once it does", cfg.Registry.Follow.URL, why)
	}
	made, err := server.Init(ctx, cfg, o)
	if hub, ok := errors.AsType[*wiring.HubError](err); ok {
		return cli.Fail(cli.ExitConfig, "follow", "ask the owner of that node for its URL and the hash of its genesis",
			"--follow: %w", hub)
	}
	if errors.Is(err, initdir.ErrNotEmpty) {
		return cli.Fail(cli.ExitFailed, "not_empty",
			"choose an empty --data-dir, or add --start to serve the existing node", "%w", err)
	}
	if place, ok := errors.AsType[*systemd.PlaceError](err); ok {
		return cli.Fail(cli.ExitFailed, "place", placeAdvice(place), "--systemd: %w", err)
	}
	if dir, ok := errors.AsType[*nodehttp.SnapshotDirError](err); ok {
		return cli.Fail(cli.ExitFailed, nodeapi.ReasonSnapshotDir,
			"correct store.snapshot_dir: "+dir.Next(dir.Error()), "store.snapshot_dir: %w", err)
	}
	if err != nil {
		return fmt.Errorf("init %s: %w", cfg.Node.DataDir, err)
	}
	return a.Show(made, func(t cli.Table) { initTable(t, made, f.start) })
}

// placeAdvice returns a place for the binary or the data of a service.
func placeAdvice(e *systemd.PlaceError) string {
	if e.What == "binary" {
		return fmt.Sprintf("copy it with `sudo make install`, or `sudo install -m 755 %s /usr/local/bin/ronbox`, "+
			"then run /usr/local/bin/ronbox with the same arguments", unit.Shell(e.Path))
	}
	return "choose a --data-dir that the service can reach, such as /var/lib/ronbox"
}

// checkMachine prints warnings about the machine, and returns a failure if the node could not keep
// its guarantees on it.
func (a app) checkMachine(findings []host.Finding) error {
	for _, f := range findings {
		switch f.Level {
		case host.Bad:
			if f.Check == checkup.Port {
				return cli.Fail(cli.ExitLocked, f.Check, f.Advice, "%s: %s", f.Check, f.Seen)
			}
			return cli.Fail(
				cli.ExitBad,
				f.Check,
				f.Advice+"; `ronbox serve` starts it nevertheless",
				"%s: %s",
				f.Check,
				f.Seen,
			)
		case host.Warn:
			a.Say("warning: %s: %s\n  -> %s", f.Check, f.Seen, f.Advice)
		}
	}
	return nil
}

func initTable(t cli.Table, m initDoc, started bool) {
	t.Row("made", m.DataDir)
	t.Row("url", m.URL)
	t.Row("socket", m.Socket)
	t.Row("token file", m.TokenFile)
	t.Opt("warning", m.Clock)
	if m.Services != nil {
		t.Row("services", strings.Join(m.Services, ", "))
	}
	t.Opt("policy key", m.PolicyKey)
	if m.SignerKey != "" {
		t.Row("signer key", m.SignerKey)
		t.Row("genesis", m.Genesis)
	}
	if m.Follows != "" {
		t.Row("follows", m.Follows)
		t.Row("genesis", m.Genesis)
	}
	if m.Account != "" {
		t.Row("account", m.Account, "has "+m.Amount+" "+m.Asset)
	}
	for _, url := range m.Maps {
		t.Row("map", url)
	}
	if m.Unit != "" {
		t.Row("unit", m.Unit)
	}
	switch {
	case m.Unit != "":
		for i, step := range m.Install {
			t.Row(map[bool]string{true: "install it"}[i == 0], step)
		}
	case started:
	case m.Install != nil:
		t.Row("next", m.Install[0])
	default:
		t.Row("next", unit.Shell(os.Args[0], "--data-dir", m.DataDir, "serve"))
	}
}
