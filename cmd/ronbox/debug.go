package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"ronbox/appliance"
)

func (a *app) debugCmd() *cobra.Command {
	return group("debug", "Look inside a running node, or at what this binary is made of",
		a.topologyCmd(), a.tasksCmd(), a.queuesCmd(), a.logLevelCmd(), a.pprofCmd(), a.traceCmd(), a.flightCmd())
}

func (a *app) topologyCmd() *cobra.Command {
	var mermaid bool
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Print every task, queue, bus and cell of this binary, as its declarations give them",
		Long: `Print every task, queue, bus and cell of this binary, as its declarations give them:
name, kind, capacity, what happens when it is full, who feeds it and who drains it. No
node is asked; ` + "`ronbox debug tasks`" + ` and ` + "`debug queues`" + ` show a running one.`,
		Example: `  ronbox debug topology
  ronbox debug topology --mermaid > topology.mmd
  ronbox debug topology --json | jq '.channels | length'`,
		Args: exactly(0, "no arguments"),
	}
	cmd.Flags().BoolVar(&mermaid, "mermaid", false, "print the picture instead of the tables")
	cmd.RunE = a.verb(func(context.Context, []string) error { return a.topology(mermaid) })
	return cmd
}

// topology wires a node without opening anything and prints its catalogue.
func (a *app) topology(mermaid bool) error {
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	node, err := appliance.New(cfg, build(), appliance.Options{})
	if err != nil {
		return fmt.Errorf("wire the node: %w", err)
	}
	catalog := node.Catalog()
	switch {
	case a.flags.json:
		raw, err := catalog.JSON()
		if err != nil {
			return fmt.Errorf("encode the topology: %w", err)
		}
		return a.raw(append(raw, '\n'))
	case mermaid:
		return a.raw([]byte(catalog.Mermaid()))
	}
	return a.raw([]byte(catalog.Markdown()))
}
