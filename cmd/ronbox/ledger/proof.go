package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	ledgerapi "ronbox/httpapi/wire/ledger"
	"ronbox/store"
)

const (
	maxProof   = 1 << 20 // a proof in a log of 2^64 batches is 40 KB
	maxReceipt = 64 << 10
)

func (a app) proofCmd() *cobra.Command {
	var at uint64
	var periods string
	cmd := &cobra.Command{
		Use:   "proof TXID [FILE]",
		Short: "Print the proof that the ledger holds a transaction",
		Long: `Print the proof that the ledger holds a transaction: its record, the records that name its
accounts and its asset, and the path from each to the root of the whole log. Anyone who
knows that root can verify the proof without the node: see ` + "`ronbox ledger verify-proof`" + `.

A transaction of a closed period is proved with --periods, without the node: the files of
the periods in a folder have the records, from the opening of its accounts to the end of
its period. The proof ends there, with the head that the statement of the period has. If
FILE is named, the database of a stopped node or a snapshot, it must have that statement;
with --url or --socket the node must.

Exit 1: there is no such transaction. Exit 3: a file is missing or bad.`,
		Example: `  ronbox ledger proof tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD > proof.json
  ronbox ledger proof tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD --at 41 --json
  ronbox ledger proof tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD --periods data/periods > proof.json`,
		Args: cli.Between(1, 2, "one txid, and with --periods a database"),
	}
	cmd.Flags().Uint64Var(&at, "at", 0, "prove it in the log that ends with this `batch` (default the newest)")
	cmd.Flags().StringVar(&periods, "periods", "", "prove it with the files of closed periods in `folder`")
	cmd.MarkFlagsMutuallyExclusive("at", "periods")
	online := a.online(func(ctx context.Context, c ledgerapi.Client, args []string) error {
		if len(args) > 1 {
			return cli.Usage("FILE goes with --periods")
		}
		if err := CheckTxID(args[0]); err != nil {
			return err
		}
		raw, err := c.Proof(ctx, args[0], at)
		if err != nil {
			return err
		}
		return a.Print(append(bytes.TrimRight(raw, "\n"), '\n'))
	})
	offline := a.Verb(func(ctx context.Context, args []string) error { return a.proveOld(ctx, periods, args) })
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("periods") {
			return offline(cmd, args)
		}
		return online(cmd, args)
	}
	return cmd
}

// proveOld prints the proof of a record of a closed period.
func (a app) proveOld(ctx context.Context, dir string, args []string) error {
	id, err := record.ParseTxID(args[0])
	if err != nil {
		return CheckTxID(args[0])
	}
	p := a.Progress(cli.Count, "prove, records")
	defer p.End()
	files, err := lverify.OpenFiles(dir)
	if err != nil {
		return filesError(err)
	}
	proof, s, err := files.Prove(ctx, id, lverify.Options{Progress: p.Of})
	if err != nil {
		return filesError(fmt.Errorf("%s: %w", id, err))
	}
	if err := a.kept(ctx, args[1:], &s); err != nil {
		return err
	}
	return a.PrintJSON(proof)
}

// kept returns an error unless the database or the node that is named has a statement.
func (a app) kept(ctx context.Context, file []string, s *record.Statement) error {
	var text string
	node := a.Flags.URL != "" || a.Flags.Socket != ""
	switch {
	case len(file) > 0 && node:
		return cli.Usage("name a database, or a node with --url or --socket")
	case len(file) > 0:
		err := cli.ViewDatabase(ctx, file[0], func(r store.Reader) error {
			row, _ := tables.GetPeriod(r, s.Period)
			text = row.Statement
			return nil
		})
		if err != nil {
			return err
		}
	case node:
		c, err := a.Client()
		if err != nil {
			return err
		}
		defer c.Close()
		list, err := ledgerapi.NewClient(c).LedgerPeriods(ctx, s.Period-1)
		if err != nil {
			return err
		}
		if len(list.Periods) > 0 {
			text = list.Periods[0].Statement
		}
	default:
		return nil
	}
	if text != s.Text() {
		return cli.Fail(cli.ExitBad, "other_statement", "the files are of another ledger, or the ledger was restored",
			"the statement of period %d in its file is not the one that the node has", s.Period)
	}
	return nil
}

// filesError returns the failure of files of closed periods.
func filesError(err error) error {
	if _, bad := errors.AsType[*lverify.FileError](err); bad {
		return cli.Fail(cli.ExitBad, "bad_period_file", "take another copy of it, or name the folder that has all",
			"%w", err)
	}
	if errors.Is(err, lverify.ErrNotFound) {
		return cli.Fail(cli.ExitFailed, "not_found", "the node has the records after them: ask it without --periods",
			"%w", err)
	}
	return err
}

// proofDoc is the output of verify-proof.
type proofDoc struct {
	OK      bool           `json:"ok"`
	Receipt jsontext.Value `json:"receipt,omitzero"` // the proven receipt
	Head    record.Head    `json:"head,omitzero"`    // head of the log that contains it
	Problem string         `json:"problem,omitzero"`
}

func (a app) verifyProofCmd() *cobra.Command {
	var receipt, head string
	cmd := &cobra.Command{
		Use:   "verify-proof FILE",
		Short: "Verify a proof without a node, and show what it proves",
		Long: `Verify a proof without a node: every hash on the path from the record to the root of the
log. Then show what it proves. FILE may be "-" for stdin. With --receipt the proof must
prove the receipt in that file. The proof does not show whose log it is: compare its root
with one that you trust, or pass the output of ` + "`ronbox ledger head --json`" + ` as --head.

Exit 0: proven. Exit 3: not proven.`,
		Example: `  ronbox ledger verify-proof proof.json --receipt receipt.json
  ronbox ledger verify-proof proof.json --head head.json --json`,
		Args: cli.Exactly(1, "one proof file"),
	}
	cmd.Flags().StringVar(&receipt, "receipt", "", "`file` with the receipt that must be proven")
	cmd.Flags().StringVar(&head, "head", "", "`file` with the head of the log")
	cmd.RunE = a.Verb(func(_ context.Context, args []string) error { return a.verifyProof(args[0], receipt, head) })
	return cmd
}

func (a app) verifyProof(file, receiptFile, headFile string) error {
	doc := proofDoc{}
	raw, err := a.ReadInput(file, maxProof)
	if err != nil {
		return err
	}
	receipt, proof, bad := provenIn(raw)
	if bad == nil && receiptFile != "" {
		if raw, err = a.ReadInput(receiptFile, maxReceipt); err != nil {
			return err
		}
		bad = sameReceipt(raw, receipt)
	}
	if bad == nil && headFile != "" {
		if raw, err = a.ReadInput(headFile, maxReceipt); err != nil {
			return err
		}
		bad = sameHead(raw, proof.Head)
	}
	if doc.OK = bad == nil; doc.OK {
		doc.Receipt, doc.Head = receipt.AppendJSON(nil), proof.Head
	} else {
		doc.Problem = bad.Error()
	}
	return a.ShowChecked(doc, doc.Problem, "", func(t cli.Table) { proofTable(t, doc, receipt) })
}

// provenIn returns the receipt that a proof proves, and the proof. It returns an error if the proof
// is invalid.
func provenIn(raw []byte) (record.Receipt, record.Proof, error) {
	var p record.Proof
	if err := json.Unmarshal(raw, &p); err != nil {
		return record.Receipt{}, p, fmt.Errorf("the file is not a proof: %w", jsonFault(err))
	}
	r, err := p.Verify()
	return r, p, err
}

var (
	errOtherReceipt = errors.New("the proof proves another receipt than that of --receipt")
	errOtherHead    = errors.New(
		"the proof ends at another head than that of --head: make one with --at, or pass a later head",
	)
)

// jsonFault shortens a decoding error to the member and its fault.
func jsonFault(err error) error {
	if f, ok := err.(*record.FormatError); ok && (f.What == "proof" || f.What == "receipt") {
		return jsonFault(f.Reason)
	}
	s, ok := err.(*json.SemanticError)
	switch {
	case !ok:
		return err
	case s.JSONPointer == "" && s.Err != nil:
		return jsonFault(s.Err)
	case s.Err != nil:
		return fmt.Errorf("%s: %w", s.JSONPointer, jsonFault(s.Err))
	case s.JSONPointer != "":
		return fmt.Errorf("%s: unexpected %s", s.JSONPointer, s.JSONKind)
	}
	return fmt.Errorf("unexpected %s", s.JSONKind)
}

func sameReceipt(raw []byte, proven record.Receipt) error {
	r, err := record.ParseReceipt(bytes.TrimSpace(raw))
	if err != nil {
		return fmt.Errorf("--receipt: the file is not a receipt: %w", jsonFault(err))
	}
	if !bytes.Equal(r.AppendJSON(nil), proven.AppendJSON(nil)) {
		return errOtherReceipt
	}
	return nil
}

func sameHead(raw []byte, h record.Head) error {
	var want record.Head
	if err := json.Unmarshal(raw, &want, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("--head: the file is not a head: %w", jsonFault(err))
	}
	if want != h {
		return errOtherHead
	}
	return nil
}

func proofTable(t cli.Table, doc proofDoc, r record.Receipt) {
	if !doc.OK {
		t.Row(cli.Bad("BAD"), doc.Problem)
		return
	}
	t.Row("proven", "the ledger holds it, in a log of "+cli.Decimal(doc.Head.Batches)+" batches")
	t.Row("log root", doc.Head.Root)
	ReceiptTable(t, r)
}
