package main

import (
	"context"

	"github.com/spf13/cobra"

	"ronbox/httpapi/auth"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

type revokeFlags struct {
	wire.RevokeRequest
	of string
}

func (a *app) tokenRevokeCmd() *cobra.Command {
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
		Args: atMost(1, "at most one token id"),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.of, "of", "", "the token in this `file`")
	fl.StringVar(&f.Kid, "kid", "", "all tokens of this root key (its `id`)")
	fl.StringVar(&f.Tenant, "tenant", "", "all tokens of this `tenant`")
	fl.BoolVar(&f.All, "all", false, "all tokens made so far")
	fl.StringVar(&f.Reason, "reason", "", "kept in the audit trail")
	cmd.MarkFlagsMutuallyExclusive("of", "kid", "tenant", "all")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error { return a.revoke(ctx, c, f, args) })
	return cmd
}

func (a *app) revoke(ctx context.Context, c *client.Client, f revokeFlags, args []string) error {
	target, err := f.target(args)
	if err != nil {
		return err
	}
	if err := a.confirm("void "+target.what, target.name); err != nil {
		return err
	}
	r, err := c.Revoke(ctx, f.RevokeRequest)
	if err != nil {
		return err
	}
	return a.show(r, func(t table) {
		t.row("void", r.What+" "+r.Value)
		if r.Already {
			t.row("note", "it was void before")
		}
		if !r.Until.IsZero() {
			t.row("kept until", orNever(r.Until))
		}
	})
}

// target says what a confirmation is about.
type target struct{ what, name string }

// target settles which tokens are meant; exactly one way to say it is given.
func (f *revokeFlags) target(args []string) (target, error) {
	named := f.of != "" || f.Kid != "" || f.Tenant != "" || f.All
	if named == (len(args) == 1) {
		return target{}, usage("want one of a token id, --of, --kid, --tenant, --all")
	}
	switch {
	case f.All:
		return target{"every token made so far", "all"}, nil
	case f.Kid != "":
		return target{"every token of root key " + f.Kid, f.Kid}, nil
	case f.Tenant != "":
		return target{"every token of tenant " + f.Tenant, f.Tenant}, nil
	case f.of != "":
		token, err := readToken(f.of)
		if err != nil {
			return target{}, err
		}
		seen, err := auth.Inspect(token)
		if err != nil {
			return target{}, failed(exitFailed, "malformed", notAToken, "%s: not a token: %w", f.of, err)
		}
		f.TID = seen.TID
	default:
		f.TID = args[0]
	}
	return target{"token " + f.TID, f.TID}, nil
}
