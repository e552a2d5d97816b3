package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

func (a *app) tokenVerifyCmd() *cobra.Command {
	var r wire.VerifyRequest
	cmd := &cobra.Command{
		Use:   "verify FILE|-",
		Short: "Have the node judge a token for a request, and say everything that forbids it",
		Long: `Have the node judge a token for the request that the flags describe: whether the node
made it, whether it stands, and every caveat that forbids the request, with the reason.
Nothing is done, and the token is not used up.

What a flag does not name is not asked about; a caveat on it then fails, as it would in
a request without it. --token-file is whom the question comes from, not the token in
question. Exit 3: it would be refused.`,
		Example: `  ronbox token verify ci.token --scope registry.propose
  ronbox token verify ci.token --scope registry.propose --method POST --path /registry/proposals --ip 192.0.2.7 --json`,
		Args: exactly(1, "one token: a file, or - for stdin"),
	}
	f := cmd.Flags()
	f.StringVar(&r.Scope, "scope", "", "the `scope` the request needs")
	f.StringVar(&r.Service, "service", "", "the `service` it goes to (default the one of the scope)")
	f.StringVar(&r.Method, "method", "", "its `method`")
	f.StringVar(&r.Path, "path", "", "its `path`")
	f.StringVar(&r.IP, "ip", "", "the `address` it comes from")
	f.StringVar(&r.Tenant, "tenant", "", "the `tenant` it is for")
	f.StringVar(&r.Account, "account", "", "the `account` it touches")
	f.StringVar(&r.Asset, "asset", "", "the `asset` it moves")
	f.StringVar(&r.Amount, "amount", "", "the minor `units` it moves")
	f.StringVar(&r.Epoch, "epoch", "", "the `epoch` it is about")
	f.StringVar(&r.Signer, "signer", "", "the signer `id` whose approval it brings")
	f.Int64Var(&r.Bytes, "bytes", 0, "the length of its body in `bytes`")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		return a.tokenVerify(ctx, c, r, args)
	})
	return cmd
}

func (a *app) tokenVerify(ctx context.Context, c *client.Client, r wire.VerifyRequest, args []string) error {
	var err error
	if r.Bytes < 0 {
		return usage("--bytes %d: want a length from 0", r.Bytes)
	}
	if r.Token, err = a.tokenArgument(args, exitBad); err != nil {
		return err
	}
	if r.Service == "" {
		r.Service, _, _ = strings.Cut(r.Scope, ".")
	}
	v, err := c.VerifyToken(ctx, r)
	if err != nil {
		return err
	}
	if err := a.show(v, func(t table) { verdictTable(t, r, v) }); err != nil || v.Allowed {
		return err
	}
	return a.found("the node would refuse it", refusal(v))
}

// refusal is the kind of the first thing that forbids.
func refusal(v wire.Verdict) string {
	switch {
	case !v.Authentic:
		return "unauth"
	case len(v.Failed) > 0 && v.Failed[0].Caveat != "":
		return "forbidden"
	}
	return "revoked"
}

func verdictTable(t table, r wire.VerifyRequest, v wire.Verdict) {
	t.row("allowed", yesNo(v.Allowed))
	if r.Scope == "" {
		t.row("asked", "for no scope: --scope and its like ask whether it allows a request")
	}
	t.row("authentic", yesNo(v.Authentic))
	if v.Reason != "" {
		t.row("reason", v.Reason)
	}
	if !v.Authentic {
		return
	}
	t.row("token", v.TID)
	t.row("key", v.Kid)
	t.row("subject", v.Sub)
	if v.Tenant != "" {
		t.row("tenant", v.Tenant)
	}
	t.row("scopes", strings.Join(v.Scopes, ", "))
	t.row("expires", orNever(v.ExpiresAt))
	for _, f := range v.Failed {
		if f.Caveat == "" {
			t.row("forbids", f.Reason)
		} else {
			t.row("forbids", f.Caveat, f.Reason)
		}
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
