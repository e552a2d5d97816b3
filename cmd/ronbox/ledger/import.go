package ledger

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/lverify"
	"ronbox/store"
)

func (a app) importCmd() *cobra.Command {
	var periods string
	cmd := &cobra.Command{
		Use:   "import [FILE]",
		Short: "Create the ledger of a stopped node from an export",
		Long: `Create the ledger of a stopped node from a complete export (` + "`ronbox ledger export`" + `; "-" is
stdin), with the same records, times, batches and roots. The ledger of the node must be
empty. The file is checked first; a bad file is refused and changes nothing. An
interrupted import continues when it is run again.

With --periods the ledger is created from the files of closed periods in a folder, from
the first period on, and from the export that goes on from the last file, if FILE is
given. The database has all records then, and no period of it is closed: a payment that
was made under a reference is not made again. Closed periods are closed again into another
folder, or into the same file if the period ends with the same record.

Idempotency keys are not imported. A repetition of a request that the old ledger has
answered is refused because of its nonce.`,
		Example: `  ronbox --data-dir fresh init
  ronbox --data-dir fresh ledger import journal.ndjson
  ronbox --data-dir fresh ledger import journal.ndjson --json
  ronbox --data-dir fresh ledger import --periods old/periods journal.ndjson`,
		Args: cli.AtMost(1, "one export"),
	}
	cmd.Flags().StringVar(&periods, "periods", "", "begin with the files of closed periods in `folder`")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error {
		if periods == "" && (len(args) == 0 || cmd.Flags().Changed("periods")) {
			return cli.Usage("want an export, or --periods with a folder")
		}
		return a.importLedger(ctx, importSource{periods, append(args, "")[0]})
	})
	return cmd
}

// importSource names the files of an import.
type importSource struct {
	periods string // a folder; "": none
	export  string // a file; "-": stdin, "": none
}

func (a app) importLedger(ctx context.Context, from importSource) error {
	file, err := a.RewritableFile(nil)
	if err != nil {
		return err
	}
	p := a.Progress(cli.Count, "check, records")
	o := lverify.Options{Progress: p.Of}
	rep, err := from.check(ctx, o)
	if err != nil || !rep.OK {
		p.End()
		return errors.Join(err, a.showReport(rep, err))
	}
	in := a.Stdin
	if from.export != "-" && from.export != "" {
		f, err := os.Open(from.export)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // only read
		in = f
	}
	p.Begin("import, records")
	err = a.withStore(ctx, file, func(s *store.Store) (err error) {
		rep.Report, err = from.write(ctx, s, in, lverify.ImportOptions{Options: o, Now: a.Now})
		return err
	})
	p.End()
	if errors.Is(err, lverify.ErrNotEmpty) {
		return cli.Fail(
			cli.ExitFailed,
			"not_empty",
			"make a node with `ronbox init` in another --data-dir, and import before it is served",
			"%w",
			err,
		)
	}
	return errors.Join(filesError(err), a.showReport(rep, err))
}

// check checks the files, and the export unless that is stdin.
func (from *importSource) check(ctx context.Context, o lverify.Options) (doc verifyDoc, err error) {
	file := from.export
	if file == "-" {
		file = ""
	}
	switch {
	case from.periods != "":
		return verifyAfter(ctx, from.periods, file, export, o)
	case file != "":
		return verifyExport(ctx, file, o)
	}
	doc.export, doc.OK = true, true
	return doc, nil
}

// write writes the ledger.
func (from *importSource) write(
	ctx context.Context,
	s *store.Store,
	in io.Reader,
	o lverify.ImportOptions,
) (lverify.Report, error) {
	switch {
	case from.periods == "":
		return lverify.Import(ctx, s, in, o)
	case from.export == "":
		in = nil
	}
	return lverify.ImportPeriods(ctx, s, from.periods, in, o)
}
