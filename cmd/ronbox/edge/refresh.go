package edge

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	edgeapi "ronbox/httpapi/wire/edge"
)

// refreshPage is the number of URLs that are listed with one request, the most that a node gives.
const refreshPage = 1000

func (a app) refreshCmd() *cobra.Command {
	var pinned bool
	var older string
	cmd := &cobra.Command{
		Use:   "refresh [PREFIX]",
		Short: "Ask the hosts of stored URLs whether they have changed",
		Long: `Ask the hosts of the stored URLs that begin with PREFIX, such as
https://cdn.example/fonts/, whether their objects have changed, and fetch those that
have. An object that has not changed is not sent again if its host gave a tag. Eight
URLs are asked for at a time. A URL that its host no longer has is removed unless it is
pinned.

In live mode a request for a stale object does the same for its URL. This command is
for a node that is online now and then. Exit 21: some URLs failed; they stay stored.`,
		Example: `  ronbox edge refresh
  ronbox edge refresh https://cdn.example/ --pinned --older 7d`,
		Args: cli.AtMost(1, "one prefix"),
	}
	cmd.Flags().BoolVar(&pinned, "pinned", false, "only pinned URLs")
	cmd.Flags().StringVar(&older, "older", "0s",
		"only URLs whose host was not asked for this `TIME`, such as 24h or 7d")
	cmd.RunE = a.online(fillTimeout, func(ctx context.Context, c edgeapi.Client, args []string) error {
		least, err := unit.ParseDuration(older)
		if err != nil {
			return cli.Usage("--older: %s", err)
		}
		todo, err := staleKeys(ctx, c, strings.Join(args, ""), pinned, time.Now().Add(-least.D()))
		if err != nil {
			return err
		}
		return a.fillAll(ctx, c, todo, cli.ExitSomeRefused)
	})
	return cmd
}

// staleKeys lists the URLs of hosts that were last asked for before a time.
func staleKeys(
	ctx context.Context,
	c edgeapi.Client,
	prefix string,
	pinned bool,
	before time.Time,
) (todo []edgeapi.Fill, err error) {
	for after := ""; ; {
		page, err := c.EdgeKeys(ctx, prefix, after, refreshPage, pinned)
		if err != nil {
			return nil, err
		}
		for _, k := range page.Keys {
			if strings.HasPrefix(k.Key, "https://") && k.Checked.Before(before) {
				todo = append(todo, edgeapi.Fill{URL: k.Key, Refresh: true, NoPin: true})
			}
		}
		if after = page.Next; after == "" {
			return todo, nil
		}
	}
}
