package node

import (
	"context"

	"ronbox/cmd/ronbox/cli"
	nodeapi "ronbox/httpapi/wire/node"
)

// app adds the verbs of this package to the run of the command.
type app struct{ *cli.App }

// online returns the RunE of a verb that calls the node.
func (a app) online(run func(ctx context.Context, c nodeapi.Client, args []string) error) cli.RunE {
	return cli.Online(a.App, nodeapi.NewClient, run)
}
