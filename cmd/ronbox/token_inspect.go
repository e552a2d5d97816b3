package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"ronbox/httpapi/auth"
)

func (a *app) tokenInspectCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect [FILE|-]",
		Short: "Decode a token; nothing is trusted or checked",
		Long: `Decode a token from FILE, --token-file, or stdin for "-": who it was made for, when it
expires, its caveats. Only what it claims is shown; whether the node would take it,
` + "`ronbox token verify`" + ` says. Exit 3: it is no token.`,
		Example: `  ronbox token inspect data/admin.token
  pass show ronbox/ci | ronbox token inspect - --json`,
		Args: atMost(1, "at most one file"),
		RunE: a.verb(a.inspect),
	}
}

func (a *app) inspect(_ context.Context, args []string) error {
	token, err := a.tokenArgument(args, exitBad)
	if err != nil {
		return err
	}
	doc, err := auth.Inspect(token)
	if err != nil {
		return failed(exitBad, "malformed", notAToken, "not a token: %w", err)
	}
	return a.show(doc, func(t table) { inspectTable(t, doc) })
}

func inspectTable(t table, d auth.Inspection) {
	t.row("token", d.TID)
	t.row("key", d.Kid)
	t.row("subject", d.Sub)
	if d.Tenant != "" {
		t.row("tenant", d.Tenant)
	}
	t.row("issued", time.Unix(d.IssuedAt, 0).UTC().Format(time.RFC3339))
	if !d.ExpiresAt.IsZero() {
		t.row("expires", d.ExpiresAt.Format(time.RFC3339))
	}
	for _, c := range d.Caveats {
		t.row("caveat", c)
	}
	t.row("fingerprint", d.Fingerprint)
	t.row("not checked", "this says what the token claims; only the node knows whether it is good")
}
