package wallet

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

// repeatHelp ends the help of every command that moves money.
const repeatHelp = `

AMOUNT is decimal, with at most the digits after the point that the asset has
(` + "`ronbox wallet assets`" + `): with 2 decimals, 12 and 12.00 are the same amount. With --minor
AMOUNT is a whole number of minor units, 1200. The command first prints a key. With
--idempotency-key and that key the same command can be repeated safely: it is executed
once, and prints the same receipt.`

// payeeHelp explains how a new payee is met.
const payeeHelp = `

If the payee is a new account, a person at a terminal is asked first, and elsewhere a note
is printed. --existing refuses a new payee, and --new pays it without question or note.`

// operation makes cmd a command that requests one operation, which parse reads from the arguments.
func (a app) operation(
	cmd *cobra.Command,
	f *sendFlags,
	parse func(args []string) (walletapi.BatchOp, error),
) *cobra.Command {
	cmd.RunE = a.online(func(ctx context.Context, c walletapi.Client, args []string) error {
		op, err := parse(args)
		if err = cmp.Or(err, f.check()); err != nil {
			return err
		}
		if err := a.toMinor(ctx, c, &op, f.minor); err != nil {
			return err
		}
		if err := a.meetPayee(ctx, c, f, &op); err != nil {
			return err
		}
		return a.order(ctx, c, f, func(ctx context.Context, key string) (walletapi.Posted, error) {
			op := op
			f.identify(&op, key)
			return post(ctx, c, key, &op, f.existing)
		})
	})
	return cmd
}

// post requests one operation. With existing it is refused if its payee is not known.
func post(
	ctx context.Context,
	c walletapi.Client,
	key string,
	op *walletapi.BatchOp,
	existing bool,
) (walletapi.Posted, error) {
	switch op.Op {
	case walletapi.OpIssue:
		return c.Issue(ctx, key, walletapi.Issue{
			To: op.To, Asset: op.Asset, AmountMinor: op.AmountMinor, Nonce: op.Nonce, Memo: op.Memo,
			ValidUntil: op.ValidUntil, Reference: op.Reference,
		})
	case walletapi.OpTransfer:
		body := walletapi.Transfer{
			From: op.From, To: op.To, Asset: op.Asset, AmountMinor: op.AmountMinor, Nonce: op.Nonce, Memo: op.Memo,
			ValidUntil: op.ValidUntil, Reference: op.Reference,
		}
		if existing {
			return c.TransferExisting(ctx, key, body)
		}
		return c.Transfer(ctx, key, body)
	case walletapi.OpBurn:
		return c.Burn(ctx, key, walletapi.Burn{
			From: op.From, Asset: op.Asset, AmountMinor: op.AmountMinor, Nonce: op.Nonce, Memo: op.Memo,
			ValidUntil: op.ValidUntil, Reference: op.Reference,
		})
	case walletapi.OpHold:
		body := walletapi.Hold{
			From: op.From, To: op.To, Asset: op.Asset, AmountMinor: op.AmountMinor, Nonce: op.Nonce,
			ExpiresInS: op.ExpiresInS, Memo: op.Memo, ValidUntil: op.ValidUntil, Reference: op.Reference,
		}
		if existing {
			return c.HoldExisting(ctx, key, body)
		}
		return c.Hold(ctx, key, body)
	case walletapi.OpCapture:
		return c.Capture(ctx, key,
			walletapi.Capture{Hold: op.Hold, AmountMinor: op.AmountMinor, Reference: op.Reference})
	}
	return c.Release(ctx, key, walletapi.Release{Hold: op.Hold, Reference: op.Reference})
}

// moves returns an operation that moves an amount, with the members that the flags give. check
// names its accounts in the order in which their faults are reported.
func (f *sendFlags) moves(op walletapi.BatchOp, check ...string) (walletapi.BatchOp, error) {
	op.Asset, op.Memo, op.ValidUntil = f.asset, f.memo, f.validUntil
	err := cmp.Or(checkParty(check[0]), checkAsset("--asset", op.Asset), checkAmount(op.AmountMinor, f.minor))
	for _, account := range check[1:] {
		err = cmp.Or(err, checkParty(account))
	}
	return op, err
}

// meetPayee looks whether the payee of op is a new account, because the name may be mistyped.
// Unless the command line says what to do then, a person is asked, or a note is printed. A
// repetition of an earlier call does not look.
func (a app) meetPayee(ctx context.Context, c walletapi.Client, f *sendFlags, op *walletapi.BatchOp) error {
	ask := a.AtTerminal() && !a.Flags.Yes
	switch {
	case op.Op != walletapi.OpTransfer && op.Op != walletapi.OpHold, a.Flags.PrintCurl,
		f.existing, f.fresh, f.key != "", a.Flags.Quiet && !ask:
		return nil
	}
	var acc walletapi.Account
	r := a.Repeater()
	err := r.Repeat(ctx, "look up the payee", func() (err error) {
		acc, err = c.Account(ctx, op.To)
		return err
	})
	note := ""
	p, refused := errors.AsType[*wire.Problem](err)
	switch {
	case refused && p.Status == http.StatusForbidden:
		note = "it is not known whether " + op.To + " is a new account: the token may not read it"
	case err != nil || acc.Known:
		return err
	case ask:
		d, _, _ := readDecimals(ctx, c) // minor units are right too
		return a.Agree(op.To+" is a new account", payWord[op.Op]+" "+d.show(op.AmountMinor, op.Asset))
	default:
		note = op.To + " is a new account; --existing refuses one"
	}
	if !a.Flags.Quiet {
		a.Warn("note: %s", note)
	}
	return nil
}

var payWord = map[string]string{walletapi.OpTransfer: "pay", walletapi.OpHold: "set aside"}

func (a app) issueCmd() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "issue TO AMOUNT",
		Short: "Issue new money to an account",
		Long:  `Issue new money of an asset to an account. The asset must be declared.` + repeatHelp,
		Example: `  ronbox wallet issue alice 1000000
  ronbox wallet issue alice 500 --asset gold --memo "opening balance" --json`,
		Args: cli.Exactly(2, "an account and an amount"),
	}
	f.add(cmd)
	return a.operation(cmd, &f, func(args []string) (walletapi.BatchOp, error) {
		return f.moves(walletapi.BatchOp{Op: walletapi.OpIssue, To: args[0], AmountMinor: args[1]}, args[0])
	})
}

func (a app) transferCmd() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:     "transfer FROM TO AMOUNT",
		Aliases: []string{"pay", "send"},
		Short:   "Move money from one account to another",
		Long: `Move money from one account to another. The first payment to an account opens it. When the
receipt is printed, the payment is on disk.` + payeeHelp + repeatHelp,
		Example: `  ronbox wallet transfer alice bob 12.50 --existing
  ronbox wallet transfer alice bob 12.50 --idempotency-key cli-7-01JD3V9T5E8Q2X7RZ4M6K0ABCD --json`,
		Args: cli.Exactly(3, "two accounts and an amount"),
	}
	f.add(cmd)
	f.payeeFlags(cmd)
	return a.operation(cmd, &f, func(args []string) (walletapi.BatchOp, error) {
		return f.moves(walletapi.BatchOp{Op: walletapi.OpTransfer, From: args[0], To: args[1], AmountMinor: args[2]},
			args[1], args[0])
	})
}

func (a app) burnCmd() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "burn FROM AMOUNT",
		Short: "Destroy money of an account",
		Long:  `Destroy money of an account. It reduces the amount of the asset in circulation.` + repeatHelp,
		Example: `  ronbox wallet burn bob 10
  ronbox wallet burn bob 10 --minor --memo redeemed --json`,
		Args: cli.Exactly(2, "an account and an amount"),
	}
	f.add(cmd)
	return a.operation(cmd, &f, func(args []string) (walletapi.BatchOp, error) {
		return f.moves(walletapi.BatchOp{Op: walletapi.OpBurn, From: args[0], AmountMinor: args[1]}, args[0])
	})
}

// A hold lasts at least a second and at most a month of 30 days.
const longestHold = 30 * 24 * time.Hour

func (a app) holdCmd() *cobra.Command {
	var f sendFlags
	var expires time.Duration
	cmd := &cobra.Command{
		Use:   "hold FROM TO AMOUNT",
		Short: "Set money aside for an account to capture",
		Long: `Set money of account FROM aside. FROM cannot spend it until TO captures it
(` + "`ronbox wallet capture`" + `), it is released, or it expires.` + payeeHelp + repeatHelp,
		Example: `  ronbox wallet hold alice shop 500 --expires-in 1h
  ronbox wallet hold alice shop 500 --json | jq -r .txid`,
		Args: cli.Exactly(3, "two accounts and an amount"),
	}
	f.add(cmd)
	f.payeeFlags(cmd)
	cmd.Flags().DurationVar(&expires, "expires-in", 24*time.Hour, "`time` until the hold expires, 1s to 720h")
	return a.operation(cmd, &f, func(args []string) (op walletapi.BatchOp, err error) {
		if expires < time.Second || expires > longestHold || expires%time.Second != 0 {
			return op, cli.Usage("--expires-in %s: want whole seconds, 1s to 720h", expires)
		}
		op = walletapi.BatchOp{
			Op:          walletapi.OpHold,
			From:        args[0],
			To:          args[1],
			AmountMinor: args[2],
			ExpiresInS:  uint64(expires / time.Second),
		}
		return f.moves(op, args[1], args[0])
	})
}

func (a app) captureCmd() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "capture TXID [AMOUNT]",
		Short: "Pay out a hold, fully or partly, and end it",
		Long: `Pay out a hold, or AMOUNT of it, to its payee, and end the hold. The remainder returns to
the payer. A hold can be captured once.` + repeatHelp,
		Example: `  ronbox wallet capture tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD
  ronbox wallet capture tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD 300 --json`,
		Args: cli.Between(1, 2, "the txid of a hold and perhaps an amount"),
	}
	f.keyFlag(cmd)
	f.minorFlag(cmd)
	return a.operation(cmd, &f, func(args []string) (walletapi.BatchOp, error) {
		op := walletapi.BatchOp{Op: walletapi.OpCapture, Hold: args[0]}
		err := ledger.CheckTxID(op.Hold)
		if err == nil && len(args) == 2 {
			op.AmountMinor = args[1]
			err = checkAmount(op.AmountMinor, f.minor)
		}
		return op, err
	})
}

func (a app) releaseCmd() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "release TXID",
		Short: "Release a hold, so that the payer can spend the money again",
		Long: `Release a hold: the payer can spend the money again. A token that may capture the hold may
also release it. With --idempotency-key and the key that is printed first, the command
can be repeated safely.`,
		Example: `  ronbox wallet release tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD
  ronbox wallet release tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD --json`,
		Args: cli.Exactly(1, "the txid of a hold"),
	}
	f.keyFlag(cmd)
	return a.operation(cmd, &f, func(args []string) (walletapi.BatchOp, error) {
		return walletapi.BatchOp{Op: walletapi.OpRelease, Hold: args[0]}, ledger.CheckTxID(args[0])
	})
}

func (a app) freezeCmd() *cobra.Command {
	return a.flagsCmd(&cobra.Command{
		Use:   "freeze ACCOUNT",
		Short: "Forbid debits or credits of an account, or both",
		Long: `Forbid debits and credits of an account, or only one of them with --flag no_debit or
no_credit. The flag closed forbids both and marks the account as no longer used. A flag is
cleared by ` + "`ronbox wallet unfreeze`" + ` and shown by ` + "`ronbox wallet seq`" + `. An account
that was never paid is refused unless --new is given.`,
		Example: `  ronbox wallet freeze mallory
  ronbox wallet freeze mallory --flag no_debit --json`,
	}, false)
}

func (a app) unfreezeCmd() *cobra.Command {
	return a.flagsCmd(&cobra.Command{
		Use:   "unfreeze ACCOUNT",
		Short: "Clear a flag that freeze has set",
		Long: `Clear a flag of an account that ` + "`ronbox wallet freeze`" + ` has set: frozen, or the one named
by --flag. A flag that is not set is refused. ` + "`ronbox wallet seq`" + ` shows the flags.`,
		Example: `  ronbox wallet unfreeze mallory
  ronbox wallet unfreeze mallory --flag no_debit --json`,
	}, true)
}

// flagsCmd makes cmd a command that sets a flag of an account or, with off, clears it.
func (a app) flagsCmd(cmd *cobra.Command, off bool) *cobra.Command {
	var f sendFlags
	var flag string
	var body walletapi.FlagsChange
	cmd.Args = cli.Exactly(1, "one account")
	cmd.Flags().StringVar(&flag, "flag", "frozen", "`flag`: frozen, no_debit, no_credit or closed")
	if !off {
		cmd.Flags().BoolVar(&body.New, "new", false, "open the account if it was never paid")
	}
	f.keyFlag(cmd)
	cmd.RunE = a.online(func(ctx context.Context, c walletapi.Client, args []string) error {
		if err := checkParty(args[0]); err != nil {
			return err
		}
		if _, err := record.ParseFlags(flag); err != nil {
			return cli.Usage("--flag %q: want frozen, no_debit, no_credit or closed", flag)
		}
		if err := f.check(); err != nil {
			return err
		}
		if body.Account, body.Set = args[0], []string{flag}; off {
			body.Set, body.Clear = nil, body.Set
		}
		if off && f.key == "" { // a repetition finds it gone
			if err := a.mustHave(ctx, c, args[0], flag); err != nil {
				return err
			}
		}
		return a.order(ctx, c, &f, func(ctx context.Context, key string) (walletapi.Posted, error) {
			return c.SetFlags(ctx, key, body)
		})
	})
	return cmd
}

// mustHave returns an error if a known account does not have a flag: clearing it would change
// nothing.
func (a app) mustHave(ctx context.Context, c walletapi.Client, account, flag string) error {
	var acc walletapi.Account
	r := a.Repeater()
	err := r.Repeat(ctx, "look up its flags", func() (err error) {
		acc, err = c.Account(ctx, account)
		return err
	})
	if err != nil || !acc.Known || slices.Contains(acc.Flags, flag) {
		return err // the node refuses an account that is not known
	}
	has := "the account has no flag"
	if len(acc.Flags) > 0 {
		has = "the account has " + strings.Join(acc.Flags, ", ") + ": name it with --flag"
	}
	return cli.Fail(cli.ExitFailed, "flag_not_set", has, "%s has no flag %s: nothing was done", account, flag)
}
