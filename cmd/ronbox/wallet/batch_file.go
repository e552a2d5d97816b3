package wallet

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"ronbox/cmd/ronbox/cli"
	walletapi "ronbox/httpapi/wallet"
)

const (
	maxBatchRows = 1_000_000 // held in memory, some 700 B each with what reading them leaves behind
	maxBatchLine = 64 << 10  // of NDJSON, or a record of CSV; an operation takes a kilobyte
)

// readBatch reads a whole batch file, "-" being stdin, and checks every line before anything is sent.
func (a app) readBatch(path string) ([]batchRow, error) {
	if path == "-" {
		return parseBatch("stdin", a.Stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return parseBatch(path, f)
}

// parseBatch takes NDJSON when the first thing in the file is an object, else CSV.
func parseBatch(name string, r io.Reader) ([]batchRow, error) {
	in := bufio.NewReaderSize(r, maxBatchLine)
	found := &faults{name: name}
	parse, err := batchForm(in)
	if err != nil {
		return nil, cli.ReadError(name, err)
	}
	rows, err := parse(in, found)
	if err != nil {
		return nil, cli.ReadError(name, err)
	}
	if err := found.err(); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, cli.Fail(cli.ExitFileUnfit, "empty", "did what wrote it fail?", "%s: no operation", name)
	}
	if err := checkNonces(name, rows); err != nil {
		return nil, err
	}
	return rows, identify(rows)
}

var errTooManyRows = cli.Fail(cli.ExitFileUnfit, "hard_limit", "split the file", "more than %d operations", maxBatchRows)

// batchForm chooses the parser by the first bytes of a file. The mark that spreadsheets put before UTF-8 is skipped.
func batchForm(in *bufio.Reader) (func(*bufio.Reader, *faults) ([]batchRow, error), error) {
	head, err := in.Peek(in.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte(utf8Mark)) {
		_, _ = in.Discard(len(utf8Mark)) // is buffered
		head = head[len(utf8Mark):]
	}
	switch head = bytes.TrimLeft(head, " \t\r\n"); {
	case len(head) == 0:
	case head[0] == '{':
		return parseBatchLines, nil
	case head[0] == '[':
		return nil, cli.Fail(cli.ExitFileUnfit, "malformed", "write one object a line, without the list around them", "a list is no NDJSON")
	case head[0] == 0xfe, head[0] == 0xff, head[0] == 0:
		return nil, cli.Fail(cli.ExitFileUnfit, "malformed", "save it as UTF-8", "it is no text in UTF-8")
	}
	return parseBatchCSV, nil
}

const utf8Mark = "\ufeff"

// boundedRecord ends a read when one record of CSV takes more than maxBatchLine: a quote left open would take the rest
// of the file.
type boundedRecord struct {
	in   *bufio.Reader
	took int
}

var errLongRecord = fmt.Errorf("a record is longer than %d bytes: is a quote left open?", maxBatchLine)

func (b *boundedRecord) Read(p []byte) (int, error) {
	if b.took > maxBatchLine {
		return 0, errLongRecord
	}
	n, err := b.in.Read(p)
	b.took += n
	return n, err
}

func parseBatchLines(in *bufio.Reader, found *faults) ([]batchRow, error) {
	var rows []batchRow
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 0, maxBatchLine), maxBatchLine)
	n := 1
	for ; s.Scan(); n++ {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		if len(rows) == maxBatchRows {
			return nil, errTooManyRows
		}
		var op walletapi.BatchOp
		if err := json.Unmarshal(s.Bytes(), &op, json.RejectUnknownMembers(true)); err != nil {
			found.add(n, err)
			continue
		}
		row, err := newBatchRow(n, op)
		if err != nil {
			found.add(n, err)
		}
		rows = append(rows, row)
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		found.add(n, fmt.Errorf("the line is longer than %d bytes", maxBatchLine))
		return rows, nil
	}
	return rows, s.Err()
}

func parseBatchCSV(in *bufio.Reader, found *faults) ([]batchRow, error) {
	bound := &boundedRecord{in: in}
	r := csv.NewReader(bound)
	r.ReuseRecord = true
	header, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, csvFault(found, 1, err)
	}
	columns := slices.Clone(header)
	if err := checkHeader(columns); err != nil {
		found.add(1, err)
		return nil, nil
	}
	var rows []batchRow
	line := 1
	for {
		bound.took = 0 // beside what its buffer still holds
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if errors.Is(err, csv.ErrFieldCount) {
			line, _ = r.FieldPos(0)
			found.add(line, fmt.Errorf("%d fields where the header has %d", len(cells), len(columns)))
			continue
		}
		if err != nil {
			return nil, csvFault(found, line+1, err)
		}
		if len(rows) == maxBatchRows {
			return nil, errTooManyRows
		}
		line, _ = r.FieldPos(0)
		row, err := csvRow(line, columns, cells)
		if err != nil {
			found.add(line, err)
		}
		rows = append(rows, row)
	}
}

// csvFault adds a fault of form to those found. A failure to read stays an error.
func csvFault(found *faults, line int, err error) error {
	if errors.Is(err, errLongRecord) {
		found.add(line, errLongRecord)
		return nil
	}
	p, ok := errors.AsType[*csv.ParseError](err)
	if !ok {
		return err
	}
	found.add(p.Line, p.Err)
	return nil
}

func csvRow(line int, columns, cells []string) (batchRow, error) {
	var op walletapi.BatchOp
	for i, c := range columns {
		if err := setText(&op, c, cells[i]); err != nil {
			return batchRow{}, err
		}
	}
	return newBatchRow(line, op)
}

// checkHeader wants each column known and there once.
func checkHeader(columns []string) error {
	for i, c := range columns {
		switch {
		case i == 0 && len(columns) == 1 && strings.ContainsAny(c, ";\t"):
			return fmt.Errorf("the first line names the columns, with a comma between them, not as in %q", c)
		case !slices.Contains(batchColumns, c):
			return fmt.Errorf("the first line names the columns: %q is none of %s", c, strings.Join(batchColumns, ","))
		case slices.Contains(columns[:i], c):
			return fmt.Errorf("the first line names the columns: %q stands twice", c)
		}
	}
	if !slices.Contains(columns, "op") {
		return errors.New("the first line names the columns: op is missing")
	}
	return nil
}

// faults collects the faults of a file, so that a person corrects it once.
type faults struct {
	name string
	told []string
	more int
}

// mostFaults is how many are shown: after so many the program that wrote the file is at fault.
const mostFaults = 20

func (f *faults) add(line int, err error) {
	if len(f.told) == mostFaults {
		f.more++
		return
	}
	f.told = append(f.told, fmt.Sprintf("%s:%d: %v", f.name, line, err))
}

func (f *faults) err() error {
	if len(f.told) == 0 {
		return nil
	}
	text := strings.Join(f.told, "\n")
	if f.more > 0 {
		text += fmt.Sprintf("\nand %d more", f.more)
	}
	e := cli.Fail(cli.ExitFileUnfit, "malformed", "nothing was sent: correct the lines that are named", "%s", text)
	e.Details = map[string]any{"faults": f.told, "more": f.more}
	return e
}
