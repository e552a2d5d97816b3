package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/record"
	ledgerapi "ronbox/httpapi/wire/ledger"
)

// exportFlags holds the flags that select a part of the journal.
type exportFlags struct {
	from, to uint64
	follow   bool
	out      string
}

func (a app) exportCmd() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the journal: every record and every batch, with the bytes that are hashed",
		Long: `Print the journal as NDJSON: every record, and the header of each batch after its last
record, with the bytes that are hashed. ` + "`ronbox ledger verify`" + ` checks an export without
the node, and ` + "`ronbox ledger import`" + ` creates the same ledger from it. Only complete
batches are printed. A broken connection is resumed. With --follow the command also
prints new records as they are made. It waits for a node that is down, or silent for 45
seconds, and prints a message.`,
		Example: `  ronbox ledger export --out journal.ndjson
  ronbox ledger export --from-seq 1001 --json | jq -r .txid
  ronbox ledger export --follow >> feed.ndjson`,
	}
	fl := cmd.Flags()
	fl.Uint64Var(&f.from, "from-seq", 1, "begin with record `N` (default the first that is in no closed period)")
	fl.Uint64Var(&f.to, "to", 0, "last `record` (default the newest)")
	fl.BoolVar(&f.follow, "follow", false, "also print new records, until Ctrl-C")
	fl.StringVar(&f.out, "out", "", "write to this new `file` instead of stdout")
	cmd.MarkFlagsMutuallyExclusive("follow", "out")
	cmd.MarkFlagsMutuallyExclusive("follow", "to")
	cmd.RunE = a.online(func(ctx context.Context, c ledgerapi.Client, _ []string) error {
		if !fl.Changed("from-seq") && !a.Flags.PrintCurl {
			h, err := c.LedgerHorizon(ctx)
			if err != nil {
				return err
			}
			if f.from = h.Seq + 1; h.Period != 0 {
				a.Say("note: records up to %d are in the files of %d closed periods", h.Seq, h.Period)
			}
		}
		return a.export(ctx, c, f)
	})
	return cmd
}

// exportDoc is the output of export into a file.
type exportDoc struct {
	File    string    `json:"file"`
	Records uint64    `json:"records"`
	Batches uint64    `json:"batches"`
	Bytes   int64     `json:"bytes"`
	Root    b3.Digest `json:"last_root,omitzero"` // of the last batch
}

func (a app) export(ctx context.Context, node exportNode, f exportFlags) error {
	if f.from == 0 || f.to != 0 && f.to < f.from {
		return cli.Usage("--from-seq %d --to %d: want records from 1 on, the last not before the first", f.from, f.to)
	}
	p := a.Progress(cli.Count, "export, records")
	defer p.End()
	e := &exporter{Repeater: a.Repeater(), node: node, from: f.from, to: f.to, follow: f.follow, out: a.Stdout}
	e.ForEver = f.follow
	e.done = func(n uint64) { p.At(int64(n), 0) }
	if f.out == "" {
		if cli.IsTerminal(a.Stdout) {
			p.Silence() // it would stand between the lines
		}
		err := e.run(ctx)
		if f.follow {
			return cli.UntilCtrlC(ctx, err)
		}
		return err
	}
	bytes, err := cli.ProduceFile(f.out, 0o600, func(w io.Writer) error {
		e.out = w
		return e.run(ctx)
	})
	if err != nil {
		return err
	}
	p.End()
	doc := exportDoc{f.out, e.records, e.batches, bytes, e.root}
	return a.Show(doc, func(t cli.Table) {
		t.Row("file", doc.File)
		t.Row("records", doc.Records)
		t.Row("batches", doc.Batches)
		t.Row("size", cli.Bytes(doc.Bytes))
		t.Row("check it with", unit.Shell("ronbox", "ledger", "verify", doc.File))
	})
}

// exportNode is the part of ledgerapi.Client that an export uses.
type exportNode interface {
	ExportLedger(ctx context.Context, from, to uint64, follow bool, each func(line []byte) error) error
}

// exporter writes the lines of the journal, whole batches only, and reconnects if the connection
// breaks.
type exporter struct {
	cli.Repeater
	node   exportNode
	out    io.Writer
	from   uint64 // the first record asked for
	to     uint64
	follow bool
	done   func(records uint64)

	next    uint64 // the record at which to resume; 0: no line is written yet
	root    b3.Digest
	batch   []byte // the lines of the incomplete batch
	pending uint64 // its records
	records uint64
	batches uint64
}

func (e *exporter) run(ctx context.Context) error {
	for {
		before := e.next
		err := e.Repeat(ctx, "export", func() error {
			e.batch, e.pending = e.batch[:0], 0
			err := e.node.ExportLedger(ctx, max(e.from, e.next), e.to, e.follow, e.line)
			if err != nil && e.next != before {
				return &cli.Final{Err: err} // it made progress: reset the count
			}
			return err
		})
		s, went := errors.AsType[*cli.Final](err)
		switch {
		case err == nil:
			return e.flush() // a range may end within a batch
		case !went:
			return err
		case !cli.Transient(s.Err) || ctx.Err() != nil:
			return s.Err
		}
		e.Retrying("export: %v; continuing after record %d", s.Err, e.next-1)
	}
}

// line processes one line from the node.
func (e *exporter) line(raw []byte) error {
	l, err := record.ParseLine(raw)
	if err != nil {
		return cli.Fail(cli.ExitBad, "node_inconsistent", "", "the node's export is not valid: %w", err)
	}
	switch l.Kind {
	case record.LineFormat:
		if e.next == 0 {
			e.next, e.root = l.From, l.Prev
			return e.write(append(raw[:len(raw):len(raw)], '\n'))
		}
		if l.From != e.next || l.Prev != e.root {
			return cli.Fail(cli.ExitBad, "node_inconsistent", "compare the ledger with an earlier head: "+
				"`ronbox ledger audit`",
				"the node continues with another ledger after record %d", e.next-1)
		}
		return nil
	case record.LineRecord:
		e.batch = append(append(e.batch, raw...), '\n')
		e.pending++
		return nil
	}
	e.batch = append(append(e.batch, raw...), '\n')
	if err := e.flush(); err != nil {
		return err
	}
	e.root, e.next = l.Batch.Root(), l.Batch.First+l.Batch.Count
	e.batches++
	e.done(e.records)
	return nil
}

func (e *exporter) flush() error {
	err := e.write(e.batch)
	e.records += e.pending
	e.batch, e.pending = e.batch[:0], 0
	return err
}

func (e *exporter) write(b []byte) error {
	if _, err := e.out.Write(b); err != nil {
		return fmt.Errorf("write the export: %w", err)
	}
	return nil
}
