package access

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

func (a app) auditExportCmd() *cobra.Command {
	var from uint64
	var out string
	cmd := &cobra.Command{
		Use:   "export [DATABASE]",
		Short: "Export the whole audit chain as NDJSON, from the node or a database file",
		Long: `Export the whole audit chain, one JSON object per line, oldest row first. The rows come
from the running node, or from DATABASE or the database of a stopped node. Every row
carries its hash and the hash of the row before it, so that ` + "`ronbox audit verify`" + ` can
check the copy anywhere. The node keeps audit.retain rows (100,000 by default).`,
		Example: `  ronbox audit export > audit.ndjson
  ronbox audit export --from-seq 5000 --out audit-5000.ndjson --json
  ronbox audit export /backup/ronbox/ronbox-….db`,
		Args: cli.AtMost(1, "at most one database file"),
	}
	cmd.Flags().Uint64Var(&from, "from-seq", 1, "begin with row `N`, its seq")
	cmd.Flags().StringVar(&out, "out", "", "write to this new `file` instead of stdout")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error { return a.auditExport(ctx, args, from, out) })
	return cmd
}

func (a app) auditExport(ctx context.Context, args []string, from uint64, out string) error {
	if from == 0 {
		return cli.Usage("--from-seq 0: rows count from 1")
	}
	return a.withAudit(ctx, args, from, func(l *auditLines, _ *chainHead) error {
		if out == "" {
			if cli.IsTerminal(a.Stdout) {
				l.seen = func(int64, int64) {} // progress would mix with the rows
			}
			_, err := io.Copy(a.Stdout, l)
			return err
		}
		doc := cli.Exported{File: out}
		var err error
		doc.Bytes, err = cli.ProduceFile(out, 0o600, func(w io.Writer) error {
			_, err := io.Copy(w, l)
			return err
		})
		if err != nil {
			return err
		}
		doc.Rows = l.count
		return a.Show(doc, doc.Table)
	})
}

// withAudit opens the rows of the given file, of the running node, or of the database of a stopped
// node.
func (a app) withAudit(ctx context.Context, args []string, from uint64, use func(*auditLines, *chainHead) error) error {
	p, at := a.Progress(cli.Count, "audit rows"), &chainHead{}
	defer p.End()
	run := func(l *auditLines) error {
		l.seen = p.At
		return use(l, at)
	}
	if len(args) == 1 {
		return auditIn(ctx, args[0], from, run)
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = nodeapi.NewClient(c).Audit(ctx, from, 1)
	if file, here := a.FileInstead(err); here {
		return auditIn(ctx, file, from, run)
	}
	if err != nil {
		return err
	}
	return run(nodeAudit(ctx, nodeapi.NewClient(c), from, at))
}

// auditIn opens the rows of a database file.
func auditIn(ctx context.Context, file string, from uint64, run func(*auditLines) error) error {
	return cli.ReadDatabase(file, func(r *store.ReadOnly) error { return run(fileAudit(ctx, r, from)) })
}

func (a app) auditVerifyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "verify [FILE|-]",
		Short: "Verify every hash and link of an audit chain",
		Long: `Verify an audit chain: recompute the hash of every row and follow every link. FILE is an
export ("-" is stdin) or a database file that no process has open. Without FILE the rows
of the running node are read and must end with its head; if no node runs, the database
of --data-dir is read. Exit 3: a row was changed, removed or inserted.

The chain begins with the oldest row that audit.retain keeps. A chain whose newest rows
were removed still verifies: record the head of each export.`,
		Example: `  ronbox audit verify
  ronbox audit verify audit.ndjson --json
  ronbox audit export /backup/ronbox/ronbox-….db | ronbox audit verify -`,
		Args: cli.AtMost(1, "at most one file"),
		RunE: a.Verb(a.auditVerify),
	}
}

// auditVerdict is the output of audit verify.
type auditVerdict struct {
	OK bool `json:"ok"`
	store.ChainReport
	Problem string `json:"problem,omitzero"`
}

func (a app) auditVerify(ctx context.Context, args []string) error {
	doc, err := a.checkAudit(ctx, args)
	if err != nil {
		return err
	}
	if doc.OK = doc.Problem == ""; doc.OK && doc.Rows == 0 {
		return cli.Fail(cli.ExitBad, "empty", "", "there is no audit row in it")
	}
	err = a.Show(doc, func(t cli.Table) {
		t.Row("rows", doc.Rows)
		if doc.Rows > 0 {
			t.Row("from", doc.First)
			t.Row("to", doc.Last)
			t.Row("head", doc.Head)
		}
		t.Row(
			cli.Verdict(doc.OK, "sound", "BAD"),
			map[bool]string{true: "every hash and every link holds", false: doc.Problem}[doc.OK],
		)
	})
	if err != nil || doc.OK {
		return err
	}
	return a.FoundBad(doc.Problem, "chain")
}

// checkAudit verifies the chain. A fault of the chain is part of the verdict, not an error.
func (a app) checkAudit(ctx context.Context, args []string) (doc auditVerdict, err error) {
	walk := func(r io.Reader) error {
		doc.ChainReport, err = store.CheckAudit(r)
		if errors.Is(err, store.ErrCorrupt) {
			doc.Problem, err = err.Error(), nil
		}
		return err
	}
	if len(args) == 1 {
		lines, text, err := a.openExport(args[0])
		if err != nil {
			return doc, err
		}
		if text {
			return doc, errors.Join(walk(lines), lines.Close())
		}
	}
	err = a.withAudit(ctx, args, 1, func(l *auditLines, at *chainHead) error {
		if err := walk(l); err != nil || doc.Problem != "" || at.head == "" {
			return err
		}
		if at.last != doc.Last || at.head != doc.Head.String() && doc.Rows > 0 {
			doc.Problem = fmt.Sprintf("the rows end with %d, %s; the node's head is %d, %s", doc.Last, doc.Head,
				at.last, at.head)
		}
		return nil
	})
	return doc, err
}

// openExport opens an export. text is false if the file is a database, which is closed again.
func (a app) openExport(path string) (lines io.ReadCloser, text bool, err error) {
	if path == "-" {
		return io.NopCloser(a.Stdin), true, nil
	}
	if err := cli.CheckRegular(path); err != nil {
		return nil, false, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	buffered := bufio.NewReader(f)
	// a database begins with a zero byte, text does not
	if first, err := buffered.Peek(1); err == nil && first[0] == 0 {
		return nil, false, f.Close()
	}
	return struct {
		io.Reader
		io.Closer
	}{buffered, f}, true, nil
}
