package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"ronbox/appliance"
	"ronbox/appliance/config"
	"ronbox/appliance/host"
)

// initDoc is what init prints.
type initDoc = appliance.InitResult

type initFlags struct{ dev, start, systemd bool }

func (a *app) initCmd() *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a node: its directory, secret, config, database and first token",
		Long: `Make a node: its directory, secret, config, database and first token.

A directory that holds something is refused. --dev adds a signer key, a genesis that
this one key governs, and an account with money: for trying things out, not for a
registry or a ledger that others trust.
--start looks at the machine as ` + "`ronbox doctor`" + ` does and serves the node right after, or
serves one that was made before. --systemd writes the units of a service beside the
configuration and says how to install them.`,
		Example: `  ronbox --data-dir data init --dev --start
  ronbox --data-dir /var/lib/ronbox init --systemd --json`,
		Args: exactly(0, "no arguments"),
	}
	cmd.Flags().BoolVar(&f.dev, "dev", false, "add a 1-of-1 signer, its genesis, a funded account, and a token that may do everything")
	cmd.Flags().BoolVar(&f.systemd, "systemd", false, "write systemd units for it")
	cmd.Flags().BoolVar(&f.start, "start", false, "serve the node, whether just made or already there")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.verb(func(ctx context.Context, _ []string) error { return a.init(ctx, f) })(cmd, nil); err != nil || !f.start {
			return err
		}
		return a.serve(cmd.Context(), true)
	}
	return cmd
}

// init makes the node. With start, a node that is there already is left as it is, and the machine is looked at.
func (a *app) init(ctx context.Context, f initFlags) error {
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	if f.start && exists(cfg.Path(appliance.DatabaseName)) {
		a.say("%s is a node already", cfg.Node.DataDir)
	} else if err := a.makeNode(ctx, cfg, f); err != nil {
		return err
	}
	if !f.start {
		return nil
	}
	if cfg, err = a.loadConfig(); err != nil { // init wrote the file
		return err
	}
	return a.fit(appliance.Checkup(ctx, cfg, false))
}

func (a *app) makeNode(ctx context.Context, cfg *config.Config, f initFlags) error {
	made, err := appliance.Init(ctx, cfg, appliance.InitOptions{Dev: f.dev, Systemd: f.systemd})
	if errors.Is(err, appliance.ErrNotEmpty) {
		return failed(exitFailed, "not_empty", "give an empty --data-dir, or add --start to serve the node that is there", "%w", err)
	}
	if err != nil {
		return fmt.Errorf("init %s: %w", cfg.Node.DataDir, err)
	}
	return a.show(made, func(t table) { initTable(t, made, f.start) })
}

// fit tells on stderr what the machine lacks, and refuses one on which the node could not keep its promises.
func (a *app) fit(findings []host.Finding) error {
	for _, f := range findings {
		switch f.Level {
		case host.Bad:
			return failed(exitBad, f.Check, f.Advice+"; `ronbox serve` starts it nevertheless", "%s: %s", f.Check, f.Seen)
		case host.Warn:
			a.say("warning: %s: %s\n  -> %s", f.Check, f.Seen, f.Advice)
		}
	}
	return nil
}

func initTable(t table, m initDoc, started bool) {
	t.row("made", m.DataDir)
	t.row("url", m.URL)
	t.row("socket", m.Socket)
	t.row("token file", m.TokenFile)
	if m.SignerKey != "" {
		t.row("signer key", m.SignerKey)
		t.row("genesis", m.Genesis)
	}
	if m.Account != "" {
		t.row("account", m.Account, "has "+m.Amount+" "+m.Asset)
	}
	if m.Unit != "" {
		t.row("unit", m.Unit)
		t.row("install it", "sudo systemctl enable --now "+m.Unit)
	}
	if !started {
		t.row("next", os.Args[0]+" --data-dir "+m.DataDir+" serve")
	}
}
