package rewarder

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/rewarder"
	rewarderapi "ronbox/httpapi/rewarder"
)

func (a app) inputsCmd() *cobra.Command {
	return cli.Group("inputs", "List and drop uploads of usage", a.inputsListCmd(), a.inputsRemoveCmd())
}

const inputsPage = 500 // of the node's answers; all pages are read

func (a app) inputsListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List uploads of usage",
		Long: `List uploads of usage: those that the caller's token opened, or with the scope
rewarder.admin those of its tenant, of all tenants if it names none. BYTES is what an
upload counts for in the quota rewarder.inputs; one that a run uses counts for nothing and
stays. One that is not sealed is dropped rewarder.inputs.keep after its last part.`,
		Example: "  ronbox rewarder inputs ls\n  ronbox rewarder inputs ls --json | jq -r '.uploads[] | select(.state == \"open\") | .upload'",
		Args:    cli.Exactly(0, "no arguments"),
		RunE: a.online(func(ctx context.Context, c rewarderapi.Client, _ []string) error {
			all := rewarder.UploadPage{Uploads: []rewarder.UploadInfo{}}
			for after := ""; ; {
				page, err := c.Uploads(ctx, after, inputsPage)
				if err != nil {
					return err
				}
				all.Uploads = append(all.Uploads, page.Uploads...)
				if after = page.Next; after == "" {
					break
				}
			}
			return a.Show(all, func(t cli.Table) { inputsTable(t, all.Uploads) })
		}),
	}
}

func inputsTable(t cli.Table, all []rewarder.UploadInfo) {
	if len(all) == 0 {
		t.Row("none")
		return
	}
	t.Row("UPLOAD", "STATE", "TENANT", "EPOCH", "OWNER", "ROWS", "BYTES", "EXPIRES")
	for _, u := range all {
		t.Row(u.ID, u.State, orDash(u.Tenant), orDash(u.EpochID), orDash(u.Owner), u.Rows, u.Bytes, orDash(u.ExpiresAt))
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a app) inputsRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "rm UPLOAD…", Short: "Drop uploads that no run uses",
		Long: `Drop uploads with their rows and the inputs that were sealed from them. The same
declaration can then be opened anew. An upload that a run uses stays: exit 21.`,
		Example: "  ronbox rewarder inputs rm b3:9f2c…",
		Args:    cli.AtLeast(1, "one upload or more"),
		RunE: a.online(func(ctx context.Context, c rewarderapi.Client, args []string) error {
			for _, id := range args {
				err := c.DropUpload(ctx, id)
				if isNone(err) {
					return cli.Fail(cli.ExitFailed, "not_found", "`ronbox rewarder inputs ls` lists the uploads that you may drop", "no upload %s", id)
				}
				if err != nil {
					return err
				}
			}
			dropped := struct {
				Dropped []string `json:"dropped"`
			}{args}
			return a.Show(dropped, func(t cli.Table) { t.Row("dropped", strings.Join(args, ", ")) })
		}),
	}
}
