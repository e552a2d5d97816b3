package access

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/scopes"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
)

type mintFlags struct {
	holderFlags
	caveatFlags
	sub     string
	out     string
	offline bool
}

func (a app) tokenMintCmd() *cobra.Command {
	var m mintFlags
	cmd := &cobra.Command{
		Use:   "mint --scope S [--scope S2 …]",
		Short: "Create a token",
		Long: `Create a token, on the running node or from the secret of a stopped one.

Scopes are service.verb: registry.propose, registry.approve, registry.commit,
node.metrics, node.drain, node.token; node.admin allows everything. Every other flag
restricts the token further. A token always expires.

The token is printed once, or written to --out with mode 0600; the node stores its id,
not the token. --offline reads the node.key of a stopped node.`,
		Example: `  ronbox token mint --scope registry.propose,registry.commit --ttl 30d --out ci.token
  ronbox token mint --scope registry.approve --signer org:acme#alice --ip 10.0.0.0/8
  ronbox token mint --scope node.metrics --caveat "method = GET" --json
  ronbox --data-dir data token mint --scope node.admin --offline --out admin2.token
  ronbox --url http://node:8080 --token-file ci.token registry propose payload.json`,
	}
	m.holderFlags.register(cmd, "`scopes` of the token",
		"`TIME` to live, such as 1h or 30d (default the node's auth.default_ttl)")
	m.caveatFlags.register(cmd)
	cmd.Flags().StringVar(&m.sub, "sub", "", "the `principal` of the token (default the caller)")
	cmd.Flags().StringVar(&m.out, "out", "", "write the token to this new `file`")
	cmd.Flags().BoolVar(&m.offline, "offline", false, "create it with the secret of the stopped node in --data-dir")
	cmd.RunE = a.Verb(func(ctx context.Context, _ []string) error { return a.mint(ctx, m) })
	return cmd
}

func (a app) mint(ctx context.Context, m mintFlags) error {
	if len(m.scopes) == 0 {
		return cli.Usage("a token without a scope allows nothing: add --scope")
	}
	return a.deliver(m.out, func() (newToken, error) {
		t, err := a.mintToken(ctx, m.offline, nodeapi.MintRequest{
			Sub:     m.sub,
			Tenant:  m.tenant,
			Scopes:  m.scopes,
			TTL:     m.ttl,
			Path:    m.path,
			Methods: m.methods,
			Caveats: m.caveatFlags.list(),
		})
		return newToken{Token: t.Token, TID: t.TID, ExpiresAt: t.ExpiresAt}, err
	})
}

func (a app) mintToken(ctx context.Context, offline bool, r nodeapi.MintRequest) (nodeapi.Token, error) {
	if offline {
		cfg, err := a.Config()
		if err != nil {
			return nodeapi.Token{}, err
		}
		return server.MintOffline(ctx, cfg, a.Build, r)
	}
	c, err := a.Client()
	if err != nil {
		return nodeapi.Token{}, err
	}
	defer c.Close()
	return nodeapi.NewClient(c).Mint(ctx, r)
}

type attenuateFlags struct {
	holderFlags
	caveatFlags
	out string
}

func (a app) tokenAttenuateCmd() *cobra.Command {
	var f attenuateFlags
	cmd := &cobra.Command{
		Use:   "attenuate [FILE|-]",
		Short: "Restrict a token offline, without a key",
		Long: `Restrict a token offline, without a key or a node: the result allows only what both the
token and the flags allow. A caveat cannot be removed again. The restricted token keeps
the id of the original: revoking one revokes both, and both share one daily ceiling.

The token is read from FILE, from --token-file, or from stdin for "-".`,
		Example: `  ronbox token attenuate ci.token --scope registry.propose --ttl 10m --out step.token
  ronbox token attenuate --token-file ci.token --ip 192.0.2.7/32 --json
  pass show ronbox/ci | ronbox token attenuate - --method GET`,
		Args: cli.AtMost(1, "at most one file"),
	}
	f.holderFlags.register(cmd, "`scopes` that remain",
		"`TIME` to live from now, such as 10m")
	f.caveatFlags.register(cmd)
	cmd.Flags().StringVar(&f.out, "out", "", "write the token to this new `file`")
	cmd.RunE = a.Verb(func(_ context.Context, args []string) error { return a.attenuate(args, f) })
	return cmd
}

func (a app) attenuate(args []string, f attenuateFlags) error {
	token, err := a.tokenArgument(args, cli.ExitFailed)
	if err != nil {
		return err
	}
	caveats, err := f.holderFlags.list(a.Now())
	if err != nil {
		return err
	}
	if caveats = append(caveats, f.caveatFlags.list()...); len(caveats) == 0 {
		return cli.Usage("no restriction is given: add --scope, --ttl, --caveat …")
	}
	if err := scopes.CheckCaveats(caveats); err != nil {
		return cli.Fail(cli.ExitFailed, "malformed", "correct the named fault, then run the command again", "%w", err)
	}
	narrowed, err := auth.Attenuate(token, caveats...)
	if err != nil {
		return cli.Fail(cli.ExitFailed, "malformed", "`ronbox token inspect` shows the content of a token", "%w", err)
	}
	seen, err := auth.Inspect(narrowed)
	if err != nil {
		return cli.Fail(cli.ExitInternal, "internal", "", "the narrowed token cannot be read: %w", err)
	}
	if now := a.Now(); !seen.ExpiresAt.After(now) {
		return cli.Fail(cli.ExitFailed, "expired", "mint a new token, or name a later time",
			"the token would have expired at %s, and now it is %s",
			cli.FormatTime(seen.ExpiresAt.Time), cli.FormatTime(now))
	}
	return a.deliver(f.out, func() (newToken, error) {
		return newToken{Token: narrowed, TID: seen.TID, ExpiresAt: seen.ExpiresAt}, nil
	})
}

// newToken is a token that a verb has created, or with --out the file that holds it.
type newToken struct {
	Token     string       `json:"token,omitzero"`
	TID       string       `json:"tid"`
	ExpiresAt wire.Instant `json:"expires_at,omitzero"`
	File      string       `json:"file,omitzero"`
}

// deliver calls made for a token and prints it, or writes it to the file out with mode 0600. The
// file is created first, so that a created token is never lost.
func (a app) deliver(out string, made func() (newToken, error)) (err error) {
	var t newToken
	if out == "" {
		t, err = made()
	} else {
		_, err = cli.ProduceFile(out, 0o600, func(w io.Writer) (err error) {
			if t, err = made(); err != nil {
				return err
			}
			_, err = io.WriteString(w, t.Token+"\n")
			return err
		})
		t.Token, t.File = "", out
	}
	if err != nil {
		return err
	}
	a.Say("token %s, good until %s", t.TID, orNever(t.ExpiresAt.Time))
	switch {
	case a.Flags.JSON:
		return a.PrintJSON(t)
	case out != "":
		return a.Show(t, func(w cli.Table) { w.Row("written to", out) })
	}
	return a.Print([]byte(t.Token + "\n")) // with --quiet too
}

// narrowing is a flag for a caveat.
type narrowing struct {
	flag  string
	head  string // of the caveat, up to its value
	usage string
}

// narrowings returns the caveats that mint and attenuate have flags for; --caveat takes any other.
func narrowings() []narrowing {
	return []narrowing{
		{"aud", "aud = ", "allow only this `service`, such as wallet"},
		{"account", "account = ", "allow only this `account`, or accounts with a prefix*"},
		{"asset", "asset = ", "allow only this `asset`"},
		{"ceiling", "ceiling <= ", "limit one operation to `N` minor units (needs --asset)"},
		{
			"ceiling-daily",
			"ceiling_daily <= ",
			"limit a UTC day to `N` minor units, captures included (needs --asset)",
		},
		{"max-runs", "max_runs <= ", "limit the token to `N` runs"},
		{"epoch", "epoch = ", "allow only this `epoch`"},
		{"signer", "registry.signer = ", "allow approvals only of the signer with this `id`"},
		{"ip", "ip = ", "allow only clients in these networks, as `CIDR,CIDR`"},
		{"nbf", "nbf > ", "not valid before this `time` (RFC 3339)"},
		{"max-bytes", "max_bytes <= ", "limit request bodies to `N` bytes"},
		{"rate", "rate <= ", "limit the rate of requests (`N/s`)"},
	}
}

// caveatFlags holds the flags for caveats and those of --caveat.
type caveatFlags struct {
	values  map[string]*string // by flag
	amnesia bool
	spelled []string
}

func (c *caveatFlags) register(cmd *cobra.Command) {
	c.values = map[string]*string{}
	f := cmd.Flags()
	for _, n := range narrowings() {
		c.values[n.flag] = f.String(n.flag, "", n.usage)
	}
	f.BoolVar(&c.amnesia, "amnesia", false, "valid only on a node in amnesia mode")
	f.StringArrayVar(&c.spelled, "caveat", nil,
		"a `caveat` as written, such as \"ip = 10.0.0.0/8\"; repeat for more")
}

// list returns the caveats in a fixed order.
func (c *caveatFlags) list() []string {
	var out []string
	for _, n := range narrowings() {
		if v := *c.values[n.flag]; v != "" {
			out = append(out, n.head+v)
		}
	}
	if c.amnesia {
		out = append(out, "amnesia = on")
	}
	return append(out, c.spelled...)
}

// holderFlags are the restrictions that mint sends to the node as members and attenuate adds as
// caveats.
type holderFlags struct {
	scopes  []string
	tenant  string
	path    string
	methods []string
	ttl     string
}

func (h *holderFlags) register(cmd *cobra.Command, scope, ttl string) {
	f := cmd.Flags()
	f.StringSliceVar(&h.scopes, "scope", nil, scope)
	f.StringVar(&h.ttl, "ttl", "", ttl)
	f.StringVar(&h.tenant, "tenant", "", "bind the token to this `tenant`")
	f.StringVar(&h.path, "path", "", "allow only this `path`, /p or /p/*")
	f.StringSliceVar(&h.methods, "method", nil, "allow only these `methods`")
}

// list returns the flags as caveats. A time to live begins now.
func (h *holderFlags) list(now time.Time) ([]string, error) {
	var out []string
	add := func(head, value string) {
		if value != "" {
			out = append(out, head+value)
		}
	}
	add("scope = ", strings.Join(h.scopes, ","))
	if h.ttl != "" {
		ttl, err := unit.ParseDuration(h.ttl)
		if err != nil || ttl <= 0 {
			return nil, cli.Usage("--ttl %q: want a time such as 10m or 12h", h.ttl)
		}
		add("exp < ", cli.FormatTime(now.Add(ttl.D())))
	}
	add("tenant = ", h.tenant)
	add("path = ", h.path)
	add("method = ", strings.Join(h.methods, ","))
	return out, nil
}
