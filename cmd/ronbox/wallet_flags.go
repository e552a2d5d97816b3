package main

import (
	"context"

	"github.com/spf13/cobra"

	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// usualFlag is what freeze sets when nothing else is named.
const usualFlag = "frozen"

func (a *app) freezeCmd() *cobra.Command {
	return a.flagsCmd(&cobra.Command{
		Use:   "freeze ACCOUNT",
		Short: "Forbid an account to give, to take, or both",
		Long: `Forbid an account to give and to take, or with --flag one of the two: no_debit, no_credit.
closed forbids both as well, and says that the account is done with. What is set
` + "`ronbox wallet unfreeze`" + ` takes off again; ` + "`ronbox wallet seq`" + ` shows it.`,
		Example: `  ronbox wallet freeze mallory
  ronbox wallet freeze mallory --flag no_debit --json`,
	}, func(account, flag string) wire.FlagsChange {
		return wire.FlagsChange{Account: account, Set: []string{flag}}
	})
}

func (a *app) unfreezeCmd() *cobra.Command {
	return a.flagsCmd(&cobra.Command{
		Use:   "unfreeze ACCOUNT",
		Short: "Take a flag off an account that freeze has set",
		Long: `Take off an account the flag that ` + "`ronbox wallet freeze`" + ` has set: frozen, or that of
--flag. ` + "`ronbox wallet seq`" + ` shows which it has.`,
		Example: `  ronbox wallet unfreeze mallory
  ronbox wallet unfreeze mallory --flag no_debit --json`,
	}, func(account, flag string) wire.FlagsChange {
		return wire.FlagsChange{Account: account, Clear: []string{flag}}
	})
}

// flagsCmd makes of cmd a verb that asks for a change of flags.
func (a *app) flagsCmd(cmd *cobra.Command, change func(account, flag string) wire.FlagsChange) *cobra.Command {
	var f sendFlags
	var flag string
	cmd.Args = exactly(1, "one account")
	cmd.Flags().StringVar(&flag, "flag", usualFlag, "`which`: frozen, no_debit, no_credit, closed")
	f.keyFlag(cmd)
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		account, err := accountArg(args[0])
		if err != nil {
			return err
		}
		if _, err := record.ParseFlags(flag); err != nil {
			return usage("--flag %q: want frozen, no_debit, no_credit or closed", flag)
		}
		return a.order(ctx, c, &f, order{post: func(ctx context.Context, key string, _ uint64) (client.Posted, error) {
			return c.SetFlags(ctx, key, change(account, flag))
		}})
	})
	return cmd
}
