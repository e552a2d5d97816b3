package lverify

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// VerifyExport checks an export by its lines alone: bytes, chain, Merkle roots, arithmetic and
// sums, and that the names shown are those of the records. One that begins later than the ledger is
// believed what came before it. A bad export is told in the report; the error is ctx's, or in's.
func VerifyExport(ctx context.Context, in io.Reader, o Options) (Report, error) {
	x := newExport(in, o)
	err := x.all(ctx)
	return x.rep, err
}

// export is one run over one export.
type export struct {
	in    *bufio.Scanner
	o     Options
	rep   Report
	chain *chain
	past  *linesPast
	log   frontier
	names names
	onces onces
	raws  [][]byte // of the batch under way
	after *export  // unless nil, it goes on from this one
	each  eachBatch
	lines uint64
}

// eachBatch, unless nil, is called with the batches that are good, in order.
type eachBatch func(x *export, b record.Batch, raws [][]byte) error

func newExport(in io.Reader, o Options) *export {
	x := &export{in: bufio.NewScanner(in), o: o, past: &linesPast{states: map[tables.StateKey]tables.Balance{}}}
	x.in.Buffer(make([]byte, 0, 64<<10), record.MaxLine+1)
	return x
}

// all checks all lines.
func (x *export) all(ctx context.Context) error {
	for x.in.Scan() {
		if x.lines++; x.lines%1024 == 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if x.o.Progress != nil {
				x.o.Progress(x.rep.Records, 0)
			}
		}
		if len(x.in.Bytes()) == 0 && x.lines > 1 {
			continue // the node had nothing to say, to one who followed
		}
		l, err := record.ParseLine(x.in.Bytes())
		if err != nil {
			x.bad("%v", err)
			return nil
		}
		good, err := x.line(&l)
		if err != nil || !good || x.rep.full() {
			return err
		}
	}
	if err := x.in.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return err
	} else if err != nil {
		x.lines++
		x.bad("it is longer than a line can be")
		return nil
	}
	x.over()
	return nil
}

func (x *export) bad(format string, args ...any) {
	x.rep.found(Finding{Where: fmt.Sprintf("line %d", x.lines), Detail: fmt.Sprintf(format, args...)})
}

// line checks a line, and reports whether the ones after it can be checked. The error is each's.
func (x *export) line(l *record.Line) (good bool, err error) {
	if (l.Kind == record.LineFormat) != (x.lines == 1) {
		x.bad("the line that says the format is the first, and no other")
		return false, nil
	}
	switch l.Kind {
	case record.LineFormat:
		x.begin(l)
	case record.LineRecord:
		x.names.check(l, x)
		if x.onces.check(&l.Record, x.bad); x.each != nil {
			x.raws = append(x.raws, l.Raw)
		}
		return x.chain.take(x.next(l), l.Raw), nil
	case record.LineBatch:
		if !x.chain.end(l.Batch) {
			return false, nil
		}
		x.log.add(l.Batch.Root())
		if x.log.size == x.o.Known.Batches && x.log.root() != x.o.Known.Root {
			x.bad("the log of %d batches has the root %s here, and is known to have had %s", x.log.size, x.log.root(),
				x.o.Known.Root)
		}
		raws := x.raws
		if x.raws = nil; x.each != nil && len(x.rep.Findings) == 0 {
			err = x.each(x, l.Batch, raws)
		}
	}
	return true, err
}

func (x *export) begin(l *record.Line) {
	if x.after != nil {
		x.goOn(l)
		return
	}
	x.rep.Whole = l.From == 1
	x.rep.begins(l.From)
	x.past.from = l.From
	x.names, x.onces = newNames(x.rep.Whole), newOnces(x.rep.Whole)
	x.chain = newChain(&x.rep, x.past, x.rep.Whole)
	x.chain.root = l.Prev
	if x.rep.Whole && !l.Prev.IsZero() {
		x.bad("it begins with the first record, and names a batch before it")
	}
}

// goOn begins where the lines before have ended.
func (x *export) goOn(l *record.Line) {
	x.rep.Whole = true
	x.rep.begins(l.From)
	x.past, x.names, x.onces, x.log = x.after.past, x.after.names, x.after.onces, x.after.log
	x.chain = x.after.chain
	x.chain.rep = &x.rep
	if l.From != x.chain.seq+1 || l.Prev != x.chain.root {
		x.bad("it begins with record %d, and goes on from another batch than the last file, which ends with record %d",
			l.From, x.chain.seq)
	}
}

// next is the seq that a line must have.
func (x *export) next(l *record.Line) uint64 {
	if x.chain.began {
		return x.chain.seq + 1
	}
	return x.past.from
}

// over checks that the export has an end, and says where it is.
func (x *export) over() {
	switch {
	case x.chain == nil:
		x.bad("it is empty")
		return
	case x.chain.count != 0:
		x.rep.found(
			Finding{
				Where:  "batches",
				Batch:  x.chain.batch + 1,
				Detail: fmt.Sprintf("the export ends within it: nothing proves its %d records", x.chain.count),
			},
		)
	}
	c := x.chain
	c.balanced("sums")
	x.rep.Head = record.Head{Batches: c.batch, LastRoot: c.root, Seq: c.seq}
	x.rep.Accounts, x.rep.Assets, x.rep.Holds = c.accounts.count(), uint64(len(c.issuers)), uint64(len(c.open))
	if x.rep.Whole {
		x.rep.Head.Root = x.log.root()
		x.newest()
	}
	x.rep.OK = len(x.rep.Findings) == 0
}

// newest checks that at most one record follows each state, and that it is a known record.
func (x *export) newest() {
	got := ends{seed: x.chain.ends.seed}
	for k, b := range x.past.states {
		got.newest += got.of(k, b.State.LastSeq)
		got.count++
	}
	if got.newest != x.chain.ends.newest || got.count != x.chain.ends.count {
		x.rep.found(Finding{Where: "sums", Detail: "a balance does not follow on its newest record"})
	}
}

// linesPast is the past as given by the lines so far.
type linesPast struct {
	from   uint64 // seq of the first record
	states map[tables.StateKey]tables.Balance
}

func (p *linesPast) took(im *record.Image) {
	k := tables.StateKey{Account: im.Account, Asset: im.Asset}
	p.states[k] = tables.Balance{State: im.State, Postings: p.states[k].Postings + 1}
}

func (p *linesPast) state(account uint64, asset uint32, prev uint64) (record.State, bool, error) {
	b, ok := p.states[tables.StateKey{Account: account, Asset: asset}]
	s := b.State
	switch {
	case !ok && prev == 0:
		return s, true, nil
	case !ok && prev < p.from:
		return s, false, nil
	case !ok:
		return s, false, fmt.Errorf("record %d: %w", prev, errNoImage)
	case s.LastSeq != prev:
		return s, false, fmt.Errorf("%w: record %d came after %d", errStale, s.LastSeq, prev)
	}
	return s, true, nil
}

func (p *linesPast) hold(seq, _ uint64) (held, bool, error) {
	if seq >= p.from {
		return held{}, false, errNoRecord
	}
	return held{}, false, nil
}

// names are those that the records of an export have given, or its lines have shown: one name a
// ref, and one ref a name.
type names struct {
	whole    bool
	accounts map[uint64]string
	refs     map[string]uint64 // the same, the other way round
	assets   map[uint32]string
	kinds    map[string]uint32 // likewise
}

func newNames(whole bool) names {
	return names{
		whole:    whole,
		accounts: map[uint64]string{},
		refs:     map[string]uint64{},
		assets:   map[uint32]string{},
		kinds:    map[string]uint32{},
	}
}

// check compares the names that a line shows with those that its record's refs were given.
func (n *names) check(l *record.Line, x *export) {
	r := &l.Record
	switch r.Op {
	case record.OpOpen:
		n.account(r, r.From, r.Name, true, x)
	case record.OpAsset:
		n.asset(r, r.Name, true, x)
	}
	n.account(r, r.From, l.Names.From, !n.whole, x)
	n.account(r, r.To, l.Names.To, !n.whole, x)
	n.asset(r, l.Names.Asset, !n.whole, x)
}

// account takes the name of an account. Whether one that was not seen may be given it there is for
// the caller to say.
func (n *names) account(r *record.Record, ref uint64, name string, may bool, x *export) {
	was, known := n.accounts[ref]
	other, taken := n.refs[name]
	switch {
	case known && was != name:
		x.bad("record %d: account %d is %q, not %q", r.Seq, ref, was, name)
	case taken && other != ref:
		x.bad("record %d: %q is account %d, not %d", r.Seq, name, other, ref)
	case !known && ref != 0 && may:
		n.accounts[ref], n.refs[name] = name, ref
	}
}

// asset takes the name of the record's asset.
func (n *names) asset(r *record.Record, name string, may bool, x *export) {
	was, known := n.assets[r.Asset]
	other, taken := n.kinds[name]
	switch {
	case known && was != name:
		x.bad("record %d: asset %d is %q, not %q", r.Seq, r.Asset, was, name)
	case taken && other != r.Asset:
		x.bad("record %d: %q is asset %d, not %d", r.Seq, name, other, r.Asset)
	case !known && r.Asset != 0 && may:
		n.assets[r.Asset], n.kinds[name] = name, r.Asset
	}
}

// onces are the permanent ids and guards that the records of an export have bound.
type onces struct {
	whole  bool                // none was bound before
	ids    map[[16]byte]uint64 // to the seq of the record
	guards map[[16]byte][16]byte
}

func newOnces(whole bool) onces { return onces{whole, map[[16]byte]uint64{}, map[[16]byte][16]byte{}} }

// based takes a permanent id, or the guard of a settlement, that was bound before.
func (o *onces) based(k tables.OnceKey, once *tables.Once) {
	if k.Guard {
		o.guards[k.Key] = [16]byte(once.Digest[:16])
	} else {
		o.ids[k.Key] = once.Seq
	}
}

// check takes the bindings of a record: an id is bound once, a guard has one owner, a reference is
// bound once.
func (o *onces) check(r *record.Record, bad func(format string, args ...any)) {
	if r.Op == record.OpOnce && !repeats(r) {
		if by, bound := o.ids[r.Dedupe.Key]; bound {
			bad("record %d: record %d has settled under its permanent id", r.Seq, by)
		}
		o.ids[r.Dedupe.Key] = r.Seq
	}
	if r.Guard == (record.Guard{}) {
		return
	}
	owner, bound := o.guards[r.Guard.Key]
	switch {
	case bound && owner != r.Guard.Owner:
		bad("record %d: its guard belongs to another owner", r.Seq)
	case bound && r.Op.MovesMoney():
		bad("record %d: a record before it was done under its reference", r.Seq)
	case !bound && repeats(r) && o.whole:
		bad("record %d: no record before it was done under its reference", r.Seq)
	}
	o.guards[r.Guard.Key] = r.Guard.Owner
}
