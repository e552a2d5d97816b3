package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	nodeapi "ronbox/httpapi/wire/node"
)

func (a app) debugCmd() *cobra.Command {
	return cli.Group("debug", "Inspect the internals of a running node or of this binary",
		a.topologyCmd(), a.tasksCmd(), a.queuesCmd(), a.logLevelCmd(), a.pprofCmd(), a.traceCmd(), a.flightCmd())
}

func (a app) topologyCmd() *cobra.Command {
	var mermaid bool
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Print the declared tasks, queues, buses and cells",
		Long: `Print the declared tasks, queues, buses and cells of this binary: name, kind, capacity,
policy when full, producers and consumers. The first tables are those of a node with the
given configuration and directory. The services that differ in a node that uses the fleet
and follows another, and in a member of a cluster, come after them. --mermaid draws the
first. No node is contacted; ` + "`ronbox debug tasks`" + ` and ` + "`debug queues`" + ` show a running node.`,
		Example: `  ronbox debug topology
  ronbox debug topology --mermaid > topology.mmd
  ronbox debug topology --json | jq '.channels | length'`,
	}
	cmd.Flags().BoolVar(&mermaid, "mermaid", false, "print a Mermaid diagram instead of tables")
	cmd.RunE = a.Verb(func(context.Context, []string) error { return a.printTopology(mermaid) })
	return cmd
}

// printTopology wires nodes without opening anything and prints their catalogues.
func (a app) printTopology(mermaid bool) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	all, err := server.Topologies(cfg, a.Build)
	if err != nil {
		return fmt.Errorf("wire the node: %w", err)
	}
	switch {
	case a.Flags.JSON:
		raw, err := json.MarshalIndent(server.NewTopologyDoc(all), "", "  ")
		if err != nil {
			return fmt.Errorf("encode the topology: %w", err)
		}
		return a.Print(append(raw, '\n'))
	case mermaid:
		return a.Print([]byte(all[0].Catalog.Mermaid()))
	}
	return a.Print([]byte(server.TopologyTables(all)))
}

func (a app) tasksCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "tasks",
		Short: "List the tasks of the running node",
		Long: `List the tasks of the running node with their state, its duration, the number of restarts
and the last error. A task in backoff waits for its next start.`,
		Example: `  ronbox debug tasks
  ronbox debug tasks --json | jq '.tasks[] | select(.restarts > 0)'`,
		RunE: cli.Ask(a.App, nodeapi.NewClient, nodeapi.Client.Tasks, a.taskTable),
	}
}

func (a app) taskTable(t cli.Table, l nodeapi.TaskList) {
	t.Row("SERVICE", "TASK", "STATE", "FOR", "RESTARTS", "LAST ERROR")
	for _, k := range l.Tasks {
		name := k.Name
		if k.Instance > 0 {
			name += "/" + cli.Decimal(uint64(k.Instance))
		}
		t.Row(k.Service, name, k.State, age(a.Now().Sub(k.Since)), k.Restarts, cmp.Or(cli.Clip(k.LastError, 80), "-"))
	}
}

// age formats the age of a state that may have begun just now.
func age(d time.Duration) string { return unit.Short(max(0, d).Truncate(time.Second)) }

func (a app) queuesCmd() *cobra.Command {
	var busy bool
	cmd := &cobra.Command{
		Use:   "queues",
		Short: "List the queues, buses and cells of the running node",
		Long: `List the queues, buses and cells of the running node: fill level, policy when full, and
the number of items dropped or refused since the start. --json and
` + "`ronbox debug topology`" + ` also show producers and consumers.`,
		Example: `  ronbox debug queues
  ronbox debug queues --busy --json`,
	}
	cmd.Flags().BoolVar(&busy, "busy", false, "list only those that hold or have dropped items")
	cmd.RunE = a.online(func(ctx context.Context, c nodeapi.Client, _ []string) error {
		list, err := c.Queues(ctx)
		if err != nil {
			return err
		}
		if busy {
			list.Queues = slices.DeleteFunc(
				list.Queues,
				func(q nodeapi.QueueInfo) bool { return q.Len == 0 && q.Dropped == 0 },
			)
		}
		return a.Show(list, func(t cli.Table) { queueTable(t, list) })
	})
	return cmd
}

func queueTable(t cli.Table, l nodeapi.QueueList) {
	t.Row("SERVICE", "CHANNEL", "KIND", "HOLDS", "DROPPED", "WHEN FULL")
	for _, q := range l.Queues {
		holds := "-"
		if q.Cap > 0 {
			holds = fmt.Sprintf("%d/%d", q.Len, q.Cap)
		}
		t.Row(q.Service, q.Name, q.Kind, holds, q.Dropped, cmp.Or(q.Policy, "-"))
	}
}

func (a app) logLevelCmd() *cobra.Command {
	var service string
	cmd := &cobra.Command{
		Use:   "log-level [LEVEL]",
		Short: "Show or set the log level of the running node",
		Long: `Show or set the log level of the running node: trace, debug, info, warn, error. With
--service it applies to that service only. The change lasts until the node restarts or
reloads its configuration; set ` + "`log.level`" + ` in the file to make it permanent.`,
		Example: `  ronbox debug log-level
  ronbox debug log-level debug --service registry
  ronbox debug log-level info --json`,
		Args:      cli.AtMost(1, "at most one level"),
		ValidArgs: []string{"trace", "debug", "info", "warn", "error"},
	}
	cmd.Flags().StringVar(&service, "service", "", "set the level of this `service` only")
	cmd.RunE = a.online(func(ctx context.Context, c nodeapi.Client, args []string) error {
		return a.logLevel(ctx, c, service, args)
	})
	return cmd
}

func (a app) logLevel(ctx context.Context, c nodeapi.Client, service string, args []string) (err error) {
	var l nodeapi.LogLevel
	if len(args) == 0 && service != "" {
		return cli.Usage("--service %s needs a level: the node can show only its own level", service)
	}
	if len(args) == 0 {
		l, err = c.LogLevel(ctx)
	} else {
		l, err = c.SetLogLevel(ctx, nodeapi.LogLevel{Level: args[0], Service: service})
	}
	if err != nil {
		return err
	}
	return a.Show(l, func(t cli.Table) {
		t.Row("level", l.Level)
		t.Opt("of service", l.Service)
	})
}
