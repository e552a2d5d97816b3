package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/edge"
	edgeapi "ronbox/httpapi/edge"
	"ronbox/httpapi/wire"
)

// app is the run of the command with the verbs of this package.
type app struct{ *cli.App }

// online makes RunE of a verb that asks the node, and waits for an answer as long as the node may take unless --timeout says otherwise.
func (a app) online(within time.Duration, run func(ctx context.Context, c edgeapi.Client, args []string) error) cli.RunE {
	return func(cmd *cobra.Command, args []string) error {
		a.Flags.Timeout = cmp.Or(a.Flags.Timeout, within)
		return cli.Online(a.App, edgeapi.NewClient, run)(cmd, args)
	}
}

// Command is the group of verbs of the edge.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	a.Advise(hint)
	return cli.Group("edge", "Serve maps and assets, fetch them, and check packs", a.packsCmd(), a.fillCmd(), a.verifyStoredCmd())
}

// hint refines the outcome of refusals of the edge.
func hint(err error, o *cli.Outcome) {
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.Service == "edge" && p.Reason == string(edge.NotAllowed) {
		o.Code, o.Next = cli.ExitFailed, `name the host in edge.allow, with edge.mode = "live"; edge.allow_private opens networks that are not public`
	}
}

func (a app) packsCmd() *cobra.Command {
	const usual = 0
	list := a.online(usual, func(ctx context.Context, c edgeapi.Client, _ []string) error { return a.showPacks(c.Catalog(ctx)) })
	cmd := cli.Group("packs", "List the packs of a node; verbs below take up new ones and check files",
		&cobra.Command{
			Use:   "rescan",
			Short: "Take up what has changed in the folder of packs",
			Long: `Take up what has changed in the folder of packs: files that are new, replaced or gone.
One that takes long to verify is shown as verifying. Replace a pack by renaming the new
file over the old one.`,
			Example: `  cp world.pmtiles data/packs/ && ronbox edge packs rescan`,
			RunE:    a.online(usual, func(ctx context.Context, c edgeapi.Client, _ []string) error { return a.showPacks(c.Rescan(ctx)) }),
		},
		a.verifyCmd())
	cmd.Long = `List the packs of a node: the files in its folder of packs, each with its state, its zooms,
the number of its tiles and the BLAKE3 of the file.`
	cmd.Example = `  ronbox edge packs
  ronbox edge packs --json | jq -r '.[] | select(.state != "verified") | .id'`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cli.GroupHelp(cmd, args)
		}
		return list(cmd, args)
	}
	return cmd
}

// showPacks prints the packs of a node.
func (a app) showPacks(all edgeapi.Catalog, err error) error {
	if err != nil {
		return err
	}
	return a.Show(all.Packs, func(t cli.Table) {
		if len(all.Packs) == 0 {
			t.Row("no packs: put *.pmtiles and *.mbtiles files into the node's folder of packs, then `ronbox edge packs rescan`")
		}
		for _, p := range all.Packs {
			t.Row(p.ID, p.Kind, fmt.Sprintf("zoom %d to %d", p.MinZoom, p.MaxZoom), fmt.Sprint(p.Tiles, " tiles"), p.State, cmp.Or(p.Fault, cli.ShortHash(p.ETag)))
		}
	})
}

func (a app) verifyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify FILE…",
		Short: "Check pack files: every directory, every offset, every row",
		Long: `Check pack files: every directory, every offset, every row, and the BLAKE3 of the whole.
No node is needed.

Exit 0: all are sound. Exit 3: one is not; each fault is printed.`,
		Example: `  ronbox edge packs verify world.pmtiles`,
		Args:    cli.AtLeast(1, "at least one file"),
	}
	cmd.RunE = a.Verb(func(ctx context.Context, files []string) error {
		all, bad := make([]edgeapi.Pack, len(files)), ""
		for i, file := range files {
			p := a.Progress(cli.Bytes, "verify "+file)
			found, err := edge.VerifyPack(ctx, file, p.At)
			p.End()
			if err != nil {
				return err
			}
			if all[i] = edgeapi.PackOf(found.Info); len(found.Faults) > 0 {
				all[i].Fault, bad = strings.Join(found.Faults, "\n"), file
			}
		}
		err := a.Show(all, func(t cli.Table) {
			for i, p := range all {
				t.Row(files[i], map[bool]string{true: "sound", false: "BAD"}[p.Fault == ""], fmt.Sprint(p.Tiles, " tiles"), cmp.Or(p.Fault, cli.ShortHash(p.ETag)))
			}
		})
		if err != nil || bad == "" {
			return err
		}
		return a.FoundBad(bad, "")
	})
	return cmd
}
