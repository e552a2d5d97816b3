package main

import (
	"context"

	"github.com/spf13/cobra"

	"ronbox/httpapi/auth"
)

type attenuateFlags struct {
	holderFlags
	caveatFlags
	out string
}

func (a *app) tokenAttenuateCmd() *cobra.Command {
	var f attenuateFlags
	cmd := &cobra.Command{
		Use:   "attenuate [FILE|-]",
		Short: "Narrow a token, here and without a key, before it is handed on",
		Long: `Narrow a token, here and without a key or a node: the result allows what the token
allowed and what the flags name, nothing more. Nobody can take a caveat off again. The
narrowed token keeps the id of the one it was made of, so to revoke one revokes both.

The token is read from FILE, from --token-file, or from stdin for "-".`,
		Example: `  ronbox token attenuate ci.token --scope registry.propose --ttl 10m --out step.token
  ronbox token attenuate --token-file ci.token --ip 192.0.2.7/32 --json
  pass show ronbox/ci | ronbox token attenuate - --method GET`,
		Args: atMost(1, "at most one file"),
	}
	f.holderFlags.register(cmd, "what is left of what the token allows", "how much longer it lives, from now, such as 10m")
	f.caveatFlags.register(cmd)
	cmd.Flags().StringVar(&f.out, "out", "", "write the token to this new `file`")
	cmd.RunE = a.verb(func(_ context.Context, args []string) error { return a.attenuate(args, f) })
	return cmd
}

func (a *app) attenuate(args []string, f attenuateFlags) error {
	token, err := a.tokenArgument(args, exitFailed)
	if err != nil {
		return err
	}
	caveats, err := f.holderFlags.list(a.now())
	if err != nil {
		return err
	}
	if caveats = append(caveats, f.caveatFlags.list()...); len(caveats) == 0 {
		return usage("nothing to narrow the token to: give --scope, --ttl, --caveat …")
	}
	narrowed, err := auth.Attenuate(token, caveats...)
	if err != nil {
		return failed(exitFailed, "malformed", "`ronbox token inspect` shows what a token says", "%w", err)
	}
	seen, err := auth.Inspect(narrowed)
	if err != nil {
		return failed(exitInternal, "internal", "", "the narrowed token cannot be read: %w", err)
	}
	return a.handOut(f.out, func() (newToken, error) {
		return newToken{Token: narrowed, TID: seen.TID, ExpiresAt: seen.ExpiresAt}, nil
	})
}
