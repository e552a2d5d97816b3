package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

func (a *app) tasksCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "tasks",
		Short: "List the tasks of the running node: their state, since when, restarts",
		Long: `List the tasks of the running node: their state, since when, how often each was
restarted, and what ended its last life. A task in backoff waits to be started again.`,
		Example: `  ronbox debug tasks
  ronbox debug tasks --json | jq '.tasks[] | select(.restarts > 0)'`,
		Args: exactly(0, "no arguments"),
		RunE: a.online(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.Tasks(ctx)
			if err != nil {
				return err
			}
			return a.show(list, func(t table) { a.taskTable(t, list) })
		}),
	}
}

func (a *app) taskTable(t table, l wire.TaskList) {
	t.row("SERVICE", "TASK", "STATE", "FOR", "RESTARTS", "LAST ERROR")
	for _, k := range l.Tasks {
		name := k.Name
		if k.Instance > 0 {
			name += "/" + decimal(uint64(k.Instance))
		}
		t.row(k.Service, name, k.State, age(a.now().Sub(k.Since)), k.Restarts, cmp.Or(clip(k.LastError, 80), "-"))
	}
}

// age is how long something has been so, to the second.
func age(d time.Duration) string { return max(0, d).Round(time.Second).String() }

func (a *app) queuesCmd() *cobra.Command {
	var busy bool
	cmd := &cobra.Command{
		Use:   "queues",
		Short: "List the queues, buses and cells of the running node: how full, how much was dropped",
		Long: `List the queues, buses and cells of the running node: how full each is, what happens
when it is full, how much was dropped or refused since the start. Who feeds and who
drains it is in --json and in ` + "`ronbox debug topology`" + `.`,
		Example: `  ronbox debug queues
  ronbox debug queues --busy --json`,
		Args: exactly(0, "no arguments"),
	}
	cmd.Flags().BoolVar(&busy, "busy", false, "those only that hold something or have dropped something")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, _ []string) error {
		list, err := c.Queues(ctx)
		if err != nil {
			return err
		}
		if busy {
			list.Queues = slices.DeleteFunc(list.Queues, func(q wire.QueueInfo) bool { return q.Len == 0 && q.Dropped == 0 })
		}
		return a.show(list, func(t table) { queueTable(t, list) })
	})
	return cmd
}

func queueTable(t table, l wire.QueueList) {
	t.row("SERVICE", "CHANNEL", "KIND", "HOLDS", "DROPPED", "WHEN FULL")
	for _, q := range l.Queues {
		holds := "-"
		if q.Cap > 0 {
			holds = fmt.Sprintf("%d/%d", q.Len, q.Cap)
		}
		t.row(q.Service, q.Name, q.Kind, holds, q.Dropped, cmp.Or(q.Policy, "-"))
	}
}

func (a *app) logLevelCmd() *cobra.Command {
	var service string
	cmd := &cobra.Command{
		Use:   "log-level [LEVEL]",
		Short: "Show or set what the running node logs, until it restarts or reloads",
		Long: `Show what the running node logs, or set it: trace, debug, info, warn, error. With
--service only that service's lines change. It lasts until the node restarts or its
configuration is reloaded; ` + "`log.level`" + ` in the file is for good.`,
		Example: `  ronbox debug log-level
  ronbox debug log-level debug --service registry
  ronbox debug log-level info --json`,
		Args:      atMost(1, "at most one level"),
		ValidArgs: []string{"trace", "debug", "info", "warn", "error"},
	}
	cmd.Flags().StringVar(&service, "service", "", "the level of this `service` only")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		return a.logLevel(ctx, c, service, args)
	})
	return cmd
}

func (a *app) logLevel(ctx context.Context, c *client.Client, service string, args []string) (err error) {
	var l wire.LogLevel
	if len(args) == 0 && service != "" {
		return usage("--service %s without a level: the node tells its own level only", service)
	}
	if len(args) == 0 {
		l, err = c.LogLevel(ctx)
	} else {
		l, err = c.SetLogLevel(ctx, wire.LogLevel{Level: args[0], Service: service})
	}
	if err != nil {
		return err
	}
	return a.show(l, func(t table) {
		t.row("level", l.Level)
		if l.Service != "" {
			t.row("of service", l.Service)
		}
	})
}
