package rewarder

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/rewarder"
	rewarderapi "ronbox/httpapi/wire/rewarder"
)

// filesDoc is the output of files.
type filesDoc struct {
	OK bool `json:"ok"`
	rewarder.RunFiles
}

func (a app) filesCmd() *cobra.Command {
	var rebuild bool
	cmd := &cobra.Command{
		Use: "files EPOCH", Short: "Check the files of a run on the node's disk, and rewrite lost ones",
		Long: `Compare the files of a run on the node's disk with the node's database, byte for byte.
With --rebuild, files that are missing or differ, for instance after a restore, are
rewritten with their original bytes. Nothing is written if the database does not match
the digests that the run has recorded.

It needs the scope rewarder.admin. Exit 3: a file is missing or differs.`,
		Example: "  ronbox rewarder files 2008\n  ronbox rewarder files 2008 --rebuild",
		Args:    cli.Exactly(1, "one epoch"),
	}
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "rewrite files that are missing or differ")
	cmd.RunE = a.online(func(ctx context.Context, c rewarderapi.Client, args []string) error {
		out, err := c.Files(ctx, args[0], rebuild)
		if err != nil {
			return err
		}
		doc, bad := filesDoc{OK: true, RunFiles: out}, ""
		for _, f := range out.Files {
			if doc.OK && (f.State == rewarder.FileMissing || f.State == rewarder.FileDiffers) {
				doc.OK, bad = false, fmt.Sprintf("%s: %s", f.Name, f.State)
			}
		}
		if err := a.Show(doc, doc.table); err != nil || doc.OK {
			return err
		}
		return a.FoundBad(bad, "`ronbox rewarder files "+args[0]+" --rebuild` rewrites it")
	})
	return cmd
}

func (d *filesDoc) table(t cli.Table) {
	t.Row("folder", d.Folder)
	for _, f := range d.Files {
		t.Row(f.Name, f.State)
	}
}
