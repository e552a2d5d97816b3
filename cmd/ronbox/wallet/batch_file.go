package wallet

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/appliance/csvfile"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/httpapi"
	wallethttp "ronbox/httpapi/wallet"
	walletapi "ronbox/httpapi/wire/wallet"
)

const (
	maxBatchRows = 1_000_000         // held in memory, some 600 B each
	maxBatchLine = csvfile.MaxRecord // of NDJSON, or a record of CSV; an operation takes a kilobyte
	maxFaults    = 20                // that are shown: after so many the program that wrote the file is at fault
)

// batchRow is one operation of a batch file.
type batchRow struct {
	line int // of the file
	op   walletapi.BatchOp
	own  bool // the file gives its reference
}

// batchColumns are the members of an operation, and amount, which are the columns of a CSV file.
var batchColumns = []string{
	"op", "from", "to", "asset", "amount", "amount_minor", "nonce", "expires_in_s", "hold", "memo", "valid_until",
	"reference",
}

// readBatch reads a whole batch file, "-" being stdin, and checks every line. Each row then has an
// amount in minor units, and a reference; see refer.
func (a app) readBatch(ctx context.Context, node assetLister, path, run string) ([]batchRow, error) {
	m := converter{app: a, node: node, instead: "write the column amount_minor instead of amount"}
	p := batchParser{name: path, run: run, minor: func(op *walletapi.BatchOp, amount string) (string, error) {
		m.final = run == "" && op.Reference == "" // the reference is a hash of the minor units
		return m.minor(ctx, op, amount)
	}}
	in := a.Stdin
	if path == "-" {
		p.name = "stdin"
	} else {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // only read
		in = f
	}
	if err := p.parse(bufio.NewReaderSize(in, maxBatchLine)); err != nil {
		return nil, cli.ReadError(p.name, err)
	}
	if err := p.refer(); err != nil {
		return nil, err
	}
	if len(p.faults) > 0 {
		text := strings.Join(p.faults, "\n")
		if p.more > 0 {
			text += fmt.Sprintf("\nand %d more", p.more)
		}
		e := unfit("malformed", "nothing was sent: correct the listed lines", "%s", text)
		e.Details = map[string]any{"faults": p.faults, "more": p.more}
		return nil, e
	}
	if len(p.rows) == 0 {
		return nil, unfit("empty", "check the program that wrote the file", "%s: no operation", p.name)
	}
	return p.rows, nil
}

func unfit(reason, next, format string, args ...any) *cli.Failure {
	return cli.Fail(cli.ExitFileUnfit, reason, next, format, args...)
}

// batchParser collects the rows and the faults of one file.
type batchParser struct {
	name, run string
	rows      []batchRow
	faults    []string
	more      int // faults that are not shown

	// minor returns the minor units of an amount of op, or an *httpapi.BodyError if the row is at
	// fault
	minor func(op *walletapi.BatchOp, amount string) (string, error)
}

func (p *batchParser) fault(line int, err error) {
	if len(p.faults) == maxFaults {
		p.more++
		return
	}
	if bad, ok := errors.AsType[*httpapi.BodyError](err); ok {
		err = fmt.Errorf("%s: %s", cmp.Or(bad.Field, "operation"), bad.Reason)
	}
	p.faults = append(p.faults, fmt.Sprintf("%s:%d: %v", p.name, line, err))
}

// parse reads NDJSON if the file begins with an object, else CSV. It skips the byte order mark of
// UTF-8.
func (p *batchParser) parse(in *bufio.Reader) error {
	csvfile.SkipMark(in)
	head, err := in.Peek(in.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch head = bytes.TrimLeft(head, " \t\r\n"); {
	case len(head) == 0:
		return nil
	case head[0] == '{':
		return p.parseLines(in)
	case head[0] == '[':
		return unfit("malformed", "write one object per line, without a list around them", "a list is not NDJSON")
	}
	return p.parseCSV(in)
}

func (p *batchParser) parseLines(in *bufio.Reader) error {
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 0, maxBatchLine), maxBatchLine)
	n := 1
	for ; s.Scan(); n++ {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		if err := p.add(n, s.Bytes()); err != nil {
			return err
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		p.fault(n, fmt.Errorf("the line is longer than %d bytes", maxBatchLine))
		return nil
	}
	return s.Err()
}

// add checks the operation of a line, which is a JSON object, and keeps it.
func (p *batchParser) add(line int, raw []byte) error {
	if len(p.rows) == maxBatchRows {
		return unfit("hard_limit", "split the file", "more than %d operations", maxBatchRows)
	}
	op, err := p.read(raw)
	if _, unread := errors.AsType[*cli.Failure](err); unread {
		return err // the decimals of all amounts are missing
	}
	if err != nil {
		p.fault(line, err)
	}
	p.rows = append(p.rows, batchRow{line: line, op: op, own: op.Reference != ""})
	return nil
}

// read reads the operation of a line.
func (p *batchParser) read(raw []byte) (op walletapi.BatchOp, err error) {
	raw, amount, err := cutAmount(raw)
	if err != nil {
		return op, err
	}
	op, err = wallethttp.ReadOp(raw)
	bad, wrong := errors.AsType[*httpapi.BodyError](err)
	switch {
	case wrong && bad.Field == "amount_minor" && amount != nil:
		return op, httpapi.BadBody("amount", bad.Reason)
	case wrong && bad.Field == "amount_minor" && bad.Reason == ledger.WantMember:
		return op, httpapi.BadBody("amount", "is missing: give it, or amount_minor")
	case err != nil:
		return op, err
	case engines.IsSystemAccount(op.From) || engines.IsSystemAccount(op.To):
		return op, errSystemAccount
	case amount != nil:
		op.AmountMinor, err = p.minor(&op, *amount)
	}
	return op, err
}

// cutAmount takes the decimal amount out of an operation, nil if it has none. Until the amount is
// converted, 1 minor unit stands in its place, so that the other members can be checked.
func cutAmount(raw []byte) (rest []byte, amount *string, err error) {
	var row map[string]jsontext.Value
	if !bytes.Contains(raw, []byte(`"amount"`)) || json.Unmarshal(raw, &row) != nil { // ReadOp finds the fault
		return raw, nil, nil
	}
	text, given := row["amount"]
	if !given {
		return raw, nil, nil
	}
	if _, both := row["amount_minor"]; both {
		return nil, nil, httpapi.BadBody("amount", "stands beside amount_minor: give one of them")
	}
	if text.Kind() != '"' {
		return nil, nil, httpapi.BadBody("amount", "must be a string, such as \"12.50\"")
	}
	if err := json.Unmarshal(text, &amount); err != nil {
		return nil, nil, err
	}
	delete(row, "amount")
	row["amount_minor"] = jsontext.Value(`"1"`)
	rest, err = json.Marshal(row)
	return rest, amount, err
}

func (p *batchParser) parseCSV(in *bufio.Reader) error {
	r, err := csvfile.NewReader(in, batchColumns, "op")
	for err == nil {
		var cells []string
		var line int
		if cells, line, err = r.Read(); err != nil {
			bad, ok := errors.AsType[*csvfile.Fault](err)
			if ok && !bad.Last {
				p.fault(bad.Line, bad.Err)
				err = nil
			}
			continue
		}
		row, bad := rowJSON(r.Columns, cells)
		if bad != nil {
			p.fault(line, bad)
			continue
		}
		err = p.add(line, row)
	}
	if bad, ok := errors.AsType[*csvfile.Fault](err); ok {
		p.fault(bad.Line, bad.Err)
		return nil
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// rowJSON returns the cells of a CSV record as an object. It leaves out empty cells.
func rowJSON(columns, cells []string) (row []byte, err error) {
	row = append(row, '{')
	for i, column := range columns {
		if cells[i] == "" {
			continue
		}
		if len(row) > 1 {
			row = append(row, ',')
		}
		row = append(append(append(row, '"'), column...), `":`...)
		if column == "nonce" || column == "expires_in_s" {
			n, err := strconv.ParseUint(cells[i], 10, 64)
			if err != nil || cli.Decimal(n) != cells[i] {
				return nil, fmt.Errorf("%s: %q is not a whole number above 0", column, cells[i])
			}
			row = append(row, cells[i]...)
		} else if row, err = jsontext.AppendQuote(row, cells[i]); err != nil {
			return nil, fmt.Errorf("%s: is not text in UTF-8", column)
		}
	}
	return append(row, '}'), nil
}

// refer sets the reference of each row. In a run with a name it is NAME/N for operation N of the
// file. In a run without a name it is a hash of the operation, in minor units, and of its index
// among equal rows, so that it does not depend on the name of the file. The minor units of an
// amount never change: see converter.final.
func (p *batchParser) refer() error {
	same := map[string]int{}
	seen := map[string]int{} // lines, by reference
	for i := range p.rows {
		r := &p.rows[i]
		switch {
		case r.own:
		case p.run != "":
			r.op.Reference = p.run + "/" + strconv.Itoa(i+1)
		default:
			raw, err := json.Marshal(r.op, json.Deterministic(true))
			if err != nil {
				return err
			}
			says := string(raw)
			sum := b3.Sum(append(raw, strconv.Itoa(same[says])...))
			same[says]++
			r.op.Reference = "batch/" + hex.EncodeToString(sum[:16])
		}
		if line, twice := seen[r.op.Reference]; twice {
			p.fault(r.line, fmt.Errorf("reference: line %d has the same one, %q", line, r.op.Reference))
		}
		seen[r.op.Reference] = r.line
	}
	return nil
}
