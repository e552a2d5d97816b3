package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/site"
	"ronbox/engines/index/name"
	"ronbox/httpapi/wire"
	edgeapi "ronbox/httpapi/wire/edge"
)

// published is the output of edge publish.
type published struct {
	Name     string   `json:"name"`
	Manifest string   `json:"manifest"`
	Path     string   `json:"path"` // that serves the site
	URL      string   `json:"url,omitzero"`
	Files    int      `json:"files"`
	Bytes    int64    `json:"bytes"`
	New      int      `json:"new"` // objects that were not stored, or with DryRun those the site did not have
	NewBytes int64    `json:"new_bytes"`
	Released int      `json:"released"` // objects that only the last edition had, and that are no longer pinned
	Skipped  []string `json:"skipped,omitempty"`
	Unfit    []unfit  `json:"unfit,omitempty"`
	DryRun   bool     `json:"dry_run,omitzero"`
}

// unfit is a file that is left out because a manifest cannot hold its name.
type unfit struct {
	Path   string `json:"path"` // quoted as in Go
	Reason string `json:"reason"`
}

func (a app) publishCmd() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "publish DIR NAME",
		Short: "Publish a folder as a site under a name",
		Long: `Publish the files of a folder as a site. Each file is stored under its hash and pinned,
then a manifest of all files, and then the name is set to the manifest. So a visitor
gets the last edition of the site or the new one. NAME is a key of the index, such as
name:docs.example, or name:docs.example@1.2.0, which cannot be changed later.

The node serves the site at /edge/sites/NAME/, with index.html for a folder, and
about.html for about. For a path without a file it sends 200.html to a browser that opens
a page, else 404.html with status 404. Beside app.js, app.js.br, .zst or .gz is sent to
callers that accept it, compressed by you.

Only files that the node does not have are sent, so the command can be repeated. Files
that only the last edition had are unpinned, unless another name of this node has them.
Hidden files, links and devices are skipped and listed, but .well-known is published. A
file whose name no manifest can hold is left out and listed, and the exit is 21.

A page of a site runs in a sandbox, which gives it an origin of its own: it has no
cookies, no storage, no service worker, and cannot read the console. Scripts and modules,
fonts, fetch, frames, new tabs, forms, dialogs and downloads work. With edge.cors = false
modules, fonts and fetch do not. A token needs the scopes edge.put, edge.keep and
index.publish. In a fleet a name that belongs to another node is refused.`,
		Example: `  ronbox edge publish ./public name:docs.example
  ronbox edge publish --dry-run ./public name:docs.example@1.2.0`,
		Args: cli.Exactly(2, "a folder and a name"),
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only print what would be published")
	cmd.RunE = a.online(putTimeout, func(ctx context.Context, c edgeapi.Client, args []string) error {
		key, err := parseName(args[1])
		if err != nil {
			return err
		}
		p, err := a.newPublisher(ctx, c, args[0], key)
		if err != nil {
			return err
		}
		if p.out.DryRun = dry; dry {
			err = p.compare(ctx)
		} else {
			err = p.publish(ctx)
		}
		if err != nil {
			return err
		}
		if len(p.out.Unfit) > 0 {
			a.Exit = cli.ExitSomeRefused
		}
		return a.Show(p.out, p.out.table)
	})
	return cmd
}

// parseName parses the name of a site.
func parseName(text string) (name.Key, error) {
	key, err := name.ParseKey(text)
	if err != nil {
		return key, cli.Usage("%q: %w", cli.Clip(text, 80), err)
	}
	if !strings.HasPrefix(key.String(), "name:") {
		return key, cli.Usage("%q: want a name, as name:docs.example", cli.Clip(text, 80))
	}
	return key, nil
}

func (p published) table(t cli.Table) {
	for _, path := range p.Skipped {
		t.Row("SKIPPED", path)
	}
	for _, u := range p.Unfit {
		t.Row("LEFT OUT", u.Path, u.Reason)
	}
	t.Row("name", p.Name)
	t.Row("manifest", p.Manifest)
	t.Row("files", fmt.Sprintf("%d, %s", p.Files, cli.Bytes(p.Bytes)))
	t.Row("new", fmt.Sprintf("%d, %s", p.New, cli.Bytes(p.NewBytes)))
	if p.Released > 0 {
		t.Row("unpinned", p.Released)
	}
	t.Row("path", p.Path)
	t.Opt("url", p.URL)
	if p.DryRun {
		t.Row("nothing was changed")
	}
}

// publisher publishes one folder.
type publisher struct {
	app
	c        edgeapi.Client
	sites    sites
	key      name.Key
	files    []localFile
	manifest []byte
	out      published
}

// newPublisher reads and hashes a folder.
func (a app) newPublisher(ctx context.Context, c edgeapi.Client, dir string, key name.Key) (*publisher, error) {
	p := &publisher{app: a, c: c, sites: a.newSites(c), key: key}
	if err := p.walk(ctx, dir); err != nil {
		return nil, err
	}
	all := make([]site.File, len(p.files))
	for i, f := range p.files {
		all[i] = f.File
		p.out.Bytes += f.Size
	}
	var err error
	if p.manifest, err = site.Encode(all); err != nil {
		return nil, cli.Fail(cli.ExitFailed, "unfit", "rename or remove the file, or publish less", "%s: %w", dir, err)
	}
	p.out.Name, p.out.Files, p.out.Manifest = key.String(), len(all), b3.Sum(p.manifest).String()
	p.out.Path = "/edge/sites/" + strings.TrimPrefix(key.String(), "name:") + "/"
	if urls := a.URLs(); urls != nil {
		p.out.URL = strings.TrimRight(urls[0], "/") + p.out.Path
	}
	return p, nil
}

// wellKnown is the hidden folder of a site that is published (RFC 8615).
const wellKnown = ".well-known"

// walk reads the regular files of a folder, without hidden ones and those with an unfit name.
func (p *publisher) walk(ctx context.Context, dir string) error {
	dir, err := filepath.EvalSymlinks(dir) // the folder itself may be a link
	if err != nil {
		return err
	}
	if at, err := os.Stat(dir); err != nil || !at.IsDir() {
		return errors.Join(err, &fs.PathError{Op: "read", Path: dir, Err: syscall.ENOTDIR})
	}
	show := p.Progress(cli.Bytes, "read "+dir)
	defer show.End()
	read := int64(0)
	return filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		path, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		hidden := strings.HasPrefix(e.Name(), ".") && name != dir && path != wellKnown
		switch {
		case hidden, !e.IsDir() && !e.Type().IsRegular():
			p.out.Skipped = append(p.out.Skipped, path)
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir():
			return nil
		}
		if bad, is := errors.AsType[*site.Error](site.CheckPath(path)); is {
			p.out.Unfit = append(p.out.Unfit, unfit{strconv.Quote(path), bad.Reason})
			return nil
		}
		f, err := hashFile(name, path)
		p.files = append(p.files, f)
		read += f.Size
		show.At(read, 0)
		return err
	})
}

// compare counts the files that the current edition of the site does not have.
func (p *publisher) compare(ctx context.Context) error {
	_, last, err := p.sites.current(ctx, p.key.String())
	if err != nil {
		return err
	}
	has := objectsOf(last)
	for _, f := range p.files {
		if !has[f.Digest] {
			has[f.Digest] = true
			p.out.New++
			p.out.NewBytes += f.Size
		}
	}
	return nil
}

// publish stores the files and the manifest, sets the name, and unpins what only the last edition
// had. Another publish that has not seen the name yet may unpin an object that both have, so all
// are pinned again after the name is set.
func (p *publisher) publish(ctx context.Context) error {
	was, last, err := p.sites.current(ctx, p.key.String())
	if err != nil {
		return err
	}
	ours, err := p.unpinned(ctx)
	if err != nil {
		return err
	}
	if err = p.store(ctx); err == nil {
		err = p.setName(ctx)
	}
	if err != nil {
		return errors.Join(err, p.undo(ctx, err, ours))
	}
	err = p.store(ctx)
	loose := objectsOf(last)
	loose[was] = true
	for _, f := range p.files {
		delete(loose, f.Digest)
	}
	if delete(loose, b3.Sum(p.manifest)); was.IsZero() {
		return err
	}
	// Also after an error: a repeated command would not find the old edition.
	released, bad := p.sites.release(ctx, "", loose) // the name may have a later edition
	p.out.Released = released
	return errors.Join(err, bad)
}

// store stores and pins the files that are not, and then the manifest.
func (p *publisher) store(ctx context.Context) error {
	missing, err := p.pin(ctx)
	if err == nil {
		err = p.putAll(ctx, missing)
	}
	if err != nil {
		return err
	}
	patience := p.Repeater()
	err = patience.Repeat(ctx, "the manifest", func() error {
		_, err := p.c.PutObject(ctx, edgeapi.ObjectPut{
			Body:     bytes.NewReader(p.manifest),
			Size:     int64(len(p.manifest)),
			Type:     site.MediaType,
			Expect:   b3.Sum(p.manifest),
			Announce: true,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("the manifest: %w", err)
	}
	return nil
}

// setName sets the name to the manifest.
func (p *publisher) setName(ctx context.Context) error {
	patience := p.Repeater()
	return patience.Repeat(ctx, p.key.String(), func() error {
		_, err := p.sites.names.Put(ctx, p.key.String(), b3.Sum(p.manifest).String())
		return err
	})
}

// undo unpins the objects that this command has pinned, if the node has refused the site. After any
// other failure they stay, so that the command can be repeated without sending them again.
func (p *publisher) undo(ctx context.Context, cause error, ours map[b3.Digest]bool) error {
	refusal, ok := errors.AsType[*wire.Problem](cause)
	if !ok || refusal.Status != http.StatusForbidden && refusal.Status != http.StatusConflict {
		return nil
	}
	_, err := p.sites.release(ctx, "", ours)
	return err
}

// unpinned returns the objects of the site that the node has not pinned yet.
func (p *publisher) unpinned(ctx context.Context) (map[b3.Digest]bool, error) {
	ours := map[b3.Digest]bool{b3.Sum(p.manifest): true}
	for _, f := range p.files {
		ours[f.Digest] = true
	}
	patience := p.Repeater()
	for after, more := "", true; more; more = after != "" {
		var page edgeapi.StoredList
		err := patience.Repeat(ctx, "pinned objects", func() (err error) {
			page, err = p.c.EdgeKeys(ctx, "b3:", after, asset.MaxKeys, true)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, row := range page.Keys {
			if d, err := b3.Parse(row.Key); err == nil {
				delete(ours, d)
			}
		}
		after = page.Next
	}
	return ours, nil
}

// pin pins the objects that the node has, and returns the files of the others.
func (p *publisher) pin(ctx context.Context) (missing []localFile, err error) {
	byDigest := map[string]localFile{}
	for _, f := range p.files {
		byDigest[f.Digest.String()] = f
	}
	keys := make([]string, 0, len(byDigest))
	for key := range byDigest {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	patience := p.Repeater()
	for part := range slices.Chunk(keys, asset.MaxKeep) {
		var k edgeapi.Kept
		err := patience.Repeat(ctx, "pins", func() (err error) {
			k, err = p.c.EdgeKeep(ctx, asset.Pin, part)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, key := range k.Missing {
			missing = append(missing, byDigest[key])
		}
	}
	return missing, nil
}

// putAll stores files, several at a time.
func (p *publisher) putAll(ctx context.Context, files []localFile) error {
	total := int64(0)
	for _, f := range files {
		total += f.Size
	}
	p.out.New += len(files)
	p.out.NewBytes += total
	show := p.Progress(cli.Bytes, "publish")
	defer show.End()
	next, done := atomic.Int64{}, atomic.Int64{}
	return flow.Fan(ctx, min(sideBySide, len(files)), func(ctx context.Context, leg int) error {
		for i := next.Add(1) - 1; i < int64(len(files)) && ctx.Err() == nil; i = next.Add(1) - 1 {
			if _, err := p.put(ctx, p.c, files[i], false, nil); err != nil {
				return fmt.Errorf("%s: %w", files[i].name, err)
			}
			if n := done.Add(files[i].Size); leg == 0 {
				show.At(n, total)
			}
		}
		return context.Cause(ctx)
	})
}
