package main

import (
	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/access"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/db"
	"ronbox/cmd/ronbox/edge"
	"ronbox/cmd/ronbox/index"
	"ronbox/cmd/ronbox/ledger"
	"ronbox/cmd/ronbox/node"
	"ronbox/cmd/ronbox/registry"
	"ronbox/cmd/ronbox/rewarder"
	"ronbox/cmd/ronbox/wallet"
)

// root builds the commands. Each group stands in a package of its name.
func root(a *cli.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "ronbox",
		Short: "One node, one binary, one file: a signed registry, a wallet, maps and assets on an embedded store",
		Long: `One node, one binary, one file: a signed registry, a wallet, maps and assets on an embedded store.

A verb finds the node by --data-dir (its admin socket), or by --url and --token-file;
verbs that read a file need no node. Results go to stdout, everything else to stderr.
With --json a result is one document, and an error a problem object.

Exit codes: 0 done, 1 failed, 2 usage, 3 checked and found bad, 4 node not reachable,
5 denied, 6 busy (try again), 65 corrupt, 74 storage failed, 75 locked by another
process, 77 permissions, 78 configuration; 20 to 39 are told in the help of their verb.`,
		Example: `  ronbox --data-dir data init --dev --start       # make a node to try things with, and serve it
  ronbox --data-dir data status                   # in another terminal
  ronbox --data-dir data registry --help`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE:          cli.GroupHelp,
	}
	a.AddFlags(root)
	chapter(root, "node", "A node:", node.Commands(a)...)
	chapter(root, "services", "Its services:",
		registry.Command(a), wallet.Command(a), ledger.Command(a),
		rewarder.Command(a),
		edge.Command(a),
		index.Command(a),
	)
	chapter(root, "keep", "Its keeping:", append(access.Commands(a), db.Command(a), node.DebugCommand(a))...)
	chapter(root, "binary", "This binary:", versionCmd(a), alertsCmd(a), completionCmd(a), manCmd(a))
	root.SetHelpCommand(cli.HelpCmd())
	root.SetHelpCommandGroupID("binary")
	return root
}

// chapter puts commands under a heading of the help.
func chapter(root *cobra.Command, id, title string, cmds ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, c := range cmds {
		c.GroupID = id
	}
	cli.Add(root, cmds...)
}
