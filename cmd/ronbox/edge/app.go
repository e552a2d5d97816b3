package edge

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/edge/asset"
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

// hint adds the next step to refusals by the edge.
func hint(err error, o *cli.Outcome) {
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.Service == "edge" && p.Reason == "pins_full" {
		o.Next = "unpin other URLs with `ronbox edge unpin`, or raise edge.cas.max_pinned"
	}
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.Service == "edge" && p.Reason == string(asset.NotAllowed) {
		o.Code = cli.ExitFailed
		o.Next = `set edge.mode = "live" and add the host to edge.allow; for a private address add its network to ` +
			`edge.allow_private`
	}
}
