package index

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/cli"
	indexapi "ronbox/httpapi/index"
)

func (a app) putCmd() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "put KEY MANIFEST | put -f FILE",
		Short: "Make a key stand for a manifest",
		Long: `Make a key stand for a manifest, given as b3:…. A name without a version can be put again;
a version, name:docs.example@1.2.0, stands for one manifest for ever. The bytes of the
manifest need not be here.

A file has a key and a manifest on each line, with spaces between; - is stdin. Each line
is idempotent: after a failure the same file is safe to send again.`,
		Example: `  ronbox index put name:docs.example b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262
  ronbox index put -f names.txt`,
		Args: cli.AtMost(2, "a key and a manifest"),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "put each line of a `file`")
	cmd.RunE = a.online(func(ctx context.Context, c indexapi.Client, args []string) error {
		if (file == "") != (len(args) == 2) {
			return cli.Usage("want a key and a manifest, or a file of them with -f")
		}
		if file != "" {
			return a.eachLine(ctx, file, 2, "put", func(ctx context.Context, f []string) error {
				_, err := c.Put(ctx, f[0], f[1])
				return err
			})
		}
		n, err := c.Put(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		return a.Show(n, func(t cli.Table) { nameTable(t, n) })
	})
	return cmd
}

func nameTable(t cli.Table, n indexapi.NameRow) {
	t.Row("key", n.Key)
	t.Row("manifest", n.Manifest)
	t.Row("seq", n.Seq)
}

func (a app) rmCmd() *cobra.Command {
	var forget bool
	cmd := &cobra.Command{
		Use:   "rm KEY",
		Short: "Remove a key",
		Long: `Remove a key from this node. Peers that have asked for it forget it once their cache does.
A version that was removed can be put again only as what it was, and while the key is
removed here, a name of a peer does not show in its place.

--forget removes the row wholly: a damaged one, and the trace of an earlier removal too.
Names of peers show again. Given up are the count of changes, which begins anew at 1, and
the promise that a version stands for one manifest for ever. Other nodes that still hold
an answer with a higher count refuse the next one until theirs ends, after up to
index.cache.stale_ms there: forget a key that is to be put again only when it is damaged.`,
		Example: `  ronbox index rm name:docs.example
  ronbox index rm --forget name:docs.example`,
		Args: cli.Exactly(1, "one key"),
	}
	cmd.Flags().BoolVar(&forget, "forget", false, "remove the row wholly, a damaged one too")
	cmd.RunE = a.online(func(ctx context.Context, c indexapi.Client, args []string) error {
		remove := c.Delete
		if forget {
			remove = c.Forget
		}
		if err := remove(ctx, args[0]); err != nil {
			return err
		}
		type removed struct {
			Key       string `json:"key"`
			Forgotten bool   `json:"forgotten,omitzero"`
		}
		return a.Show(removed{args[0], forget}, func(t cli.Table) { t.Row("removed", args[0]) })
	})
	return cmd
}

func (a app) lsCmd() *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the keys of this node",
		Long: `List the keys that were put here, by name, a page at a time: those that begin with PREFIX,
such as name:docs. or b3:af. The last key of a page begins the next one.`,
		Example: `  ronbox index ls
  ronbox index ls name:s3. --limit 1000 --json | jq -r '.names[].key'`,
		Args: cli.AtMost(1, "one prefix"),
	}
	cmd.Flags().StringVar(&after, "after", "", "go on behind this key: the `name` that a page ended with")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this many, 1 to 1000")
	cmd.RunE = a.online(func(ctx context.Context, c indexapi.Client, args []string) error {
		l, err := c.Names(ctx, strings.Join(args, ""), after, limit)
		if err != nil {
			return err
		}
		return a.Show(l, func(t cli.Table) {
			if len(l.Names) == 0 {
				t.Row("no such keys here")
				return
			}
			t.Row("KEY", "MANIFEST", "SEQ")
			for _, n := range l.Names {
				t.Row(n.Key, n.Manifest, n.Seq)
			}
			if l.Next != "" {
				t.Row("more: --after " + l.Next)
			}
		})
	})
	return cmd
}

func (a app) reindexCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "reindex KEY…",
		Short: "Have keys looked up anew, in the background",
		Long: `Have keys looked up anew in the background, in the file and with the peers: names, b3:… or
the text of CIDs, at most 1000 at a time. It returns once they wait in line.`,
		Example: `  ronbox index reindex name:docs.example name:docs.example@1.2.0`,
		Args:    cli.AtLeast(1, "at least one key"),
		RunE: a.online(func(ctx context.Context, c indexapi.Client, args []string) error {
			out, err := c.Reindex(ctx, args)
			if err != nil {
				return err
			}
			return a.Show(out, func(t cli.Table) { t.Row("queued", out.Queued) })
		}),
	}
}

// Sent is the result of a file.
type Sent struct {
	File string `json:"file"`
	Rows int64  `json:"rows"`
}

// senders is how many lines are under way: the node makes those that wait together durable at once.
const senders = 16

// maxFile bounds a file of lines: half a million names.
const maxFile = 64 << 20

// row is a line of a file that is not empty.
type row struct {
	at     string // its place, for messages
	fields []string
}

// eachLine calls do with the fields of every line of a file, in some order. Nothing is done for a file with a malformed line; the first failure
// ends it, and names its line.
func (a app) eachLine(ctx context.Context, file string, fields int, verb string, do func(ctx context.Context, f []string) error) error {
	raw, err := a.ReadInput(file, maxFile)
	if err != nil {
		return err
	}
	var rows []row
	n := 0
	for line := range strings.Lines(string(raw)) {
		n++
		r := row{fmt.Sprintf("%s:%d", file, n), strings.Fields(line)}
		if len(r.fields) == 0 {
			continue
		}
		if len(r.fields) != fields {
			return cli.Fail(cli.ExitFailed, "malformed", "correct the line", "%s: want %d words, got %d", r.at, fields, len(r.fields))
		}
		rows = append(rows, r)
	}
	progress := a.Progress(cli.Count, verb)
	var next, done atomic.Int64
	err = flow.Fan(ctx, min(senders, len(rows)), func(ctx context.Context, leg int) error {
		again := a.Repeater()
		for i := next.Add(1) - 1; i < int64(len(rows)); i = next.Add(1) - 1 {
			r := rows[i]
			if err := again.Repeat(ctx, r.at, func() error { return do(ctx, r.fields) }); err != nil {
				return fmt.Errorf("%s: %w", r.at, err)
			}
			if n := done.Add(1); leg == 0 {
				progress.At(n, int64(len(rows)))
			}
		}
		return nil
	})
	progress.End()
	if err != nil {
		a.Say("%d of %d lines were sent; the same file is safe to send again", done.Load(), len(rows))
		return err
	}
	out := Sent{file, done.Load()}
	return a.Show(out, func(t cli.Table) { t.Row("sent", fmt.Sprintf("%d lines of %s", out.Rows, out.File)) })
}
