package node

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/wiring"
	nodeapi "ronbox/httpapi/wire/node"
)

func (a app) configCmd() *cobra.Command {
	return cli.Group("config", "Check, show, compare and reload the configuration",
		a.configCheckCmd(), a.configShowCmd(), a.configDiffCmd(), a.configSchemaCmd(), a.configReloadCmd())
}

func (a app) configCheckCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check the configuration and list every fault",
		Long: `Check the configuration that the node of --data-dir or --config would read, or FILE, and
list every fault with its line and column. Environment variables RONBOX_SECTION__KEY
apply as they do for the node. The directory of edge.packs_dir must exist.
Exit 78: the configuration has faults.`,
		Example: `  ronbox config check /etc/ronbox/ronbox.toml
  ronbox --data-dir data config check --json`,
		Args: cli.AtMost(1, "at most one file"),
		RunE: a.Verb(func(_ context.Context, args []string) error { return a.configCheck(args) }),
	}
}

// checkedConfig is the output of config check for a configuration without faults.
type checkedConfig struct {
	OK      bool   `json:"ok"`
	File    string `json:"file"` // the one that was read, empty: none
	Set     int    `json:"set"`  // keys that are not left to their default
	DataDir string `json:"data_dir"`
}

func (a app) configCheck(args []string) error {
	file := ""
	if len(args) == 1 {
		file = args[0]
	}
	cfg, entries, err := config.Explain(a.ConfigOptions(file))
	if err != nil {
		return cli.ConfigFailure(err)
	}
	doc := checkedConfig{OK: true, File: configFile(a.ConfigOptions(file), cfg), DataDir: cfg.Node.DataDir}
	for _, e := range entries {
		if e.Source != config.FromDefault {
			doc.Set++
		}
	}
	if err := wiring.CheckPacksDir(cfg); err != nil {
		if fault, ok := errors.AsType[*config.Fault](err); ok {
			i := slices.IndexFunc(entries, func(e config.Entry) bool { return e.Key == fault.Key })
			fault.Where = entries[i].Where
		}
		return cli.ConfigFailure(err)
	}
	return a.Show(doc, func(t cli.Table) {
		t.Row("good", doc.File)
		t.Row("keys set", doc.Set)
		t.Row("data dir", doc.DataDir)
	})
}

// configFile returns the file that was read: the given one, or the one in the data directory.
func configFile(o config.LoadOptions, cfg *config.Config) string {
	if o.File != "" {
		return o.File
	}
	if file := cfg.Path(config.FileName); cli.Exists(file) {
		return file
	}
	return ""
}

func (a app) configSchemaCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of ronbox.toml",
		Long: `Print the JSON Schema (2020-12) of ronbox.toml: every section and key with its type,
default and bounds. Editors with TOML support use it to complete and validate.`,
		Example: `  ronbox config schema > ronbox.schema.json
  ronbox config schema --json | jq '.properties | keys'`,
		RunE: a.Verb(func(context.Context, []string) error { return a.Print(append(config.Schema(), '\n')) }),
	}
}

type configShowFlags struct {
	origin  bool
	set     bool
	running bool
}

func (a app) configShowCmd() *cobra.Command {
	var f configShowFlags
	cmd := &cobra.Command{
		Use:   "show [PREFIX]",
		Short: "Show the effective configuration and the source of each key",
		Long: `Show the effective value of every key, or of the keys of the section PREFIX, as lines of
TOML. Flags override environment variables, which override the file, which overrides the
defaults. --origin adds the source of each value, with line and column, and whether a
change applies in place, with a new socket, or after a restart. --running shows the
configuration of the running node.`,
		Example: `  ronbox --data-dir data config show --set
  ronbox config show server --origin
  ronbox config show --running --json | jq '.keys[] | select(.source != "default")'`,
		Args: cli.AtMost(1, "at most one prefix"),
	}
	cmd.Flags().BoolVar(&f.origin, "origin", false, "show the source of each value and how a change applies")
	cmd.Flags().BoolVar(&f.set, "set", false, "show only keys that differ from their default")
	cmd.Flags().BoolVar(&f.running, "running", false, "show the configuration of the running node")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error {
		prefix := ""
		if len(args) == 1 {
			prefix = args[0]
		}
		return a.configShow(ctx, f, prefix)
	})
	return cmd
}

// shownConfig is the output of config show: the node's own form of it.
type shownConfig struct {
	Version uint64              `json:"version,omitzero"` // of a running node
	Keys    []nodeapi.ConfigKey `json:"keys"`
}

func (a app) configShow(ctx context.Context, f configShowFlags, prefix string) error {
	shown, err := a.configKeys(ctx, f.running)
	if err != nil {
		return err
	}
	shown.Keys = slices.DeleteFunc(shown.Keys, func(k nodeapi.ConfigKey) bool {
		return !below(k.Key, prefix) || f.set && k.Source == config.FromDefault
	})
	if len(shown.Keys) == 0 && prefix != "" && !f.set {
		return cli.Usage("no key or section %q: `ronbox config show` lists all keys", prefix)
	}
	return a.Show(shown, func(t cli.Table) {
		for _, k := range shown.Keys {
			if f.origin {
				t.Row(k.Key+" = "+k.Value, "# "+reloadWord(k.Reload), cmp.Or(k.Where, k.Source))
			} else {
				t.Row(k.Key + " = " + k.Value)
			}
		}
	})
}

// below reports whether key is prefix or in the section prefix.
func below(key, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, ".")
	return prefix == "" || key == prefix || strings.HasPrefix(key, prefix+".")
}

// configKeys returns the keys of the running node, or those that a node would load.
func (a app) configKeys(ctx context.Context, running bool) (shownConfig, error) {
	if !running {
		_, entries, err := config.Explain(a.ConfigOptions(""))
		if err != nil {
			return shownConfig{}, cli.ConfigFailure(err)
		}
		return shownConfig{Keys: keysOf(entries)}, nil
	}
	c, err := a.Client()
	if err != nil {
		return shownConfig{}, err
	}
	defer c.Close()
	s, err := nodeapi.NewClient(c).Config(ctx)
	return shownConfig(s), err
}

func keysOf(entries []config.Entry) []nodeapi.ConfigKey {
	out := make([]nodeapi.ConfigKey, len(entries))
	for i, e := range entries {
		out[i] = nodeapi.ConfigKey(e)
	}
	return out
}

// reloadWord describes how the change of a key applies.
func reloadWord(class string) string {
	switch class {
	case config.ReloadInPlace:
		return "changes in place"
	case config.ReloadRebind:
		return "changes with a new socket"
	}
	return "changes with a restart"
}

// runningWord stands for the configuration of the running node.
const runningWord = "running"

func (a app) configDiffCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "diff FILE|running",
		Short: "Show what a reload or another file would change",
		Long: `Show configuration changes. With "running" it shows the effect of ` + "`ronbox config reload`" + `
on the running node, whose environment variables and flags stay the same. With FILE it
compares that file with the one that the node of --data-dir or --config reads. Each line
shows how the change applies; a reload is refused if any change needs a restart.`,
		Example: `  ronbox --data-dir data config diff running
  ronbox --data-dir data config diff new.toml --json
  ronbox config diff ./running`,
		Args:      cli.Exactly(1, "a file, or the word running"),
		ValidArgs: []string{runningWord},
		RunE:      a.Verb(a.configDiff),
	}
}

// configDelta is the output of config diff.
type configDelta struct {
	Against string                 `json:"against"` // the file, or "running"
	Changes []nodeapi.ConfigChange `json:"changes"`
	Restart bool                   `json:"restart"` // at least one needs it
}

func (a app) configDiff(ctx context.Context, args []string) error {
	doc := configDelta{Against: args[0], Changes: []nodeapi.ConfigChange{}}
	changes, err := a.changesTo(ctx, args[0])
	if err != nil {
		return err
	}
	doc.Changes = append(doc.Changes, changes...)
	for _, c := range doc.Changes {
		doc.Restart = doc.Restart || c.Reload == config.ReloadRestart
	}
	return a.Show(doc, func(t cli.Table) { deltaTable(t, doc) })
}

// changesTo returns the changes of the given file, or of the next reload of the running node.
func (a app) changesTo(ctx context.Context, what string) (out []nodeapi.ConfigChange, err error) {
	if what == runningWord {
		shown, err := a.configKeys(ctx, true)
		if err != nil {
			return nil, err
		}
		entries, err := a.rereadConfig(shown.Keys)
		if err != nil {
			return nil, cli.ConfigFailure(err)
		}
		return changedKeys(shown.Keys, keysOf(entries)), nil
	}
	here, err := a.Config()
	if err != nil {
		return nil, err
	}
	there, err := config.Load(a.ConfigOptions(what))
	if err != nil {
		return nil, cli.ConfigFailure(err)
	}
	for _, c := range config.Diff(here, there) {
		out = append(out, nodeapi.ConfigChange(c))
	}
	return out, nil
}

// rereadConfig loads the configuration as the running node would. Only environment variables that
// the node also has are used.
func (a app) rereadConfig(node []nodeapi.ConfigKey) ([]config.Entry, error) {
	o := a.ConfigOptions("")
	o.DataDir = cmp.Or(o.DataDir, a.Variable(cli.DataDirVariable))
	o.Env = slices.DeleteFunc(o.Env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !slices.ContainsFunc(
			node,
			func(k nodeapi.ConfigKey) bool { return k.Source == config.FromEnv && k.Where == name },
		)
	})
	_, entries, err := config.Explain(o)
	return entries, err
}

// changedKeys returns the changes from the keys of a node to those loaded here. A key that the node
// has from a variable or a flag keeps its value.
func changedKeys(node, here []nodeapi.ConfigKey) []nodeapi.ConfigChange {
	was := map[string]nodeapi.ConfigKey{}
	for _, k := range node {
		was[k.Key] = k
	}
	var out []nodeapi.ConfigChange
	for _, k := range here {
		from := was[k.Key]
		fixed := from.Source == config.FromEnv || from.Source == config.FromFlag || k.Source == config.FromFlag
		if from.Value != k.Value && !fixed {
			out = append(out, nodeapi.ConfigChange{Key: k.Key, From: from.Value, To: k.Value, Reload: k.Reload})
		}
	}
	return out
}

func deltaTable(t cli.Table, d configDelta) {
	for _, c := range d.Changes {
		t.Row(c.Key, c.From+" to "+c.To, reloadWord(c.Reload))
	}
	switch {
	case len(d.Changes) == 0:
		t.Row("nothing differs")
	case d.Restart:
		t.Row("a reload would be refused: restart the node to apply the changes that need a restart")
	}
}

func (a app) configReloadCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Reload the configuration of the running node",
		Long: `Reload the configuration of the running node, as SIGHUP does. Either all changes apply or
none: the reload is refused, with the names of the keys, if the file has a fault, a key
needs a restart, a port is in use or a certificate cannot be read. Requests in flight are
not affected. ` + "`ronbox config diff running`" + ` shows the changes beforehand.`,
		Example: `  ronbox config diff running && ronbox config reload
  ronbox --data-dir data config reload --json`,
		RunE: cli.Ask(a.App, nodeapi.NewClient, nodeapi.Client.Reload, reloadedTable),
	}
}

func reloadedTable(t cli.Table, r nodeapi.Reloaded) {
	if len(r.Changed) == 0 {
		t.Row("version", cli.Decimal(r.Version)+", nothing changed")
		return
	}
	t.Row("version", r.Version)
	for _, c := range r.Changed {
		t.Row("changed", c.Key, c.From+" to "+c.To)
	}
}
