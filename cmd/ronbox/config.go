package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"ronbox/appliance/config"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

func (a *app) configCmd() *cobra.Command {
	return group("config", "Check, show, compare and reload the configuration",
		a.configCheckCmd(), a.configShowCmd(), a.configDiffCmd(), a.configSchemaCmd(), a.configReloadCmd())
}

// configOptions is where the flags and the environment have the configuration from; a file given wins over --config.
func (a *app) configOptions(file string) config.LoadOptions {
	if file == "" {
		file = a.flags.config
	}
	return config.LoadOptions{File: file, DataDir: a.flags.dataDir, Env: os.Environ()}
}

// loadConfig reads the config that the flags and the environment name.
func (a *app) loadConfig() (*config.Config, error) {
	cfg, err := config.Load(a.configOptions(""))
	if err != nil {
		return nil, badConfig(err)
	}
	return cfg, nil
}

// configFault is a config.Fault for --json.
type configFault struct {
	Where  string `json:"where,omitzero"`
	Key    string `json:"key,omitzero"`
	Value  string `json:"value,omitzero"`
	Reason string `json:"reason"`
}

// badConfig carries every fault that was found.
func badConfig(err error) error {
	faults := []configFault{}
	for _, f := range config.Faults(err) {
		faults = append(faults, configFault{f.Where, f.Key, f.Value, f.Reason})
	}
	v := verdict{exitConfig, "config", "correct the keys that are named"}
	switch {
	case errors.Is(err, fs.ErrPermission):
		v = judge(fs.ErrPermission)
	case errors.Is(err, fs.ErrNotExist):
		v.next = "check the path"
	}
	return &failure{verdict: v, err: err, details: map[string]any{"faults": faults}}
}

func (a *app) configCheckCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Read a configuration as the node would, and name every fault with its line",
		Long: `Read a configuration as the node would, and name every fault with its line and column;
nothing is opened or changed. Without FILE it is the one that the node of --data-dir or
--config would read. Variables RONBOX_SECTION__KEY count, as they do for the node.
Exit 78: it has faults.`,
		Example: `  ronbox config check /etc/ronbox/ronbox.toml
  ronbox --data-dir data config check --json`,
		Args: atMost(1, "at most one file"),
		RunE: a.verb(func(_ context.Context, args []string) error { return a.configCheck(args) }),
	}
}

// checkedConfig is what config check prints of one without faults.
type checkedConfig struct {
	OK      bool   `json:"ok"`
	File    string `json:"file"` // the one that was read, empty: none
	Set     int    `json:"set"`  // keys that differ from where the default stands
	DataDir string `json:"data_dir"`
}

func (a *app) configCheck(args []string) error {
	file := ""
	if len(args) == 1 {
		file = args[0]
	}
	cfg, entries, err := config.Explain(a.configOptions(file))
	if err != nil {
		return badConfig(err)
	}
	doc := checkedConfig{OK: true, File: configFile(a.configOptions(file), cfg), DataDir: cfg.Node.DataDir}
	for _, e := range entries {
		if e.Source != config.FromDefault {
			doc.Set++
		}
	}
	return a.show(doc, func(t table) {
		t.row("good", doc.File)
		t.row("keys set", doc.Set)
		t.row("data dir", doc.DataDir)
	})
}

// configFile is the file that was read: the one named, or the one in the data directory if there is any.
func configFile(o config.LoadOptions, cfg *config.Config) string {
	if o.File != "" {
		return o.File
	}
	if file := cfg.Path(config.FileName); exists(file) {
		return file
	}
	return ""
}

func (a *app) configReloadCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Have the running node read its configuration again, all of it or nothing",
		Long: `Have the running node read its configuration again, as SIGHUP does. All changes come
into force or none: a file with a fault, a key that needs a restart, a port that is
taken or a certificate that cannot be read leaves the node as it was, and the answer
names the keys. Requests in flight are not disturbed. ` + "`ronbox config diff running`" + `
shows first what would change.`,
		Example: `  ronbox config diff running && ronbox config reload
  ronbox --data-dir data config reload --json`,
		Args: exactly(0, "no arguments"),
		RunE: a.online(func(ctx context.Context, c *client.Client, _ []string) error {
			r, err := c.Reload(ctx)
			if err != nil {
				return err
			}
			return a.show(r, func(t table) { reloadedTable(t, r) })
		}),
	}
}

func reloadedTable(t table, r wire.Reloaded) {
	if len(r.Changed) == 0 {
		t.row("version", decimal(r.Version)+", nothing changed")
		return
	}
	t.row("version", r.Version)
	for _, c := range r.Changed {
		t.row("changed", c.Key, c.From+" to "+c.To)
	}
}
