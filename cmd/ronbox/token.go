package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/httpapi/auth"
	"ronbox/httpapi/wire"
)

func (a *app) tokenCmd() *cobra.Command {
	return group("token", "Make and read tokens", a.tokenMintCmd(), a.tokenInspectCmd())
}

type mintFlags struct {
	wire.MintRequest
	out string
}

func (a *app) tokenMintCmd() *cobra.Command {
	var m mintFlags
	cmd := &cobra.Command{
		Use: "mint --scope S [--scope S2 …]",
		Example: `  ronbox token mint --scope registry.propose,registry.commit --ttl 30d --out ci.token
  ronbox --url http://node:8080 --token-file ci.token registry propose payload.json`,
		Short: "Have the node make a token",
		Long: `Have the node make a token.

Scopes are service.verb: registry.propose, registry.approve, registry.commit,
node.metrics, node.drain, node.token; node.admin allows everything. The token is
printed once, or written to --out with mode 0600.`,
		Args: exactly(0, "no arguments"),
	}
	f := cmd.Flags()
	f.StringSliceVar(&m.Scopes, "scope", nil, "what the token allows")
	f.StringVar(&m.TTL, "ttl", "", "how long it lives, such as 1h or 30d (default the node's auth.default_ttl)")
	f.StringVar(&m.Sub, "sub", "", "the principal it stands for")
	f.StringVar(&m.Tenant, "tenant", "", "the tenant it is bound to")
	f.StringVar(&m.Path, "path", "", "the only path it is good for, /p or /p/*")
	f.StringSliceVar(&m.Methods, "method", nil, "the only methods it is good for")
	f.StringVar(&m.out, "out", "", "write the token to this new `file`")
	cmd.RunE = a.verb(func(ctx context.Context, _ []string) error { return a.mint(ctx, m) })
	return cmd
}

// mintedDoc is the answer of the node, or, with --out, where the token is.
type mintedDoc struct {
	Token     string    `json:"token,omitzero"`
	TID       string    `json:"tid"`
	ExpiresAt time.Time `json:"expires_at"`
	File      string    `json:"file,omitzero"`
}

func (a *app) mint(ctx context.Context, m mintFlags) error {
	if len(m.Scopes) == 0 {
		return usage("a token without a scope allows nothing: give --scope")
	}
	if m.out != "" && exists(m.out) {
		return failed(exitFailed, "exists", "choose another path", "%s exists", m.out)
	}
	c, err := a.node()
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := c.Mint(ctx, m.MintRequest)
	if err != nil {
		return err
	}
	doc := mintedDoc{t.Token, t.TID, t.ExpiresAt, m.out}
	if m.out != "" {
		if err := writeFile(m.out, []byte(t.Token+"\n"), 0o600); err != nil {
			return err
		}
		doc.Token = ""
	}
	a.say("token %s, good until %s", t.TID, t.ExpiresAt.Format(time.RFC3339))
	if a.flags.json {
		return a.document(doc)
	}
	if m.out != "" {
		return a.show(doc, func(w table) { w.row("written to", m.out) })
	}
	return a.raw([]byte(t.Token + "\n")) // with --quiet too: it is what was asked for
}

func (a *app) tokenInspectCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect [FILE|-]",
		Short: "Decode a token from a file, --token-file or stdin; nothing is trusted or checked",
		Args:  atMost(1, "at most one file"),
		RunE:  a.verb(a.inspect),
	}
}

func (a *app) inspect(_ context.Context, args []string) error {
	token, err := a.tokenArgument(args)
	if err != nil {
		return err
	}
	doc, err := auth.Inspect(token)
	if err != nil {
		return failed(exitBad, "malformed", "a token is one line of base64url", "not a token: %w", err)
	}
	return a.show(doc, func(t table) { inspectTable(t, doc) })
}

func (a *app) tokenArgument(args []string) (string, error) {
	path := a.flags.tokenFile
	if len(args) == 1 {
		path = args[0]
	}
	switch path {
	case "":
		return "", usage("want a token: a file, --token-file, or - for stdin")
	case "-":
		raw, err := io.ReadAll(io.LimitReader(a.stdin, maxTokenFile))
		if err != nil {
			return "", fmt.Errorf("read stdin: %w", err)
		}
		return strings.TrimSpace(string(raw)), nil
	}
	return readToken(path)
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
