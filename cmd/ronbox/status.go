package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/httpapi/wire"
)

func (a *app) statusCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what the running node says about itself",
		Long: `Show what the running node says about itself: its phase, whether it takes reads and
writes and what is missing if not, its addresses, its database, the registry's head.`,
		Example: `  ronbox --data-dir data status
  ronbox status --json | jq -e .write_ready`,
		Args: exactly(0, "no arguments"),
		RunE: a.verb(a.status),
	}
}

func (a *app) status(ctx context.Context, _ []string) error {
	c, err := a.node()
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.Status(ctx)
	if err != nil {
		return err
	}
	return a.show(s, func(t table) { statusTable(t, s) })
}

func statusTable(t table, s wire.Status) {
	t.row("phase", s.Phase)
	t.row("ready", readiness(s))
	if len(s.Missing) > 0 {
		t.row("missing", strings.Join(s.Missing, ", "))
	}
	for _, key := range slices.Sorted(maps.Keys(s.Causes)) {
		t.row("cause", key+": "+s.Causes[key])
	}
	t.row("url", s.URL)
	t.row("socket", s.Socket)
	t.row("node", s.NodeID)
	t.row("incarnation", s.Incarnation)
	t.row("version", s.Version)
	t.row("uptime", (time.Duration(s.UptimeSeconds) * time.Second).String())
	if s.Head != nil {
		t.row("registry head", headLine(*s.Head))
	}
	t.row("database", s.Store.File)
	t.row("size", byteUnit(s.Store.Bytes)+" of "+byteUnit(s.Store.MaxBytes))
	t.row("commands", s.Store.Seq)
	t.row("store", cmp.Or(s.Store.Health, "sound"))
	if s.Store.Restored {
		t.row("restored", "from "+s.Store.RestoredFrom+"; writes wait for `ronbox db accept-restore`")
	}
}

func readiness(s wire.Status) string {
	switch {
	case s.Ready && s.Degraded:
		return "yes, degraded"
	case s.Ready:
		return "yes"
	case s.ReadReady:
		return "reads only"
	}
	return "no"
}

func headLine(h wire.Head) string {
	if h.Version == 0 {
		return "none: the log has no genesis"
	}
	return "version " + decimal(h.Version) + ", " + short(h.PayloadB3)
}

func (a *app) drainCmd() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Stop the running node in order: nothing acknowledged is lost",
		Long: `Stop the running node in order, as SIGTERM does: new work is refused, what was begun is
answered, the file is closed. The verb returns at once; the process ends within seconds
(the longest drain deadline and 4 s).`,
		Example: `  ronbox --data-dir data drain --reason "kernel update"
  ronbox drain --json`,
		Args: exactly(0, "no arguments"),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "kept in the node's log")
	cmd.RunE = a.verb(func(ctx context.Context, _ []string) error { return a.drain(ctx, reason) })
	return cmd
}

func (a *app) drain(ctx context.Context, reason string) error {
	c, err := a.node()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Drain(ctx, reason); err != nil {
		return err
	}
	return a.show(drained{Draining: true}, func(t table) { t.row("draining: the node stops within seconds") })
}

type drained struct {
	Draining bool `json:"draining"`
}
