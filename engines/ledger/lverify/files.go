package lverify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"ronbox/engines/ledger/record"
)

// Files are the files of closed periods in a folder. Each follows the one before by its first line;
// nothing else of them is checked.
type Files struct {
	dir   string
	prevs []record.Statement // of the period before each file
}

// FileError is returned for a file of a period that is missing or bad.
type FileError struct {
	File   string // its name
	Line   uint64 // 0: the file as a whole
	Reason string
}

func (e *FileError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Reason
	}
	return fmt.Sprintf("%s: line %d: %s", e.File, e.Line, e.Reason)
}

func missing(period uint64, format string, args ...any) error {
	return &FileError{File: record.PeriodFile(period), Reason: "it is missing: " + fmt.Sprintf(format, args...)}
}

// OpenFiles reads the first line of each file of a period in dir. The first file may be of any
// period. It returns a *FileError if there is no file, if one is missing between two others, or if
// one does not follow the one before.
func OpenFiles(dir string) (*Files, error) {
	numbers, err := periodsIn(dir)
	if err != nil {
		return nil, err
	}
	f := &Files{dir: dir}
	for _, n := range numbers {
		if len(f.prevs) > 0 && n != f.period(len(f.prevs)) {
			return nil, missing(f.period(len(f.prevs)), "the folder has period %d", n)
		}
		if err := f.open(n); err != nil {
			return nil, err
		}
	}
	if len(f.prevs) == 0 {
		return nil, missing(1, "the folder %s has no files of periods", dir)
	}
	return f, nil
}

// periodsIn lists the numbers of the periods whose files are in dir, in order.
func periodsIn(dir string) (numbers []uint64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var n uint64
		if _, err := fmt.Sscanf(e.Name(), "period-%d.ndjson.zst", &n); err == nil && e.Name() == record.PeriodFile(n) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// period returns the number of the period of file i.
func (f *Files) period(i int) uint64 { return f.prevs[0].Period + uint64(i) + 1 }

// open reads the first line of the file of a period, which is the next one.
func (f *Files) open(n uint64) error {
	in, err := f.lines(n)
	if err != nil {
		return err
	}
	defer in.close()
	if !in.next() {
		return in.over()
	}
	l, err := record.ParsePeriodLine(in.line)
	switch {
	case err != nil:
		return in.bad("%v", err)
	case l.Kind != record.LinePeriod:
		return in.bad("it is not the first line of the file of a period")
	case l.Opening.Period != n:
		return in.bad("the file is of period %d", l.Opening.Period)
	}
	var prev record.Statement
	if l.Opening.Opening != "" {
		prev, _ = record.ParseStatement(l.Opening.Opening) // ParsePeriodLine has found it valid
		if err := checkPeaks(&prev); err != nil {
			return in.bad("%v", err)
		}
	}
	if k := len(f.prevs); k > 0 {
		if err := prev.Follows(&f.prevs[k-1]); err != nil {
			return in.bad("%v, or is of another ledger", err)
		}
	}
	f.prevs = append(f.prevs, prev)
	return nil
}

// with returns the index of the file that has the record seq, if one has it.
func (f *Files) with(seq uint64) (i int, err error) {
	if seq == 0 {
		return 0, ErrNotFound
	}
	if first := &f.prevs[0]; seq <= first.ToSeq {
		return 0, missing(first.Period, "record %d is in it, or in a file before", seq)
	}
	for i < len(f.prevs)-1 && seq > f.prevs[i+1].ToSeq {
		i++
	}
	return i, nil
}

// lines opens the file of a period.
func (f *Files) lines(period uint64) (*fileLines, error) {
	name := record.PeriodFile(period)
	in, err := openFrame(filepath.Join(f.dir, name))
	if err != nil {
		return nil, err
	}
	l := &fileLines{name: name, frame: in, in: bufio.NewScanner(in)}
	l.in.Buffer(make([]byte, 0, 64<<10), record.MaxPeriodLine+1)
	return l, nil
}

// fileLines reads the lines of a file.
type fileLines struct {
	name  string
	frame *frame
	in    *bufio.Scanner
	n     uint64 // of lines read
	line  []byte // the last one
	kind  record.LineKind
	raw   []byte // used again for each line
}

// begins lists the beginnings of lines.
var begins = []struct {
	kind record.LineKind
	with []byte
}{
	{record.LineRecord, []byte(`{"seq":`)},
	{record.LineBatch, []byte(`{"batch":`)},
	{record.LineBase, []byte(`{"base":`)},
	{record.LinePeriod, []byte(`{"format":`)},
	{record.LineClose, []byte(`{"close":`)},
}

// next reads a line, and reports whether there is one.
func (l *fileLines) next() bool {
	if !l.in.Scan() {
		return false
	}
	l.n++
	l.line, l.kind = l.in.Bytes(), 0
	for _, b := range begins {
		if bytes.HasPrefix(l.line, b.with) {
			l.kind = b.kind
		}
	}
	return true
}

// over returns the error of a file that ends here.
func (l *fileLines) over() error {
	switch err := l.in.Err(); {
	case err == nil:
		return l.bad("the file ends after it, and has no statement")
	case errors.Is(err, bufio.ErrTooLong):
		l.n++
		return l.bad("it is longer than a line can be")
	case errors.Is(err, l.frame.err):
		return &FileError{l.name, 0, "the frame is damaged: " + err.Error()}
	default:
		return err
	}
}

// bad returns the error of the last line.
func (l *fileLines) bad(format string, args ...any) error {
	return &FileError{l.name, l.n, fmt.Sprintf(format, args...)}
}

// badIf is bad for an error that may be nil.
func (l *fileLines) badIf(err error) error {
	if err == nil {
		return nil
	}
	return l.bad("%v", err)
}

func (l *fileLines) close() { l.frame.close() }

// each calls take with the lines of a file, until it returns false or an error. A file that ends
// before that is bad.
func (f *Files) each(ctx context.Context, i int, take func(in *fileLines) (more bool, err error)) error {
	in, err := f.lines(f.period(i))
	if err != nil {
		return err
	}
	defer in.close()
	for in.next() {
		if in.n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if in.kind == 0 {
			return in.bad("it is none of format, base, record, batch and close")
		}
		if more, err := take(in); err != nil || !more {
			return err
		}
	}
	return in.over()
}

// statement returns the statement of the last line.
func (l *fileLines) statement() (s record.Statement, err error) {
	p, err := record.ParsePeriodLine(l.line)
	if err != nil {
		return s, l.bad("%v", err)
	}
	s, _ = record.ParseStatement(p.Close) // ParsePeriodLine has found it valid
	return s, l.badIf(checkPeaks(&s))
}

// hashed returns the bytes of the record or the header in the line, until the next call, nil for
// lines of other kinds. The line may not be in its form.
func (l *fileLines) hashed() (raw []byte, err error) {
	member := `"record":"`
	switch l.kind {
	case record.LineRecord:
	case record.LineBatch:
		member = `"header":"`
	default:
		return nil, nil
	}
	text, ended := bytes.CutSuffix(l.line, []byte(`"}`))
	i := bytes.LastIndexByte(text, '"') + 1
	if !ended || !bytes.HasSuffix(text[:i], []byte(member)) {
		return nil, l.bad("it does not end with %s…", member)
	}
	l.raw, err = base64.StdEncoding.AppendDecode(l.raw[:0], text[i:])
	return l.raw, l.badIf(err)
}

// Query selects records of closed periods by the one of its members that is not zero.
type Query struct {
	TxID      record.TxID
	Account   string   // that is debited, credited, opened or changed
	Reference [16]byte // key of the guard that a payment has bound
}

// Find calls found with each record that q selects, in order, and with its line of the file. It
// returns ErrNotFound if q selects no record, and a *FileError for a missing or bad file. It checks
// the form of the selected lines only: call Verify before.
func (f *Files) Find(ctx context.Context, q Query, o Options, found func(l *record.Line, text []byte) error) error {
	first, last := 0, len(f.prevs)-1
	if !q.TxID.IsZero() {
		i, err := f.with(q.TxID.Seq())
		if err != nil {
			return err
		}
		first, last = i, i
	} else if n := f.prevs[0].Period; n != 0 {
		return missing(n, "the folder begins with period %d", n+1)
	}
	s := &search{q: q, o: o, found: found}
	for i := first; i <= last && !s.over; i++ {
		if err := f.each(ctx, i, s.line); err != nil {
			return err
		}
	}
	if s.hits == 0 {
		return ErrNotFound
	}
	return nil
}

// search is one run over files.
type search struct {
	q     Query
	o     Options
	found func(l *record.Line, text []byte) error
	done  uint64 // records read
	hits  uint64
	over  bool // there is no other record
}

// line takes a line of a file.
func (s *search) line(in *fileLines) (more bool, err error) {
	if in.kind != record.LineRecord {
		return in.kind != record.LineClose, nil
	}
	if s.done++; s.done%1024 == 0 && s.o.Progress != nil {
		s.o.Progress(s.done, 0)
	}
	if may, err := s.may(in); err != nil || !may {
		return true, err
	}
	l, err := record.ParsePeriodLine(in.line)
	if err != nil {
		return false, in.bad("%v", err)
	}
	if !s.is(&l.Entry) {
		return true, nil
	}
	s.hits++
	s.over = s.q.Account == ""
	return !s.over, s.found(&l.Entry, in.line)
}

// may reports whether a line can be one of those that are looked for, without parsing it.
func (s *search) may(in *fileLines) (bool, error) {
	switch {
	case s.q.Account != "":
		return bytes.Contains(in.line, []byte(`"`+s.q.Account+`"`)), nil
	case !s.q.TxID.IsZero():
		return bytes.Contains(in.line, []byte(s.q.TxID.String())), nil
	}
	raw, err := in.hashed()
	return bytes.Contains(raw, s.q.Reference[:]), err
}

// is reports whether a record is one of those that are looked for.
func (s *search) is(l *record.Line) bool {
	switch {
	case s.q.Account != "":
		return l.Names.From == s.q.Account || l.Names.To == s.q.Account
	case !s.q.TxID.IsZero():
		return l.Record.TxID() == s.q.TxID
	}
	return l.Record.Op.MovesMoney() && l.Record.Guard.Key == s.q.Reference
}
