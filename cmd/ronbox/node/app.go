package node

import (
	"context"
	"errors"

	"ronbox/cmd/ronbox/cli"
	nodehttp "ronbox/httpapi/node"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
)

// hint refines the outcome of errors of the node itself.
func hint(err error, o *cli.Outcome) {
	p, ok := errors.AsType[*wire.Problem](err)
	if !ok {
		return
	}
	switch {
	case p.Reason == "reload_refused":
		o.Next = "correct the named keys (`ronbox config diff running` shows the changes), then reload again"
	case p.Reason == nodehttp.ReasonSnapshotDir:
		o.Next = snapshotDirOf(p.Details).Next(p.Detail)
	case p.Details["cause"] == "not_ahead":
		o.Next = "there is nothing to accept; `ronbox clock status` shows the two clocks"
	case p.Details["cause"] == "before_build":
		o.Next = "set the clock of the machine, for instance with a time daemon"
	}
}

// snapshotDirOf returns the folder that the details of a problem name.
func snapshotDirOf(details map[string]any) nodeapi.SnapshotDir {
	text := func(name string) string {
		s, _ := details[name].(string)
		return s
	}
	return nodeapi.SnapshotDir{Path: text("path"), User: text("user"), Unit: text("unit")}
}

// app adds the verbs of this package to the run of the command.
type app struct{ *cli.App }

// online returns the RunE of a verb that calls the node.
func (a app) online(run func(ctx context.Context, c nodeapi.Client, args []string) error) cli.RunE {
	return cli.Online(a.App, nodeapi.NewClient, run)
}
