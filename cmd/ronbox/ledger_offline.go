package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance"
	"ronbox/appliance/flow"
	"ronbox/engines/ledger/lverify"
	"ronbox/store"
)

// How long the committer may take to end: it has nothing left to do.
const storeDrain, storeGrace = 30 * time.Second, 5 * time.Second

// withStore opens a stopped node's database for writing, its committer running, and lets work go at it.
func (a *app) withStore(ctx context.Context, file string, work func(s *store.Store) error) (err error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	catalog := flow.NewCatalog(nil, nil)
	s := store.New(cfg.Store, store.Options{Path: file, Catalog: catalog, Now: a.now})
	appliance.Declare(s)
	if err := s.Open(ctx); err != nil {
		return err
	}
	if err := s.Prepare(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	sup := flow.NewSupervisor(context.WithoutCancel(ctx), catalog, flow.Hooks{})
	defer sup.Close()
	sup.Start(s.Tasks()...)
	err = work(s)
	s.CloseLanes()
	if sup.Drain("store", storeDrain, storeGrace) > 0 {
		return errors.Join(err, errors.New("the committer does not stop"))
	}
	return errors.Join(err, s.Close())
}

func (a *app) ledgerImportCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Make the ledger of an export in a stopped node whose ledger is empty",
		Long: `Make the ledger of an export (` + "`ronbox ledger export`" + `, whole, "-" being stdin) in a stopped
node whose ledger is empty: the same records, times, batches and roots. A file is checked
first, and nothing is written of one that is bad. An import that was interrupted goes on
when it is run again.

Idempotency keys do not come along: a request that was answered by the old ledger is
refused by its nonce here, not answered again.`,
		Example: `  ronbox --data-dir fresh init
  ronbox --data-dir fresh ledger import journal.ndjson
  ronbox --data-dir fresh ledger import journal.ndjson --json`,
		Args: exactly(1, "one export"),
		RunE: a.verb(func(ctx context.Context, args []string) error { return a.ledgerImport(ctx, args[0]) }),
	}
}

func (a *app) ledgerImport(ctx context.Context, export string) error {
	file, err := a.rewritable(nil)
	if err != nil {
		return err
	}
	p := a.progress(countUnit)
	o := lverify.Options{Progress: func(done, total uint64) { p.at(int64(done), int64(total)) }}
	in := a.stdin
	if export != "-" {
		p.begin("check, records")
		rep, err := verifyExportFile(ctx, export, o)
		if err != nil || !rep.OK {
			p.end()
			return errors.Join(err, a.showLedgerReport(rep, err))
		}
		f, err := os.Open(export)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // only read
		in = f
	}
	p.begin("import, records")
	var rep ledgerDoc
	err = a.withStore(ctx, file, func(s *store.Store) (err error) {
		rep.Report, err = lverify.Import(ctx, s, in, lverify.ImportOptions{Options: o, Now: a.now})
		return err
	})
	p.end()
	if errors.Is(err, lverify.ErrNotEmpty) {
		return failed(exitFailed, "not_empty", "make a node with `ronbox init` in another --data-dir, and import before it is served", "%w", err)
	}
	return errors.Join(err, a.showLedgerReport(rep, err))
}

// showLedgerReport prints what a check found, unless it ended with err.
func (a *app) showLedgerReport(rep ledgerDoc, err error) error {
	if err != nil {
		return nil
	}
	if err := a.show(rep, func(t table) { ledgerReportTable(t, &rep) }); err != nil || rep.OK {
		return err
	}
	return a.found(rep.Err().Error(), rep.Findings[0].Where)
}

func verifyExportFile(ctx context.Context, file string, o lverify.Options) (doc ledgerDoc, err error) {
	f, err := os.Open(file)
	if err != nil {
		return doc, err
	}
	defer func() { _ = f.Close() }() // only read
	doc.export = true
	doc.Report, err = lverify.VerifyExport(ctx, f, o)
	return doc, err
}

// rebuiltDoc is what ledger rebuild prints.
type rebuiltDoc struct {
	File   string    `json:"file"`
	Report ledgerDoc `json:"report"` // of the check that followed
}

func (a *app) ledgerRebuildCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rebuild",
		Short: "Make balances, holds, names and indexes of a stopped node anew from its journal",
		Long: `Make balances, holds, names and indexes of a stopped node anew from its journal, which
alone is the truth, and check the whole ledger then. The journal itself is checked first:
what is wrong with that no rebuild mends, and a snapshot has to be restored. Run it when
` + "`ronbox ledger verify`" + ` finds a table that is not what the records make of it; one that
was interrupted must be run again.`,
		Example: `  ronbox --data-dir data ledger rebuild
  ronbox --data-dir data ledger rebuild --json`,
		Args: exactly(0, "no arguments"),
		RunE: a.verb(func(ctx context.Context, _ []string) error { return a.ledgerRebuild(ctx) }),
	}
}

func (a *app) ledgerRebuild(ctx context.Context) error {
	file, err := a.rewritable(nil)
	if err != nil {
		return err
	}
	p := a.progress(countUnit)
	defer p.end()
	o := lverify.Options{Progress: func(done, total uint64) { p.at(int64(done), int64(total)) }}
	p.begin("check, records")
	rep, err := verifyLedger(ctx, file, o)
	if err != nil {
		return err
	}
	if journalBad(rep.Report) {
		p.end()
		return a.showLedgerReport(rep, nil)
	}
	p.begin("rebuild, records")
	if err := a.withStore(ctx, file, func(s *store.Store) error { return lverify.Rebuild(ctx, s, o) }); err != nil {
		return err
	}
	p.begin("verify, records")
	if rep, err = verifyLedger(ctx, file, o); err != nil {
		return err
	}
	p.end()
	doc := rebuiltDoc{file, rep}
	if err := a.show(doc, func(t table) {
		t.row("rebuilt", file)
		ledgerReportTable(t, &rep)
	}); err != nil || rep.OK {
		return err
	}
	return a.found(rep.Err().Error(), rep.Findings[0].Where)
}

// journalBad tells whether something is wrong with what tables are made of. Sums alone are the records'; beside a balance that
// is wrong they are what that adds up to.
func journalBad(rep lverify.Report) bool {
	sums, balance := false, false
	for _, f := range rep.Findings {
		switch f.Where {
		case "journal", "batches", "head":
			return true
		case "sums":
			sums = true
		case "state":
			balance = true
		}
	}
	return sums && !balance
}
