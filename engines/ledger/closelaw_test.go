package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// closeLaw drives a ledger that closes periods, and a model that never does, with the same calls.
type closeLaw struct {
	*rig
	rt     *rapid.T
	dice   *ledgertest.Dice
	model  *ledgertest.Model
	twins  map[record.TxID]record.TxID // the ledger's id of a record → the model's
	told   []record.TxID               // ids that the ledger has answered with
	closes []uint64                    // batches that closed periods, which the model lacks
	assets map[assetOp]uint64          // the model's records that declared or scaled an asset
	refers []ledger.Op                 // that were done under a reference
	h      tables.Horizon
	last   uint64 // the model's last record up to the horizon
	rows   int    // of clean rows in memory
	seen   map[string]int
}

type assetOp struct {
	asset string
	op    record.Op
}

func newCloseLaw(t *testing.T, rt *rapid.T, seen map[string]int) *closeLaw {
	clock := ledgertest.NewClock()
	l := &closeLaw{
		rt: rt, model: ledgertest.NewModel(clock.Now), twins: map[record.TxID]record.TxID{}, seen: seen,
		assets: map[assetOp]uint64{{"ron", record.OpAsset}: 2},
		dice:   ledgertest.NewDice(rapid.Uint64().Draw(rt, "seed")),
		rows:   rapid.SampledFrom([]int{0, 3, 1 << 16}).Draw(rt, "rows"),
	}
	l.rig = newRig(t, clock, func(c *ledger.Config) {
		c.FlushSlice = rapid.IntRange(1, 9).Draw(rt, "slice")
		c.DirtyMaxAccounts = rapid.SampledFrom([]int{1, 12, 1 << 20}).Draw(rt, "dirty")
		c.SlotMax = rapid.IntRange(2, 20).Draw(rt, "slot")
		c.KeyTTL = unit.Duration(time.Hour)
	})
	l.l.Forgetful(l.rows)
	clock.Advance(time.Second) // stamps are those of the model: the boot has taken some
	l.declare("ron")
	l.must(l.model.Declare(l.ctx(), "ron"))
	return l
}

func (l *closeLaw) must(err error) {
	l.t.Helper()
	if err != nil {
		l.rt.Fatal(err)
	}
}

// closed reports whether a record of the model is at or below the horizon.
func (l *closeLaw) closed(seq uint64) bool { return seq != 0 && seq <= l.last }

// asModel returns an outcome as the model would name its records. Their numbers differ by those that
// close a period, and by rows of batches that repeat a closed payment: the model notes them.
func (l *closeLaw) asModel(o ledger.Outcome) ledger.Outcome {
	if r := &o.Receipt; r.Seq != 0 {
		r.Seq, r.Batch = l.twins[r.TxID].Seq(), l.batch(r.Batch)
		if r.Hold != (record.TxID{}) {
			r.Hold = l.twins[r.Hold]
		}
	}
	if r := o.Reject; r != nil && r.Committed != (record.TxID{}) {
		twin := *r
		twin.Committed, o.Reject = l.twins[r.Committed], &twin
	}
	o.Results = slices.Clone(o.Results)
	for i := range o.Results {
		o.Results[i] = l.asModel(o.Results[i])
	}
	return o
}

// batch returns the model's number of a batch.
func (l *closeLaw) batch(no uint64) uint64 {
	n := no
	for _, closing := range l.closes {
		if closing <= no {
			n--
		}
	}
	return n
}

// asked returns ops with the ids of the model.
func (l *closeLaw) asked(ops []ledger.Op) []ledger.Op {
	ops = slices.Clone(ops)
	for i := range ops {
		if ops[i].Hold != (record.TxID{}) {
			ops[i].Hold = l.twins[ops[i].Hold]
		}
		ops[i].Ops = l.asked(ops[i].Ops)
	}
	return ops
}

func (l *closeLaw) pair(got, want ledger.Outcome) {
	if id := got.Receipt.TxID; id != (record.TxID{}) && l.twins[id] == (record.TxID{}) {
		l.twins[id], l.told = want.Receipt.TxID, append(l.told, id)
	}
	for i := range min(len(got.Results), len(want.Results)) {
		l.pair(got.Results[i], want.Results[i])
	}
}

// call makes a call that is drawn.
func (l *closeLaw) call() {
	l.commits(l.dice.Call())
}

// again repeats a payment that has a reference: alone, or as a row of a batch.
func (l *closeLaw) again() {
	if len(l.refers) == 0 {
		return
	}
	o := l.refers[l.dice.IntN(len(l.refers))]
	if n := l.dice.IntN(3); n > 0 {
		inner := o
		inner.Principal = ""
		o = ledger.Op{
			Code: record.OpBatch, Atomic: n == 1, Principal: o.Principal,
			Ops: []ledger.Op{issue("pool", 1, 0), inner, issue("pool", 1, 0)},
		}
	}
	l.commits([]ledger.Op{o})
}

// note keeps an op that was done under a reference.
func (l *closeLaw) note(o ledger.Op, got ledger.Outcome, asker string) {
	for i := range min(len(o.Ops), len(got.Results)) {
		l.note(o.Ops[i], got.Results[i], asker)
	}
	if o.Reference != "" && got.Reject == nil && !got.Replayed {
		o.Dedupe, o.Idem, o.TTL, o.Principal = ledger.DedupeKey{}, "", 0, asker
		l.refers = append(l.refers, o)
	}
}

// commits makes a call of both. An atomic batch that repeats what is closed is refused whole, where the
// model would do the rest of it.
func (l *closeLaw) commits(call []ledger.Op) {
	got := l.commit(call...)
	var ops []ledger.Op
	var outs []ledger.Outcome
	for i, o := range call {
		if r := got[i].Reject; o.Atomic && r != nil && r.Code == record.PeriodClosed {
			l.mustBeClosed(o.Ops[r.Index], o.Principal)
			l.seen["whole batches"]++
			continue
		}
		ops, outs = append(ops, o), append(outs, got[i])
	}
	want, err := l.model.Commit(l.ctx(), l.asked(ops))
	l.must(err)
	for i, o := range ops {
		l.dice.Note(o, outs[i])
		l.note(o, outs[i], o.Principal)
		l.pair(outs[i], want[i])
		if r := want[i].Receipt; (o.Code == record.OpAsset || o.Code == record.OpScale) && r.Seq != 0 {
			l.assets[assetOp{o.Asset, o.Code}] = r.Seq
		}
		l.same(o, outs[i], want[i], o.Principal)
	}
}

// same fails unless an answer is that of the model, or that the model's record is closed.
func (l *closeLaw) same(o ledger.Op, got, want ledger.Outcome, asker string) {
	if r := got.Reject; r != nil && r.Code == record.PeriodClosed {
		l.mustBeClosed(o, asker)
		return
	}
	if len(got.Results) > 0 && len(got.Results) == len(want.Results) && len(o.Ops) == len(got.Results) {
		if got.Replayed != want.Replayed || (got.Reject == nil) != (want.Reject == nil) {
			l.rt.Fatalf("%+v:\n%+v\nthe model:\n%+v", o, got, want)
		}
		for i := range got.Results {
			l.same(o.Ops[i], got.Results[i], want.Results[i], asker)
		}
		return
	}
	if a, b := ledgertest.Brief(l.asModel(got)), ledgertest.Brief(want); a != b {
		l.rt.Fatalf("horizon %d, closings %d, %+v:\n%s\nthe model:\n%s", l.h.Seq, l.closes, o, a, b)
	}
	if seq := got.Receipt.Seq; seq != 0 && seq <= l.h.Seq {
		l.rt.Fatalf("%+v is answered with a closed record: %+v", o, got)
	}
}

// mustBeClosed fails unless what o repeats or names is closed.
func (l *closeLaw) mustBeClosed(o ledger.Op, asker string) {
	if o.Reference != "" {
		done, err := l.model.Reference(l.ctx(), asker, o.Reference)
		if err == nil && l.closed(done.Receipt.Seq) {
			l.seen["references"]++
			return
		}
	}
	if o.Code == record.OpAsset || o.Code == record.OpScale {
		if l.seen["assets"]++; !l.closed(l.assets[assetOp{o.Asset, o.Code}]) {
			l.rt.Fatalf("%+v is closed, horizon %+v; the model: %v", o, l.h, l.assets)
		}
		return
	}
	v, err := l.model.Hold(l.ctx(), l.twins[o.Hold])
	if l.seen["holds"]++; err != nil || !l.closed(v.Closing.Seq()) {
		l.rt.Fatalf("%+v is closed, horizon %+v; the model: %+v, %v", o, l.h, v, err)
	}
}

// payout settles under one of a few ids, at times with another digest or owner than before.
func (l *closeLaw) payout() {
	id := fmt.Sprint("epoch ", l.dice.IntN(8))
	once := ledger.Once{
		Domain: "payout", ID: id, Digest: b3.Sum([]byte(id)),
		Guard: ledger.Guard{Key: fmt.Sprint("slot", l.dice.IntN(4)), Owner: fmt.Sprint("run", l.dice.IntN(8)/7)},
	}
	if l.dice.IntN(8) == 0 {
		once.Digest[0]++
	}
	ops := []ledger.Op{issue("pool", 50, 0), transfer("pool", "winner", 1+l.dice.Uint64N(60), 0)}
	got, err := l.l.Settle(l.ctx(), once, ops)
	l.must(err)
	want, err := l.model.Settle(l.ctx(), once, ops)
	l.must(err)
	if got.Period == 0 {
		l.pair(got, want)
		l.same(ledger.Op{Ops: ops}, got, want, "")
		return
	}
	if l.seen["settlements"]++; !got.Replayed || !want.Replayed || !l.closed(want.Results[1].Receipt.Seq) {
		l.rt.Fatalf("%+v of a closed period: %+v\nthe model: %+v", once, got, want)
	}
}

// close closes a period with a batch that may be closed.
func (l *closeLaw) close() {
	if rapid.Bool().Draw(l.rt, "flush") {
		l.must(l.l.Flush(l.ctx()))
	}
	last, _ := l.l.Closable()
	if last <= l.h.Seq {
		return
	}
	h, err := ledgertest.Close(l.ctx(), l.store, rapid.Uint64Range(l.h.Seq+1, last).Draw(l.rt, "horizon"))
	if errors.Is(err, period.ErrNothing) {
		return // it is inside the first batch
	}
	l.must(err)
	head, err := l.l.Head(l.ctx())
	l.must(err)
	l.h, l.closes = h, append(l.closes, head.Batches)
	end, err := l.model.Roots(l.ctx(), l.batch(h.Batch)-1, 1)
	l.must(err)
	l.last = end[0].Last()
	l.seen["closings"]++
}

func (l *closeLaw) restart() {
	l.reopen()
	l.l.Forgetful(l.rows)
}

// rebuild derives the tables again, as a verb does of a node that is stopped.
func (l *closeLaw) rebuild() {
	l.stop()
	s := store.New(store.DefaultConfig(), store.Options{Path: l.path, Catalog: flow.NewCatalog(nil, nil), Now: l.now})
	s.Declare("ledger", tables.Buckets()...)
	ctx, stop := context.WithCancel(l.ctx())
	l.must(errors.Join(s.Open(ctx), s.Prepare(ctx)))
	ended := make(chan error, 1)
	go func() { ended <- s.Tasks()[0].Run(ctx) }()
	l.must(lverify.Rebuild(ctx, s, lverify.Options{}))
	s.CloseLanes()
	<-ended
	l.must(s.Close())
	stop()
	l.open()
	l.l.Forgetful(l.rows)
}

// sound fails unless the whole file is sound.
func (l *closeLaw) sound() {
	l.must(l.store.View(l.ctx(), func(r store.Reader) error {
		rep, err := lverify.Verify(l.ctx(), r, lverify.Options{})
		return errors.Join(err, rep.Err())
	}))
}

// step draws what happens next.
func (l *closeLaw) step() {
	l.clock.Advance(time.Duration(rapid.IntRange(1, 600).Draw(l.rt, "seconds")) * time.Second)
	switch rapid.IntRange(0, 18).Draw(l.rt, "step") {
	case 0:
		l.restart()
	case 1:
		l.must(l.l.Seal(l.ctx()))
	case 2:
		l.clock.Advance(2 * time.Hour) // keys and holds end
		l.must(l.l.Sweep(l.ctx()))
		l.must(l.model.Sweep(l.ctx()))
		l.must(l.l.Seal(l.ctx()))
		l.close()
	case 3:
		l.close()
	case 4, 5:
		_, err := ledgertest.Drop(l.ctx(), l.store, rapid.IntRange(1, 6).Draw(l.rt, "drops"),
			rapid.SampledFrom([]int{1, 7, 4096}).Draw(l.rt, "dropped"))
		l.must(err)
	case 6, 7:
		l.payout()
	case 8:
		if rapid.IntRange(0, 3).Draw(l.rt, "rebuild") == 0 {
			l.rebuild()
		}
	case 9, 10:
		l.again()
		return
	default:
		l.call()
		return
	}
	l.sound()
}

// Closings at any record that may be closed, dropping, restarts and rebuilds change no answer, but
// for what repeats or reads a closed record; balances, nonces, holds and totals are those of a ledger
// that never closed one. The file is sound at any moment.
func TestCloseLaw(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		l := newCloseLaw(t, rt, seen)
		defer l.stop()
		for range rapid.SampledFrom([]int{20, 60, 150}).Draw(rt, "steps") {
			l.step()
		}
		l.sound()
		l.compare()
		l.restart()
		l.compare()
	})
	for _, what := range []string{"closings", "references", "whole batches", "settlements", "holds"} {
		if seen[what] == 0 {
			t.Errorf("no %s of a closed period: %v", what, seen)
		}
	}
	t.Log(seen)
}
