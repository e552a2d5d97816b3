package node

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance/systemd"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/process"
	nodeapi "ronbox/httpapi/wire/node"
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
		Load: load, Entries: entries, Quit: func() { os.Exit(process.ExitAborted) },
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
	if token := cfg.Path(config.TokenName); cli.Exists(token) {
		fmt.Fprintf(t, "token file\t%s\n", token)
	}
	if on, off := config.Chosen(cfg); off != nil {
		fmt.Fprintf(t, "services\t%s (off: %s)\n", strings.Join(on, ", "), strings.Join(off, ", "))
	}
	for _, path := range initdir.MapPaths(cfg) {
		fmt.Fprintf(t, "map\t%s%s\n", s.URL, path)
	}
	_ = t.Flush() // stderr is for people; nothing depends on it

	verbs := []string{"console", "doctor"}
	key := cfg.Path(config.SignerName)
	if cli.Exists(key) {
		verbs = []string{"console", "registry apply testdata/registry/*.ndjson --key-file " + unit.Shell(key)}
	} else if cfg.Registry.Enabled { // its signers are elsewhere
		verbs = append(verbs, "registry genesis --help")
	}
	if initdir.IsDev(cfg) && cfg.Wallet.Enabled {
		verbs = append(verbs, "wallet transfer alice bob 100")
	}
	prefix := unit.Shell(os.Args[0], "--data-dir", cfg.Node.DataDir)
	fmt.Fprintf(a.Stderr, "\nTry in another terminal:\n")
	for _, verb := range verbs {
		fmt.Fprintf(a.Stderr, "  %s %s\n", prefix, verb)
	}
	fmt.Fprintln(a.Stderr)
}
