package ledger

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
)

// findFlags select records of closed periods.
type findFlags struct {
	periods, tx, account, reference, principal string
}

func (a app) findCmd() *cobra.Command {
	var f findFlags
	cmd := &cobra.Command{
		Use:   "find --periods DIR",
		Short: "Find records in the files of closed periods",
		Long: `Find records in the files of closed periods, without the node: one record by its --tx, all
records of an --account, oldest first, or the payment that was made under a --reference of
a --principal. One line per record, which begins with its place in the ledger. With --json
a line is the one of the file.

The files are read from the first on, and are not verified: see
` + "`ronbox ledger verify --periods`" + `. Records after the last closed period are in the node.

Exit 1: no file has such a record. Exit 3: a file is missing or bad.`,
		Example: `  ronbox ledger find --periods data/periods --account alice
  ronbox ledger find --periods data/periods --tx tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD --json | jq -r .record
  ronbox ledger find --periods data/periods --reference 2026-12/17 --principal ops`,
	}
	fl := cmd.Flags()
	fl.StringVar(&f.periods, "periods", "", "`folder` with the files of closed periods")
	fl.StringVar(&f.tx, "tx", "", "the record with this `txid`")
	fl.StringVar(&f.account, "account", "", "all records of this `account`")
	fl.StringVar(&f.reference, "reference", "", "the payment under this `reference`")
	fl.StringVar(&f.principal, "principal", "", "`principal` that owns the reference")
	cli.Require(cmd, "periods")
	cmd.MarkFlagsOneRequired("tx", "account", "reference")
	cmd.MarkFlagsMutuallyExclusive("tx", "account", "reference")
	cmd.MarkFlagsRequiredTogether("reference", "principal")
	cmd.RunE = a.Verb(func(ctx context.Context, _ []string) error { return a.find(ctx, f) })
	return cmd
}

// query returns what the flags ask for.
func (f *findFlags) query() (q lverify.Query, err error) {
	switch {
	case f.tx != "":
		if q.TxID, err = record.ParseTxID(f.tx); err != nil {
			return q, cli.Usage("--tx %q: %w", f.tx, err)
		}
	case f.account != "":
		if err = engines.CheckAccount(f.account); err != nil {
			return q, cli.Usage("--account %q: %w", f.account, err)
		}
		q.Account = f.account
	default:
		if err = record.CheckReference(f.reference); err != nil {
			return q, cli.Usage("--reference %q: %w", f.reference, err)
		}
		q.Reference = ledger.HashReference(f.principal, f.reference)
	}
	return q, nil
}

func (a app) find(ctx context.Context, f findFlags) error {
	q, err := f.query()
	if err != nil {
		return err
	}
	p := a.Progress(cli.Count, "find, records")
	defer p.End()
	if cli.IsTerminal(a.Stdout) {
		p.Silence() // it would stand between the lines
	}
	files, err := lverify.OpenFiles(f.periods)
	if err == nil {
		err = files.Find(ctx, q, lverify.Options{Progress: p.Of}, a.printFound)
	}
	return filesError(err)
}

// printFound prints a record at once, without a table, which would wait for all of them.
func (a app) printFound(l *record.Line, text []byte) error {
	if a.Flags.JSON {
		return a.Print(append(text[:len(text):len(text)], '\n'))
	}
	if a.Flags.Quiet {
		return nil
	}
	r := &l.Record
	line := fmt.Sprintf("%-7d %s  %s  %-8s", r.Seq, cli.FormatStamp(time.Unix(0, r.At)), r.TxID(), r.Op)
	if r.Op.MovesMoney() {
		line += "  " + FormatMinor(r.Amount.String(), l.Names.Asset)
	}
	arrow := ""
	if l.Names.To != "" {
		arrow = " -> "
	}
	line = strings.TrimRight(line+"  "+l.Names.From+arrow+l.Names.To, " ")
	if r.Memo != "" {
		line += "  " + r.Memo
	}
	return a.Print([]byte(cli.Plain(line) + "\n"))
}
