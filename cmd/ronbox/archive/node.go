package archive

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	nodeapi "ronbox/httpapi/wire/node"
)

func (a app) statusCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the state of the running node's archive",
		Long: `Show the state of the running node's archive: off, starting (no base is complete), ok,
behind (the target does not take what is to be sent), full (capture has stopped for want
of local space), foreign (another node writes into a line of this one), target_changed
(not mounted) or failed (it could not start, and keeps nothing). Note the signer down:
` + "`ronbox archive restore --signer`" + ` compares it.`,
		Example: `  ronbox --data-dir data archive status
  ronbox archive status --json | jq -r .state`,
		RunE: cli.Ask(a.App, nodeapi.NewClient, nodeapi.Client.Archive, statusTable),
	}
}

func statusTable(t cli.Table, s nodeapi.Archive) {
	t.Row("state", cli.Verdict(s.State == "ok" || s.State == "off" || s.State == "starting", s.State, s.State))
	t.Opt("target", s.Target)
	if s.Line != "" {
		t.Row("line", s.Line)
		t.Row("signer", s.Signer)
		t.Row("commands", fmt.Sprintf("%d, of which %d are in the target", s.Seq, s.SentSeq))
		t.Row("behind", fmt.Sprintf("%s, %s", seconds(s.LagSeconds), cli.Bytes(s.UnsentBytes)))
	}
	if !s.BaseAt.IsZero() {
		t.Row("base", fmt.Sprintf("%d commands, %s", s.BaseSeq, cli.FormatTime(s.BaseAt)))
	}
	if s.BaseParts > 0 {
		t.Row("next base", fmt.Sprintf("%d of %d parts", s.BasePartsSent, s.BaseParts))
	}
	if !s.LastSuccess.IsZero() {
		t.Row("last success", cli.FormatTime(s.LastSuccess))
	}
	t.Opt("last error", s.LastError)
	t.Opt("advice", s.Advice)
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

func (a app) baseCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "base",
		Short: "Send a base to the archive now",
		Long: `Have the running node send a base to its archive now, and wait until it is there. Bases
are sent automatically; one now makes restores of the next days faster. It also ends the
state foreign, once the other node is stopped. Nothing is sent if nothing has changed.`,
		Example: `  ronbox --data-dir data archive base
  ronbox archive base --json`,
		RunE: cli.Online(a.App, nodeapi.NewClient, func(ctx context.Context, c nodeapi.Client, _ []string) error {
			p := a.Progress(cli.Count, "")
			defer p.End()
			s, err := c.ArchiveBase(ctx, func(l nodeapi.ArchiveLine) {
				p.Stage(l.Stage)
				p.At(l.Done, l.Total)
			})
			p.End()
			if err != nil {
				return err
			}
			return a.Show(s, func(t cli.Table) { statusTable(t, s) })
		}),
	}
}
