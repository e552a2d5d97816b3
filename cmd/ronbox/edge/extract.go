package edge

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/edge/extract"
	"ronbox/httpapi/client"
	edgeapi "ronbox/httpapi/wire/edge"
)

const (
	extractTimeout = time.Hour              // to read the directories of the source, as of the node
	extractPoll    = 200 * time.Millisecond // between two looks at an extract
	noMaxZoom      = -1
)

// extractFlags are the flags of edge extract.
type extractFlags struct {
	name, bbox, region string
	minZoom, maxZoom   int
	dryRun, detach     bool
}

func (a app) extractCmd() *cobra.Command {
	var f extractFlags
	cmd := &cobra.Command{
		Use:   "extract URL --name ID",
		Short: "Make a pack of a region of a map at a host",
		Long: `Make a pack of a region and of some zoom levels of a PMTiles archive at a host of
edge.allow, without the rest of the archive. The host must support Range and send a
strong ETag. The node reads the directories first, so that it knows all tiles and bytes,
and has room; then it reads the tiles, checks the pack, and serves it in place of a pack
that has the id.

The node goes on after a failure of the host and after a restart, where it was. Ctrl-C
ends the command and not the extract; the same command shows its progress again, and
edge extracts remove ID ends it. If the archive changes meanwhile, the extract fails, and
the same command begins it anew. A token needs the scope edge.pack.
Exit 3: the pack would not be served.`,
		Example: `  ronbox edge extract https://maps.example/world.pmtiles --name alps --bbox=5.9,43.6,16.6,48.3 --maxzoom 12
  ronbox edge extract https://maps.example/world.pmtiles --name alps --region alps.geojson --dry-run`,
		Args: cli.Exactly(1, "one URL"),
	}
	cmd.Flags().StringVar(&f.name, "name", "", "`id` of the pack")
	cmd.Flags().StringVar(&f.bbox, "bbox", "",
		"`W,S,E,N` in degrees; W above E crosses the antimeridian (default: all)")
	cmd.Flags().StringVar(&f.region, "region", "", "GeoJSON `file` of a Polygon or MultiPolygon")
	cmd.Flags().IntVar(&f.minZoom, "minzoom", 0, "lowest zoom `level`")
	cmd.Flags().IntVar(&f.maxZoom, "maxzoom", noMaxZoom, "highest zoom `level` (default: that of the archive)")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the number of tiles and bytes, and read no tile")
	cmd.Flags().BoolVar(&f.detach, "detach", false, "do not wait until the pack is served")
	cli.Require(cmd, "name")
	cmd.RunE = a.online(extractTimeout, func(ctx context.Context, c edgeapi.Client, args []string) error {
		in, err := f.start(args[0])
		if err != nil {
			return err
		}
		e, err := c.Extract(ctx, in)
		if err == nil && !f.dryRun && !f.detach {
			e, err = a.follow(ctx, c, e)
		}
		if err != nil {
			return err
		}
		return a.Show(e, func(t cli.Table) { rowExtract(t, e) })
	})
	return cmd
}

// start returns the request of the flags.
func (f extractFlags) start(url string) (in edgeapi.ExtractStart, err error) {
	in = edgeapi.ExtractStart{URL: url, Pack: f.name, DryRun: f.dryRun}
	for _, level := range []int{f.minZoom, f.maxZoom} {
		if level < noMaxZoom || level > 31 {
			return in, cli.Usage("zoom level %d: must be 0 to 31", level)
		}
	}
	in.MinZoom = uint8(max(0, f.minZoom))
	if f.maxZoom != noMaxZoom {
		level := uint8(f.maxZoom)
		in.MaxZoom = &level
	}
	switch {
	case f.bbox != "" && f.region != "":
		return in, cli.Usage("want --bbox or --region, not both")
	case f.bbox != "":
		bbox, err := extract.ParseBBox(f.bbox)
		if err != nil {
			return in, cli.Usage("--bbox %s: %v", cli.Clip(f.bbox, 80), err)
		}
		in.BBox = bbox[:]
	case f.region != "":
		in.Region, err = os.ReadFile(f.region)
		if err == nil && !in.Region.IsValid() {
			err = cli.Usage("--region %s: it is not JSON", f.region)
		}
	}
	return in, err
}

// follow waits until an extract is done, also while the node restarts.
func (a app) follow(ctx context.Context, c edgeapi.Client, e edgeapi.Extract) (edgeapi.Extract, error) {
	bar := a.Progress(cli.Bytes, "extract "+e.Pack)
	defer bar.End()
	patience := a.Repeater()
	patience.ForEver = true
	for fault := ""; ; {
		bar.At(e.DoneBytes, e.Bytes)
		if e.Fault != "" && e.Fault != fault {
			a.Say("%s: %s", e.State, e.Fault)
			fault = e.Fault
		}
		switch extract.State(e.State) {
		case extract.Done:
			return e, nil
		case extract.Failed:
			return e, failedExtract(e)
		}
		err := client.Sleep(ctx, extractPoll)
		if err == nil {
			err = patience.Repeat(ctx, "extract "+e.Pack, func() error { return look(ctx, c, &e) })
		}
		if ctx.Err() != nil {
			bar.End()
			a.Warn("the extract goes on: `ronbox edge extracts` shows it, `ronbox edge extracts remove %s` ends it",
				e.Pack)
			return e, ctx.Err()
		}
		if err != nil {
			return e, err
		}
	}
}

// look reads an extract of the node again.
func look(ctx context.Context, c edgeapi.Client, e *edgeapi.Extract) error {
	all, err := c.Extracts(ctx)
	if err != nil {
		return err
	}
	for _, one := range all.Extracts {
		if one.Pack == e.Pack {
			*e = one
			return nil
		}
	}
	return cli.Fail(cli.ExitFailed, "not_found", "begin it again", "the extract was removed")
}

// failedExtract returns the failure of an extract that has failed.
func failedExtract(e edgeapi.Extract) error {
	if e.Refused {
		return cli.Fail(edgeapi.ExitRefused, "pack_refused", "report it to the operator of the host", "%s", e.Fault)
	}
	return cli.Fail(cli.ExitFailed, "failed", "run the same command again: it begins anew", "%s", e.Fault)
}

func (a app) extractsCmd() *cobra.Command {
	list := a.online(0, func(ctx context.Context, c edgeapi.Client, _ []string) error {
		all, err := c.Extracts(ctx)
		if err != nil {
			return err
		}
		return a.Show(all.Extracts, func(t cli.Table) {
			if len(all.Extracts) == 0 {
				t.Row("no extracts: `ronbox edge extract` begins one")
			}
			for _, e := range all.Extracts {
				rowExtract(t, e)
			}
		})
	})
	cmd := cli.Group("extracts", "List and remove the extracts of a node", a.removeExtractCmd())
	cmd.Long = `List the extracts of a node with their tiles, states and progress, the oldest first. Those
that are done or have failed stay in the list until they are removed, or until there are
more than 8.`
	cmd.Example = `  ronbox edge extracts`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cli.GroupHelp(cmd, args)
		}
		return list(cmd, args)
	}
	return cmd
}

// rowExtract adds the row of an extract to a table.
func rowExtract(t cli.Table, e edgeapi.Extract) {
	zooms := fmt.Sprintf("zoom %d to %d", e.MinZoom, e.MaxZoom)
	done, note := cli.Bytes(e.Bytes), cmp.Or(e.Fault, e.URL)
	switch state := extract.State(e.State); {
	case state != extract.Done && state != extract.Planning && state != extract.Failed:
		done = fmt.Sprintf("%s of %s", cli.Bytes(e.DoneBytes), done)
		if e.LeftS > 0 {
			note = fmt.Sprintf("%s left, %s", time.Duration(e.LeftS)*time.Second, note)
		}
	}
	var state any = e.State
	switch extract.State(e.State) {
	case extract.Done:
		state = cli.OK(e.State)
	case extract.Failed:
		state = cli.Bad(e.State)
	}
	t.Row(e.Pack, zooms, fmt.Sprint(e.Tiles, " tiles"), done, state, note)
}

func (a app) removeExtractCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "End an extract, and remove what was read of it",
		Long: `End the extract of a pack, and remove what was read of it. A pack that it has become
stays; ronbox edge packs remove ID removes it. A token needs the scope edge.pack.`,
		Example: `  ronbox edge extracts remove alps`,
		Args:    cli.Exactly(1, "one id"),
	}
	cmd.RunE = a.online(0, func(ctx context.Context, c edgeapi.Client, args []string) error {
		err := c.RemoveExtract(ctx, args[0])
		if err != nil && unlessNotFound(err) == nil {
			return cli.Fail(cli.ExitFailed, "not_found", "`ronbox edge extracts` lists the extracts of the node",
				"%s is not an extract of this node", cli.Clip(args[0], 80))
		}
		if err != nil {
			return err
		}
		return a.Show(removedPack{args[0]}, func(t cli.Table) { t.Row("removed", args[0]) })
	})
	return cmd
}
