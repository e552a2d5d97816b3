package main

import (
	"context"

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
what ` + "`ronbox config reload`" + ` would do. FILE: if that file stood in the place of the one
that the node of --data-dir or --config reads. Each line says what the change takes; one
that needs a restart makes a reload refuse them all.`,
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
	here, entries, err := config.Explain(a.configOptions(""))
	if err != nil {
		return badConfig(err)
	}
	doc := configDelta{Against: args[0], Changes: []wire.ConfigChange{}}
	if args[0] == runningWord {
		shown, err := a.configKeys(ctx, true)
		if err != nil {
			return err
		}
		doc.Changes = append(doc.Changes, drift(shown.Keys, keysOf(entries))...)
	} else {
		there, err := config.Load(a.configOptions(args[0]))
		if err != nil {
			return badConfig(err)
		}
		for _, c := range config.Diff(here, there) {
			doc.Changes = append(doc.Changes, wire.ConfigChange(c))
		}
	}
	for _, c := range doc.Changes {
		doc.Restart = doc.Restart || c.Reload == config.ReloadRestart
	}
	return a.show(doc, func(t table) { deltaTable(t, doc) })
}

// drift is what leads from the keys of a node to those read here.
func drift(node, here []wire.ConfigKey) []wire.ConfigChange {
	was := map[string]string{}
	for _, k := range node {
		was[k.Key] = k.Value
	}
	var out []wire.ConfigChange
	for _, k := range here {
		if from := was[k.Key]; from != k.Value {
			out = append(out, wire.ConfigChange{Key: k.Key, From: from, To: k.Value, Reload: k.Reload})
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
