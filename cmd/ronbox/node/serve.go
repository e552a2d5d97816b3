package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ronbox/appliance/host"
	"ronbox/appliance/systemd"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/config"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

func (a app) serveCmd() *cobra.Command {
	var hello bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the node until SIGTERM, SIGINT or `ronbox drain`",
		Long: `Run the node until SIGTERM, SIGINT or ` + "`ronbox drain`" + `.

The first signal drains the node: it answers the requests in flight and closes the
database. The second aborts the remaining tasks, the third ends the process at once;
neither loses an acknowledged write. SIGHUP reloads the configuration and the
certificate, as ` + "`ronbox config reload`" + ` does: all changes apply, or none. During a boot
it has no effect until the configuration is read, and is applied when the node runs.

A member of a cluster serves by way of the member that leads until it is elected. It
starts again in the same process, on the same sockets, when it no longer leads.

A SIGTERM or SIGINT in the first moment of a process, or of one that starts again, ends
it by itself. Nothing is open then.

Exit: 0 clean, 10 stopped with aborted tasks, 11 could not start again, 65 corrupt
data, 70 internal, 74 storage failed, 75 database locked by another process,
77 permissions, 78 config or schema, 130 ended by a third signal.`,
		Example: `  ronbox --data-dir data serve
  RONBOX_SERVER__BIND=127.0.0.1:9000 ronbox --data-dir data serve --hello
  ronbox --config /etc/ronbox/ronbox.toml serve`,
	}
	cmd.Flags().
		BoolVar(&hello, "hello", false,
			"print the URL, the token file and three commands to try, even without a terminal")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.serve(cmd.Context(), (hello || cli.IsTerminal(a.Stderr)) && !systemd.Resumed())
	}
	return cmd
}

// serve runs the node and keeps its exit code in a.exit.
func (a app) serve(ctx context.Context, hello bool) error {
	if a.Flags.PrintCurl {
		return cli.NoRequest()
	}
	var made atomic.Pointer[server.Node]
	quit := func() { os.Exit(cli.ExitInterrupted) }
	ctx, stop := onSignals(ctx, func() { // before anything that takes time
		if node := made.Load(); node != nil {
			node.Abort()
			return
		}
		quit()
	}, quit)
	defer stop()
	var early atomic.Bool // a SIGHUP came before the node was made
	defer onHangup(context.WithoutCancel(ctx), func() {
		early.Store(true)
		if node := made.Load(); node != nil {
			node.Hangup()
		}
	})()
	load := func() (*config.Config, []config.Entry, error) { return config.Explain(a.ConfigOptions("")) }
	cfg, entries, err := load()
	if err != nil {
		return cli.ConfigFailure(err)
	}
	node, err := server.New(cfg, a.Build, server.Options{
		Load: load, Entries: entries, Quit: func() { os.Exit(server.ExitAborted) },
	})
	if err != nil {
		return cli.Fail(cli.ExitConfig, "config", "correct the keys that are named", "%w", err)
	}
	if hello && !a.Flags.Quiet {
		node.OnRunning(func(s nodeapi.Status) { a.printWelcome(cfg, s) })
	}
	made.Store(node)
	if early.Load() { // the configuration may have changed after it was read
		node.Hangup()
	}
	a.Exit = node.Run(ctx)
	return nil
}

// onSignals returns a context that the first SIGTERM or SIGINT cancels. The second signal calls
// abort, the third quit. SIGPIPE is ignored, so that a closed log pipe does not end the node.
func onSignals(ctx context.Context, abort, quit func()) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	drain, stopDrain := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	next := func(then func()) func() {
		return func() {
			//rawchan: the process ends
			time.AfterFunc(cli.SameSignal, func() {
				again, _ := signal.NotifyContext(context.WithoutCancel(ctx), os.Interrupt, syscall.SIGTERM)
				context.AfterFunc(again, then)
			})
		}
	}
	third := next(quit)
	stop := context.AfterFunc(drain, next(func() { third(); abort() }))
	return drain, func() { stop(); stopDrain() }
}

// onHangup calls reload at every SIGHUP until stop, after which the process ignores SIGHUP. The
// next signal is caught before reload is called, so that no signal is missed.
func onHangup(ctx context.Context, reload func()) (stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	var arm func()
	arm = func() {
		hung, release := signal.NotifyContext(ctx, syscall.SIGHUP)
		context.AfterFunc(hung, func() {
			if ctx.Err() == nil {
				arm()
				reload()
			}
			release()
		})
	}
	arm()
	return func() {
		cancel()
		signal.Ignore(syscall.SIGHUP)
	}
}

// printWelcome prints the addresses of the node and commands to try.
func (a app) printWelcome(cfg *config.Config, s nodeapi.Status) {
	t := tabwriter.NewWriter(a.Stderr, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nURL\t%s\nsocket\t%s\n", s.URL, s.Socket)
	if token := cfg.Path(server.TokenName); cli.Exists(token) {
		fmt.Fprintf(t, "token file\t%s\n", token)
	}
	for _, path := range server.MapPaths(cfg) {
		fmt.Fprintf(t, "map\t%s%s\n", s.URL, path)
	}
	_ = t.Flush() // stderr is for people; nothing depends on it

	verbs := []string{"console", "doctor", "registry genesis --help"} // of a node whose signers are elsewhere
	if key := cfg.Path(server.SignerName); cli.Exists(key) {
		verbs = []string{
			"console",
			"registry apply testdata/registry/*.ndjson --key " + unit.Shell(key),
			"wallet transfer alice bob 100",
		}
	}
	prefix := unit.Shell(os.Args[0], "--data-dir", cfg.Node.DataDir)
	fmt.Fprintf(a.Stderr, "\nTry in another terminal:\n")
	for _, verb := range verbs {
		fmt.Fprintf(a.Stderr, "  %s %s\n", prefix, verb)
	}
	fmt.Fprintln(a.Stderr)
}

// initDoc is the output of init.
type initDoc = server.InitResult

type initFlags struct {
	dev, start, systemd bool
	packs               string
	follow, genesis     string
	fromExport          string
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

--follow makes a node whose registry is a verified copy of the log of another node, which
--genesis names by the payload hash of its version 1. It takes no versions of its own. If
that node has pruned its log, the copy begins where that log does; --from-export begins
it with an export of the log instead (ronbox registry export), which may reach back
further, and is verified as what the other node sends is.`,
		Example: `  ronbox --data-dir data init --dev --start
  ronbox --data-dir data init --dev --packs testdata/packs --start
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
	exists := cli.Exists(cfg.Path(server.DatabaseName))
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
	if f.start && exists {
		if runs := store.Holder(cfg.Path(server.DatabaseName)); runs != nil {
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
	return a.checkMachine(server.Checkup(ctx, cfg, a.Build, false))
}

// hold locks the secret of a node until the process ends, so that verbs wait for the node: nothing
// else is locked between init and serve. Without the lock they only wait less.
func hold(cfg *config.Config) {
	if fd, err := unix.Open(cfg.Path(server.SecretName), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
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
	o := server.InitOptions{
		Dev: f.dev, Systemd: f.systemd, Packs: f.packs, FromExport: f.fromExport, Made: a.Build.Made,
	}
	if f.start {
		o.Claimed = func() { hold(cfg) }
	}
	o.Unheard = func(why error) {
		a.Say("warning: %s does not answer: %v\n  -> the node follows it once it does", cfg.Registry.Follow.URL, why)
	}
	made, err := server.Init(ctx, cfg, o)
	if hub, ok := errors.AsType[*server.HubError](err); ok {
		return cli.Fail(cli.ExitConfig, "follow", "ask the owner of that node for its URL and the hash of its genesis",
			"--follow: %w", hub)
	}
	if errors.Is(err, server.ErrNotEmpty) {
		return cli.Fail(cli.ExitFailed, "not_empty",
			"choose an empty --data-dir, or add --start to serve the existing node", "%w", err)
	}
	if place, ok := errors.AsType[*systemd.PlaceError](err); ok {
		return cli.Fail(cli.ExitFailed, "place", placeAdvice(place), "--systemd: %w", err)
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
			if f.Check == server.CheckPort {
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
	for i, step := range m.Install {
		t.Row(map[bool]string{true: "install it"}[i == 0], step)
	}
	if !started && m.Unit == "" {
		t.Row("next", unit.Shell(os.Args[0], "--data-dir", m.DataDir, "serve"))
	}
}
