package index

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/cli"
	indexapi "ronbox/httpapi/wire/index"
)

func (a app) putCmd() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "put KEY MANIFEST | put -f FILE",
		Short: "Set the manifest of a key",
		Long: `Set the manifest of a key, given as b3:…. A name without a version can be put again with
another manifest; a version, name:docs.example@1.2.0, keeps its manifest for ever. The
node need not have the bytes of the manifest.

A file has a key and a manifest on each line, with spaces between; - is stdin. Each line
is idempotent: after a failure the same file can be sent again.`,
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
		Use:   "remove KEY",
		Short: "Remove a key",
		Long: `Remove a key from this node. Peers that have looked it up forget it when their cache
entry expires. A removed version can be put again only with its old manifest, and while
the key is removed here, names of peers do not show in its place.

--forget removes the whole row, even if it is damaged or left from an earlier removal.
Names of peers show again. The count of changes starts again at 1, and a version may get
another manifest. Other nodes that hold an answer with a higher count refuse the next one
until theirs expires, after up to index.cache.stale_ms there: if a key is to be put
again, forget it only if it is damaged.`,
		Example: `  ronbox index remove name:docs.example
  ronbox index remove --forget name:docs.example`,
		Args: cli.Exactly(1, "one key"),
	}
	cmd.Flags().BoolVar(&forget, "forget", false, "remove the whole row, even if it is damaged")
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
		Use:   "list [PREFIX]",
		Short: "List the keys of this node",
		Long: `List the keys of this node that begin with PREFIX, such as name:docs. or b3:af, in byte
order, one page at a time. --after with the last key of a page shows the next page.`,
		Example: `  ronbox index list
  ronbox index list name:s3. --limit 1000 --json | jq -r '.names[].key'`,
		Args: cli.AtMost(1, "one prefix"),
	}
	cmd.Flags().StringVar(&after, "after", "", "start after this key: the `name` that ended the previous page")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most `N` keys, 1 to 1000")
	cmd.RunE = a.online(func(ctx context.Context, c indexapi.Client, args []string) error {
		l, err := listNames(ctx, c, strings.Join(args, ""), after, limit)
		if err != nil {
			return err
		}
		return a.Show(l, func(t cli.Table) { namesTable(t, l) })
	})
	return cmd
}

// listNames reads pages until it has limit names, since pages with removed keys may be short.
func listNames(
	ctx context.Context,
	c indexapi.Client,
	prefix, after string,
	limit int,
) (all indexapi.NameList, err error) {
	for {
		page, err := c.Names(ctx, prefix, after, limit-len(all.Names))
		if err != nil {
			return all, err
		}
		all.Names = append(all.Names, page.Names...)
		all.Damaged = append(all.Damaged, page.Damaged...)
		all.Next = page.Next
		stuck := len(page.Names) == 0 && page.Next == after
		if page.Next == "" || len(all.Names) >= limit || stuck {
			return all, nil
		}
		after = page.Next
	}
}

func namesTable(t cli.Table, l indexapi.NameList) {
	if len(l.Names) > 0 {
		t.Row("KEY", "MANIFEST", "SEQ")
	} else if len(l.Damaged) == 0 {
		t.Row("no such keys")
	}
	for _, n := range l.Names {
		t.Row(n.Key, n.Manifest, n.Seq)
	}
	for _, key := range l.Damaged {
		t.Row("damaged: " + key + ", which `ronbox index remove --forget` drops")
	}
	if l.Next != "" {
		t.Row("more: --after " + l.Next)
	}
}

func (a app) reindexCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "reindex [KEY…]",
		Short: "Look up keys again, in the background",
		Long: `Look up keys again in the background, in the file and with the peers: names, b3:… or the
text of CIDs, at most 1000 at a time. Without a key, the most requested keys are looked
up, at most 64. It returns when they are queued.`,
		Example: `  ronbox index reindex name:docs.example name:docs.example@1.2.0
  ronbox index reindex`,
		Args: cli.AtLeast(0, "keys"),
		RunE: a.online(func(ctx context.Context, c indexapi.Client, args []string) error {
			out, err := c.Reindex(ctx, args)
			if err != nil {
				return err
			}
			return a.Show(out, func(t cli.Table) { t.Row("queued", out.Queued) })
		}),
	}
}

// Sent is the result of sending a file.
type Sent struct {
	File string `json:"file"`
	Rows int64  `json:"rows"`
}

// senders is the number of concurrent lines. The node syncs concurrent writes together.
const senders = 16

// maxFile bounds a file of lines in bytes: about half a million names.
const maxFile = 64 << 20

// row is a line of a file that is not empty.
type row struct {
	at     string // file and line, for messages
	fields []string
}

// eachLine calls do with the fields of every line of a file, in no particular order. It does
// nothing if a line is malformed. The first failure ends it, and its error names the line.
func (a app) eachLine(
	ctx context.Context,
	file string,
	fields int,
	verb string,
	do func(ctx context.Context, f []string) error,
) error {
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
			return cli.Fail(cli.ExitFailed, "malformed", "correct the line", "%s: want %d words, got %d", r.at, fields,
				len(r.fields))
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
