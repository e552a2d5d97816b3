package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/appliance/config"
	"ronbox/httpapi/wire"
)

type configShowFlags struct {
	origin  bool
	set     bool
	running bool
}

func (a *app) configShowCmd() *cobra.Command {
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
		Args: atMost(1, "at most one prefix"),
	}
	cmd.Flags().BoolVar(&f.origin, "origin", false, "say where each value comes from, and what a change takes")
	cmd.Flags().BoolVar(&f.set, "set", false, "those only that are not left to their default")
	cmd.Flags().BoolVar(&f.running, "running", false, "what the running node has in force")
	cmd.RunE = a.verb(func(ctx context.Context, args []string) error {
		prefix := ""
		if len(args) == 1 {
			prefix = args[0]
		}
		return a.configShow(ctx, f, prefix)
	})
	return cmd
}

// shownConfig is what config show prints: the node's own form of it.
type shownConfig struct {
	Version uint64           `json:"version,omitzero"` // of a running node
	Keys    []wire.ConfigKey `json:"keys"`
}

func (a *app) configShow(ctx context.Context, f configShowFlags, prefix string) error {
	shown, err := a.configKeys(ctx, f.running)
	if err != nil {
		return err
	}
	shown.Keys = slices.DeleteFunc(shown.Keys, func(k wire.ConfigKey) bool {
		return !below(k.Key, prefix) || f.set && k.Source == config.FromDefault
	})
	if len(shown.Keys) == 0 && prefix != "" && !f.set {
		return usage("no key is or stands below %q: `ronbox config show` lists them", prefix)
	}
	return a.show(shown, func(t table) {
		for _, k := range shown.Keys {
			if f.origin {
				t.row(k.Key+" = "+k.Value, "# "+reloadWord(k.Reload), cmp.Or(k.Where, k.Source))
			} else {
				t.row(k.Key + " = " + k.Value)
			}
		}
	})
}

// below tells whether key is prefix or stands in the section of that name.
func below(key, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, ".")
	return prefix == "" || key == prefix || strings.HasPrefix(key, prefix+".")
}

// configKeys asks the node, or reads what a node would.
func (a *app) configKeys(ctx context.Context, running bool) (shownConfig, error) {
	if !running {
		_, entries, err := config.Explain(a.configOptions(""))
		if err != nil {
			return shownConfig{}, badConfig(err)
		}
		return shownConfig{Keys: keysOf(entries)}, nil
	}
	c, err := a.node()
	if err != nil {
		return shownConfig{}, err
	}
	defer c.Close()
	s, err := c.Config(ctx)
	return shownConfig(s), err
}

func keysOf(entries []config.Entry) []wire.ConfigKey {
	out := make([]wire.ConfigKey, len(entries))
	for i, e := range entries {
		out[i] = wire.ConfigKey(e)
	}
	return out
}

// reloadWord says what the change of a key takes.
func reloadWord(class string) string {
	switch class {
	case config.ReloadInPlace:
		return "changes in place"
	case config.ReloadRebind:
		return "changes with a new socket"
	}
	return "changes with a restart"
}
