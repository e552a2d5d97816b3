package lverify

import (
	"bytes"
	"context"

	"ronbox/engines/ledger/record"
)

// Query selects records of closed periods by the one of its members that is not zero.
type Query struct {
	TxID      record.TxID
	Account   string   // that is debited, credited, opened or changed
	Reference [16]byte // key of the guard that a payment has bound
}

// Find calls found with the records that q selects, in order, with the line that the file has of
// each. It returns ErrNotFound if there is none, and a *FileError for a file that is missing or
// bad. Only lines of records that are found are checked for their form: Verify the files before.
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
