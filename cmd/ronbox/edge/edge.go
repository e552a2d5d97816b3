package edge

import (
	"context"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	edgeapi "ronbox/httpapi/wire/edge"
)

// Command returns the command group edge.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	return cli.Group("edge", "Publish sites; fetch, pin and remove assets; list, verify and extract packs",
		a.packsCmd(), a.extractCmd(), a.extractsCmd(), a.fillCmd(), a.refreshCmd(), a.putCmd(), a.publishCmd(),
		a.unpublishCmd(), a.lsCmd(), a.storeCmd(), a.pinCmd(), a.unpinCmd(), a.rmCmd(), a.placementsCmd(),
		a.verifyStoredCmd())
}

func (a app) packsCmd() *cobra.Command {
	const usual = 0
	list := a.online(usual, func(ctx context.Context, c edgeapi.Client, _ []string) error {
		return a.listPacks(c.Catalog(ctx))
	})
	cmd := cli.Group("packs", "List, put and remove the packs of a node, rescan its folder, verify pack files",
		a.putPackCmd(), a.removePackCmd(), a.rescanCmd(), a.verifyCmd())
	cmd.Long = `List the packs of a node, which are the files in its folder of packs, with their zoom levels,
numbers of tiles, states and BLAKE3 digests.`
	cmd.Example = `  ronbox edge packs
  ronbox edge packs --json | jq -r '.[] | select(.state != "verified") | .id'`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cli.GroupHelp(cmd, args)
		}
		return list(cmd, args)
	}
	return cmd
}
