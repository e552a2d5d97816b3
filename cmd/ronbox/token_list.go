package main

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

const tokenPage = 500 // of the node's answers; all pages are read

func (a *app) tokenListCmd() *cobra.Command {
	var tenant string
	var live bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tokens that were made and have not expired",
		Long: `List the tokens that were made and have not expired, oldest first: ids, whom they stand
for, what they allow. The tokens themselves are kept nowhere. Caveats that a holder has
added since are not known to the node.`,
		Example: `  ronbox token list
  ronbox token list --live --json | jq -r '.tokens[].tid'`,
		Args: exactly(0, "no arguments"),
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "those of this `tenant` only")
	cmd.Flags().BoolVar(&live, "live", false, "leave those out that are revoked")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, _ []string) error {
		list, err := allTokens(ctx, c, func(t wire.TokenInfo) bool {
			return (tenant == "" || t.Tenant == tenant) && !(live && t.Revoked)
		})
		if err != nil {
			return err
		}
		return a.show(list, func(t table) { tokenTable(t, list) })
	})
	return cmd
}

// allTokens reads every page and keeps what is wanted.
func allTokens(ctx context.Context, c *client.Client, want func(wire.TokenInfo) bool) (wire.TokenList, error) {
	out := wire.TokenList{Tokens: []wire.TokenInfo{}}
	for cursor := ""; ; {
		page, err := c.Tokens(ctx, cursor, tokenPage)
		if err != nil {
			return out, err
		}
		for _, t := range page.Tokens {
			if want(t) {
				out.Tokens = append(out.Tokens, t)
			}
		}
		if cursor = page.Next; cursor == "" {
			return out, nil
		}
	}
}

func tokenTable(t table, l wire.TokenList) {
	if len(l.Tokens) == 0 {
		t.row("none: `ronbox token mint` makes a token")
		return
	}
	t.row("TOKEN", "SUBJECT", "TENANT", "SCOPES", "CAVEATS", "EXPIRES", "STATE")
	for _, k := range l.Tokens {
		state := "good"
		if k.Revoked {
			state = "revoked"
		}
		t.row(k.TID, k.Sub, cmp.Or(k.Tenant, "-"), strings.Join(k.Scopes, ","), len(k.Caveats), orNever(k.ExpiresAt), state)
	}
}
