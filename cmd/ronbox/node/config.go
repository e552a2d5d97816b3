package node

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/appliance/config"
	"ronbox/cmd/ronbox/cli"
	nodeapi "ronbox/httpapi/node"
)

func (a app) configCmd() *cobra.Command {
	return cli.Group("config", "Check, show, compare and reload the configuration",
		a.configCheckCmd(), a.configShowCmd(), a.configDiffCmd(), a.configSchemaCmd(), a.configReloadCmd())
}

func (a app) configCheckCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Read a configuration as the node would, and name every fault with its line",
		Long: `Read a configuration as the node would, and name every fault with its line and column;
nothing is opened or changed. Without FILE it is the one that the node of --data-dir or
--config would read. Variables RONBOX_SECTION__KEY count, as they do for the node.
Exit 78: it has faults.`,
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
	return a.Show(doc, func(t cli.Table) {
		t.Row("good", doc.File)
		t.Row("keys set", doc.Set)
		t.Row("data dir", doc.DataDir)
	})
}

// configFile is the file that was read: the one named, or the one in the data directory.
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
		Short: "Print the JSON Schema of ronbox.toml, for editors and pipelines",
		Long: `Print the JSON Schema (2020-12) of ronbox.toml: every section and key with its type,
default and bounds. Editors that know TOML complete and check by it.`,
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
		Short: "Show every key in force, or those below a section, and where each comes from",
		Long: `Show every key in force as one line of TOML, or those of the section PREFIX: flags over
variables over the file over the defaults. With --origin each line says which of them
the value comes from, with line and column, and what a change takes: in place, a new
socket, or a restart. With --running it is what the running node has in force.`,
		Example: `  ronbox --data-dir data config show --set
  ronbox config show server --origin
  ronbox config show --running --json | jq '.keys[] | select(.source != "default")'`,
		Args: cli.AtMost(1, "at most one prefix"),
	}
	cmd.Flags().BoolVar(&f.origin, "origin", false, "say where each value comes from, and what a change takes")
	cmd.Flags().BoolVar(&f.set, "set", false, "those only that are not left to their default")
	cmd.Flags().BoolVar(&f.running, "running", false, "what the running node has in force")
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
		return cli.Usage("no key is or stands below %q: `ronbox config show` lists them", prefix)
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

// below reports whether key is prefix or stands in the section of that name.
func below(key, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, ".")
	return prefix == "" || key == prefix || strings.HasPrefix(key, prefix+".")
}

// configKeys asks the node, or reads what a node would.
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

// reloadWord describes what the change of a key takes.
func reloadWord(class string) string {
	switch class {
	case config.ReloadInPlace:
		return "changes in place"
	case config.ReloadRebind:
		return "changes with a new socket"
	}
	return "changes with a restart"
}

// runningWord names the configuration of the running node in place of a file.
const runningWord = "running"

func (a app) configDiffCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "diff FILE|running",
		Short: "Show what a reload, or another file, would change",
		Long: `Show what would change. "running": if the running node read its configuration again, so
what ` + "`ronbox config reload`" + ` would do; the variables and flags it was started with stay in
force. FILE: if that file stood in the place of the one that the node of --data-dir or
--config reads. Each line says what the change takes; one that needs a restart makes a
reload refuse them all.`,
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

// changesTo lists what the file named, or the next reload of the running node, would change.
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

// rereadConfig reads the configuration as the node of these keys would. Of the variables here only those count that the
// node has too.
func (a app) rereadConfig(node []nodeapi.ConfigKey) ([]config.Entry, error) {
	o := a.ConfigOptions("")
	o.DataDir = cmp.Or(o.DataDir, os.Getenv(cli.DataDirVariable))
	o.Env = slices.DeleteFunc(o.Env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !slices.ContainsFunc(node, func(k nodeapi.ConfigKey) bool { return k.Source == config.FromEnv && k.Where == name })
	})
	_, entries, err := config.Explain(o)
	return entries, err
}

// changedKeys lists the changes from the keys of a node to those read here. A key that the node has from a variable or a
// flag of its own keeps its value.
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
		t.Row("a reload would be refused: restart the node for what needs it")
	}
}

func (a app) configReloadCmd() *cobra.Command {
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
