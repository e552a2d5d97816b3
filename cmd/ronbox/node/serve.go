package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance"
	"ronbox/appliance/config"
	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/cli"
	nodeapi "ronbox/httpapi/node"
)

func (a app) serveCmd() *cobra.Command {
	var hello bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the node until SIGTERM, SIGINT or `ronbox drain`",
		Long: `Run the node until SIGTERM, SIGINT or ` + "`ronbox drain`" + `.

The first signal drains: requests in flight are answered, the file is closed.
The second aborts what is left, the third ends the process at once; nothing
acknowledged is lost by either. SIGHUP reads the configuration and the certificate
again, as ` + "`ronbox config reload`" + ` does: all of it comes into force, or nothing.

Exit: 0 clean, 10 stopped with aborted tasks, 65 corrupt data, 70 internal,
74 storage failed, 75 the file is held by another process, 77 permissions,
78 config or schema.`,
		Example: `  ronbox --data-dir data serve
  RONBOX_SERVER__BIND=127.0.0.1:9000 ronbox --data-dir data serve --hello
  ronbox --config /etc/ronbox/ronbox.toml serve`,
	}
	cmd.Flags().BoolVar(&hello, "hello", false, "print URL, token file and three commands to try, also when no terminal looks")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.serve(cmd.Context(), hello || cli.IsTerminal(a.Stderr))
	}
	return cmd
}

// serve runs the node and keeps its exit code in a.exit.
func (a app) serve(ctx context.Context, hello bool) error {
	load := func() (*config.Config, []config.Entry, error) { return config.Explain(a.ConfigOptions("")) }
	cfg, entries, err := load()
	if err != nil {
		return cli.ConfigFailure(err)
	}
	node, err := appliance.New(cfg, a.Build, appliance.Options{Load: load, Entries: entries})
	if err != nil {
		return cli.Fail(cli.ExitConfig, "config", "correct the keys that are named", "%w", err)
	}
	if hello && !a.Flags.Quiet {
		node.OnRunning(func(s nodeapi.Status) { a.printWelcome(cfg, s) })
	}
	ctx, stop := onSignals(ctx, node.Abort, func() { os.Exit(cli.ExitInterrupted) })
	defer stop()
	defer onHangup(context.WithoutCancel(ctx), node.Hangup)()
	a.Exit = node.Run(ctx)
	return nil
}

// onSignals returns a context that the first SIGTERM or SIGINT cancels; the second calls abort, the third quit. SIGPIPE is
// ignored: a log reader that is gone does not end a node.
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

// onHangup calls reload at every SIGHUP until stop; one from a terminal that has closed does no harm. The next signal is
// caught before reload is called, so that none is missed: a change that comes in between is read anyway.
func onHangup(ctx context.Context, reload func()) (stop context.CancelFunc) {
	ctx, stop = context.WithCancel(ctx)
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
	return stop
}

// printWelcome shows a person where the node serves, and commands to try.
func (a app) printWelcome(cfg *config.Config, s nodeapi.Status) {
	t := tabwriter.NewWriter(a.Stderr, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nURL\t%s\nsocket\t%s\n", s.URL, s.Socket)
	if token := cfg.Path(appliance.TokenName); cli.Exists(token) {
		fmt.Fprintf(t, "token file\t%s\n", token)
	}
	for _, path := range appliance.MapPaths(cfg) {
		fmt.Fprintf(t, "map\t%s%s\n", s.URL, path)
	}
	_ = t.Flush() // stderr is for people; nothing depends on it

	verbs := []string{"status", "doctor", "registry genesis --help"} // of a node whose signers are elsewhere
	if key := cfg.Path(appliance.SignerName); cli.Exists(key) {
		verbs = []string{"status", "registry apply testdata/registry/*.ndjson --key " + key, "wallet transfer alice bob 100"}
	}
	prefix := os.Args[0] + " --data-dir " + cfg.Node.DataDir
	fmt.Fprintf(a.Stderr, "\nTry in another terminal:\n")
	for _, verb := range verbs {
		fmt.Fprintf(a.Stderr, "  %s %s\n", prefix, verb)
	}
	fmt.Fprintln(a.Stderr)
}

// initDoc is the output of init.
type initDoc = appliance.InitResult

type initFlags struct {
	dev, start, systemd bool
	packs               string
}

func (a app) initCmd() *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a node: its directory, secret, config, database and first token",
		Long: `Make a node: its directory, secret, config, database and first token.

A directory that holds something is refused. --dev adds a signer key, a genesis that
this one key governs, and an account with money: for trying things out, not for a
registry or a ledger that others trust. --packs copies map packs into its folder of packs.
--start looks at the machine as ` + "`ronbox doctor`" + ` does and serves the node right after, or
serves one that was made before. --systemd writes the units of a service beside the
configuration and says how to install them.`,
		Example: `  ronbox --data-dir data init --dev --start
  ronbox --data-dir data init --dev --packs testdata/packs --start
  ronbox --data-dir /var/lib/ronbox init --systemd --json`,
	}
	cmd.Flags().BoolVar(&f.dev, "dev", false, "add a 1-of-1 signer, its genesis, a funded account, and a token that may do everything")
	cmd.Flags().BoolVar(&f.systemd, "systemd", false, "write systemd units for it")
	cmd.Flags().StringVar(&f.packs, "packs", "", "copy the map packs of this `directory`")
	cmd.Flags().BoolVar(&f.start, "start", false, "serve the node, whether just made or already there")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.Verb(func(ctx context.Context, _ []string) error { return a.init(ctx, f) })(cmd, nil); err != nil || !f.start {
			return err
		}
		return a.serve(cmd.Context(), true)
	}
	return cmd
}

// init makes the node. With start a node that is there already is left as it is, and the machine is checked.
func (a app) init(ctx context.Context, f initFlags) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	if f.start && cli.Exists(cfg.Path(appliance.DatabaseName)) {
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
	return a.checkMachine(appliance.Checkup(ctx, cfg, false))
}

func (a app) makeNode(ctx context.Context, cfg *config.Config, f initFlags) error {
	made, err := appliance.Init(ctx, cfg, appliance.InitOptions{Dev: f.dev, Systemd: f.systemd, Packs: f.packs})
	if errors.Is(err, appliance.ErrNotEmpty) {
		return cli.Fail(cli.ExitFailed, "not_empty", "give an empty --data-dir, or add --start to serve the node that is there", "%w", err)
	}
	if err != nil {
		return fmt.Errorf("init %s: %w", cfg.Node.DataDir, err)
	}
	return a.Show(made, func(t cli.Table) { initTable(t, made, f.start) })
}

// checkMachine prints what the machine lacks, and refuses one on which the node could not keep its promises.
func (a app) checkMachine(findings []host.Finding) error {
	for _, f := range findings {
		switch f.Level {
		case host.Bad:
			return cli.Fail(cli.ExitBad, f.Check, f.Advice+"; `ronbox serve` starts it nevertheless", "%s: %s", f.Check, f.Seen)
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
	t.Opt("policy key", m.PolicyKey)
	if m.SignerKey != "" {
		t.Row("signer key", m.SignerKey)
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
		t.Row("install it", "sudo systemctl enable --now "+m.Unit)
	}
	if !started {
		t.Row("next", os.Args[0]+" --data-dir "+m.DataDir+" serve")
	}
}
