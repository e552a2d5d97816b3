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
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/pack"
	"ronbox/httpapi/client"
	edgehttp "ronbox/httpapi/edge"
	edgeapi "ronbox/httpapi/wire/edge"
)

// listPacks prints the packs of a node.
func (a app) listPacks(all edgeapi.Catalog, err error) error {
	if err != nil {
		return err
	}
	return a.Show(all.Packs, func(t cli.Table) {
		if len(all.Packs) == 0 {
			t.Row("no packs: copy *.pmtiles and *.mbtiles files to the node's folder of packs, then run " +
				"`ronbox edge packs rescan`")
		}
		for _, p := range all.Packs {
			rowPack(t, p)
		}
	})
}

// rowPack adds the rows of a pack to a table.
func rowPack(t cli.Table, p edgeapi.Pack) {
	zooms := fmt.Sprintf("zoom %d to %d", p.MinZoom, p.MaxZoom)
	tiles := fmt.Sprint(p.Tiles, " tiles")
	t.Row(p.ID, p.Kind, zooms, tiles, packState(p), cmp.Or(p.Fault, cli.ShortHash(p.ETag)))
	for _, w := range p.Warnings {
		t.Row("", "", "", fmt.Sprint(w.Count), w.Code, w.Text)
	}
}

// packState returns the cell of the state of a pack.
func packState(p edgeapi.Pack) any {
	next := ""
	if p.Next != "" {
		next = ", next " + p.Next
	}
	switch {
	case p.Fault != "":
		return cli.Bad(p.State + next)
	case p.State != string(asset.PackVerified):
		return p.State + next
	case len(p.Warnings) > 0:
		return cli.Warn(withWarnings + next)
	}
	return cli.OK(p.State + next)
}

// withWarnings is the verdict on a pack that is served although it has defects.
const withWarnings = "served with warnings"

const (
	settleWait = 15 * time.Second       // enough for a pack of 16 MiB within its default budget
	settlePoll = 250 * time.Millisecond // between two reads of the catalog
)

func (a app) rescanCmd() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "rescan",
		Short: "Scan the folder of packs for changes",
		Long: `Scan the folder of packs for new, replaced and removed files at once. The node also
looks by itself every edge.packs.watch (5s), and opens a new file after two equal looks.
A file that replaces a pack is verified first; the old pack serves until then. A pack
whose verification takes longer than --wait is shown as verifying. To replace a pack,
rename the new file to the old name.
Exit 0: every pack is served, also with warnings, or is verifying. Exit 22: a pack is
refused; it is printed, and the others are served.`,
		Example: `  cp world.pmtiles data/packs/ && ronbox edge packs rescan`,
	}
	cmd.Flags().DurationVar(&wait, "wait", settleWait, "longest `time` to wait for verification")
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

// nameUnfit sets the exit code and prints the packs with a fault, if there are any.
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
		fmt.Fprintf(a.Stderr,
			"ronbox: invalid packs: %s\n  replace or remove their files and rescan; the other packs are served\n",
			cli.Plain(strings.Join(unfit, ", ")))
	}
}

func (a app) verifyCmd() *cobra.Command {
	var expect string
	var strict bool
	cmd := &cobra.Command{
		Use:   "verify FILE…",
		Short: "Verify pack files without a node",
		Long: `Verify the directories, offsets and rows of pack files and a sample of their tiles, and
print the BLAKE3 digest of each. No node is needed. Warnings are defects with which a
node serves the pack: each is printed with its code and how often it was found. Tiles
that are empty, too long or outside of their zoom level are not served (204).
Exit 0: all files are sound or served with warnings. Exit 3: a file is refused, has
warnings with --strict, or does not have the digest of --expect; each fault is printed.`,
		Example: `  ronbox edge packs verify world.pmtiles
  ronbox edge packs verify --strict *.mbtiles
  ronbox edge packs verify world.pmtiles --expect b3:4487…`,
		Args: cli.AtLeast(1, "at least one file"),
	}
	cmd.Flags().StringVar(&expect, "expect", "", "`b3:…` digest of the file; allows one file only")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 3 for warnings too")
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
				return cli.Usage("--expect allows one file, got %d", len(files))
			}
		}
		return a.verifyPacks(ctx, files, digest, strict)
	})
	return cmd
}

// verifyPacks verifies files and prints the results. Each must have the digest expect, unless
// expect is zero, and no warnings if strict is set.
func (a app) verifyPacks(ctx context.Context, files []string, expect b3.Digest, strict bool) error {
	all, bad := make([]edgeapi.Pack, len(files)), ""
	for i, file := range files {
		p := a.Progress(cli.Bytes, "verify "+file)
		found, err := pack.Verify(ctx, file, expect, p.At)
		p.End()
		if err != nil {
			return err
		}
		all[i] = edgehttp.PackOf(found.Info)
		all[i].Fault = strings.Join(found.Faults, "\n")
		if all[i].Fault != "" || strict && len(all[i].Warnings) > 0 {
			bad = file
		}
	}
	err := a.Show(all, func(t cli.Table) {
		for i, p := range all {
			verdict := cli.Verdict(p.Fault == "", "sound", "refused")
			if p.Fault == "" && len(p.Warnings) > 0 {
				verdict = cli.Warn(withWarnings)
			}
			t.Row(files[i], verdict, fmt.Sprint(p.Tiles, " tiles"), cmp.Or(p.Fault, cli.ShortHash(p.ETag)))
			for _, w := range p.Warnings {
				t.Row("", w.Code, fmt.Sprint(w.Count), w.Text)
			}
		}
	})
	if err != nil || bad == "" {
		return err
	}
	return a.FoundBad(bad, "")
}
