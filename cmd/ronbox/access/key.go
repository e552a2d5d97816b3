package access

import (
	"context"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/httpapi/auth"
	nodeapi "ronbox/httpapi/wire/node"
)

func (a app) keyCmd() *cobra.Command {
	return cli.Group("key", "Manage the root keys of tokens", a.keyListCmd(), a.keyRotateCmd(),
		a.keyRetireCmd())
}

func (a app) keyListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the root keys of tokens: active, verifying and retired",
		Long: `List the root keys of tokens. The active key signs new tokens. An older key verifies
tokens until the last of them has expired, and is then retired. Keys are derived from
node.key and an id; they are never stored or shown.`,
		Example: `  ronbox key list
  ronbox key list --json | jq -r .active`,
		RunE: a.online(func(ctx context.Context, c nodeapi.Client, _ []string) error {
			list, err := c.Keys(ctx)
			if err != nil {
				return err
			}
			return a.Show(list, func(t cli.Table) {
				t.Row("KEY", "STATE", "MADE", "NEXT")
				for _, k := range list.Keys {
					t.Row(k.Kid, k.State, cli.FormatTime(k.CreatedAt), keyNext(k))
				}
			})
		}),
	}
}

// keyNext describes the next state of a key and its time.
func keyNext(k nodeapi.KeyInfo) string {
	switch {
	case !k.RotateAt.IsZero():
		return "rotates " + cli.FormatTime(k.RotateAt)
	case !k.VerifyUntil.IsZero():
		return "verifies until " + cli.FormatTime(k.VerifyUntil)
	}
	return "-"
}

func (a app) keyRotateCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rotate",
		Short: "Create a new root key; existing tokens stay valid until they expire",
		Long: `Create a new root key for new tokens. The previous key verifies existing tokens until the
last of them has expired. The node rotates keys automatically every auth.rotate (30
days); rotate by hand if a key should no longer be used. To invalidate existing tokens
immediately, retire their key.`,
		Example: `  ronbox key rotate
  ronbox key rotate --json`,
		RunE: cli.Ask(a.App, nodeapi.NewClient, nodeapi.Client.RotateKey, keyTable),
	}
}

func keyTable(t cli.Table, k nodeapi.KeyInfo) {
	t.Row("key", k.Kid)
	t.Row("state", k.State)
	t.Row("made", cli.FormatTime(k.CreatedAt))
	if next := keyNext(k); next != "-" {
		t.Row("next", next)
	}
}

func (a app) keyRetireCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "retire KID",
		Short: "Retire a root key and invalidate every token made with it",
		Long: `Retire a root key: every token made with it becomes invalid immediately and permanently.
The active key cannot be retired; rotate first.`,
		Example: `  ronbox key rotate && ronbox key retire 01JD3V9T5E8Q2X7RZ4M6K0ABCD
  ronbox key retire 01JD3V9T5E8Q2X7RZ4M6K0ABCD --yes --json`,
		Args: cli.Exactly(1, "one key id"),
		RunE: a.online(func(ctx context.Context, c nodeapi.Client, args []string) error {
			if err := a.Confirm("retire root key "+args[0]+" and void every token made with it", args[0]); err != nil {
				return err
			}
			k, err := c.RetireKey(ctx, args[0])
			if err != nil {
				return err
			}
			return a.Show(k, func(t cli.Table) { keyTable(t, k) })
		}),
	}
}

type revokeFlags struct {
	nodeapi.RevokeRequest
	of string
}

func (a app) tokenRevokeCmd() *cobra.Command {
	var f revokeFlags
	cmd := &cobra.Command{
		Use:   "revoke [TID]",
		Short: "Revoke tokens immediately and permanently",
		Long: `Revoke tokens immediately and permanently: one by its id (shown by ` + "`ronbox token list`" + `
and ` + "`inspect`" + `, and shared by its restricted copies), all of a root key, all of a tenant,
or all tokens. The revocation is in force when the command returns and cannot be undone.

--all also revokes the token that authorizes this command; the socket still works.`,
		Example: `  ronbox token revoke 01JD3V9T5E8Q2X7RZ4M6K0ABCD --reason "laptop lost"
  ronbox token revoke --of leaked.token --yes
  ronbox token revoke --tenant acme --yes --json
  ronbox token revoke --all`,
		Args: cli.AtMost(1, "at most one token id"),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.of, "of", "", "the token in this `file`")
	fl.StringVar(&f.Kid, "kid", "", "all tokens of this root key (its `id`)")
	fl.StringVar(&f.Tenant, "tenant", "", "all tokens of this `tenant`")
	fl.BoolVar(&f.All, "all", false, "all existing tokens")
	fl.StringVar(&f.Reason, "reason", "", "reason for the audit chain, a `TEXT`")
	cmd.MarkFlagsMutuallyExclusive("of", "kid", "tenant", "all")
	cmd.RunE = a.online(
		func(ctx context.Context, c nodeapi.Client, args []string) error { return a.revoke(ctx, c, f, args) },
	)
	return cmd
}

func (a app) revoke(ctx context.Context, c nodeapi.Client, f revokeFlags, args []string) error {
	target, err := f.target(args)
	if err != nil {
		return err
	}
	if err := a.Confirm("void "+target.what, target.name); err != nil {
		return err
	}
	if len(args) == 1 && !a.Flags.PrintCurl && !listed(ctx, c, f.TID) {
		a.Warn("note: the node lists no token %s that is not expired; `ronbox token list` shows them", f.TID)
	}
	r, err := c.Revoke(ctx, f.RevokeRequest)
	if err != nil {
		return err
	}
	return a.Show(r, func(t cli.Table) {
		t.Row("void", r.What+" "+r.Value)
		if r.Already {
			t.Row("note", "it was void before")
		}
		if !r.Until.IsZero() {
			t.Row("kept until", orNever(r.Until))
		}
	})
}

// listed reports whether the node lists a token, or whether that is not known.
func listed(ctx context.Context, c nodeapi.Client, tid string) bool {
	all, err := allTokens(ctx, c, func(t nodeapi.TokenInfo) bool { return t.TID == tid })
	return err != nil || len(all.Tokens) > 0
}

// revokeTarget is the object of a confirmation.
type revokeTarget struct{ what, name string }

// target finds which tokens are meant; exactly one flag or argument names them.
func (f *revokeFlags) target(args []string) (revokeTarget, error) {
	named := f.of != "" || f.Kid != "" || f.Tenant != "" || f.All
	if named == (len(args) == 1) {
		return revokeTarget{}, cli.Usage("want one of a token id, --of, --kid, --tenant, --all")
	}
	switch {
	case f.All:
		return revokeTarget{"every token made so far", "all"}, nil
	case f.Kid != "":
		return revokeTarget{"every token of root key " + f.Kid, f.Kid}, nil
	case f.Tenant != "":
		return revokeTarget{"every token of tenant " + f.Tenant, f.Tenant}, nil
	case f.of != "":
		token, err := cli.ReadToken(f.of)
		if err != nil {
			return revokeTarget{}, err
		}
		seen, err := auth.Inspect(token)
		if err != nil {
			return revokeTarget{}, cli.Fail(cli.ExitFailed, "malformed", cli.NotAToken, "%s: not a token: %w", f.of,
				err)
		}
		f.TID = seen.TID
	default:
		f.TID = args[0]
		if id, err := ulid.ParseStrict(f.TID); err != nil || id.String() != f.TID {
			return revokeTarget{}, cli.Usage("%q is not a token id: want 26 characters as `ronbox token list` shows "+
				"them, or --of with the file of a token", f.TID)
		}
	}
	return revokeTarget{"token " + f.TID, f.TID}, nil
}
