package index

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	indexapi "ronbox/httpapi/wire/index"
)

// app is the command's App with the verbs of this package.
type app struct{ *cli.App }

// online returns the RunE of a verb that calls the node.
func (a app) online(run func(ctx context.Context, c indexapi.Client, args []string) error) cli.RunE {
	return cli.Online(a.App, indexapi.NewClient, run)
}

// Command returns the command group of the index.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	return cli.Group("index", "Look up and publish names and providers",
		a.resolveCmd(), a.providersCmd(),
		a.putCmd(), a.rmCmd(), a.lsCmd(), a.announceCmd(), a.withdrawCmd(),
		a.peersCmd(), a.reindexCmd(), a.cidCmd(), a.identityCmd(),
	)
}

func (a app) resolveCmd() *cobra.Command {
	var fresh bool
	cmd := &cobra.Command{
		Use:   "resolve KEY",
		Short: "Show the manifest of a name or a content id",
		Long: `Show the manifest of a key: name:docs.example, a version such as name:docs.example@1.2.0,
b3:… or the text of a CID. If this node does not know the key, it asks its peers. source
is the origin of the answer: local, cache, peer, or stale if no peer answered and the
last known answer is shown.`,
		Example: `  ronbox index resolve name:docs.example
  ronbox index resolve name:docs.example@1.2.0 --fresh --json | jq -r .manifest`,
		Args: cli.Exactly(1, "one key"),
	}
	cmd.Flags().BoolVar(&fresh, "fresh", false, "ask the peers even if the answer is known")
	cmd.RunE = a.online(func(ctx context.Context, c indexapi.Client, args []string) error {
		r, err := c.Resolve(ctx, args[0], fresh)
		if err != nil {
			return err
		}
		return a.Show(r, func(t cli.Table) {
			t.Row("key", r.Key)
			t.Row("manifest", r.Manifest)
			t.Row("source", r.Source)
			t.Row("age", time.Duration(r.Age)*time.Second)
			if r.Conflict != "" {
				t.Row("conflict", r.Conflict+" by another trusted key")
			}
		})
	})
	return cmd
}

func (a app) providersCmd() *cobra.Command {
	var q indexapi.ProvidersQuery
	cmd := &cobra.Command{
		Use:   "providers CID",
		Short: "Show the providers of a content id, the best first",
		Long: `Show the providers of a content id, given as b3:… or as the text of a CID: those near a
region first, then the most recent. A valid signature means that the provider has signed
the record itself; it does not prove that it serves the content.`,
		Example: `  ronbox index providers b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262
  ronbox index providers bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi --region eu-west-3 --json`,
		Args: cli.Exactly(1, "one content id"),
	}
	f := cmd.Flags()
	f.StringVar(&q.Region, "region", "", "list providers near this `region` first")
	f.IntVar(&q.Limit, "limit", 0, "at most `N` providers, 1 to 32 (default 5)")
	f.BoolVar(&q.Fresh, "fresh", false, "ask the peers even if the answer is known")
	cmd.RunE = a.online(func(ctx context.Context, c indexapi.Client, args []string) error {
		q.CID = args[0]
		p, err := c.Providers(ctx, q)
		if err != nil {
			return err
		}
		return a.Show(p, func(t cli.Table) { providersTable(t, p) })
	})
	return cmd
}

func providersTable(t cli.Table, p indexapi.Providers) {
	t.Row("PEER", "REGION", "SIGNATURE", "EXPIRES", "ADDRESSES")
	for _, one := range p.Providers {
		t.Row(one.Peer, one.Region, signature(one), cli.FormatTime(one.Expires()), strings.Join(one.Addrs, " "))
	}
	if p.Source == "stale" {
		t.Row("stale: no peer answered, this is the last known answer")
	}
}

// signature describes the signature of a record.
func signature(p indexapi.Provider) string {
	if p.Valid {
		return "valid"
	}
	return "none"
}

func (a app) peersCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "peers",
		Short: "Show the peers of the node and their state",
		Long: `Show the peers of the node with the state of their circuit breakers: those of index.peers
and, with fleet.enabled, the nodes of the registry. A peer with a closed breaker is
asked; with an open one it is not, until the cooldown ends; with a half_open one it gets
a few probes. A peer of index.peers that answers 401 or 403 needs a token:
index.peer_tokens names the file that holds it.`,
		Example: `  ronbox index peers
  ronbox index peers --json | jq -r '.peers[] | select(.state != "closed").target'`,
		RunE: cli.Ask(a.App, indexapi.NewClient, indexapi.Client.Peers, peersTable),
	}
}

// peersTable shows the peers. Their nodes are shown if the registry names one.
func peersTable(t cli.Table, l indexapi.PeerList) {
	if len(l.Peers) == 0 {
		t.Row("index.peers is empty: this node has no peers")
		return
	}
	if !slices.ContainsFunc(l.Peers, func(p indexapi.PeerState) bool { return p.Node != "" }) {
		t.Row("TARGET", "REGION", "BREAKER", "ASKED", "FAILED", "LAST FAILURE")
		for _, p := range l.Peers {
			t.Row(p.Target, p.Region, p.State, p.Asked, p.Failed, p.LastError)
		}
		return
	}
	t.Row("TARGET", "NODE", "REGION", "BREAKER", "ASKED", "FAILED", "LAST FAILURE")
	for _, p := range l.Peers {
		t.Row(p.Target, cmp.Or(p.Node, "-"), cmp.Or(p.Region, "-"), p.State, p.Asked, p.Failed, p.LastError)
	}
}

func (a app) identityCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "identity",
		Short: "Show the id and the public key of this node",
		Long: `Show the peer id with which this node announces contents, and the public key with which
it signs names. Another node accepts its names if its index.trust lists the key with a
suffix of them: index.trust = ["example=KEY"].`,
		Example: `  ronbox index identity
  ronbox index identity --json | jq -r .key`,
		RunE: cli.Ask(a.App, indexapi.NewClient, indexapi.Client.Identity, func(t cli.Table, id indexapi.NodeIdentity) {
			t.Row("peer", id.Peer)
			t.Row("key", id.Key)
		}),
	}
}
