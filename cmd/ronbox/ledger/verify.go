package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/tables"
	ledgerapi "ronbox/httpapi/wire/ledger"
	"ronbox/store"
)

func (a app) verifyCmd() *cobra.Command {
	var from uint64
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Verify a whole ledger: chain, roots, sums, balances and every derived table",
		Long: `Verify a whole ledger: the bytes and the arithmetic of each record, the root of each batch
and the chain of roots, that credits equal debits for every asset, that no account spent
more than it had, and that each balance, hold and name matches the records.

FILE is the database of a stopped node, a snapshot, or an export (` + "`ronbox ledger export`" + `).
The default is the database of --data-dir. With --from-batch only the batches from
that one on are verified, and no derived tables. The records of closed periods are not
in the database: the check begins after them, with the state that their statement proves.

Exit 0: sound. Exit 3: bad; each finding names the record or the batch.

To end the safe mode of a node: stop it, verify its ledger, rebuild it if only derived
tables are bad (` + "`ronbox ledger rebuild`" + `), and start it. The node accepts writes after
it has verified the ledger once more.`,
		Example: `  ronbox --data-dir data ledger verify
  ronbox ledger verify journal.ndjson --json
  ronbox ledger verify /backup/ronbox/ronbox-….db --from-batch 1001`,
		Args: cli.AtMost(1, "at most one file"),
	}
	cmd.Flags().
		Uint64Var(&from, "from-batch", 0, "verify only from `batch` N on, without derived tables (default all)")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error { return a.verify(ctx, args, from) })
	return cmd
}

func (a app) verify(ctx context.Context, args []string, from uint64) error {
	file, err := a.DatabaseFile(args)
	if err != nil {
		return err
	}
	export, err := isExport(file, len(args) == 1)
	if err != nil {
		return err
	}
	if export && from > 0 {
		return cli.Usage("--from-batch needs a database: an export is verified from its first batch")
	}
	p := a.Progress(cli.Count, "verify, records")
	o := lverify.Options{From: from, Progress: p.Of}
	verify := verifyLedger
	if export {
		verify = verifyExport
	}
	rep, err := verify(ctx, file, o)
	p.End()
	return errors.Join(err, a.showReport(rep, err))
}

// verifyLedger checks the ledger of a database.
func verifyLedger(ctx context.Context, file string, o lverify.Options) (doc verifyDoc, err error) {
	err = cli.ViewDatabase(ctx, file, func(r store.Reader) (err error) {
		doc.SafeMode = tables.GetDoubt(r)
		doc.Report, err = lverify.Verify(ctx, r, o)
		return err
	})
	return doc, err
}

// verifyDoc is the output of a check of a ledger.
type verifyDoc struct {
	lverify.Report
	SafeMode string `json:"safe_mode,omitzero"` // why the node that opened the file last entered safe mode

	export bool
}

// next returns the advice after a check: how to repair the ledger, and how to end safe mode.
func (d *verifyDoc) next() string {
	switch {
	case !d.OK && d.export:
		return "export it again, or take another copy"
	case !d.OK && journalBad(d.Report):
		return "a rebuild cannot repair records, batches or sums: restore a snapshot with `ronbox db restore`"
	case !d.OK:
		return "rebuild the derived tables with `ronbox ledger rebuild`, then start the node"
	case d.SafeMode != "" && !d.Whole:
		return "safe mode ends only if the whole ledger is sound: verify without --from-batch"
	case d.SafeMode != "":
		return "start the node: it verifies everything once more, leaves safe mode and accepts writes"
	}
	return ""
}

func reportTable(t cli.Table, doc *verifyDoc) {
	rep := &doc.Report
	t.Row("records", rep.Records)
	t.Row("batches", rep.Batches)
	if rep.Whole {
		t.Row("accounts", rep.Accounts)
		t.Row("assets", rep.Assets)
		t.Row("open holds", rep.Holds)
		t.Row("log root", rep.Head.Root)
	}
	t.Row("last root", rep.Head.LastRoot)
	if rep.OK {
		sound := "from that batch on every record and root holds"
		if rep.Whole {
			sound = Sound(rep.Periods, rep.FromSeq)
		}
		t.Row(cli.OK("sound"), sound)
	}
	for _, f := range rep.Findings {
		t.Row(cli.Bad("BAD"), fmt.Sprint(f))
	}
	t.Opt("safe mode", doc.SafeMode)
	if next := doc.next(); next != "" {
		t.Row("next", next)
	}
}

// Sound says what a check of a whole ledger without findings has proved. The records of closed
// periods are in their files: the ledger's own begin with the seq from.
func Sound(periods, from uint64) string {
	const all = "every record, root, sum and balance holds"
	switch periods {
	case 0:
		return all
	case 1:
		return fmt.Sprintf("from record %d on %s; 1 period closed before", from, all)
	}
	return fmt.Sprintf("from record %d on %s; %d periods closed before", from, all, periods)
}

// Checks returns the checks of the ledger as steps of the check of a file. The last step stores the
// head in out, and in sound what the steps have proved.
func Checks(out **ledgerapi.LedgerHead, sound *string) []store.Check {
	return append(ledger.Checks(), store.Check{Name: "ledger_head", Run: func(r store.Reader) error {
		head, err := ledger.HeadOf(r)
		if err != nil {
			return err
		}
		h := tables.GetHorizon(r)
		*sound = Sound(h.Period, h.Seq+1)
		*out = &ledgerapi.LedgerHead{
			Batches:  head.Batches,
			LogRoot:  head.Root.String(),
			LastRoot: head.LastRoot.String(),
			Seq:      head.Seq,
		}
		return nil
	}})
}

// A database has the magic number of bbolt in at least one of its first two pages.
const (
	largestPage = 64 << 10
	magic       = "\xed\xda\x0c\xed"
)

// isExport reports whether a file begins like an export. A file named by an argument may be neither
// an export nor a database.
func isExport(file string, named bool) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // only read
	head := make([]byte, 2*largestPage)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	switch head = head[:n]; {
	case n > 0 && head[0] == '{':
		return true, nil
	case !named || bytes.Contains(head, []byte(magic)):
		return false, nil
	case n == 0:
		return false, notALedger(file, "it is empty")
	}
	return false, notALedger(file, fmt.Sprintf("it begins with %q", head[:min(n, 16)]))
}

func notALedger(file, why string) error {
	return cli.Fail(cli.ExitFailed, "not_a_ledger",
		"name a database, a snapshot or an export; if the file is a snapshot, it is damaged: use another",
		"%s is neither a database nor an export: %s", file, why)
}
