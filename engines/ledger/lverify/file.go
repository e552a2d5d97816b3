package lverify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Verify checks the ledger that r reads. A bad ledger is told in the report; the error is ctx's
// alone.
func Verify(ctx context.Context, r store.Reader, o Options) (Report, error) {
	return verify(r, o, func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	})
}

// Checks returns Verify as a step of a file's verification, without report or progress.
func Checks() []store.Check {
	never := func() error { return nil }
	return []store.Check{{Name: "ledger", Run: func(r store.Reader) error {
		rep, err := verify(r, Options{}, never)
		return errors.Join(err, rep.Err())
	}}}
}

func verify(r store.Reader, o Options, stop func() error) (Report, error) {
	v := &file{r: r, o: o, stop: stop}
	v.guard("journal", v.journal)
	if v.rep.Whole && len(v.rep.Findings) == 0 && v.err == nil {
		v.guard("tables", v.derived)
	}
	v.rep.OK = len(v.rep.Findings) == 0 && v.err == nil
	return v.rep, v.err
}

// file is one run over one file.
type file struct {
	r     store.Reader
	o     Options
	stop  func() error
	from  uint64
	rep   Report
	past  *journalPast
	chain *chain
	log   frontier
	done  uint64
	total uint64
	err   error // of stop

	header record.Batch             // of the batch under way
	each   func(rec *record.Record) // unless nil, is called for each record

	horizon  tables.Horizon
	base     tables.Base
	names    []namesEnd         // of the closed periods
	peaks    []b3.Digest        // of the log of its batches
	closings map[uint64]closing // of periods, after the horizon and not met yet, by seq
}

// guard turns rows that do not decode into findings.
func (v *file) guard(where string, fn func()) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *store.RowError:
			v.rep.found(Finding{Where: where, Detail: p.Error()})
		default:
			panic(p)
		}
	}()
	fn()
}

// step counts a record, and answers whether to go on.
func (v *file) step() bool {
	if v.done%4096 == 0 {
		v.err = v.stop()
		if v.o.Progress != nil {
			v.o.Progress(min(v.done, v.total), v.total)
		}
	}
	v.done++
	return v.err == nil && !v.rep.full()
}

// journal checks records, batches and the head.
func (v *file) journal() {
	if err := tables.CheckFormat(v.r); err != nil {
		v.rep.found(Finding{Where: "head", Detail: err.Error()})
		return
	}
	if err := tables.CheckMeta(v.r); err != nil {
		v.rep.found(Finding{Where: "head", Detail: err.Error()})
	}
	v.start()
	format, _ := tables.GetFormat(v.r)
	newest, ok := v.periods()
	if closed := newest.Period != 0; ok && closed != (format == tables.FormatClosed) {
		v.rep.found(Finding{Where: "head", Detail: fmt.Sprintf("%d periods are closed, and the format is %d",
			newest.Period, format)})
	}
	if !ok || !v.rep.Whole && !v.join() || v.rep.Whole && newest.Period != 0 && !v.resume(&newest) {
		return
	}
	head, _ := tables.GetHead(v.r)
	if v.records() && v.err == nil {
		v.beyond()
		v.unclosed()
		v.head(head)
		v.chain.balanced("sums")
	}
}

// join begins behind the batch before the first one to check.
func (v *file) join() bool {
	before, known := tables.Batch(v.r, v.from-1)
	if !known {
		v.rep.found(Finding{Where: "batches", Batch: v.from - 1, Detail: "it is not there"})
		return false
	}
	c := v.chain
	c.began, c.seq, c.batch, c.at, c.root = true, before.Last(), before.No, before.At, before.Root()
	v.past.first = c.seq + 1
	v.rep.begins(v.past.first)
	maps.DeleteFunc(v.closings, func(seq uint64, _ closing) bool { return seq <= c.seq })
	for ref, name := range tables.Assets(v.r) {
		if issuer, known := tables.Ref(v.r, issuance(name)); known { // else it is not flushed yet
			c.issuers[ref] = issuer
		}
	}
	return true
}

// records takes all records from the first batch to check on, and the header of each batch behind
// its last one.
func (v *file) records() bool { return v.stretch(math.MaxUint64, math.MaxInt) && v.complete() }

// stretch is records up to, not including, the seq to, and of n records at most.
func (v *file) stretch(to uint64, n int) bool {
	c := v.chain
	for seq, raw := range tables.Raws(v.r, c.seq+1, to) {
		if n--; n < 0 {
			return true
		}
		if c.count == 0 {
			var known bool
			if v.header, known = tables.Batch(v.r, c.batch+1); !known {
				v.rep.found(
					Finding{
						Where:  "batches",
						Batch:  c.batch + 1,
						Detail: "it is not there, and record " + fmt.Sprint(seq) + " is",
					},
				)
				return false
			}
		}
		if seq != c.seq+1 {
			v.rep.found(Finding{Where: "journal", Seq: c.seq + 1, Detail: "it is missing"})
			return false
		}
		if !c.take(seq, raw) {
			return false
		}
		if c.rec.Op == record.OpClose {
			v.closes(&c.rec)
		}
		if v.each != nil {
			v.each(&c.rec)
		}
		if seq == v.header.Last() {
			if !c.end(v.header) {
				return false
			}
			v.node(v.header)
		}
		if !v.step() {
			return v.err != nil
		}
	}
	return true
}

// complete reports whether the last batch is.
func (v *file) complete() bool {
	c := v.chain
	if c.count != 0 {
		v.rep.found(
			Finding{
				Where:  "journal",
				Seq:    c.seq + 1,
				Detail: fmt.Sprintf("it is missing: batch %d has records up to %d", v.header.No, v.header.Last()),
			},
		)
		return false
	}
	return true
}

// beyond looks for rows outside the checked range.
func (v *file) beyond() {
	c := v.chain
	if last := tables.LastBatch(v.r); last != c.batch {
		v.rep.found(
			Finding{Where: "batches", Batch: last, Detail: fmt.Sprintf("the last batch with records is %d", c.batch)},
		)
	}
	for no := range tables.Batches(v.r, 0, 1) {
		v.rep.found(Finding{Where: "batches", Batch: no, Detail: "it lies before the first"})
	}
	for seq := range tables.Raws(v.r, 0, 1) {
		v.rep.found(Finding{Where: "journal", Seq: seq, Detail: "it lies before the first"})
	}
}

// head compares the head with where the journal ends.
func (v *file) head(h tables.Head) {
	c := v.chain
	differ := func(what string, got, want any) {
		v.rep.found(Finding{Where: "head", Detail: fmt.Sprintf("%s is %v, the journal has %v", what, got, want)})
	}
	if h.Seq != c.seq || h.Batches != c.batch || h.At != c.at {
		differ("the end", fmt.Sprintf("record %d of batch %d at %d", h.Seq, h.Batches, h.At),
			fmt.Sprintf("record %d of batch %d at %d", c.seq, c.batch, c.at))
	}
	if h.LastRoot != c.root {
		differ("the last root", h.LastRoot, c.root)
	}
	if wait := c.batch % tables.TailBatches; h.Tail.Count() != wait {
		differ("the number of headers beside it", h.Tail.Count(), wait)
	}
	v.rep.Head = record.Head{Batches: c.batch, Root: v.log.root(), LastRoot: c.root, Seq: c.seq}
	v.rep.Accounts, v.rep.Assets, v.rep.Holds = h.Accounts, uint64(h.Assets), h.OpenHolds
	if !c.whole {
		return
	}
	if h.Accounts != c.accounts.count() {
		differ("the number of accounts", h.Accounts, c.accounts.count())
	}
	if int(h.Assets) != len(c.issuers) {
		differ("the number of assets", h.Assets, len(c.issuers))
	}
	if h.OpenHolds != uint64(len(c.open)) {
		differ("the number of open holds", h.OpenHolds, len(c.open))
	}
}

// journalPast looks back into the journal, and before it into the base.
type journalPast struct {
	r    store.Reader
	base tables.Base
	to   uint64 // seq of the horizon
	// the seq of the first record to check; 0 if that is the first of all: then the sums of all
	// states tell forks
	first uint64
	rec   record.Record
	cache map[tables.StateKey]record.State
}

// cacheStates is how many states are kept to be met again: with its key each takes some 200 bytes
// of a map.
const cacheStates = 1 << 18

var (
	errNoRecord = errors.New("it is not there")
	errNoImage  = errors.New("the record before it does not touch it")
	errStale    = errors.New("it does not follow on the newest record before it")
)

func (p *journalPast) took(im *record.Image) {
	if p.cache == nil {
		p.cache = map[tables.StateKey]record.State{}
	}
	k := tables.StateKey{Account: im.Account, Asset: im.Asset}
	if len(p.cache) >= cacheStates {
		if _, has := p.cache[k]; !has {
			for other := range p.cache { // any one: maps begin anywhere
				delete(p.cache, other)
				break
			}
		}
	}
	p.cache[k] = im.State
}

func (p *journalPast) state(account uint64, asset uint32, prev uint64) (record.State, bool, error) {
	k := tables.StateKey{Account: account, Asset: asset}
	newest, known := p.cache[k]
	if s := newest; known && s.LastSeq == prev {
		return s, true, nil
	}
	if !known && p.first != 0 { // the row may be older than the checked range
		newest = tables.Stored{Reader: p.r}.Balance(k).State
		known = newest.LastSeq < p.first && newest.LastSeq > prev
	}
	if known {
		return newest, false, fmt.Errorf("%w: record %d came after %d", errStale, newest.LastSeq, prev)
	}
	if prev <= p.to {
		was, _ := p.base.Balance(k)
		if was.State.LastSeq != prev {
			return was.State, false, fmt.Errorf("%w: record %d came after %d", errStale, was.State.LastSeq, prev)
		}
		return was.State, true, nil
	}
	im, err := p.imageOf(prev, account, asset)
	return im.State, err == nil, err
}

// imageOf finds the image of an account in an asset in a record.
func (p *journalPast) imageOf(seq, account uint64, asset uint32) (record.Image, error) {
	if err := p.read(seq); err != nil {
		return record.Image{}, fmt.Errorf("record %d: %w", seq, err)
	}
	for _, im := range p.rec.Images {
		if im.Account == account && im.Asset == asset {
			return im, nil
		}
	}
	return record.Image{}, fmt.Errorf("record %d: %w", seq, errNoImage)
}

// read reads a record after the horizon. Only its checksum and form are known to be valid.
func (p *journalPast) read(seq uint64) error {
	raw := tables.Raw(p.r, seq)
	if raw == nil || seq <= p.to {
		return errNoRecord
	}
	if err := p.rec.Decode(raw); err != nil {
		return err
	}
	if p.rec.Seq != seq {
		return errNoRecord
	}
	return nil
}

func (p *journalPast) hold(seq, by uint64) (held, bool, error) {
	if seq >= by {
		return held{}, false, errNoRecord
	}
	if h, known := tables.GetHold(p.r, seq); known && !h.Open() && h.Closing < by {
		return held{}, false, fmt.Errorf("record %d has ended it", h.Closing)
	}
	if seq <= p.to {
		b, _ := p.base.Hold(seq)
		h, err := b.Open(seq)
		return held{h.From, h.To, h.Asset, h.Amount, h.At, h.Expires}, err == nil, err
	}
	if err := p.read(seq); err != nil {
		return held{}, false, err
	}
	r := &p.rec
	if r.Op != record.OpHold {
		return held{}, false, errors.New("it is no hold")
	}
	return held{r.From, r.To, r.Asset, r.Amount, r.At, r.Expires}, true, nil
}
