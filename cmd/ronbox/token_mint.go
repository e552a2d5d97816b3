package main

import (
	"context"

	"github.com/spf13/cobra"

	"ronbox/appliance"
	"ronbox/httpapi/wire"
)

type mintFlags struct {
	holderFlags
	caveatFlags
	sub     string
	out     string
	offline bool
}

func (a *app) tokenMintCmd() *cobra.Command {
	var m mintFlags
	cmd := &cobra.Command{
		Use:   "mint --scope S [--scope S2 …]",
		Short: "Make a token",
		Long: `Have the node make a token, or make it here from the secret of a stopped node.

Scopes are service.verb: registry.propose, registry.approve, registry.commit,
node.metrics, node.drain, node.token; node.admin allows everything. Every other flag
narrows: what it names is all that the token is good for. A token always expires.

It is printed once, or written to --out with mode 0600; the node keeps its id, not the
token. With --offline the node must be stopped, and its node.key is read.`,
		Example: `  ronbox token mint --scope registry.propose,registry.commit --ttl 30d --out ci.token
  ronbox token mint --scope registry.approve --signer org:acme#alice --ip 10.0.0.0/8
  ronbox token mint --scope node.metrics --caveat "method = GET" --json
  ronbox --data-dir data token mint --scope node.admin --offline --out admin2.token
  ronbox --url http://node:8080 --token-file ci.token registry propose payload.json`,
		Args: exactly(0, "no arguments"),
	}
	m.holderFlags.register(cmd, "what the token allows", "how long it lives, such as 1h or 30d (default the node's auth.default_ttl)")
	m.caveatFlags.register(cmd)
	cmd.Flags().StringVar(&m.sub, "sub", "", "the `principal` it stands for (default who asks)")
	cmd.Flags().StringVar(&m.out, "out", "", "write the token to this new `file`")
	cmd.Flags().BoolVar(&m.offline, "offline", false, "make it from the secret of the stopped node in --data-dir")
	cmd.RunE = a.verb(func(ctx context.Context, _ []string) error { return a.mint(ctx, m) })
	return cmd
}

func (a *app) mint(ctx context.Context, m mintFlags) error {
	if len(m.scopes) == 0 {
		return usage("a token without a scope allows nothing: give --scope")
	}
	return a.handOut(m.out, func() (newToken, error) {
		t, err := a.minted(ctx, m.offline, wire.MintRequest{
			Sub: m.sub, Tenant: m.tenant, Scopes: m.scopes, TTL: m.ttl, Path: m.path, Methods: m.methods, Caveats: m.caveatFlags.list(),
		})
		return newToken{Token: t.Token, TID: t.TID, ExpiresAt: t.ExpiresAt}, err
	})
}

func (a *app) minted(ctx context.Context, offline bool, r wire.MintRequest) (wire.Token, error) {
	if offline {
		cfg, err := a.loadConfig()
		if err != nil {
			return wire.Token{}, err
		}
		return appliance.MintOffline(ctx, cfg, build(), r)
	}
	c, err := a.node()
	if err != nil {
		return wire.Token{}, err
	}
	defer c.Close()
	return c.Mint(ctx, r)
}
