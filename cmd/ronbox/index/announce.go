package index

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/index/name"
	indexapi "ronbox/httpapi/wire/index"
)

func (a app) announceCmd() *cobra.Command {
	var file string
	var one indexapi.Announcement
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "announce CID --addr ADDR | announce -f FILE --addr ADDR",
		Short: "Announce that this node provides a content id",
		Long: `Announce that this node provides a content id, given as b3:… or as the text of a CID, at
libp2p addresses such as /dns4/node.example/tcp/443/https. The node signs the record,
which expires after --ttl: announce it again before that. A file has one content id per
line; - is stdin.`,
		Example: `  ronbox index announce b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262 \
    --addr /ip4/192.0.2.7/tcp/4001 --ttl 12h --region eu-west-3
  ronbox index announce -f contents.txt --addr /dns4/node.example/tcp/443/https`,
		Args: cli.AtMost(1, "one content id"),
	}
	f := cmd.Flags()
	f.StringVarP(&file, "file", "f", "", "announce each line of a `file`")
	f.StringArrayVar(&one.Addrs, "addr", nil, "`address` that provides it; may be repeated up to 16 times")
	f.DurationVar(&ttl, "ttl", 0, "lifetime of the record, a `TIME` from 1m to 48h (default 24h)")
	f.StringVar(&one.Region, "region", "", "`region` of the provider")
	cli.Require(cmd, "addr")
	cmd.RunE = a.online(func(ctx context.Context, c indexapi.Client, args []string) error {
		if (file == "") != (len(args) == 1) {
			return cli.Usage("want a content id, or a file of them with -f")
		}
		if ttl < 0 || ttl%time.Second != 0 {
			return cli.Usage("--ttl %s: want whole seconds", ttl)
		}
		one.TTL = uint64(ttl / time.Second)
		if file != "" {
			return a.eachLine(ctx, file, 1, "announce", func(ctx context.Context, f []string) error {
				_, err := announce(ctx, c, one, f[0])
				return err
			})
		}
		r, err := announce(ctx, c, one, args[0])
		if err != nil {
			return err
		}
		return a.Show(r, func(t cli.Table) {
			t.Row("content", r.CID)
			t.Row("peer", r.Peer)
			t.Row("expires", cli.FormatTime(time.UnixMilli(r.ExpiresMS)))
		})
	})
	return cmd
}

// announce sends one record and returns an error if it is refused.
func announce(
	ctx context.Context,
	c indexapi.Client,
	one indexapi.Announcement,
	cid string,
) (r indexapi.AnnounceResult, err error) {
	one.CID = cid
	all, err := c.Announce(ctx, []indexapi.Announcement{one})
	if err != nil {
		return r, err
	}
	if len(all.Results) != 1 {
		return r, fmt.Errorf("the node returned %d results for one record", len(all.Results))
	}
	r = all.Results[0]
	if !r.Accepted {
		return r, cli.Fail(cli.ExitFailed, "refused", "correct the named fault, then run the command "+
			"again", "%s: %s", cid,
			r.Reason)
	}
	return r, nil
}

func (a app) withdrawCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "withdraw CID",
		Short: "Withdraw the announcement of a content id",
		Long: `Withdraw this node's announcement of a content id. Peers that have looked it up forget it
when their cache entry expires.`,
		Example: `  ronbox index withdraw b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262`,
		Args:    cli.Exactly(1, "one content id"),
		RunE: a.online(func(ctx context.Context, c indexapi.Client, args []string) error {
			if err := c.Withdraw(ctx, args[0]); err != nil {
				return err
			}
			type withdrawn struct {
				CID string `json:"cid"`
			}
			return a.Show(withdrawn{args[0]}, func(t cli.Table) { t.Row("withdrawn", args[0]) })
		}),
	}
}

func (a app) cidCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "cid ID…",
		Short: "Convert between b3:… and the text of a CID",
		Long: `Convert content ids, given as b3:… or as the text of a CID in any multibase, to both
forms. It needs no node. Only BLAKE3 hashes of 32 bytes have a b3: form.`,
		Example: `  ronbox index cid b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262
  ronbox index cid bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi --json | jq -r .ids[0].b3`,
		Args: cli.AtLeast(1, "at least one content id"),
		RunE: func(_ *cobra.Command, args []string) error { return a.convert(args) },
	}
}

// convert shows ids in both forms.
func (a app) convert(args []string) error {
	type id struct {
		B3  string `json:"b3"`
		CID string `json:"cid"`
	}
	var out struct {
		IDs []id `json:"ids"`
	}
	for _, text := range args {
		c, err := name.ParseCID(text)
		if err != nil {
			return cli.Usage("%q: %w", cli.Clip(text, 80), err)
		}
		out.IDs = append(out.IDs, id{c.String(), name.CIDText(c)})
	}
	return a.Show(out, func(t cli.Table) {
		for _, one := range out.IDs {
			t.Row(one.B3, one.CID)
		}
	})
}
