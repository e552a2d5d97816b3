package edge

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/edge/site"
	edgeapi "ronbox/httpapi/wire/edge"
)

// putTimeout bounds the put of one object, as the node does.
const putTimeout = time.Hour

// putFile is the result for one file in the output of edge put.
type putFile struct {
	File string `json:"file"`
	edgeapi.Object
}

func (a app) putCmd() *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use:   "put FILE…",
		Short: "Store files under their hashes, pinned",
		Long: `Store files in the content store of the node, each under the BLAKE3 of its bytes, and
print the hash and the name of each. The node serves a file at /edge/assets/b3/HEX. A
file is pinned until ` + "`ronbox edge unpin`" + ` or ` + "`ronbox edge remove`" + ` names its b3:….
In a fleet the node announces that it has the file. A file that is stored is not stored
again, so the command can be repeated.

A file has at most edge.fill.max_object_bytes, and all pinned objects together have at
most edge.cas.max_pinned. A token needs the scope edge.put.`,
		Example: `  ronbox edge put logo.png
  ronbox edge put --json *.pdf | jq -r '.[].b3'`,
		Args: cli.AtLeast(1, "one file or more"),
	}
	cmd.Flags().StringVar(&kind, "type", "", "media `type` of the files (default: by their extensions)")
	cmd.RunE = a.online(putTimeout, func(ctx context.Context, c edgeapi.Client, files []string) error {
		done := []putFile{}
		for _, file := range files {
			f, err := hashFile(file, file)
			if err == nil && kind != "" {
				f.Type = kind
			}
			var o edgeapi.Object
			if err == nil {
				p := a.Progress(cli.Bytes, "put "+file)
				o, err = a.put(ctx, c, f, true, p.At)
				p.End()
			}
			if err != nil {
				_ = a.showPut(done)
				return fmt.Errorf("%s: %w", file, err)
			}
			done = append(done, putFile{file, o})
		}
		return a.showPut(done)
	})
	return cmd
}

func (a app) showPut(done []putFile) error {
	return a.Show(done, func(t cli.Table) {
		for _, f := range done {
			if f.Copies == 1 {
				t.Row(f.B3, f.File, "no other member of the cluster has it yet")
				continue
			}
			t.Row(f.B3, f.File)
		}
	})
}

// localFile is a file to put.
type localFile struct {
	name string // in the file system
	site.File
}

// hashFile returns the file with a name, under a path of a site.
func hashFile(name, path string) (f localFile, err error) {
	in, err := os.Open(name)
	if err != nil {
		return f, err
	}
	defer func() { _ = in.Close() }() // opened for reading only
	hash := b3.New()
	size, err := io.Copy(hash, in)
	if err != nil {
		return f, err
	}
	return localFile{name, site.File{Path: path, Digest: hash.Sum32(), Size: size, Type: site.TypeOf(path)}}, nil
}

// put stores a file on the node, and retries while the node is busy. The node refuses it if it has
// changed since it was hashed.
func (a app) put(ctx context.Context, c edgeapi.Client, f localFile, announce bool,
	progress func(done, total int64)) (o edgeapi.Object, err error) {
	in, err := os.Open(f.name)
	if err != nil {
		return o, err
	}
	defer func() { _ = in.Close() }() // opened for reading only
	patience := a.Repeater()
	err = patience.Repeat(ctx, f.name, func() error {
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			return err
		}
		o, err = c.PutObject(ctx, edgeapi.ObjectPut{
			Body:     &meter{r: in, total: f.Size, progress: progress},
			Size:     f.Size,
			Type:     f.Type,
			Expect:   f.Digest,
			Announce: announce,
		})
		return err
	})
	return o, err
}

// meter reports the progress of a body as it is sent.
type meter struct {
	r           io.Reader
	done, total int64
	progress    func(done, total int64) // may be nil
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.done += int64(n)
	if m.progress != nil {
		m.progress(m.done, m.total)
	}
	return n, err
}
