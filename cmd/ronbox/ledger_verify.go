package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

func (a *app) ledgerVerifyCmd() *cobra.Command {
	var from uint64
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Check a whole ledger: chain, roots, sums, balances, and every table made of them",
		Long: `Check a whole ledger: each record's bytes and arithmetic, each batch's root and the chain
of them, that every asset's credits and debits are equal and nobody spent what was not
there, and that each balance, hold and name is what the records make of it.

FILE is a database that no node holds, a snapshot, or an export (` + "`ronbox ledger export`" + `);
without it, it is the database of --data-dir. All of it is checked, unless --from is
given: then only the batches from that one on, and no derived table.

Exit 0: sound. Exit 3: bad; each finding names the record or the batch.

A node in safe mode is stopped, verified, rebuilt (` + "`ronbox ledger rebuild`" + `) if only
derived tables are bad, and started: it verifies everything once more, and only then takes
writes.`,
		Example: `  ronbox --data-dir data ledger verify
  ronbox ledger verify journal.ndjson --json
  ronbox ledger verify /backup/ronbox/ronbox-….db --from 1001`,
		Args: atMost(1, "at most one file"),
	}
	cmd.Flags().Uint64Var(&from, "from", 0, "begin with this `batch` and leave the derived tables out (default everything)")
	cmd.RunE = a.verb(func(ctx context.Context, args []string) error { return a.ledgerVerify(ctx, args, from) })
	return cmd
}

func (a *app) ledgerVerify(ctx context.Context, args []string, from uint64) error {
	file, err := a.databaseArg(args)
	if err != nil {
		return err
	}
	export, err := isExport(file, len(args) == 1)
	if err != nil {
		return err
	}
	if export && from > 0 {
		return usage("--from is for a database: an export is checked from where it begins")
	}
	p := a.progress(countUnit)
	p.begin("verify, records")
	o := lverify.Options{From: from, Progress: func(done, total uint64) { p.at(int64(done), int64(total)) }}
	verify := verifyLedger
	if export {
		verify = verifyExportFile
	}
	rep, err := verify(ctx, file, o)
	p.end()
	return errors.Join(err, a.showLedgerReport(rep, err))
}

// verifyLedger checks the ledger of a database.
func verifyLedger(ctx context.Context, file string, o lverify.Options) (doc ledgerDoc, err error) {
	r, err := store.OpenReader(file)
	if err != nil {
		return doc, err
	}
	err = r.View(ctx, func(rd store.Reader) (err error) {
		doc.SafeMode = tables.GetDoubt(rd)
		doc.Report, err = lverify.Verify(ctx, rd, o)
		return err
	})
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	return doc, err
}

// ledgerDoc is what a check of a ledger prints.
type ledgerDoc struct {
	lverify.Report
	SafeMode string `json:"safe_mode,omitzero"` // why the node that last had the file wrote no more

	export bool
}

// next is what to do about a check: how a ledger gets sound, and out of safe mode.
func (d *ledgerDoc) next() string {
	switch {
	case !d.OK && d.export:
		return "export it again, or take another copy"
	case !d.OK && journalBad(d.Report):
		return "no rebuild mends records, batches or sums: restore a snapshot with `ronbox db restore`"
	case !d.OK:
		return "`ronbox ledger rebuild` makes the derived tables anew; then start the node"
	case d.SafeMode != "" && !d.Whole:
		return "safe mode ends when everything is sound: verify without --from"
	case d.SafeMode != "":
		return "start the node: it was in safe mode, verifies everything once more, and then takes writes"
	}
	return ""
}

func ledgerReportTable(t table, doc *ledgerDoc) {
	rep := &doc.Report
	t.row("records", rep.Records)
	t.row("batches", rep.Batches)
	if rep.Whole {
		t.row("accounts", rep.Accounts)
		t.row("assets", rep.Assets)
		t.row("open holds", rep.Holds)
		t.row("log root", rep.Head.Root)
	}
	t.row("last root", rep.Head.LastRoot)
	if rep.OK {
		t.row("sound", map[bool]string{true: "every record, root, sum and balance holds", false: "from that batch on every record and root holds"}[rep.Whole])
	}
	for _, f := range rep.Findings {
		t.row("BAD", fmt.Sprint(f))
	}
	if doc.SafeMode != "" {
		t.row("safe mode", doc.SafeMode)
	}
	if next := doc.next(); next != "" {
		t.row("next", next)
	}
}
