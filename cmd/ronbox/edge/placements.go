package edge

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	edgeapi "ronbox/httpapi/wire/edge"
)

func (a app) placementsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "placements",
		Short: "List what the registry places on the node",
		Long: `List what the registry places on the node: the placement items of its region and those
without a region. The node fetches their content from other nodes of the fleet, pins
it and unpins what is placed no more. It needs fleet.enabled.

A placement is complete, fetching (objects are missing), waiting (its content is not
known yet) or refused (it does not fit into fleet.max_placed or edge.cas.max_pinned, or
its manifest is not sound). The reason is printed below it. The node looks again after
each version of the registry and every half minute.

The token needs the scope edge.keep.`,
		Example: `  ronbox edge placements
  ronbox edge placements --json | jq -r '.placements[] | select(.state != "complete") | .reason'`,
		Args: cobra.NoArgs,
	}
	const usual = 0
	cmd.RunE = a.online(usual, func(ctx context.Context, c edgeapi.Client, _ []string) error {
		l, err := c.EdgePlacements(ctx)
		if err != nil {
			return err
		}
		return a.Show(l, func(t cli.Table) { placementTable(t, l) })
	})
	return cmd
}

func placementTable(t cli.Table, l edgeapi.PlacementList) {
	if len(l.Placements) == 0 {
		t.Row("nothing is placed on this node")
		return
	}
	t.Row("ID", "CONTENT", "STATE", "BYTES", "MISSING")
	for _, p := range l.Placements {
		t.Row(p.ID, p.Content, p.State, cli.Bytes(p.Bytes)+" of "+cli.Bytes(p.Wanted),
			fmt.Sprintf("%d of %d", p.Missing, p.Objects))
		if p.Reason != "" {
			t.Row("", p.Reason)
		}
	}
}
