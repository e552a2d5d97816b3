package access

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/httpapi/client"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

func (a app) auditCmd() *cobra.Command {
	return cli.Group("audit", "Show, export and verify the audit chain",
		a.auditTailCmd(), a.auditExportCmd(), a.auditVerifyCmd())
}

type tailFlags struct {
	lines  int
	follow bool
	count  int
}

func (a app) auditTailCmd() *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show the newest rows of the audit chain",
		Long: `Show the newest rows of the audit chain: tokens created and revoked, keys,
configuration, restores, drains. With --follow new rows are shown as they are written;
after a broken connection the stream resumes without a gap. Stop it with Ctrl-C.`,
		Example: `  ronbox audit tail
  ronbox audit tail --lines 100 --json
  ronbox audit tail --follow --lines 0`,
	}
	cmd.Flags().IntVarP(&f.lines, "lines", "n", 10, "show `N` rows, up to 1000")
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "show new rows as they are written")
	cmd.Flags().IntVar(&f.count, "count", 0, "with --follow: stop after `N` rows in all")
	cmd.RunE = a.online(func(ctx context.Context, c nodeapi.Client, _ []string) error { return a.auditTail(ctx, c, f) })
	return cmd
}

func (a app) auditTail(ctx context.Context, c nodeapi.Client, f tailFlags) error {
	if f.lines < 0 || f.lines > auditPage || f.count < 0 {
		return cli.Usage("--lines %d --count %d: want numbers from 0, and at most %d lines", f.lines, f.count,
			auditPage)
	}
	if f.count > 0 && !f.follow {
		return cli.Usage("--count %d needs --follow: without it, --lines sets the number of rows", f.count)
	}
	rows, last, err := newestRows(ctx, c, f.lines)
	if err != nil {
		return err
	}
	for i, r := range rows {
		if err := a.auditRow(r); err != nil || f.follow && i+1 == f.count {
			return err
		}
	}
	if !f.follow {
		return nil
	}
	seen := len(rows)
	err = c.AuditStream(ctx, a.Following(cli.Decimal(last), 0), func(r nodeapi.AuditRow) error {
		if err := a.auditRow(r); err != nil {
			return err
		}
		if seen++; seen == f.count {
			return client.ErrStop
		}
		return nil
	})
	return cli.UntilCtrlC(ctx, err)
}

// newestRows reads the last n rows, and returns the number of the last row.
func newestRows(ctx context.Context, c nodeapi.Client, n int) (rows []nodeapi.AuditRow, last uint64, err error) {
	page, err := c.Audit(ctx, 1, 1) // the bounds of the chain
	if err != nil || n == 0 || page.Last == 0 {
		return nil, page.Last, err
	}
	from := max(page.First, page.Last-min(uint64(n), page.Last)+1)
	page, err = c.Audit(ctx, from, n)
	if len(page.Rows) > 0 {
		last = page.Rows[len(page.Rows)-1].Seq
	}
	return page.Rows, last, err
}

// auditRow prints one row at once; a table would wait for all rows.
func (a app) auditRow(r nodeapi.AuditRow) error {
	if a.Flags.JSON {
		return a.PrintJSON(r)
	}
	if a.Flags.Quiet {
		return nil
	}
	return a.Print([]byte(cli.Plain(auditText(r)) + "\n"))
}

func auditText(r nodeapi.AuditRow) string {
	who := cmp.Or(r.Principal, "-")
	if r.UID != "" {
		who += " (uid " + r.UID + ")"
	}
	text := fmt.Sprintf("%-6d %s  %-20s %-7s %s", r.Seq, cli.FormatStamp(r.At), r.Event, r.Decision, who)
	var more []string
	if r.Reason != "" {
		more = append(more, r.Reason)
	}
	for _, k := range slices.Sorted(maps.Keys(r.Detail)) {
		if r.Detail[k] != "" {
			more = append(more, k+"="+r.Detail[k])
		}
	}
	if len(more) > 0 {
		text += "  " + strings.Join(more, " ")
	}
	return text
}

const auditPage = 1000 // rows of one answer of the node

// auditLines reads an audit chain as NDJSON, page by page, from the row next on.
type auditLines struct {
	fetch func(from uint64) (lines []byte, next uint64, err error) // next is 0 after the last page
	next  uint64
	left  []byte
	done  bool
	count uint64                  // rows read
	seen  func(done, total int64) // progress, after each page; a total of 0 is unknown
}

// Read implements io.Reader.
func (l *auditLines) Read(p []byte) (int, error) {
	for len(l.left) == 0 {
		if l.done {
			return 0, io.EOF
		}
		lines, next, err := l.fetch(l.next)
		if err != nil {
			return 0, err
		}
		l.left, l.next, l.done = lines, next, next == 0
	}
	n := copy(p, l.left)
	l.left = l.left[n:]
	return n, nil
}

// chainHead is the head of a chain as reported by its node.
type chainHead struct {
	last uint64
	head string
}

// nodeAudit reads the rows of a running node and stores the head of its chain in at.
func nodeAudit(ctx context.Context, c nodeapi.Client, first uint64, at *chainHead) *auditLines {
	l := &auditLines{next: first}
	l.fetch = func(from uint64) ([]byte, uint64, error) {
		page, err := c.Audit(ctx, from, auditPage)
		if err != nil {
			return nil, 0, err
		}
		*at = chainHead{page.Last, page.Head}
		l.count += uint64(len(page.Rows))
		l.seen(int64(l.count), int64(page.Last-min(page.Last, max(first, page.First)-1)))
		lines, err := ndjson(page.Rows)
		return lines, page.Next, err
	}
	return l
}

// fileAudit reads the rows of a database file that no process writes.
func fileAudit(ctx context.Context, r *store.ReadOnly, from uint64) *auditLines {
	l := &auditLines{next: from}
	l.fetch = func(from uint64) (lines []byte, next uint64, err error) {
		err = r.View(ctx, func(rd store.Reader) error {
			rows, err := store.Audit(rd, from, auditPage)
			if err != nil {
				return err
			}
			if len(rows) == auditPage {
				next = rows[len(rows)-1].Seq + 1
			}
			l.count += uint64(len(rows))
			l.seen(int64(l.count), 0)
			lines, err = ndjson(wireRows(rows))
			return err
		})
		return lines, next, err
	}
	return l
}

// wireRows converts rows to the form of the node's API, so that an export has the same bytes from a
// node and from a file.
func wireRows(rows []store.AuditRow) []nodeapi.AuditRow {
	out := make([]nodeapi.AuditRow, len(rows))
	for i, r := range rows {
		out[i] = server.AuditRow(r)
	}
	return out
}

func ndjson[R any](rows []R) ([]byte, error) {
	var out []byte
	for _, r := range rows {
		line, err := cli.Encode(r)
		if err != nil {
			return nil, err
		}
		out = append(out, line...)
	}
	return out, nil
}
