package edge

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/edge"
	edgeapi "ronbox/httpapi/edge"
	"ronbox/httpapi/wire"
)

// app adds the verbs of the edge to the run of a command.
type app struct{ *cli.App }

// online returns the RunE of a verb that calls the node. within is the time that the node may need;
// --timeout overrides it.
func (a app) online(within time.Duration,
	run func(ctx context.Context, c edgeapi.Client, args []string) error) cli.RunE {
	return func(cmd *cobra.Command, args []string) error {
		a.Flags.Timeout = cmp.Or(a.Flags.Timeout, within)
		return cli.Online(a.App, edgeapi.NewClient, run)(cmd, args)
	}
}

// Command returns the command group edge.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	a.Advise(hint)
	return cli.Group("edge", "Publish sites; fetch, pin and remove assets; list and verify packs",
		a.packsCmd(), a.fillCmd(), a.putCmd(), a.publishCmd(), a.unpublishCmd(), a.lsCmd(), a.storeCmd(), a.pinCmd(),
		a.unpinCmd(), a.rmCmd(), a.placementsCmd(), a.verifyStoredCmd())
}

// hint adds the next step to refusals by the edge.
func hint(err error, o *cli.Outcome) {
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.Service == "edge" && p.Reason == "pins_full" {
		o.Next = "unpin other URLs with `ronbox edge unpin`, or raise edge.cas.max_pinned"
	}
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.Service == "edge" && p.Reason == string(edge.NotAllowed) {
		o.Code = cli.ExitFailed
		o.Next = `set edge.mode = "live" and add the host to edge.allow; for a private address add its network to ` +
			`edge.allow_private`
	}
}

func (a app) packsCmd() *cobra.Command {
	const usual = 0
	list := a.online(usual, func(ctx context.Context, c edgeapi.Client, _ []string) error {
		return a.listPacks(c.Catalog(ctx))
	})
	cmd := cli.Group("packs", "List the packs of a node, rescan its folder, verify pack files",
		a.rescanCmd(), a.verifyCmd())
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
