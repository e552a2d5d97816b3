package lverify

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// Periods checks the files of closed periods, one after the other. The first one may be of any
// period: it is believed what its opening says of the periods before. Memory: about 600 bytes for
// each account and asset, and 40 bytes for each reference.
type Periods struct {
	o     Options
	whole bool             // from the first period on
	last  record.Statement // of the file before; of period 0 before the first one
	onces onces            // that the files have bound
	given frontier         // log of names, if whole
	open  *export          // after the last record
	each  eachBatch
}

// NewPeriods returns the check of no files yet.
func NewPeriods(o Options) *Periods { return &Periods{o: o} }

// Last returns the statement of the last file.
func (p *Periods) Last() *record.Statement { return &p.last }

// Next checks the lines of the next file, which must follow the file before. A bad file is told in
// the report; after it the check is of no use. The error is ctx's, or in's.
func (p *Periods) Next(ctx context.Context, in io.Reader) (Report, error) {
	f := &periodFile{export: newExport(in, p.o), all: p, hash: tables.NewStateHash()}
	f.in.Buffer(make([]byte, 0, 64<<10), record.MaxPeriodLine+1)
	f.rep.Whole, f.each = true, p.each
	err := f.read(ctx)
	if f.rep.OK = err == nil && len(f.rep.Findings) == 0; f.rep.OK {
		p.last, p.open = f.end, f.export
	}
	return f.rep, err
}

// periodFile is one run over one file.
type periodFile struct {
	*export
	all    *Periods
	prev   record.Statement // of the opening
	end    record.Statement // of the last line
	hash   tables.StateHash // of the base
	based  bool             // the rows of the base are over
	closed bool             // the last line was read
	check  baseCheck
	after  stateAfter
	fromAt int64 // of the first batch
	err    error // of each
}

// read checks all lines.
func (f *periodFile) read(ctx context.Context) error {
	for f.in.Scan() {
		if f.lines++; f.lines%1024 == 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if f.o.Progress != nil {
				f.o.Progress(f.rep.Records, 0)
			}
		}
		l, err := record.ParsePeriodLine(f.in.Bytes())
		if err != nil {
			f.bad("%v", err)
			return nil
		}
		if !f.take(&l) || f.rep.full() {
			return f.err
		}
	}
	switch err := f.in.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		f.lines++
		f.bad("it is longer than a line can be")
	case err != nil:
		return err
	case !f.closed:
		f.bad("the file ends after it, and has no statement")
	}
	return nil
}

// take checks a line, and reports whether the ones after it can be checked.
func (f *periodFile) take(l *record.PeriodLine) bool {
	if (l.Kind == record.LinePeriod) != (f.lines == 1) || f.closed {
		f.bad("the line that says the format is the first and no other, and the statement is the last")
		return false
	}
	switch l.Kind {
	case record.LinePeriod:
		return f.begins(&l.Opening)
	case record.LineBase:
		if f.based {
			f.bad("it is a row of the base, after a record")
			return false
		}
		return f.base(&l.Base)
	}
	if !f.based && !f.baseEnds() {
		return false
	}
	switch l.Kind {
	case record.LineRecord:
		return f.record(&l.Entry)
	case record.LineBatch:
		return f.batch(&l.Entry)
	}
	f.ends(l.Close)
	return true
}

// begins takes the first line: the chain goes on from the period before.
func (f *periodFile) begins(o *record.PeriodOpening) bool {
	if o.Opening != "" {
		f.prev, _ = record.ParseStatement(o.Opening) // ParsePeriodLine has found it valid
	}
	p := f.all
	if p.open == nil && p.last.Period == 0 {
		p.whole = o.Period == 1
		p.onces = newOnces(p.whole)
	} else if p.last.Period != f.prev.Period || p.last.Digest() != f.prev.Digest() {
		f.bad("it is period %d after another period %d than that of the file before", o.Period, f.prev.Period)
		return false
	}
	if f.prev.Period != 0 {
		if err := checkPeaks(&f.prev); err != nil {
			f.bad("%v", err)
			return false
		}
	}
	f.rep.Periods = f.prev.Period
	f.rep.begins(o.FromSeq)
	f.past.from, f.names, f.onces = 1, newNames(true), p.onces
	c := newChain(&f.rep, f.past, true)
	c.seq, c.batch, c.at, c.root = f.prev.ToSeq, f.prev.ToBatch, f.prev.ToAt, f.prev.LastRoot
	c.counted = o.Period == 1
	f.chain, f.log = c, frontier{f.prev.ToBatch, slices.Clone(f.prev.Peaks)}
	f.check = baseCheck{chain: c, to: f.prev.ToSeq, found: func(detail string) { f.bad("%s", detail) }}
	f.after = newStateAfter(f.prev.ToBatch)
	return true
}

// base takes a row of the base.
func (f *periodFile) base(l *record.BaseLine) bool {
	row := tables.BaseRowOf(l)
	f.hash.Add(row)
	if err := f.baseRow(row, l); err != nil {
		f.bad("%v", err)
	}
	return len(f.rep.Findings) == 0
}

func (f *periodFile) baseRow(row tables.BaseRow, l *record.BaseLine) error {
	switch row.Kind {
	case tables.BaseOfAccount:
		ref, a, err := row.Account()
		if err != nil {
			return err
		}
		f.check.account(ref, &a)
		f.after.accounts = append(f.after.accounts, a)
		f.named(tables.NameChange{Ref: ref, Name: l.Name})
	case tables.BaseOfBalance:
		k, b, err := row.Balance()
		f.past.states[k] = b
		return err
	case tables.BaseOfHold:
		seq, h, err := row.Hold()
		if err != nil {
			return err
		}
		f.check.hold(seq, &h)
		hold := &placed{Inclusion: h.Inclusion}
		f.after.holds[seq] = hold
		if err := f.after.had(f.prev.ToBatch, hold); err != nil {
			return fmt.Errorf("hold %d: %w", seq, err)
		}
	case tables.BaseOfOnce:
		k, o, err := row.Once()
		f.after.onces[k] = o
		f.onces.based(k, &o)
		return err
	case tables.BaseOfAsset:
		ref, a, err := row.Asset()
		if err != nil {
			return err
		}
		f.named(tables.NameChange{Asset: true, Ref: uint64(ref), Name: l.Name})
		f.check.asset(ref, &a)
		f.after.assets = append(f.after.assets, a)
	}
	return nil
}

// named takes a name that the base has, the one of the file before. Two accounts or assets do not
// share it.
func (f *periodFile) named(n tables.NameChange) {
	f.check.name(n)
	if before := f.all.open; before != nil {
		was := before.names.accounts[n.Ref]
		if n.Asset {
			was = before.names.assets[uint32(n.Ref)]
		}
		if was != n.Name {
			f.bad("ref %d is %q, and %q in the file before", n.Ref, n.Name, was)
		}
	}
	if n.Asset {
		f.names.asset(&record.Record{Asset: uint32(n.Ref)}, n.Name, true, f.export)
	} else {
		f.names.account(&record.Record{}, n.Ref, n.Name, true, f.export)
	}
}

// baseEnds compares the base with the statement of the opening.
func (f *periodFile) baseEnds() bool {
	f.based = true
	if f.prev.Period == 0 {
		if len(f.after.accounts)+len(f.after.assets)+len(f.past.states)+len(f.after.onces) != 0 {
			f.bad("the first period has a base")
		}
		return len(f.rep.Findings) == 0
	}
	if root := f.hash.Root(); root != f.prev.StateRoot {
		f.bad("the base before it has the root %s, the statement of period %d says %s", root, f.prev.Period,
			f.prev.StateRoot)
		return false
	}
	for k, b := range f.past.states {
		f.check.balance(k, &b)
	}
	f.check.end(&f.prev)
	return len(f.rep.Findings) == 0
}

// record takes a record.
func (f *periodFile) record(l *record.Line) bool {
	good, _ := f.line(l) // only a batch has an error
	if good {
		f.after.take(&f.chain.rec, l.Raw)
	}
	return good
}

// batch takes the header after the last record of a batch.
func (f *periodFile) batch(l *record.Line) bool {
	if f.chain.count == 0 {
		f.bad("it is the header of a batch without records")
		return false
	}
	if f.fromAt == 0 {
		f.fromAt = l.Batch.At
	}
	f.after.batch(&f.log, &l.Batch)
	good, err := f.line(l)
	f.err = err
	return good && err == nil
}

// ends compares the last line with all before it.
func (f *periodFile) ends(text string) {
	f.closed = true
	f.end, _ = record.ParseStatement(text) // ParsePeriodLine has found it valid
	if f.chain.count != 0 || f.rep.Records == 0 {
		f.bad("it closes a period without records, or in the middle of a batch")
		return
	}
	f.over()
	if err := f.end.Follows(&f.prev); err != nil {
		f.bad("%v", err)
	}
	made := f.chain.statement(&f.prev, &f.log)
	made.FromAt, made.References = f.fromAt, f.after.references
	made.NamesRoot, made.StateRoot = f.namesRoot(), f.after.root(f.past.states)
	differences(&f.end, &made, f.bad)
}

// namesRoot adds the names that the period has given to the log of names, and returns its root.
// That of a file whose periods before are not known is believed.
func (f *periodFile) namesRoot() b3.Digest {
	if !f.all.whole {
		return f.end.NamesRoot
	}
	for ref := f.prev.Accounts + 1; ref <= f.chain.accounts.count(); ref++ {
		f.all.given.add(record.NameLeaf(false, ref, f.names.accounts[ref]))
	}
	for ref := f.prev.Assets + 1; ref <= uint32(len(f.chain.issuers)); ref++ {
		f.all.given.add(record.NameLeaf(true, uint64(ref), f.names.assets[ref]))
	}
	return f.all.given.root()
}
