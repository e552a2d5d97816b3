package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

func (a *app) keyCmd() *cobra.Command {
	return group("key", "Look after the root keys that tokens are made with", a.keyListCmd(), a.keyRotateCmd(), a.keyRetireCmd())
}

func (a *app) keyListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the root keys of tokens: the active one, those that still verify, those retired",
		Long: `List the root keys of tokens. The active one makes new tokens; a key before it goes on
verifying until its last token has expired, and is retired then. Keys are derived from
node.key and an id; they are stored nowhere and shown nowhere.`,
		Example: `  ronbox key list
  ronbox key list --json | jq -r .active`,
		Args: exactly(0, "no arguments"),
		RunE: a.online(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.Keys(ctx)
			if err != nil {
				return err
			}
			return a.show(list, func(t table) {
				t.row("KEY", "STATE", "MADE", "NEXT")
				for _, k := range list.Keys {
					t.row(k.Kid, k.State, utc(k.CreatedAt), keyNext(k))
				}
			})
		}),
	}
}

// keyNext says what becomes of a key, and when.
func keyNext(k wire.KeyInfo) string {
	switch {
	case !k.RotateAt.IsZero():
		return "rotates " + utc(k.RotateAt)
	case !k.VerifyUntil.IsZero():
		return "verifies until " + utc(k.VerifyUntil)
	}
	return "-"
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (a *app) keyRotateCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rotate",
		Short: "Make a new root key for tokens from now on; those made before stay good until they expire",
		Long: `Make a new root key for the tokens from now on. The key before it goes on verifying
until its last token has expired. The node does this by itself every auth.rotate (30
days); by hand it is for when a key should not be used any longer. To void the old
tokens at once, retire their key.`,
		Example: `  ronbox key rotate
  ronbox key rotate --json`,
		Args: exactly(0, "no arguments"),
		RunE: a.online(func(ctx context.Context, c *client.Client, _ []string) error {
			k, err := c.RotateKey(ctx)
			if err != nil {
				return err
			}
			return a.show(k, func(t table) { keyTable(t, k) })
		}),
	}
}

func keyTable(t table, k wire.KeyInfo) {
	t.row("key", k.Kid)
	t.row("state", k.State)
	t.row("made", utc(k.CreatedAt))
	if next := keyNext(k); next != "-" {
		t.row("next", next)
	}
}

func (a *app) keyRetireCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "retire KID",
		Short: "Retire a root key at once: every token made with it is void",
		Long: `Retire a root key at once: every token made with it is void, from this moment and for
good. The active key cannot be retired; rotate first.`,
		Example: `  ronbox key rotate && ronbox key retire 01JD3V9T5E8Q2X7RZ4M6K0ABCD
  ronbox key retire 01JD3V9T5E8Q2X7RZ4M6K0ABCD --yes --json`,
		Args: exactly(1, "one key id"),
		RunE: a.online(func(ctx context.Context, c *client.Client, args []string) error {
			if err := a.confirm("retire root key "+args[0]+" and void every token made with it", args[0]); err != nil {
				return err
			}
			k, err := c.RetireKey(ctx, args[0])
			if err != nil {
				return err
			}
			return a.show(k, func(t table) { keyTable(t, k) })
		}),
	}
}
