package registry

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	registryapi "ronbox/httpapi/wire/registry"
)

// Command returns the verbs of the registry.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	a.Outcomes(errorRows())
	group := cli.Group("registry", "Sign, change, read and check the registry",
		a.applyCmd(),
		a.headCmd(), a.versionsCmd(), a.getCmd(), a.diffCmd(), a.streamCmd(), a.signersCmd(), a.auditCmd(),
		a.proposeCmd(), a.supersedeCmd(), a.approveCmd(), a.commitCmd(), a.withdrawCmd(), a.proposalsCmd(),
		a.lintCmd(), a.keygenCmd(), a.signCmd(), a.genesisCmd(), a.initCmd(), a.verifyCmd(),
		a.logCmd(), a.proofCmd(), a.itemCmd(), a.catchUpCmd(), a.exportCmd(), a.pruneCmd(), a.auditNodeCmd(),
	)
	cli.Add(group, former(a.checkpointCmd()), former(a.highwaterCmd()), former(a.logKeyCmd()))
	group.Long = `Sign, change, read and check the registry: the signed list of descriptors of the node.

Exit codes, beside those of every verb: 20 too few approvals or witnesses, or an approval
that does not count; 21 the proposal has ended, or HEAD has moved; 22 the key has signed
it before; 23 no such version, proposal or item; 24 the newest checkpoint is too old.`
	return group
}

func (a app) headCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "head",
		Short: "Show HEAD of the log",
		Long: `Show HEAD of the log: the version in force, the hash of its payload, which signers have
signed, and the hash of its log entry, which covers the whole log before it. Version 0
means that the log has no genesis yet.`,
		Example: `  ronbox registry head --json | jq -r .payload_b3`,
		RunE:    cli.Ask(a.App, registryapi.NewClient, registryapi.Client.Head, headTable),
	}
}

func (a app) versionsCmd() *cobra.Command {
	var before uint64
	var limit int
	cmd := &cobra.Command{
		Use:   "versions",
		Short: "List the versions of the log, newest first",
		Long: `List the versions that the node keeps, newest first, a page at a time: when each was
committed, its kind, the hash of its log entry, and the signers that approved it.`,
		Example: `  ronbox registry versions --limit 5
  ronbox registry versions --json | jq -r '.versions[] | .version'`,
	}
	cmd.Flags().Uint64Var(&before, "before", 0, "list the versions below this `version`")
	cmd.Flags().IntVar(&limit, "limit", 20, "largest `number` of versions, 1 to 100")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, _ []string) error {
		return shown(a, versionsTable)(c.Versions(ctx, before, limit))
	})
	return cmd
}

func (a app) getCmd() *cobra.Command {
	var payload, entry, noItems bool
	cmd := &cobra.Command{
		Use:     "show N",
		Example: `  ronbox registry show 9 --payload | b3sum`,
		Short:   "Show version N, or the exact bytes that were signed or logged",
		Long:    `Show version N: its hashes, its approvals, and every descriptor in force after it.`,
		Args:    cli.Exactly(1, "one version"),
	}
	f := cmd.Flags()
	f.BoolVar(&payload, "payload", false, "print the signed bytes, nothing else")
	f.BoolVar(&entry, "entry", false, "print the bytes of the log entry, nothing else")
	f.BoolVar(&noItems, "no-items", false, "leave the descriptors out")
	cmd.MarkFlagsMutuallyExclusive("payload", "entry", "no-items")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, args []string) error {
		v, err := versionArg(args[0], 1)
		if err != nil {
			return err
		}
		switch {
		case payload:
			return a.printBytes(c.Payload(ctx, v))
		case entry:
			return a.printBytes(c.Entry(ctx, v))
		}
		return shown(a, versionTable)(c.Version(ctx, v, !noItems))
	})
	return cmd
}

func (a app) diffCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "diff FROM TO",
		Example: `  ronbox registry diff 2 3`,
		Short:   "Show the changes from one version to another",
		Long: `Show the changes from version FROM to version TO: descriptors put and ids removed. Either
may be the newer one. Version 0 is the empty set before the first version.`,
		Args: cli.Exactly(2, "two versions"),
		RunE: a.online(func(ctx context.Context, c registryapi.Client, args []string) error {
			from, err := versionArg(args[0], 0) // the empty set before the first
			to, errTo := versionArg(args[1], 0)
			if err := cmp.Or(err, errTo); err != nil {
				return err
			}
			return shown(a, diffTable)(c.Diff(ctx, from, to))
		}),
	}
}

func (a app) auditCmd() *cobra.Command {
	var from uint64
	var limit int
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show the audit chain of the registry: its decisions and refusals",
		Long: `Show the audit chain of the registry, oldest first: every proposal, approval, commit and
end, and every refusal of an authenticated caller. Each record names the one before it by
its hash. Needs the scope registry.audit.`,
		Example: `  ronbox registry audit --from-seq 100 --json | jq -c '.records[]'`,
	}
	cmd.Flags().Uint64Var(&from, "from-seq", 1, "number `N` of the first record")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most `N` records (default 1000)")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, _ []string) error {
		if from < 1 || limit < 0 || limit > 1000 {
			return cli.Usage("--from-seq %d --limit %d: want a number from 1, and one up to 1000", from, limit)
		}
		return shown(a, auditTable)(c.AuditChain(ctx, from, limit))
	})
	return cmd
}
