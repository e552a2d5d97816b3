package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

func (a *app) registryCmd() *cobra.Command {
	return group("registry", "Sign, change, read and check the registry",
		a.applyCmd(),
		a.headCmd(), a.getCmd(), a.diffCmd(), a.streamCmd(), a.signersCmd(),
		a.proposeCmd(), a.approveCmd(), a.commitCmd(), a.withdrawCmd(), a.proposalsCmd(),
		a.keygenCmd(), a.signCmd(), a.genesisCmd(), a.registryInitCmd(), a.registryVerifyCmd(),
	)
}

// online is a verb that asks the node.
func (a *app) online(run func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return a.verb(func(ctx context.Context, args []string) error {
		c, err := a.node()
		if err != nil {
			return err
		}
		defer c.Close()
		return run(ctx, c, args)
	})
}

func (a *app) headCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "head",
		Short: "Show where the log stands",
		Long: `Show where the log stands: the version in force, the hash of its payload (what signers
signed) and of its log entry (what covers the whole log before it). 0: no genesis yet.`,
		Example: `  ronbox registry head
  ronbox --url http://node:8080 registry head --json | jq -r .payload_b3`,
		Args: exactly(0, "no arguments"),
		RunE: a.online(func(ctx context.Context, c *client.Client, _ []string) error {
			h, err := c.Head(ctx)
			if err != nil {
				return err
			}
			return a.show(h, func(t table) { headTable(t, h) })
		}),
	}
}

func headTable(t table, h wire.Head) {
	if h.Version == 0 {
		t.row("the log has no genesis: `ronbox registry genesis` and `registry init` make one")
		return
	}
	t.row("version", h.Version)
	t.row("payload", h.PayloadB3)
	t.row("hash", h.Hash)
	t.row("committed", h.CommittedAt)
	t.row("signer epoch", h.Epoch)
	t.row("incarnation", h.Incarnation)
}

func (a *app) getCmd() *cobra.Command {
	var payload, entry, noItems bool
	cmd := &cobra.Command{
		Use: "get N",
		Example: `  ronbox registry get 9 --json | jq '.items | length'
  ronbox registry get 9 --payload | b3sum`,
		Short: "Show version N, or the exact bytes that were signed or logged",
		Long: `Show version N: what it is, who approved it, every descriptor in force after it. With
--payload or --entry the exact bytes that were signed or logged come out, to be hashed.`,
		Args: exactly(1, "one version"),
	}
	f := cmd.Flags()
	f.BoolVar(&payload, "payload", false, "print the signed bytes, nothing else")
	f.BoolVar(&entry, "entry", false, "print the bytes of the log entry, nothing else")
	f.BoolVar(&noItems, "no-items", false, "leave the descriptors out")
	cmd.MarkFlagsMutuallyExclusive("payload", "entry", "no-items")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		v, err := versionArg(args[0])
		if err != nil {
			return err
		}
		switch {
		case payload:
			return a.bytesOf(c.Payload(ctx, v))
		case entry:
			return a.bytesOf(c.Entry(ctx, v))
		}
		doc, err := c.Version(ctx, v, !noItems)
		if err != nil {
			return err
		}
		return a.show(doc, func(t table) { versionTable(t, doc) })
	})
	return cmd
}

func versionTable(t table, v wire.Version) {
	t.row("version", v.Version)
	t.row("kind", v.Kind)
	t.row("payload", v.PayloadB3)
	t.row("hash", v.Hash)
	t.row("previous", v.PrevHash)
	t.row("items root", v.ItemsRoot)
	t.row("committed", v.CommittedAt)
	t.row("signer epoch", v.Epoch)
	for _, ap := range v.Approvals {
		t.row("approved by", ap.SignerID+" at "+ap.SignedAt)
	}
	if len(v.Items) > 0 {
		t.row("items", len(v.Items))
	}
	for _, it := range v.Items {
		t.row("", string(it))
	}
}

func (a *app) bytesOf(raw []byte, err error) error {
	if err != nil {
		return err
	}
	return a.raw(raw)
}

func (a *app) diffCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "diff FROM TO",
		Example: `  ronbox registry diff 2 3`,
		Short:   "Show what leads from one version to another",
		Long: `Show what leads from version FROM to version TO: descriptors put (the new text) and
removed (the id). The other way round it shows what would lead back.`,
		Args: exactly(2, "two versions"),
		RunE: a.online(func(ctx context.Context, c *client.Client, args []string) error {
			from, err := versionArg(args[0])
			if err != nil {
				return err
			}
			to, err := versionArg(args[1])
			if err != nil {
				return err
			}
			d, err := c.Diff(ctx, from, to)
			if err != nil {
				return err
			}
			return a.show(d, func(t table) {
				for _, p := range d.Put {
					t.row("+ " + string(p))
				}
				for _, id := range d.Remove {
					t.row("- " + id)
				}
				t.row(decimal(uint64(len(d.Put))) + " put, " + decimal(uint64(len(d.Remove))) + " removed")
			})
		}),
	}
}

func (a *app) signersCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "signers [EPOCH]",
		Short: "Show who may sign, now or in an epoch",
		Long: `Show who may sign, now or in an epoch: a genesis or a change of signers begins one. How
many of them must approve a version, and how many a change of signers, stands above.`,
		Example: `  ronbox registry signers
  ronbox registry signers 1 --json`,
		Args: atMost(1, "at most one epoch"),
		RunE: a.online(func(ctx context.Context, c *client.Client, args []string) error {
			var epoch uint64
			if len(args) == 1 {
				var err error
				if epoch, err = versionArg(args[0]); err != nil {
					return err
				}
			}
			s, err := c.Signers(ctx, epoch)
			if err != nil {
				return err
			}
			set, err := parseSignerSet(s.SignerSet)
			if err != nil {
				return err
			}
			return a.show(s, func(t table) {
				t.row("epoch", s.Epoch)
				t.row("since version", s.Version)
				t.row("threshold", decimal(uint64(set.Threshold))+", for governance "+decimal(uint64(set.ThresholdGov)))
				for _, m := range set.Signers {
					t.row(m.Status, m.ID+"  "+m.PublicKey)
				}
			})
		}),
	}
}

// versionArg parses a version or an epoch: a whole number from 1.
func versionArg(s string) (uint64, error) {
	v, err := strconv.ParseUint(s, 10, 53)
	if err != nil || v == 0 || strings.HasPrefix(s, "0") {
		return 0, usage("%q is no version: want 1, 2, 3 …", s)
	}
	return v, nil
}

func decimal(v uint64) string { return strconv.FormatUint(v, 10) }
