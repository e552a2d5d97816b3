// Package csvfile reads CSV files that people write, often with a spreadsheet: the first line names
// the columns, in any order, and a byte order mark may stand before it.
//
// # Invariants
//
//  1. A byte order mark is no part of the name of a column.
//  2. A fault names its line, and a fault of the first line the column.
//  3. A record has as many cells as the first line, and takes at most MaxRecord bytes beside what a
//     buffer holds.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package csvfile

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"ronbox/appliance/unit"
)

// MaxRecord bounds a record, in bytes: a quote left open would take the rest of the file.
const MaxRecord = 64 << 10

var errLongRecord = fmt.Errorf("a record is longer than %d bytes: is a quote left open?", MaxRecord)

// Fault is a fault of the file.
type Fault struct {
	Line int  // from 1
	Last bool // nothing after it can be read
	Err  error
}

func (f *Fault) Error() string { return fmt.Sprintf("line %d: %v", f.Line, f.Err) }

// Unwrap returns the fault without its line.
func (f *Fault) Unwrap() error { return f.Err }

// Reader reads the records of a file.
type Reader struct {
	Columns []string // of the file, in its order
	csv     *csv.Reader
	bound   *bounded
	line    int // of the last record
}

// bounded fails when one record takes more than MaxRecord.
type bounded struct {
	in   *bufio.Reader
	took int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.took > MaxRecord {
		return 0, errLongRecord
	}
	n, err := b.in.Read(p)
	b.took += n
	return n, err
}

// SkipMark skips the byte order mark of UTF-8 if in begins with it.
func SkipMark(in *bufio.Reader) {
	const mark = "\ufeff"
	if head, _ := in.Peek(len(mark)); string(head) == mark { // an error comes again from the next read
		_, _ = in.Discard(len(mark))
	}
}

// NewReader reads the first line, which names columns among known, each once, and all of required.
// It returns io.EOF if the input is empty, and a *Fault if the line does not fit.
func NewReader(in io.Reader, known []string, required ...string) (*Reader, error) {
	text := bufio.NewReaderSize(in, MaxRecord)
	SkipMark(text)
	r := &Reader{bound: &bounded{in: text}}
	r.csv = csv.NewReader(r.bound)
	r.csv.ReuseRecord = true
	cells, _, err := r.Read()
	if err != nil {
		return nil, err
	}
	r.Columns = slices.Clone(cells)
	if err := checkColumns(r.Columns, known, required); err != nil {
		return nil, &Fault{Line: r.line, Last: true, Err: err}
	}
	return r, nil
}

func checkColumns(columns, known, required []string) error {
	const first = "the first line names the columns: "
	for i, c := range columns {
		switch {
		case strings.HasPrefix(c, "\xff\xfe"), strings.HasPrefix(c, "\xfe\xff"), strings.Contains(c, "\x00"):
			return errors.New("it is not text in UTF-8: save it as UTF-8")
		case len(columns) == 1 && strings.ContainsAny(c, ";\t"):
			return fmt.Errorf(first+"put a comma between them, not as in %q", c)
		case !slices.Contains(known, c):
			if near := unit.Nearest(c, known); near != "" {
				return fmt.Errorf(first+"%q is unknown; did you mean %s?", c, near)
			}
			return fmt.Errorf(first+"%q is none of %s", c, strings.Join(known, ","))
		case slices.Contains(columns[:i], c):
			return fmt.Errorf(first+"%q stands twice", c)
		}
	}
	for _, c := range required {
		if !slices.Contains(columns, c) {
			return errors.New(first + c + " is missing")
		}
	}
	return nil
}

// Column returns the index of a column in the cells of a record, or -1 if the file lacks it.
func (r *Reader) Column(name string) int { return slices.Index(r.Columns, name) }

// Read returns the cells of the next record, which are valid until the next call, and the line at
// which it begins. The error is io.EOF at the end, a *Fault, or that of the file.
func (r *Reader) Read() (cells []string, line int, err error) {
	r.bound.took = 0 // beside what the buffer still holds
	cells, err = r.csv.Read()
	bad, malformed := errors.AsType[*csv.ParseError](err)
	switch {
	case errors.Is(err, csv.ErrFieldCount):
		r.line, _ = r.csv.FieldPos(0)
		return nil, r.line, &Fault{
			Line: r.line,
			Err:  fmt.Errorf("%d fields where the header has %d", len(cells), len(r.Columns)),
		}
	case errors.Is(err, errLongRecord):
		return nil, r.line + 1, &Fault{Line: r.line + 1, Last: true, Err: errLongRecord}
	case malformed:
		return nil, bad.Line, &Fault{Line: bad.Line, Last: true, Err: bad.Err}
	case err != nil:
		return nil, 0, err
	}
	r.line, _ = r.csv.FieldPos(0)
	return cells, r.line, nil
}
