package main

import (
	"context"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/access"
	"ronbox/cmd/ronbox/archive"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/cluster"
	"ronbox/cmd/ronbox/db"
	"ronbox/cmd/ronbox/demo"
	"ronbox/cmd/ronbox/edge"
	"ronbox/cmd/ronbox/index"
	"ronbox/cmd/ronbox/ledger"
	"ronbox/cmd/ronbox/node"
	"ronbox/cmd/ronbox/registry"
	"ronbox/cmd/ronbox/rewarder"
	"ronbox/cmd/ronbox/wallet"
)

// root returns the root command with all commands. Each command group has a package with its name.
func root(a *cli.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "ronbox",
		Short: "One node, one binary, one file: a signed registry, a wallet, maps and assets on an embedded store",
		Long: `One node, one binary, one file: a signed registry, a wallet, maps and assets on an embedded store.

A command reaches the node by --data-dir (its admin socket), or by --url and
--token-file; commands that read a file need no node. Without --data-dir, --config and
--socket the environment variable RONBOX_URL replaces --url. Either may list the URLs of
the members of a cluster, with commas between: a request goes to the one that leads, and
to another one if that is not there. Results go to stdout, messages to stderr. With
--json a result is one JSON document, and an error is a problem object. Tables have
colours on a terminal, unless NO_COLOR is set or TERM is dumb.

Exit codes: 0 done, 1 failed, 2 usage, 3 check failed, 4 node not reachable, 5 denied,
6 busy (try again), 65 corrupt, 74 storage failed, 75 locked by another process,
77 permissions, 78 configuration. Codes 20 to 39 are described in the help of their
command.

` + "`ronbox help TOPIC`" + ` shows a page of the manual, and ` + "`ronbox help help`" + ` lists the topics.`,
		Example: `  ronbox demo                                     # see in a minute what a node does
  ronbox --data-dir data init --dev --start       # create a node for trials and serve it
  ronbox --data-dir data status                   # in another terminal
  ronbox --data-dir data registry --help`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
	}
	a.AddFlags(root)
	showVersion := root.Flags().Bool("version", false, "print the version of this binary")
	printVersion := a.Verb(func(context.Context, []string) error { return version(a) })
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *showVersion && len(args) == 0 {
			return printVersion(cmd, args)
		}
		return cli.GroupHelp(cmd, args)
	}
	chapter(root, "node", "Node", node.Commands(a)...)
	chapter(root, "services", "Services",
		registry.Command(a), wallet.Command(a), ledger.Command(a),
		rewarder.Command(a),
		edge.Command(a),
		index.Command(a),
	)
	chapter(root, "maintenance", "Maintenance", append(access.Commands(a), db.Command(a), archive.Command(a),
		cluster.Command(a), node.DebugCommand(a))...)
	chapter(root, "about", "About", demo.Command(a), versionCmd(a), node.ExplainCommand(a), alertsCmd(a),
		dashboardCmd(a), completionCmd(a), manCmd(a))
	root.SetHelpCommand(cli.HelpCmd())
	root.SetHelpCommandGroupID("about")
	return root
}

// chapter adds commands under a heading of the help.
func chapter(root *cobra.Command, id, title string, cmds ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, c := range cmds {
		c.GroupID = id
	}
	cli.Add(root, cmds...)
}
