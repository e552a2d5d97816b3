package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"ronbox/appliance"
	"ronbox/appliance/config"
)

// initDoc is what init prints.
type initDoc = appliance.InitResult

func (a *app) initCmd() *cobra.Command {
	var dev, start bool
	cmd := &cobra.Command{
		Use:     "init",
		Example: `  ronbox --data-dir data init --dev --start`,
		Short:   "Make a node: its directory, secret, config, database and first token",
		Long: `Make a node: its directory, secret, config, database and first token.

A directory that holds something is refused. --dev adds a signer key and a genesis
that this one key governs: for trying things out, not for a registry others trust.
--start serves the node right after, and serves one that was made before.`,
		Args: exactly(0, "no arguments"),
	}
	cmd.Flags().BoolVar(&dev, "dev", false, "add a 1-of-1 signer, its genesis, and a token that may do everything")
	cmd.Flags().BoolVar(&start, "start", false, "serve the node, whether just made or already there")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		if err := a.verb(func(ctx context.Context, _ []string) error { return a.init(ctx, cfg, dev, start) })(cmd, nil); err != nil {
			return err
		}
		if !start {
			return nil
		}
		if cfg, err = a.loadConfig(); err != nil { // init wrote the file
			return err
		}
		return a.serve(cmd.Context(), cfg, true)
	}
	return cmd
}

// init makes the node. With start, a node that is there already is left as it is.
func (a *app) init(ctx context.Context, cfg *config.Config, dev, start bool) error {
	if start && exists(cfg.Path(appliance.DatabaseName)) {
		a.say("%s is a node already", cfg.Node.DataDir)
		return nil
	}
	made, err := appliance.Init(ctx, cfg, appliance.InitOptions{Dev: dev})
	if errors.Is(err, appliance.ErrNotEmpty) {
		return failed(exitFailed, "not_empty", "give an empty --data-dir, or add --start to serve the node that is there", "%w", err)
	}
	if err != nil {
		return fmt.Errorf("init %s: %w", cfg.Node.DataDir, err)
	}
	return a.show(made, func(t table) { initTable(t, made, start) })
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
	if !started {
		t.row("next", os.Args[0]+" --data-dir "+m.DataDir+" serve")
	}
}
