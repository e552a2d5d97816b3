package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
)

// tree builds the commands. Each group stands in a file of its name.
func (a *app) tree() *cobra.Command {
	root := &cobra.Command{
		Use:   "ronbox",
		Short: "One node, one binary, one file: a signed registry and a wallet on an embedded store",
		Long: `One node, one binary, one file: a signed registry and a wallet on an embedded store.

A verb finds the node by --data-dir (its admin socket), or by --url and --token-file;
verbs that read a file need no node. Results go to stdout, everything else to stderr.
With --json a result is one document, and an error a problem object.

Exit codes: 0 done, 1 failed, 2 usage, 3 checked and found bad, 4 node not reachable,
5 denied, 6 busy (try again), 65 corrupt, 74 storage failed, 75 locked by another
process, 77 permissions, 78 configuration.`,
		Example: `  ronbox --data-dir data init --dev --start       # make a node to try things with, and serve it
  ronbox --data-dir data status                   # in another terminal
  ronbox --data-dir data registry --help`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE:          groupHelp,
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 80 "))
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(wrongFlag)
	f := root.PersistentFlags()
	f.StringVar(&a.flags.config, "config", "", "config `file` (default ronbox.toml in the data directory)")
	f.StringVar(&a.flags.dataDir, "data-dir", "", "the node's data `directory` (default $RONBOX_NODE__DATA_DIR, else /var/lib/ronbox)")
	f.StringVar(&a.flags.socket, "socket", "", "`path` of the node's admin socket (default admin.sock in the data directory)")
	f.StringVar(&a.flags.url, "url", "", "the node's `URL`, instead of its socket")
	f.StringVar(&a.flags.caFile, "ca-file", "", "`file` of PEM certificates that an https URL is trusted by (default the system's)")
	f.StringVar(&a.flags.tokenFile, "token-file", "", "`file` that holds the token to send")
	f.DurationVar(&a.flags.timeout, "timeout", 0, "longest wait for one answer of the node (default 30s)")
	f.BoolVar(&a.flags.json, "json", false, "print one JSON document, or one a line for streams")
	f.BoolVarP(&a.flags.quiet, "quiet", "q", false, "print nothing but errors and what --json asks for")
	f.BoolVarP(&a.flags.yes, "yes", "y", false, "answer yes to every question")
	root.MarkFlagsMutuallyExclusive("socket", "url")
	chapter(root, "node", "A node:", a.initCmd(), a.serveCmd(), a.statusCmd(), a.drainCmd(), a.doctorCmd(), a.configCmd())
	chapter(root, "services", "Its services:", a.registryCmd(), a.walletCmd(), a.ledgerCmd())
	chapter(root, "keep", "Its keeping:", a.dbCmd(), a.tokenCmd(), a.keyCmd(), a.auditCmd(), a.debugCmd())
	chapter(root, "binary", "This binary:", a.versionCmd(), a.completionCmd(), a.manCmd())
	root.SetHelpCommand(helpCmd())
	root.SetHelpCommandGroupID("binary")
	return root
}

// chapter puts commands under a heading of the help.
func chapter(root *cobra.Command, id, title string, cmds ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, c := range cmds {
		c.GroupID = id
	}
	root.AddCommand(cmds...)
}

// group is a command that only holds others.
func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: groupHelp}
	g.AddCommand(verbs...)
	return g
}

// helpCmd is cobra's but that it refuses a verb that is not there.
func helpCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "help [VERB …]",
		Short:   "Explain a verb",
		Long:    "Explain a verb, as --help behind it does.",
		Example: `  ronbox help db restore`,
		RunE: func(cmd *cobra.Command, args []string) error {
			verb, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) == 0 {
				return verb.Help()
			}
			return errors.Join(err, groupHelp(verb, rest))
		},
	}
}

// groupHelp prints help, or refuses a verb that is not there, or none where a program wants JSON.
func groupHelp(cmd *cobra.Command, args []string) error {
	if program, _ := cmd.Flags().GetBool("json"); program && len(args) == 0 {
		return usage("%s --json: want a verb", cmd.CommandPath())
	}
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2 // cobra sets it only where it parses arguments itself
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usage("%s has no verb %q%s", cmd.CommandPath(), args[0], hint)
}
