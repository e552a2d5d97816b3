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

// app is the run of the command with the verbs of this package.
type app struct{ *cli.App }

// online makes RunE of a verb that asks the node, and waits for an answer as long as the node may take unless --timeout says otherwise.
func (a app) online(within time.Duration, run func(ctx context.Context, c edgeapi.Client, args []string) error) cli.RunE {
	return func(cmd *cobra.Command, args []string) error {
		a.Flags.Timeout = cmp.Or(a.Flags.Timeout, within)
		return cli.Online(a.App, edgeapi.NewClient, run)(cmd, args)
	}
}

// Command is the group of verbs of the edge.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	a.Advise(hint)
	return cli.Group("edge", "Serve maps and assets, fetch them, and check packs", a.packsCmd(), a.fillCmd(), a.verifyStoredCmd())
}

// hint refines the outcome of refusals of the edge.
func hint(err error, o *cli.Outcome) {
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.Service == "edge" && p.Reason == string(edge.NotAllowed) {
		o.Code, o.Next = cli.ExitFailed, `name the host in edge.allow, with edge.mode = "live"; edge.allow_private opens networks that are not public`
	}
}

func (a app) packsCmd() *cobra.Command {
	const usual = 0
	list := a.online(usual, func(ctx context.Context, c edgeapi.Client, _ []string) error { return a.listPacks(c.Catalog(ctx)) })
	cmd := cli.Group("packs", "List the packs of a node; verbs below take up new ones and check files",
		a.rescanCmd(),
		a.verifyCmd())
	cmd.Long = `List the packs of a node: the files in its folder of packs, each with its state, its zooms,
the number of its tiles and the BLAKE3 of the file.`
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
