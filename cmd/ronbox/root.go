package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// tree builds the commands. Each group stands in a file of its name.
func (a *app) tree() *cobra.Command {
	root := &cobra.Command{
		Use:           "ronbox",
		Short:         "One node, one binary, one file: a signed registry on an embedded store",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE:          groupHelp,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%w", err) })
	f := root.PersistentFlags()
	f.StringVar(&a.flags.config, "config", "", "config `file` (default <data-dir>/ronbox.toml)")
	f.StringVar(&a.flags.dataDir, "data-dir", "", "the node's data `directory`")
	f.StringVar(&a.flags.socket, "socket", "", "the node's admin socket (default <data-dir>/admin.sock)")
	f.StringVar(&a.flags.url, "url", "", "the node's `URL`, instead of its socket")
	f.StringVar(&a.flags.caFile, "ca-file", "", "`file` of PEM certificates that an https URL is trusted by (default the system's)")
	f.StringVar(&a.flags.tokenFile, "token-file", "", "`file` that holds the token to send")
	f.DurationVar(&a.flags.timeout, "timeout", 0, "longest wait for one answer of the node (default 30s)")
	f.BoolVar(&a.flags.json, "json", false, "print one JSON document, or one a line for streams")
	f.BoolVarP(&a.flags.quiet, "quiet", "q", false, "print nothing but errors and what --json asks for")
	f.BoolVarP(&a.flags.yes, "yes", "y", false, "answer yes to every question")
	root.MarkFlagsMutuallyExclusive("socket", "url")
	root.AddCommand(
		a.initCmd(), a.serveCmd(), a.statusCmd(), a.drainCmd(), a.versionCmd(),
		a.configCmd(), a.tokenCmd(), a.keyCmd(), a.dbCmd(), a.registryCmd(), a.auditCmd(), a.debugCmd(), a.completionCmd(), a.manCmd(),
	)
	return root
}

// group is a command that only holds others.
func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: groupHelp}
	g.AddCommand(verbs...)
	return g
}

// groupHelp prints help, or refuses a verb that is not there.
func groupHelp(cmd *cobra.Command, args []string) error {
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
