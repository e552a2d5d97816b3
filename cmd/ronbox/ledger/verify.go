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
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify [FILE...]",
		Short: "Verify a whole ledger: chain, roots, sums, balances and every derived table",
		Long: `Verify a whole ledger: the bytes and the arithmetic of each record, the root of each batch
and the chain of roots, that credits equal debits for every asset, that no account spent
more than it had, and that each balance, hold and name matches the records.

FILE is the database of a stopped node, a snapshot, or an export (` + "`ronbox ledger export`" + `).
The default is the database of --data-dir. With --from-batch only the batches from
that one on are verified, and no derived tables.

The records of closed periods are not in the database: its check begins after them, with
the state that their statement proves. With --periods the files of the periods in a
folder are verified first, from period 1 on, and FILE must go on from the last one: then
every record since the first is proved, and that none was paid twice. FILE may also be
one or more files of periods that follow one another.

Exit 0: sound. Exit 3: bad; each finding names the record or the batch.

To end the safe mode of a node: stop it, verify its ledger, rebuild it if only derived
tables are bad (` + "`ronbox ledger rebuild`" + `), and start it. The node accepts writes after
it has verified the ledger once more.`,
		Example: `  ronbox --data-dir data ledger verify
  ronbox ledger verify journal.ndjson --json
  ronbox ledger verify /backup/ronbox/ronbox-….db --from-batch 1001
  ronbox ledger verify --periods data/periods
  ronbox ledger verify period-000001.ndjson.zst period-000002.ndjson.zst`,
		Args: cli.AtLeast(0, "files"),
	}
	flags := cmd.Flags()
	flags.Uint64Var(&o.from, "from-batch", 0, "verify only from `batch` N on, without derived tables (default all)")
	flags.StringVar(&o.periods, "periods", "", "verify the files of closed periods in `folder` first")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error { return a.verify(ctx, args, o) })
	return cmd
}

type verifyOptions struct {
	from    uint64 // batch
	periods string // folder
}

func (a app) verify(ctx context.Context, args []string, o verifyOptions) error {
	if len(args) > 1 && o.periods != "" {
		return cli.Usage("--periods goes with at most one file")
	}
	file, err := a.DatabaseFile(args[:min(len(args), 1)])
	if err != nil {
		return err
	}
	kind, err := kindOf(file, len(args) > 0)
	switch {
	case err != nil:
		return err
	case kind != database && o.from > 0, o.periods != "" && o.from > 0:
		return cli.Usage("--from-batch needs a database, and nothing before it: all else is verified from its begin")
	case kind != periodFile && len(args) > 1, kind == periodFile && o.periods != "":
		return cli.Usage("name one database or export, or files of periods, or the folder of these with --periods")
	}
	p := a.Progress(cli.Count, "verify, records")
	with := lverify.Options{From: o.from, Progress: p.Of}
	var rep verifyDoc
	switch {
	case o.periods != "":
		rep, err = verifyAfter(ctx, o.periods, file, kind, with)
	case kind == periodFile:
		rep, err = verifyPeriods(ctx, args, with)
	case kind == export:
		rep, err = verifyExport(ctx, file, with)
	default:
		rep, err = verifyLedger(ctx, file, with)
	}
	p.End()
	return errors.Join(err, a.showReport(rep, err))
}

// verifyPeriods checks files of periods, one after the other.
func verifyPeriods(ctx context.Context, files []string, o lverify.Options) (doc verifyDoc, err error) {
	doc.export = true
	p := lverify.NewPeriods(o)
	for _, file := range files {
		rep, err := p.File(ctx, file)
		if doc.Join(rep); err != nil || !doc.OK {
			return doc, err
		}
	}
	return doc, nil
}

// verifyAfter checks the files of periods in a folder, and a database or an export that goes on
// from them. Without a name there are only the files.
func verifyAfter(ctx context.Context, dir, file string, k kind, o lverify.Options) (doc verifyDoc, err error) {
	p := lverify.NewPeriods(o)
	if doc.Report, err = p.Folder(ctx, dir); err != nil || !doc.OK || file == "" {
		doc.export = true
		return doc, err
	}
	if k == export {
		f, err := os.Open(file)
		if err != nil {
			return doc, err
		}
		defer func() { _ = f.Close() }() // only read
		doc.export = true
		return doc, p.Export(ctx, f, &doc.Report)
	}
	err = cli.ViewDatabase(ctx, file, func(r store.Reader) error {
		doc.SafeMode = tables.GetDoubt(r)
		return p.Database(ctx, r, &doc.Report)
	})
	return doc, err
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

	export bool // the file that was checked is an export, or the file of a period
}

// next returns the advice after a check: how to repair the ledger, and how to end safe mode.
func (d *verifyDoc) next() string {
	switch {
	case !d.OK && d.export:
		return "take another copy, or export it again"
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

// kind is the kind of a file of a ledger.
type kind int

const (
	database kind = iota
	export
	periodFile
)

// A database has the magic number of bbolt in at least one of its first two pages, the file of a
// period begins with that of zstd.
const (
	largestPage = 64 << 10
	magic       = "\xed\xda\x0c\xed"
	magicPeriod = "\x28\xb5\x2f\xfd"
)

// kindOf returns the kind of a file by its first bytes. A file named by an argument may be of no
// known kind.
func kindOf(file string, named bool) (kind, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // only read
	head := make([]byte, 2*largestPage)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err
	}
	switch head = head[:n]; {
	case n > 0 && head[0] == '{':
		return export, nil
	case bytes.HasPrefix(head, []byte(magicPeriod)):
		return periodFile, nil
	case !named || bytes.Contains(head, []byte(magic)):
		return database, nil
	case n == 0:
		return 0, notALedger(file, "it is empty")
	}
	return 0, notALedger(file, fmt.Sprintf("it begins with %q", head[:min(n, 16)]))
}

func notALedger(file, why string) error {
	return cli.Fail(cli.ExitFailed, "not_a_ledger",
		"name a database, a snapshot, an export or files of periods; a snapshot that is none is damaged: use another",
		"%s is neither a database nor an export, nor the file of a period: %s", file, why)
}
