package edge

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/edge/pack"
	edgeapi "ronbox/httpapi/wire/edge"
)

// putPackTimeout bounds the put of a pack, as the node does.
const putPackTimeout = 7 * 24 * time.Hour

func (a app) putPackCmd() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "put FILE",
		Short: "Send a pack to a node",
		Long: `Send a PMTiles or MBTiles file to the folder of packs of a node, which checks it and
serves it at once. The id of the pack is the name of the file without its extension,
unless --name is given. A pack that has the id and the same extension serves until then.
A file that would not be served is refused, and nothing is left of it. In a cluster the
pack is on the member that was asked alone.

The folder has at most edge.packs.max_bytes. A token needs the scope edge.pack.

Exit 3: the pack is refused.`,
		Example: `  ronbox edge packs put world.pmtiles
  ronbox edge packs put build/2026-11.mbtiles --name streets`,
		Args: cli.Exactly(1, "one file"),
	}
	cmd.Flags().StringVar(&name, "name", "", "`id` of the pack (default: the name of the file)")
	cmd.RunE = a.online(putPackTimeout, func(ctx context.Context, c edgeapi.Client, args []string) error {
		f, err := hashFile(args[0], args[0])
		if err != nil {
			return err
		}
		base := filepath.Base(args[0])
		ext := filepath.Ext(base)
		bar := a.Progress(cli.Bytes, "put "+args[0])
		p, err := a.putPack(ctx, c, f, cmp.Or(name, strings.TrimSuffix(base, ext))+strings.ToLower(ext), bar.At)
		bar.End()
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		return a.Show(p, func(t cli.Table) { rowPack(t, p) })
	})
	return cmd
}

// putPack sends a pack to the node under a name, and retries while the node is busy. The node
// refuses it if it has changed since it was hashed.
func (a app) putPack(ctx context.Context, c edgeapi.Client, f localFile, name string,
	progress func(done, total int64)) (p edgeapi.Pack, err error) {
	in, err := os.Open(f.name)
	if err != nil {
		return p, err
	}
	defer func() { _ = in.Close() }() // opened for reading only
	patience := a.Repeater()
	err = patience.Repeat(ctx, f.name, func() error {
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			return err
		}
		body := &meter{r: in, total: f.Size, progress: progress}
		p, err = c.PutPack(ctx, edgeapi.PackPut{File: name, Body: body, Size: f.Size, Expect: f.Digest})
		return err
	})
	return p, err
}

// removedPack is the output of edge packs remove.
type removedPack struct {
	ID string `json:"id"`
}

func (a app) removePackCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "Remove a pack from a node",
		Long: `Remove the file of a pack from the folder of packs of a node, which no longer serves it.
In a cluster other members keep theirs. A token needs the scope edge.pack.`,
		Example: `  ronbox edge packs remove world`,
		Args:    cli.Exactly(1, "one id"),
	}
	cmd.RunE = a.online(0, func(ctx context.Context, c edgeapi.Client, args []string) error {
		id := args[0]
		files := []string{id + "." + string(pack.PMTiles), id + "." + string(pack.MBTiles)}
		if filepath.Ext(id) != "" { // two files with one id are listed by name
			files = []string{id}
		}
		var err error
		for _, file := range files {
			if err = c.RemovePack(ctx, file); err == nil || unlessNotFound(err) != nil {
				break
			}
		}
		if err != nil && unlessNotFound(err) == nil {
			return cli.Fail(cli.ExitFailed, "not_found", "`ronbox edge packs` lists the packs of the node",
				"%s is not a pack of this node", cli.Clip(id, 80))
		}
		if err != nil {
			return err
		}
		return a.Show(removedPack{id}, func(t cli.Table) { t.Row("removed", id) })
	})
	return cmd
}
