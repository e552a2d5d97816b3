package rewarder

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/rewarder"
	rewarderapi "ronbox/httpapi/wire/rewarder"
)

func (a app) inputsCmd() *cobra.Command {
	return cli.Group("inputs", "List and drop uploads of usage", a.inputsListCmd(), a.inputsRemoveCmd())
}

const inputsPage = 500 // rows per answer of the node; all pages are read

func (a app) inputsListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List uploads of usage",
		Long: `List uploads of usage, oldest first: those that the caller's token opened or, with the
scope rewarder.admin, those of its tenant, or of all tenants if the token names none.
BYTES is the part of the quota rewarder.inputs that an upload takes. An upload that a run
uses takes 0 and stays. An unsealed upload is dropped rewarder.inputs.keep after its last
part.`,
		Example: "  ronbox rewarder inputs list\n" +
			"  ronbox rewarder inputs list --json | jq -r '.uploads[] | select(.state == \"open\") | .upload'",
		Args: cli.Exactly(0, "no arguments"),
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
			slices.SortFunc(all.Uploads, byCreation)
			return a.Show(all, func(t cli.Table) { inputsTable(t, all.Uploads) })
		}),
	}
}

// byCreation orders uploads by creation time, then by id. Uploads of schema 1 have no time and come
// first.
func byCreation(a, b rewarder.UploadInfo) int {
	return cmp.Or(createdAt(a).Compare(createdAt(b)), bytes.Compare(a.ID[:], b.ID[:]))
}

// createdAt returns the creation time of an upload, or the zero time.
func createdAt(u rewarder.UploadInfo) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, u.CreatedAt) // parsed, because text of varying precision does not sort
	return at
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
		Use: "remove UPLOAD…", Short: "Drop uploads that no run uses",
		Long: `Drop uploads with their rows and the inputs that were sealed from them. The same
declaration can then be opened again. An upload that a run uses stays: exit 21.`,
		Example: "  ronbox rewarder inputs remove b3:9f2c…",
		Args:    cli.AtLeast(1, "one upload or more"),
		RunE: a.online(func(ctx context.Context, c rewarderapi.Client, args []string) error {
			for _, id := range args {
				err := c.DropUpload(ctx, id)
				if isNone(err) {
					return cli.Fail(cli.ExitFailed, "not_found",
						"`ronbox rewarder inputs list` lists the uploads that you may drop", "no upload %s", id)
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
