package ledger

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance/clock"
	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines/ledger/lverify"
	"ronbox/store"
)

// Time limits for the committer to end. Its queue is empty.
const storeDrain, storeGrace = 30 * time.Second, 5 * time.Second

// withStore opens a stopped node's database for writing, runs its committer, and calls work.
func (a app) withStore(ctx context.Context, file string, work func(s *store.Store) error) (err error) {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	catalog := flow.NewCatalog(nil, nil)
	now := clock.New(clock.Options{Built: a.Build.Made})
	s := store.New(cfg.Store, store.Options{
		Path: file, Catalog: catalog, Now: now.Now, Opened: now.Begin, Migrations: wiring.Migrations(),
	})
	wiring.Declare(s)
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
		return errors.Join(err, errors.New("the committer did not stop in time"))
	}
	return errors.Join(err, s.Close())
}

// showReport prints the findings of a check, unless it ended with err.
func (a app) showReport(rep verifyDoc, err error) error {
	if err != nil {
		return nil
	}
	if err := a.Show(rep, func(t cli.Table) { reportTable(t, &rep) }); err != nil || rep.OK {
		return err
	}
	return a.FoundBad(rep.Err().Error(), "")
}

func verifyExport(ctx context.Context, file string, o lverify.Options) (doc verifyDoc, err error) {
	f, err := os.Open(file)
	if err != nil {
		return doc, err
	}
	defer func() { _ = f.Close() }() // only read
	doc.export = true
	doc.Report, err = lverify.VerifyExport(ctx, f, o)
	return doc, err
}

// rebuiltDoc is the output of ledger rebuild.
type rebuiltDoc struct {
	File   string    `json:"file"`
	Report verifyDoc `json:"report"` // of the check after the rebuild
}

func (a app) rebuildCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rebuild",
		Short: "Rebuild balances, holds, names and indexes of a stopped node from its journal",
		Long: `Rebuild balances, holds, names and indexes of a stopped node from its journal, and verify
the whole ledger afterwards. The journal is checked first. A rebuild cannot repair a fault
in the journal; restore a snapshot in that case. Run it if ` + "`ronbox ledger verify`" + ` finds a
derived table that does not match the records. Run it again if it was interrupted.`,
		Example: `  ronbox --data-dir data ledger rebuild
  ronbox --data-dir data ledger rebuild --json`,
		RunE: a.Verb(func(ctx context.Context, _ []string) error { return a.rebuild(ctx) }),
	}
}

func (a app) rebuild(ctx context.Context) error {
	file, err := a.RewritableFile(nil)
	if err != nil {
		return err
	}
	p := a.Progress(cli.Count, "")
	defer p.End()
	o := lverify.Options{Progress: p.Of}
	p.Begin("check, records")
	rep, err := verifyLedger(ctx, file, o)
	if err != nil {
		return err
	}
	if journalBad(rep.Report) {
		p.End()
		return a.showReport(rep, nil)
	}
	p.Begin("rebuild, records")
	if err := a.withStore(ctx, file, func(s *store.Store) error { return lverify.Rebuild(ctx, s, o) }); err != nil {
		return err
	}
	p.Begin("verify, records")
	if rep, err = verifyLedger(ctx, file, o); err != nil {
		return err
	}
	p.End()
	doc := rebuiltDoc{file, rep}
	if err := a.Show(doc, func(t cli.Table) {
		t.Row("rebuilt", file)
		reportTable(t, &rep)
	}); err != nil || rep.OK {
		return err
	}
	return a.FoundBad(rep.Err().Error(), "")
}

// journalBad reports whether the journal itself is bad, or what came of closed periods. Wrong sums
// without a wrong balance are a fault of the records; with a wrong balance they are its
// consequence.
func journalBad(rep lverify.Report) bool {
	sums, balance := false, false
	for _, f := range rep.Findings {
		switch f.Where {
		case "journal", "batches", "head", "periods", "horizon", "base", "nlog", "closed":
			return true
		case "sums":
			sums = true
		case "state":
			balance = true
		}
	}
	return sums && !balance
}
