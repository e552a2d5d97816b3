package access

import (
	"context"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/httpapi/auth"
	nodeapi "ronbox/httpapi/node"
)

func (a app) keyCmd() *cobra.Command {
	return cli.Group("key", "Look after the root keys that tokens are made with", a.keyListCmd(), a.keyRotateCmd(), a.keyRetireCmd())
}

func (a app) keyListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the root keys of tokens: the active one, those that still verify, those retired",
		Long: `List the root keys of tokens. The active one makes new tokens; a key before it goes on
verifying until its last token has expired, and is retired then. Keys are derived from
node.key and an id; they are stored nowhere and shown nowhere.`,
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

// keyNext describes what becomes of a key, and when.
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
		Short: "Make a new root key for tokens from now on; those made before stay good until they expire",
		Long: `Make a new root key for the tokens from now on. The key before it goes on verifying
until its last token has expired. The node does this by itself every auth.rotate (30
days); by hand it is for when a key should not be used any longer. To void the old
tokens at once, retire their key.`,
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
		Short: "Retire a root key at once: every token made with it is void",
		Long: `Retire a root key at once: every token made with it is void, from this moment and for
good. The active key cannot be retired; rotate first.`,
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
		Short: "Make tokens void, from this moment and for good",
		Long: `Make tokens void, from this moment and for good: one by its id (which ` + "`ronbox token list`" + `
and ` + "`inspect`" + ` show, and which its narrowed copies share), all of a root key, all of a
tenant, or all that were ever made. It is in force when the verb returns. A token that
is void cannot be made good again; mint another.

--all voids the token this is asked with too; the socket goes on working.`,
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
	fl.BoolVar(&f.All, "all", false, "all tokens made so far")
	fl.StringVar(&f.Reason, "reason", "", "kept in the audit trail")
	cmd.MarkFlagsMutuallyExclusive("of", "kid", "tenant", "all")
	cmd.RunE = a.online(func(ctx context.Context, c nodeapi.Client, args []string) error { return a.revoke(ctx, c, f, args) })
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
			return revokeTarget{}, cli.Fail(cli.ExitFailed, "malformed", cli.NotAToken, "%s: not a token: %w", f.of, err)
		}
		f.TID = seen.TID
	default:
		f.TID = args[0]
	}
	return revokeTarget{"token " + f.TID, f.TID}, nil
}
