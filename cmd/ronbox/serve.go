package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance"
	"ronbox/appliance/config"
	"ronbox/httpapi/wire"
)

func (a *app) serveCmd() *cobra.Command {
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
		Args: exactly(0, "no arguments"),
	}
	cmd.Flags().BoolVar(&hello, "hello", false, "print URL, token file and three commands to try, also when no terminal looks")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.serve(cmd.Context(), hello || terminal(a.stderr))
	}
	return cmd
}

// serve runs the node and keeps its exit code in a.exit.
func (a *app) serve(ctx context.Context, hello bool) error {
	load := func() (*config.Config, []config.Entry, error) { return config.Explain(a.configOptions("")) }
	cfg, entries, err := load()
	if err != nil {
		return badConfig(err)
	}
	node, err := appliance.New(cfg, build(), appliance.Options{Load: load, Entries: entries})
	if err != nil {
		return failed(exitConfig, "config", "correct the keys that are named", "%w", err)
	}
	if hello && !a.flags.quiet {
		node.OnRunning(func(s wire.Status) { a.hello(cfg, s) })
	}
	ctx, stop := onSignals(ctx, node.Abort, func() { os.Exit(exitInterrupted) })
	defer stop()
	defer onHangup(context.WithoutCancel(ctx), node.Hangup)()
	a.exit = node.Run(ctx)
	return nil
}

// sameSignal is how long a signal counts as the one before: coreutils' timeout sends its own to the child and then to the group.
const sameSignal = 250 * time.Millisecond

// onSignals gives a context that the first SIGTERM or SIGINT cancels; the second calls abort, the third quit. A log reader that has gone
// (SIGPIPE) does not end a node.
func onSignals(ctx context.Context, abort, quit func()) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	drain, stopDrain := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	next := func(then func()) func() {
		return func() {
			time.AfterFunc(sameSignal, func() {
				again, _ := signal.NotifyContext(context.WithoutCancel(ctx), os.Interrupt, syscall.SIGTERM)
				context.AfterFunc(again, then)
			})
		}
	}
	third := next(quit)
	stop := context.AfterFunc(drain, next(func() { third(); abort() }))
	return drain, func() { stop(); stopDrain() }
}

// onHangup calls reload at every SIGHUP until stop; one from a terminal that has closed does no harm. The next signal is caught before
// reload is called, so that none is missed: what comes in between is what reload reads anyway.
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

// hello tells a person what to do with the node that has begun to serve.
func (a *app) hello(cfg *config.Config, s wire.Status) {
	t := tabwriter.NewWriter(a.stderr, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nURL\t%s\nsocket\t%s\n", s.URL, s.Socket)
	if token := cfg.Path(appliance.TokenName); exists(token) {
		fmt.Fprintf(t, "token file\t%s\n", token)
	}
	_ = t.Flush() // stderr is for people; nothing depends on it
	key, third := cfg.Path(appliance.SignerName), "wallet transfer alice bob 100"
	if !exists(key) { // no dev node: nobody has money
		key, third = "KEY", "registry stream"
	}
	prefix := os.Args[0] + " --data-dir " + cfg.Node.DataDir
	fmt.Fprintf(a.stderr, "\nTry in another terminal:\n")
	for _, verb := range []string{"status", "registry apply testdata/registry/*.ndjson --key " + key, third} {
		fmt.Fprintf(a.stderr, "  %s %s\n", prefix, verb)
	}
	fmt.Fprintln(a.stderr)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
