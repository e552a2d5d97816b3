package edge

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/edge"
	"ronbox/httpapi/client"
	edgeapi "ronbox/httpapi/edge"
)

// listPacks prints the packs of a node.
func (a app) listPacks(all edgeapi.Catalog, err error) error {
	if err != nil {
		return err
	}
	return a.Show(all.Packs, func(t cli.Table) {
		if len(all.Packs) == 0 {
			t.Row("no packs: put *.pmtiles and *.mbtiles files into the node's folder of packs, then `ronbox edge packs rescan`")
		}
		for _, p := range all.Packs {
			state := p.State
			if p.Next != "" {
				state += ", next " + p.Next
			}
			zooms := fmt.Sprintf("zoom %d to %d", p.MinZoom, p.MaxZoom)
			t.Row(p.ID, p.Kind, zooms, fmt.Sprint(p.Tiles, " tiles"), state, cmp.Or(p.Fault, cli.ShortHash(p.ETag)))
		}
	})
}

const (
	settleWait = 15 * time.Second       // a pack of 16 MiB has failed by then, however slow it is
	settlePoll = 250 * time.Millisecond // between two looks at the catalog
)

func (a app) rescanCmd() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "rescan",
		Short: "Take up what has changed in the folder of packs",
		Long: `Take up what has changed in the folder of packs: files that are new, replaced or gone.
A file that replaces a pack is verified first, and the old one serves until then. One that
takes longer than --wait is shown as verifying. Replace a pack by renaming the new file
over the old one.
Exit 0: all are fit, or verifying. Exit 22: one is not; it is named, and the others serve.`,
		Example: `  cp world.pmtiles data/packs/ && ronbox edge packs rescan`,
	}
	cmd.Flags().DurationVar(&wait, "wait", settleWait, "longest `time` to wait until packs are verified")
	cmd.RunE = a.online(0, func(ctx context.Context, c edgeapi.Client, _ []string) error {
		all, err := c.Rescan(ctx)
		end := time.Now().Add(wait)
		for err == nil && slices.ContainsFunc(all.Packs, edgeapi.Pack.Pending) && time.Now().Before(end) {
			if err = client.Sleep(ctx, settlePoll); err == nil {
				all, err = c.Catalog(ctx)
			}
		}
		if err = a.listPacks(all, err); err == nil {
			a.nameUnfit(all.Packs)
		}
		return err
	})
	return cmd
}

// nameUnfit sets the exit code and names the packs with a fault, if there are any.
func (a app) nameUnfit(all []edgeapi.Pack) {
	var unfit []string
	for _, p := range all {
		if p.Fault != "" {
			unfit = append(unfit, p.ID)
		}
	}
	if len(unfit) == 0 {
		return
	}
	a.Exit = cli.ExitFileUnfit
	if !a.Flags.JSON {
		fmt.Fprintf(a.Stderr, "ronbox: files that are not fit: %s\n  replace or remove them, and rescan; sound packs are served\n",
			cli.Plain(strings.Join(unfit, ", ")))
	}
}

func (a app) verifyCmd() *cobra.Command {
	var expect string
	cmd := &cobra.Command{
		Use:   "verify FILE…",
		Short: "Check pack files: every directory, every offset, every row",
		Long: `Check pack files: every directory, every offset, every row, and the BLAKE3 of the whole.
No node is needed.
Exit 0: all are sound. Exit 3: one is not, or has another digest than --expect; each fault
is printed.`,
		Example: `  ronbox edge packs verify world.pmtiles
  ronbox edge packs verify world.pmtiles --expect b3:4487…`,
		Args: cli.AtLeast(1, "at least one file"),
	}
	cmd.Flags().StringVar(&expect, "expect", "", "`b3:…` that the one file must have")
	cmd.RunE = a.Verb(func(ctx context.Context, files []string) error {
		var digest b3.Digest
		if expect != "" {
			var err error
			if digest, err = b3.Parse(expect); err != nil {
				return cli.Usage("--expect %s: %v", cli.Clip(expect, 80), err)
			}
			if digest.IsZero() {
				return cli.Usage("--expect %s: no file has this digest", expect)
			}
			if len(files) > 1 {
				return cli.Usage("--expect is of one file, not of %d", len(files))
			}
		}
		return a.verifyPacks(ctx, files, digest)
	})
	return cmd
}

// verifyPacks verifies files and prints what it finds. expect is the digest of each, zero for any.
func (a app) verifyPacks(ctx context.Context, files []string, expect b3.Digest) error {
	all, bad := make([]edgeapi.Pack, len(files)), ""
	for i, file := range files {
		p := a.Progress(cli.Bytes, "verify "+file)
		found, err := edge.VerifyPack(ctx, file, expect, p.At)
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
			verdict := map[bool]string{true: "sound", false: "BAD"}[p.Fault == ""]
			t.Row(files[i], verdict, fmt.Sprint(p.Tiles, " tiles"), cmp.Or(p.Fault, cli.ShortHash(p.ETag)))
		}
	})
	if err != nil || bad == "" {
		return err
	}
	return a.FoundBad(bad, "")
}
