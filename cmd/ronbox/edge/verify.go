package edge

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	edgeapi "ronbox/httpapi/edge"
)

// verifyDoc is the output of edge verify.
type verifyDoc struct {
	edgeapi.Verified
	Found []edgeapi.Finding `json:"found"`
}

func (a app) verifyStoredCmd() *cobra.Command {
	var in edgeapi.Verify
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read every stored object and pack, and report what is damaged",
		Long: `Read every stored object and pack, and report what is damaged: bytes that do not have the
hash they are stored under, files that are missing. The node does the same by itself each
edge.scrub.every.

A damaged object is hashed again before it is served, and set aside then. With --fix it is
set aside at once, and fetched anew if edge.mode is "live" and edge.allow names its host.
A damaged pack is not served; replace its file.

Exit 0: all is sound. Exit 3: something is damaged, also if it was fixed; it is printed.`,
		Example: `  ronbox edge verify
  ronbox edge verify --fix --json | jq -r '.found[].name'`,
	}
	cmd.Flags().BoolVar(&in.Fix, "fix", false, "set damaged objects aside, and fetch them anew where that is allowed")
	cmd.RunE = a.online(time.Hour, func(ctx context.Context, c edgeapi.Client, _ []string) error {
		p := a.Progress(cli.Bytes, "verify")
		found, sum, err := c.Verify(ctx, in, p.At)
		p.End()
		if err != nil {
			return err
		}
		return a.showVerified(verifyDoc{sum, append([]edgeapi.Finding{}, found...)})
	})
	return cmd
}

// showVerified prints the findings and the sum.
func (a app) showVerified(doc verifyDoc) error {
	err := a.Show(doc, func(t cli.Table) {
		for _, f := range doc.Found {
			t.Row("BAD", f.Kind, f.Name, f.Fault, f.Done, f.URL)
		}
		t.Row(fmt.Sprintf("%d objects of %s and %d packs read, %d damaged", doc.Objects, cli.Bytes(doc.Bytes), doc.Packs, doc.Bad))
	})
	if err != nil || doc.Bad == 0 {
		return err
	}
	return a.FoundBad(doc.Found[0].Kind+" "+doc.Found[0].Name+": "+doc.Found[0].Fault, "")
}
