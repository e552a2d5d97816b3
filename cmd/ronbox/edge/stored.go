package edge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/edge/asset"
	edgeapi "ronbox/httpapi/wire/edge"
)

func (a app) lsCmd() *cobra.Command {
	var after string
	var limit int
	var pinned bool
	cmd := &cobra.Command{
		Use:   "list [PREFIX]",
		Short: "List the stored URLs",
		Long: `List the stored URLs that begin with PREFIX, such as https://cdn.example/fonts/, in
order, a page at a time. USED is the last use, to ten minutes. A URL is MISSING if its
file was damaged or does not exist, as after a restore; if edge.mode is "live", the
next request for it fetches it again.

URLs are printed whole, because pin, unpin and rm need them, and so the token needs
the scope edge.keep. The query of a signed URL is a credential: log lines of the node
leave it out, and this output should not be published.`,
		Example: `  ronbox edge list
  ronbox edge list https://cdn.example/ --pinned --limit 1000 --json | jq -r '.keys[].key'`,
		Args: cli.AtMost(1, "one prefix"),
	}
	cmd.Flags().StringVar(&after, "after", "", "list the URLs after this `URL`, the last one of a page")
	cmd.Flags().IntVar(&limit, "limit", 100, "largest `number` of URLs, 1 to 1000")
	cmd.Flags().BoolVar(&pinned, "pinned", false, "list only pinned URLs")
	const usual = 0
	cmd.RunE = a.online(usual, func(ctx context.Context, c edgeapi.Client, args []string) error {
		l, err := c.EdgeKeys(ctx, strings.Join(args, ""), after, limit, pinned)
		if err != nil {
			return err
		}
		return a.Show(l, func(t cli.Table) { keyTable(t, l) })
	})
	return cmd
}

func keyTable(t cli.Table, l edgeapi.StoredList) {
	if len(l.Keys) == 0 && l.Next == "" {
		t.Row("no such URL is stored")
		return
	}
	t.Row("KEY", "SIZE", "B3", "PINNED", "USED", "FETCHED")
	for _, k := range l.Keys {
		used := when(k.Used)
		if k.Missing {
			used = "MISSING"
		}
		pinned := map[bool]string{true: "yes", false: "-"}[k.Pinned]
		t.Row(k.Key, cli.Bytes(k.Size), cli.ShortHash(k.B3), pinned, used, when(k.Fetched))
	}
	if l.Next != "" {
		t.Row("more: --after " + l.Next)
	}
}

// when formats a time to the second, or returns "-" for the zero time.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return cli.FormatTime(t)
}

func (a app) storeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "store",
		Short: "Show how full the content store is",
		Long: `Show how full the content store is: the bytes of its objects and of those with pinned
URLs, what may still be stored before older objects are evicted, and how many URLs were
evicted since the node started.`,
		Example: `  ronbox edge store --json | jq .free_bytes`,
		RunE:    cli.Ask(a.App, edgeapi.NewClient, edgeapi.Client.EdgeStore, storeTable),
	}
}

func storeTable(t cli.Table, s edgeapi.Store) {
	t.Rows("used", cli.Bytes(s.Bytes)+" of "+cli.Bytes(s.MaxBytes), "free", cli.Bytes(s.Free),
		"pinned", cli.Bytes(s.Pinned)+" of "+cli.Bytes(s.MaxPinned))
	t.Rows("objects", s.Objects, "urls", s.URLs, "pins", s.Pins, "evicted urls", s.Evictions)
}

func (a app) pinCmd() *cobra.Command {
	return a.keepCmd(asset.Pin, &cobra.Command{
		Use:   "pin URL…",
		Short: "Pin stored URLs, so that they are not evicted",
		Long: `Pin stored URLs, so that they are not evicted. A pin lasts through restarts, snapshots
and restores, until ` + "`ronbox edge unpin`" + ` or ` + "`ronbox edge remove`" + `. ` + "`ronbox edge fill`" + ` pins
the URLs that it fetches. A refresh keeps the pin unless the object has grown beyond
the limit below. An object that was put is named by its b3:….

The limit of all pinned objects is edge.cas.max_pinned, by default half of
edge.cas.max_bytes. A request beyond it is refused and pins none of its URLs, at most
256.
Exit 1: a URL is not stored; it is printed, and the others are pinned.`,
		Example: "  ronbox edge pin https://cdn.example/fonts/a.woff2",
	})
}

func (a app) unpinCmd() *cobra.Command {
	return a.keepCmd(asset.Unpin, &cobra.Command{
		Use:   "unpin URL…",
		Short: "Unpin URLs, so that they may be evicted",
		Long: `Unpin URLs. They are evicted when the node needs room and they are the least recently
used.
Exit 1: a URL is not stored; it is printed, and the others are unpinned.`,
		Example: "  ronbox edge unpin https://old.example/fonts/a.woff2\n" +
			"  ronbox edge list https://old.example/ --pinned --json | jq -r '.keys[].key' | xargs ronbox edge unpin",
	})
}

func (a app) rmCmd() *cobra.Command {
	return a.keepCmd(asset.Remove, &cobra.Command{
		Use:   "remove URL…",
		Short: "Remove URLs and their objects",
		Long: `Remove URLs, including pinned ones. An object is removed with its last URL. In live
mode the next request for a removed URL fetches it again. An object that was put is
named by its b3:….
Exit 1: a URL is not stored; it is printed, and the others are removed.`,
		Example: "  ronbox edge remove https://cdn.example/fonts/a.woff2",
	})
}

// keepCmd completes cmd as the verb of an action.
func (a app) keepCmd(do asset.Action, cmd *cobra.Command) *cobra.Command {
	cmd.Args = cli.AtLeast(1, "one URL or more")
	const usual = 0
	cmd.RunE = a.online(usual, func(ctx context.Context, c edgeapi.Client, urls []string) error {
		sum := edgeapi.Kept{Changed: []string{}, Missing: []string{}}
		for part := range slices.Chunk(urls, asset.MaxKeep) {
			k, err := c.EdgeKeep(ctx, do, part)
			if err != nil {
				return err
			}
			sum.Changed, sum.Missing = append(sum.Changed, k.Changed...), append(sum.Missing, k.Missing...)
			sum.Freed += k.Freed
		}
		if len(sum.Missing) > 0 {
			a.Exit = cli.ExitFailed
		}
		return a.Show(sum, func(t cli.Table) {
			for _, url := range sum.Missing {
				t.Row("NOT STORED", url)
			}
			past := map[asset.Action]string{asset.Pin: "pinned", asset.Unpin: "unpinned", asset.Remove: "removed"}[do]
			line := fmt.Sprintf("%d %s", len(sum.Changed), past)
			if do == asset.Remove {
				line += ", " + cli.Bytes(sum.Freed) + " freed"
			}
			t.Row(line)
		})
	})
	return cmd
}

// verifyDoc is the output of edge verify.
type verifyDoc struct {
	edgeapi.Verified
	Found []edgeapi.Finding `json:"found"`
}

func (a app) verifyStoredCmd() *cobra.Command {
	var in edgeapi.Verify
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read every stored object and pack, and report damage",
		Long: `Read every stored object and pack, and report damage: files that are missing, and
files whose bytes do not match their hash. The node itself does the same every
edge.scrub.every.

A damaged object is set aside when it is next requested. With --fix it is set aside at
once, and fetched again if edge.mode is "live" and edge.allow names its host. A
damaged pack is not served; replace its file.

Exit 0: everything is sound. Exit 3: damage was found, even if it was fixed; it is
printed.`,
		Example: `  ronbox edge verify
  ronbox edge verify --fix --json | jq -r '.found[].name'`,
	}
	cmd.Flags().BoolVar(&in.Fix, "fix", false, "set damaged objects aside, and fetch them again if that is allowed")
	cmd.RunE = a.online(time.Hour, func(ctx context.Context, c edgeapi.Client, _ []string) error {
		p := a.Progress(cli.Bytes, "verify")
		found, sum, err := c.Verify(ctx, in, p.At)
		p.End()
		if err != nil {
			return err
		}
		return a.showVerified(verifyDoc{sum, append([]edgeapi.Finding{}, found...)})
	})
	return cmd
}

// showVerified prints the findings and the totals.
func (a app) showVerified(doc verifyDoc) error {
	err := a.Show(doc, func(t cli.Table) {
		for _, f := range doc.Found {
			t.Row(cli.Bad("BAD"), f.Kind, f.Name, f.Fault, f.Done, f.URL)
		}
		t.Row(fmt.Sprintf("%d objects of %s and %d packs read, %d damaged",
			doc.Objects, cli.Bytes(doc.Bytes), doc.Packs, doc.Bad))
	})
	if err != nil || doc.Bad == 0 {
		return err
	}
	return a.FoundBad(doc.Found[0].Kind+" "+doc.Found[0].Name+": "+doc.Found[0].Fault, "")
}
