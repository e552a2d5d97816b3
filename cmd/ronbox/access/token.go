package access

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/client"
	nodeapi "ronbox/httpapi/wire/node"
)

// app adds the verbs of this package to the run of the command.
type app struct{ *cli.App }

// online returns the RunE of a verb that calls the node.
func (a app) online(run func(ctx context.Context, c nodeapi.Client, args []string) error) cli.RunE {
	return cli.Online(a.App, nodeapi.NewClient, run)
}

// Commands returns the verbs for tokens, root keys and the audit chain.
func Commands(c *cli.App) []*cobra.Command {
	a := app{c}
	a.Outcomes([]cli.ErrorRow{{
		Is: cli.Is(auth.ErrSpec), Outcome: cli.Outcome{Code: cli.ExitFailed, Reason: "malformed"},
	}})
	return []*cobra.Command{a.tokenCmd(), a.keyCmd(), a.auditCmd()}
}

func (a app) tokenCmd() *cobra.Command {
	group := cli.Group("token", "Create, restrict, inspect and revoke tokens", a.tokenMintCmd(), a.tokenAttenuateCmd(),
		a.tokenInspectCmd(), a.tokenVerifyCmd(), a.tokenRevokeCmd(), a.tokenListCmd())
	a.Complete(group, map[string]cli.Names{"TID": tokenIDs})
	return group
}

func tokenIDs(ctx context.Context, c *client.Client, _ string) (out []string, err error) {
	page, err := nodeapi.NewClient(c).Tokens(ctx, "", cli.MostNames)
	for _, t := range page.Tokens {
		if !t.Revoked {
			out = append(out, t.TID)
		}
	}
	return out, err
}

func (a app) tokenInspectCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect [FILE|-]",
		Short: "Decode a token without verifying it",
		Long: `Decode a token from FILE, --token-file, or stdin for "-" and show its subject, expiry
and caveats. The signature is not checked; ` + "`ronbox token verify`" + ` asks the node whether
it would accept the token. Exit 3: the input is not a token.`,
		Example: `  ronbox token inspect data/admin.token
  pass show ronbox/ci | ronbox token inspect - --json`,
		Args: cli.AtMost(1, "at most one file"),
		RunE: a.Verb(a.inspect),
	}
}

func (a app) inspect(_ context.Context, args []string) error {
	token, err := a.tokenArgument(args, cli.ExitBad)
	if err != nil {
		return err
	}
	doc, err := auth.Inspect(token)
	if err != nil {
		return cli.Fail(cli.ExitBad, "malformed", cli.NotAToken, "not a token: %w", err)
	}
	return a.Show(doc, func(t cli.Table) { inspectTable(t, doc) })
}

func inspectTable(t cli.Table, d auth.Inspection) {
	t.Row("token", d.TID)
	t.Row("key", d.Kid)
	t.Row("subject", d.Sub)
	t.Opt("tenant", d.Tenant)
	t.Row("issued", cli.FormatTime(time.Unix(d.IssuedAt, 0)))
	if !d.ExpiresAt.IsZero() {
		t.Row("expires", cli.FormatTime(d.ExpiresAt.Time))
	}
	for _, c := range d.Caveats {
		t.Row("caveat", c)
	}
	t.Row("fingerprint", d.Fingerprint)
	t.Row("not checked", "this is the content of the token; only the node can verify it")
}

func (a app) tokenVerifyCmd() *cobra.Command {
	var r nodeapi.VerifyRequest
	cmd := &cobra.Command{
		Use:   "verify FILE|-",
		Short: "Check a token against a request and list every reason to refuse it",
		Long: `Ask the node whether it would accept a token for the request that the flags describe.
The answer shows whether the node made the token, whether it is still valid, and every
caveat that forbids the request, with the reason. The request is not carried out, and
the token's limits are not consumed.

An attribute without a flag is absent from the request, so a caveat on it fails.
--token-file names the token that authorizes the question, not the token to check.
Amounts already moved today are ignored: --amount is compared with ceiling_daily as if
it were the first of the day. Exit 3: the token would be refused.`,
		Example: `  ronbox token verify ci.token --scope registry.propose
  ronbox token verify ci.token --scope registry.propose --method POST --path /registry/proposals --ip 192.0.2.7 --json`,
		Args: cli.Exactly(1, "one token: a file, or - for stdin"),
	}
	f := cmd.Flags()
	f.StringVar(&r.Scope, "scope", "", "the `scope` the request needs")
	f.StringVar(&r.Service, "service", "", "`service` of the request (default the one of the scope)")
	f.StringVar(&r.Method, "method", "", "its `method`")
	f.StringVar(&r.Path, "path", "", "its `path`")
	f.StringVar(&r.IP, "ip", "", "`address` of the client")
	f.StringVar(&r.Tenant, "tenant", "", "the `tenant` it is for")
	f.StringVar(&r.Account, "account", "", "the `account` it touches")
	f.StringVar(&r.Asset, "asset", "", "the `asset` it moves")
	f.StringVar(&r.Amount, "amount", "", "the minor `units` it moves")
	f.StringVar(&r.Epoch, "epoch", "", "the `epoch` it is about")
	f.StringVar(&r.Signer, "signer", "", "`id` of the signer of an approval")
	f.Int64Var(&r.Bytes, "bytes", 0, "the length of its body in `bytes`")
	cmd.RunE = a.online(func(ctx context.Context, c nodeapi.Client, args []string) error {
		return a.tokenVerify(ctx, c, r, args)
	})
	return cmd
}

func (a app) tokenVerify(ctx context.Context, c nodeapi.Client, r nodeapi.VerifyRequest, args []string) error {
	var err error
	if r.Bytes < 0 {
		return cli.Usage("--bytes %d: want a length from 0", r.Bytes)
	}
	if r.Token, err = a.tokenArgument(args, cli.ExitBad); err != nil {
		return err
	}
	if r.Service == "" {
		r.Service, _, _ = strings.Cut(r.Scope, ".")
	}
	v, err := c.VerifyToken(ctx, r)
	if err != nil {
		return err
	}
	if err := a.Show(v, func(t cli.Table) { verdictTable(t, r, v) }); err != nil || v.Allowed {
		return err
	}
	return a.FoundBad("the node would refuse it", refusalKind(v))
}

// refusalKind returns the kind of the first reason to refuse.
func refusalKind(v nodeapi.Verdict) string {
	switch {
	case !v.Authentic:
		return "unauth"
	case len(v.Failed) > 0 && v.Failed[0].Caveat != "":
		return "forbidden"
	}
	return "revoked"
}

func verdictTable(t cli.Table, r nodeapi.VerifyRequest, v nodeapi.Verdict) {
	t.Row("allowed", cli.Verdict(v.Allowed, "yes", "no"))
	if r.Scope == "" {
		t.Row("asked", "for no scope: --scope and its like ask whether it allows a request")
	}
	t.Row("authentic", cli.Verdict(v.Authentic, "yes", "no"))
	t.Opt("reason", v.Reason)
	if !v.Authentic {
		return
	}
	t.Row("token", v.TID)
	t.Row("key", v.Kid)
	t.Row("subject", v.Sub)
	t.Opt("tenant", v.Tenant)
	t.Row("scopes", strings.Join(v.Scopes, ", "))
	t.Row("expires", orNever(v.ExpiresAt.Time))
	for _, f := range v.Failed {
		if f.Caveat == "" {
			t.Row("forbids", f.Reason)
		} else {
			t.Row("forbids", f.Caveat, f.Reason)
		}
	}
}

const tokenPage = 500 // rows in one answer of the node

func (a app) tokenListCmd() *cobra.Command {
	var tenant string
	var live bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List unexpired tokens",
		Long: `List the tokens that have not expired, oldest first, with their ids, subjects and
scopes. The node does not store the tokens themselves, and does not know the caveats
that a holder has added.`,
		Example: `  ronbox token list
  ronbox token list --live --json | jq -r '.tokens[].tid'`,
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "list only the tokens of this `tenant`")
	cmd.Flags().BoolVar(&live, "live", false, "leave out revoked tokens")
	cmd.RunE = a.online(func(ctx context.Context, c nodeapi.Client, _ []string) error {
		list, err := allTokens(ctx, c, func(t nodeapi.TokenInfo) bool {
			return (tenant == "" || t.Tenant == tenant) && !(live && t.Revoked)
		})
		if err != nil {
			return err
		}
		return a.Show(list, func(t cli.Table) { tokenTable(t, list) })
	})
	return cmd
}

// allTokens reads every page and keeps the tokens that want accepts.
func allTokens(ctx context.Context, c nodeapi.Client, want func(nodeapi.TokenInfo) bool) (nodeapi.TokenList, error) {
	out := nodeapi.TokenList{Tokens: []nodeapi.TokenInfo{}}
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

func tokenTable(t cli.Table, l nodeapi.TokenList) {
	if len(l.Tokens) == 0 {
		t.Row("none: create a token with `ronbox token mint`")
		return
	}
	t.Row("TOKEN", "SUBJECT", "TENANT", "SCOPES", "CAVEATS", "EXPIRES", "STATE")
	for _, k := range l.Tokens {
		state := "good"
		if k.Revoked {
			state = "revoked"
		}
		t.Row(k.TID, k.Sub, cmp.Or(k.Tenant, "-"), strings.Join(k.Scopes, ","), len(k.Caveats),
			orNever(k.ExpiresAt.Time), state)
	}
}

// tokenArgument returns the token in the file argument, in stdin ("-"), or without an argument in
// --token-file. If the input holds no token, the error has the exit code bad.
func (a app) tokenArgument(args []string, bad int) (string, error) {
	path := a.Flags.TokenFile
	if len(args) == 1 {
		path = args[0]
	}
	if path == "" {
		return "", cli.Usage("want a token: a file, --token-file, or - for stdin")
	}
	raw, err := a.ReadInput(path, cli.MaxTokenFile)
	if err != nil {
		return "", err
	}
	return cli.ParseToken(cmp.Or(map[string]string{"-": "stdin"}[path], path), raw, bad)
}

func orNever(t time.Time) string {
	if t.IsZero() {
		return "its root key is retired"
	}
	return cli.FormatTime(t)
}
