package registry

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	registryapi "ronbox/httpapi/wire/registry"
)

func (a app) highwaterCmd() *cobra.Command {
	show := &cobra.Command{
		Use:   "show",
		Short: "Show the high-water mark, and whether the log may be extended",
		Long: `Show the high-water mark: the last checkpoint that the node has signed, kept in a file
outside its database. A database that is older than its mark, or restored, is read but
not extended: a second version of one number would split the log.`,
		Example: `  ronbox registry log highwater show`,
		RunE:    cli.Ask(a.App, registryapi.NewClient, registryapi.Client.HighWater, highwaterTable),
	}
	adopt := &cobra.Command{
		Use:   "adopt",
		Short: "Accept the log of this database as the newest one, and allow writes again",
		Long: `Accept the log of this database as the newest one, and allow writes again. Use it only if
no later version exists anywhere: a reader that has seen one will find a split log. Try
` + "`registry catch-up`" + ` first. The audit chain gets a record.`,
		Example: `  ronbox registry log highwater adopt --yes`,
		RunE: a.online(func(ctx context.Context, c registryapi.Client, _ []string) error {
			now, err := c.HighWater(ctx)
			if err != nil {
				return err
			}
			if now.Rollback || unsettled(now) > 0 {
				if err := a.Confirm(fmt.Sprintf("accept version %d, %s, as the newest one", now.Version, now.Hash),
					"adopt"); err != nil {
					return err
				}
			}
			return shown(a, highwaterTable)(c.Adopt(ctx))
		}),
	}
	return cli.Group("highwater", "Show or reset the mark that keeps an older database from splitting the log", show,
		adopt)
}

func highwaterTable(t cli.Table, w registryapi.HighWater) {
	t.Opt("file", w.Path)
	if w.MarkSize > 0 {
		t.Rows("mark", fmt.Sprintf("version %d, root %s", w.MarkSize, w.MarkRoot), "signed", w.MarkAt)
	}
	t.Row("head", fmt.Sprintf("version %d, %s", w.Version, w.Hash))
	for _, o := range w.Objections {
		t.Row("objects", objectionText(o))
	}
	switch {
	case w.Follow != nil:
		t.Rows("follows", w.Follow.Hub, "state", w.Follow.State)
		t.Opt("why", w.Follow.Detail)
		return
	case !w.Rollback:
		t.Row(cli.OK("sound"), "the log may be extended")
		return
	}
	t.Rows("STOPPED", w.Reason, "why", w.Detail,
		"next", "ronbox registry catch-up FILE, or ronbox registry log highwater adopt if no later version exists")
}

// unsettled returns the number of objections that are not settled.
func unsettled(w registryapi.HighWater) (n int) {
	for _, o := range w.Objections {
		if !o.Settled {
			n++
		}
	}
	return n
}

func objectionText(o registryapi.Objection) string {
	text := fmt.Sprintf("%s refused the tree of %d versions at %s", o.Witness, o.Tree, o.At)
	if o.Size > 0 {
		text += fmt.Sprintf(": it has seen a log of %d", o.Size)
	}
	if o.Settled {
		text += ", settled"
	}
	return text
}

func (a app) catchUpCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "catch-up FROM",
		Short: "Restore the versions that a restored node lacks, from a later snapshot or an export",
		Long: `Restore the versions that a restored node lacks, from a later snapshot or an export of
the same log, which must be on the disk of the node. It is verified completely before any
version is copied. Once the log reaches its high-water mark, the node signs and commits
again.`,
		Example: `  ronbox registry catch-up /backup/ronbox-later.db`,
		Args:    cli.Exactly(1, "one snapshot or one export"),
		RunE: a.online(func(ctx context.Context, c registryapi.Client, args []string) error {
			path, err := filepath.Abs(args[0]) // the node has another working directory
			if err != nil {
				return err
			}
			return shown(a, func(t cli.Table, done registryapi.CaughtUp) {
				t.Rows("before", done.From, "now", done.To, "records", done.Records)
				t.Row(cli.OK("sound"), "the log may be extended")
			})(c.CatchUp(ctx, path))
		}),
	}
}
