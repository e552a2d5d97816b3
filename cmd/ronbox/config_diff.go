package main

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/appliance/config"
	"ronbox/httpapi/wire"
)

// runningWord stands for the node's configuration where a file could stand.
const runningWord = "running"

func (a *app) configDiffCmd() *cobra.Command {
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
		Args:      exactly(1, "a file, or the word running"),
		ValidArgs: []string{runningWord},
		RunE:      a.verb(a.configDiff),
	}
}

// configDelta is what config diff prints.
type configDelta struct {
	Against string              `json:"against"` // the file, or "running"
	Changes []wire.ConfigChange `json:"changes"`
	Restart bool                `json:"restart"` // at least one needs it
}

func (a *app) configDiff(ctx context.Context, args []string) error {
	doc := configDelta{Against: args[0], Changes: []wire.ConfigChange{}}
	changes, err := a.changesTo(ctx, args[0])
	if err != nil {
		return err
	}
	doc.Changes = append(doc.Changes, changes...)
	for _, c := range doc.Changes {
		doc.Restart = doc.Restart || c.Reload == config.ReloadRestart
	}
	return a.show(doc, func(t table) { deltaTable(t, doc) })
}

// changesTo lists what the file named, or the next reload of the running node, would change.
func (a *app) changesTo(ctx context.Context, what string) (out []wire.ConfigChange, err error) {
	if what == runningWord {
		shown, err := a.configKeys(ctx, true)
		if err != nil {
			return nil, err
		}
		entries, err := a.reread(shown.Keys)
		if err != nil {
			return nil, badConfig(err)
		}
		return drift(shown.Keys, keysOf(entries)), nil
	}
	here, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	there, err := config.Load(a.configOptions(what))
	if err != nil {
		return nil, badConfig(err)
	}
	for _, c := range config.Diff(here, there) {
		out = append(out, wire.ConfigChange(c))
	}
	return out, nil
}

// reread reads the configuration as the node of these keys would: of the variables here those count that it has too.
func (a *app) reread(node []wire.ConfigKey) ([]config.Entry, error) {
	o := a.configOptions("")
	o.DataDir = cmp.Or(o.DataDir, os.Getenv(dataDirVariable))
	o.Env = slices.DeleteFunc(o.Env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !slices.ContainsFunc(node, func(k wire.ConfigKey) bool { return k.Source == config.FromEnv && k.Where == name })
	})
	_, entries, err := config.Explain(o)
	return entries, err
}

// drift is what leads from the keys of a node to those read here. A key that the node has from a variable or a flag of its
// own keeps its value whatever the file says.
func drift(node, here []wire.ConfigKey) []wire.ConfigChange {
	was := map[string]wire.ConfigKey{}
	for _, k := range node {
		was[k.Key] = k
	}
	var out []wire.ConfigChange
	for _, k := range here {
		from := was[k.Key]
		fixed := from.Source == config.FromEnv || from.Source == config.FromFlag || k.Source == config.FromFlag
		if from.Value != k.Value && !fixed {
			out = append(out, wire.ConfigChange{Key: k.Key, From: from.Value, To: k.Value, Reload: k.Reload})
		}
	}
	return out
}

func deltaTable(t table, d configDelta) {
	for _, c := range d.Changes {
		t.row(c.Key, c.From+" to "+c.To, reloadWord(c.Reload))
	}
	switch {
	case len(d.Changes) == 0:
		t.row("nothing differs")
	case d.Restart:
		t.row("a reload would be refused: restart the node for what needs it")
	}
}
