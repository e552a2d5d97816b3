package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/registry"
	nodeapi "ronbox/httpapi/wire/node"
)

// Commands returns the verbs that create, run and inspect a node and its configuration.
func Commands(c *cli.App) []*cobra.Command {
	a := app{c}
	return []*cobra.Command{
		a.initCmd(), a.serveCmd(), a.statusCmd(), a.seriesCmd(), a.consoleCmd(), a.drainCmd(), a.doctorCmd(),
		a.clockCmd(), a.configCmd(),
	}
}

// DebugCommand returns the group of debugging verbs.
func DebugCommand(c *cli.App) *cobra.Command { return app{c}.debugCmd() }

func (a app) statusCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the status of the running node",
		Long: `Show the status of the running node: its phase, whether it accepts reads and writes, the
missing conditions if not, its addresses, its database and the head of the registry.`,
		Example: `  ronbox --data-dir data status
  ronbox status --json | jq -e .write_ready`,
		RunE: cli.Ask(a.App, nodeapi.NewClient, nodeapi.Client.Status, statusTable),
	}
}

func statusTable(t cli.Table, s nodeapi.Status) {
	t.Row("phase", s.Phase)
	t.Row("ready", readiness(s))
	if len(s.Missing) > 0 {
		t.Row("missing", cli.Warn(strings.Join(s.Missing, ", ")))
	}
	for _, key := range slices.Sorted(maps.Keys(s.Causes)) {
		t.Row("cause", cli.Warn(key+": "+s.Causes[key]))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Services)) {
		if state := s.Services[name].State; state != "" {
			t.Row(name, state)
		}
	}
	t.Row("url", s.URL)
	t.Row("socket", s.Socket)
	t.Row("node", s.NodeID)
	t.Row("incarnation", s.Incarnation)
	t.Row("version", s.Version)
	t.Row("uptime", (time.Duration(s.UptimeSeconds) * time.Second).String())
	if s.Head != nil {
		t.Row("registry head", registry.HeadLine(*s.Head))
	}
	if f := s.Fleet; f != nil {
		self := cmp.Or(f.Self, "no item of its own")
		t.Row("fleet", fmt.Sprintf("%s, %d nodes at version %d", self, f.Nodes, f.Version))
	}
	t.Row("database", s.Store.File)
	t.Row("size", cli.Bytes(s.Store.Bytes)+" of "+cli.Bytes(s.Store.MaxBytes))
	t.Row("commands", s.Store.Seq)
	t.Row("store", cli.Verdict(s.Store.Health == "", "sound", s.Store.Health))
	if s.Store.Restored {
		t.Row("restored", "from "+s.Store.RestoredFrom+"; writes wait for `ronbox db accept-restore`")
	}
}

func readiness(s nodeapi.Status) any {
	switch {
	case s.Ready && s.Degraded:
		return cli.Warn("yes, degraded")
	case s.Ready:
		return cli.OK("yes")
	case s.ReadReady:
		return cli.Warn("reads only")
	}
	return cli.Bad("no")
}

func (a app) drainCmd() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Stop the running node gracefully",
		Long: `Stop the running node gracefully, as SIGTERM does: it refuses new requests, answers those
in flight and closes the database. No acknowledged write is lost. The command waits for
the work to end: after node.predrain at most the longest drain deadline plus 4 s. It
prints, per service and kind, the tasks and requests that were aborted because they did
not end in time. With --json it also prints those that finished or were cancelled. The
process then ends as soon as its sockets and its database are closed.`,
		Example: `  ronbox --data-dir data drain --reason "kernel update"
  ronbox drain --json | jq -e '.aborted == 0'`,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason for the node's log, a `TEXT`")
	cmd.RunE = a.online(func(ctx context.Context, c nodeapi.Client, _ []string) error {
		doc, err := c.DrainAndWait(ctx, reason)
		if err != nil {
			return err
		}
		return a.Show(doc, func(t cli.Table) {
			t.Row(fmt.Sprintf("drained: of tasks and requests %d finished, %d were cancelled, %d aborted",
				doc.Finished, doc.Cancelled, doc.Aborted))
			for _, e := range doc.Ended {
				if e.Aborted > 0 {
					t.Row(fmt.Sprintf("  %s.%s: %d aborted", e.Service, e.Kind, e.Aborted))
				}
			}
		})
	})
	return cmd
}
