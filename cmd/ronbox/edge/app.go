package edge

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	edgeapi "ronbox/httpapi/wire/edge"
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
