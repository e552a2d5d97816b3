package edge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/site"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	edgeapi "ronbox/httpapi/wire/edge"
	indexapi "ronbox/httpapi/wire/index"
)

// unpublished is the output of edge unpublish.
type unpublished struct {
	Name     string `json:"name"`
	Manifest string `json:"manifest"`
	Released int    `json:"released"` // objects that are no longer pinned
}

func (a app) unpublishCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unpublish NAME",
		Short: "Remove a site and unpin its files",
		Long: `Remove a name of a site, and unpin the manifest and the files that no other name of this
node has. They stay stored until the node needs room; ` + "`ronbox edge remove`" + ` removes an
object at once. A file that ` + "`ronbox edge put`" + ` stored too is also unpinned: put it
again to keep it.`,
		Example: `  ronbox edge unpublish name:docs.example`,
		Args:    cli.Exactly(1, "one name"),
	}
	cmd.RunE = a.online(0, func(ctx context.Context, c edgeapi.Client, args []string) error {
		key, err := parseName(args[0])
		if err != nil {
			return err
		}
		s := a.newSites(c)
		was, last, err := s.current(ctx, key.String())
		if err != nil {
			return err
		}
		if was.IsZero() {
			return cli.Fail(cli.ExitFailed, "not_found", "`ronbox index list name:` lists the names of the node",
				"%s is not a name of this node", key)
		}
		out := unpublished{Name: key.String(), Manifest: was.String()}
		// Unpin first, so that the command can be repeated after a failure.
		loose := objectsOf(last)
		loose[was] = true
		if out.Released, err = s.release(ctx, key.String(), loose); err != nil {
			return err
		}
		if err := s.names.Delete(ctx, key.String()); err != nil {
			return err
		}
		return a.Show(out, func(t cli.Table) {
			t.Row("removed", out.Name)
			t.Row("unpinned", fmt.Sprintf("%d objects", out.Released))
		})
	})
	return cmd
}

// sites reads and releases the sites of a node. It repeats its requests while the node is busy.
type sites struct {
	c        edgeapi.Client
	names    indexapi.Client
	patience *cli.Repeater
}

func (a app) newSites(c edgeapi.Client) sites {
	patience := a.Repeater()
	return sites{c, indexapi.NewClient(c.Client), &patience}
}

// current returns the manifest of a name of this node. The digest is zero if there is no such name,
// and m is nil if the manifest is not stored.
func (s sites) current(ctx context.Context, key string) (d b3.Digest, m *site.Manifest, err error) {
	var row indexapi.NameRow
	err = s.patience.Repeat(ctx, key, func() (err error) {
		row, err = s.names.Name(ctx, key)
		return err
	})
	if err != nil {
		return d, nil, unlessNotFound(err)
	}
	if d, err = b3.Parse(row.Manifest); err != nil {
		return d, nil, err
	}
	m, err = s.manifest(ctx, d)
	return d, m, err
}

// manifest returns a stored manifest, nil if it is not stored, or an empty one if the object is not
// one of a site. The node looks for it at other nodes, which may not answer, only if its own is
// damaged: the node sets that aside, and would answer next that it does not exist.
func (s sites) manifest(ctx context.Context, d b3.Digest) (*site.Manifest, error) {
	var raw []byte
	damaged := false
	err := s.patience.Repeat(ctx, "a manifest", func() (err error) {
		raw, err = s.object(ctx, d, http.Header{near.HopHeader: {"0"}})
		if damaged = hasReason(err, "corrupt"); damaged {
			return nil
		}
		return err
	})
	if damaged {
		err = s.patience.Repeat(ctx, "a manifest", func() (err error) {
			raw, err = s.object(ctx, d, nil)
			return err
		})
	}
	switch {
	case errors.Is(err, client.ErrTooLarge):
		return &site.Manifest{}, nil
	case err != nil && damaged:
		return nil, cli.Fail(cli.ExitFailed, "corrupt",
			"before you repeat this, publish that site again or remove its name (see `ronbox index list name:`)",
			"the manifest %s was damaged, so the files of its site are not known: %w", d, err)
	case err != nil:
		return nil, unlessNotFound(err)
	}
	m, err := site.Parse(raw)
	if err != nil {
		return &site.Manifest{}, nil // the name stands for something else
	}
	return m, nil
}

// object returns an object that may be a manifest.
func (s sites) object(ctx context.Context, d b3.Digest, h http.Header) ([]byte, error) {
	return client.Ask[[]byte](ctx, s.c.Client, client.Call{
		Path:   "/edge/assets/b3/" + d.String()[len("b3:"):],
		Header: h,
		Limit:  site.MaxBytes,
	})
}

// hasReason reports whether the node answered with a problem that has this reason.
func hasReason(err error, reason string) bool {
	p, ok := errors.AsType[*wire.Problem](err)
	return ok && p.Reason == reason
}

// unlessNotFound returns nil if the node answered that something does not exist.
func unlessNotFound(err error) error {
	if hasReason(err, "not_found") {
		return nil
	}
	return err
}

// objectsOf returns the objects of a manifest, which may be nil.
func objectsOf(m *site.Manifest) map[b3.Digest]bool {
	out := map[b3.Digest]bool{}
	if m != nil {
		for i := range m.Len() {
			out[m.File(i).Digest] = true
		}
	}
	return out
}

// release unpins the objects of loose, except for those that a name of this node other than key
// has, and returns their number. A name that is set meanwhile may have some of them, so release
// looks again afterwards, also if it could not unpin all, and pins these. It changes loose.
func (s sites) release(ctx context.Context, key string, loose map[b3.Digest]bool) (int, error) {
	seen := map[string]bool{}
	if err := s.spareNamed(ctx, key, loose, seen); err != nil {
		return 0, err
	}
	unpinned, err := s.keep(ctx, asset.Unpin, loose)
	if len(loose) == 0 || ctx.Err() != nil {
		return unpinned, err
	}
	again := maps.Clone(loose)
	err = errors.Join(err, s.spareNamed(ctx, key, loose, seen))
	maps.DeleteFunc(again, func(d b3.Digest, _ bool) bool { return loose[d] })
	pinned, bad := s.keep(ctx, asset.Pin, again)
	return max(0, unpinned-pinned), errors.Join(err, bad) // a part that failed may have been unpinned
}

// keep pins or unpins objects, and returns how many have changed.
func (s sites) keep(ctx context.Context, do asset.Action, objects map[b3.Digest]bool) (changed int, err error) {
	keys := make([]string, 0, len(objects))
	for d := range objects {
		keys = append(keys, d.String())
	}
	slices.Sort(keys)
	for part := range slices.Chunk(keys, asset.MaxKeep) {
		var k edgeapi.Kept
		err := s.patience.Repeat(ctx, "pins", func() (err error) {
			k, err = s.c.EdgeKeep(ctx, do, part)
			return err
		})
		if err != nil {
			return changed, err
		}
		changed += len(k.Changed)
	}
	return changed, nil
}

// spareNamed removes the objects from loose that a name of this node other than key has. It skips
// the manifests of seen, and adds those that it has read.
func (s sites) spareNamed(ctx context.Context, key string, loose map[b3.Digest]bool, seen map[string]bool) error {
	for after := ""; len(loose) > 0; {
		var page indexapi.NameList
		err := s.patience.Repeat(ctx, "names", func() (err error) {
			page, err = s.names.Names(ctx, "name:", after, 1000)
			return err
		})
		if err != nil {
			return err
		}
		for _, row := range page.Names {
			if row.Key == key || seen[row.Manifest] {
				continue
			}
			if seen[row.Manifest], err = s.spare(ctx, row.Manifest, loose); err != nil {
				return err
			}
		}
		if after = page.Next; after == "" {
			break
		}
	}
	return nil
}

// spare removes a manifest and its objects from loose. stored reports whether it is stored.
func (s sites) spare(ctx context.Context, manifest string, loose map[b3.Digest]bool) (stored bool, err error) {
	d, err := b3.Parse(manifest)
	if err != nil {
		return false, err
	}
	delete(loose, d)
	m, err := s.manifest(ctx, d)
	for one := range objectsOf(m) {
		delete(loose, one)
	}
	return m != nil, err
}
