package lverify_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// past is a ledger as it was at the end of a period: what came of its records, made naively.
type past struct {
	head      tables.Head
	accounts  map[uint64]tables.BaseAccount
	balances  map[tables.StateKey]tables.Balance
	holds     map[uint64]tables.BaseHold
	onces     map[tables.OnceKey]tables.Once
	assets    map[uint32]tables.BaseAsset
	peaks     []b3.Digest
	logRoot   b3.Digest
	firstAt   int64
	reference uint64
}

// pastOf reads a flushed ledger.
func pastOf(t testing.TB, r store.Reader) *past {
	t.Helper()
	p := &past{
		accounts: map[uint64]tables.BaseAccount{}, balances: map[tables.StateKey]tables.Balance{},
		holds: map[uint64]tables.BaseHold{}, onces: map[tables.OnceKey]tables.Once{},
		assets: map[uint32]tables.BaseAsset{},
	}
	p.head, _ = tables.GetHead(r)
	if f := tables.GetFlushed(r); f.Seq != p.head.Seq {
		t.Fatalf("it is flushed up to record %d of %d", f.Seq, p.head.Seq)
	}
	stored := tables.Stored{Reader: r}
	for seq, rec := range tables.Records(r, 1, math.MaxUint64) {
		switch rec.Op {
		case record.OpOpen:
			a := tables.BaseAccount{Account: stored.Account(rec.From), OpenedAt: rec.At}
			if a.LastNonceSeq != 0 {
				user := tables.MustRecord(r, a.LastNonceSeq)
				a.LastTx = user.TxID()
			}
			p.accounts[rec.From] = a
		case record.OpAsset:
			p.assets[rec.Asset] = tables.BaseAsset{Seq: seq, DeclaredAt: rec.At, Scale: stored.Scale(rec.Asset)}
		case record.OpHold:
			if h, _ := tables.GetHold(r, seq); h.Open() {
				p.holds[seq] = tables.BaseHold{Inclusion: inclusion(t, r, rec)}
			}
		}
		if rec.Guard != (record.Guard{}) && rec.Op.MovesMoney() {
			p.reference++
		}
		for _, im := range rec.Images {
			k := tables.StateKey{Account: im.Account, Asset: im.Asset}
			p.balances[k] = stored.Balance(k)
		}
	}
	for k, o := range tables.Onces(r) {
		if rec := tables.MustRecord(r, o.Seq); rec.Op == record.OpOnce {
			p.onces[k] = o
		}
	}
	for _, pos := range merkle.LogPeaks(p.head.Batches) {
		d, _ := tables.LogNode(r, pos)
		p.peaks = append(p.peaks, d)
	}
	p.logRoot, _ = merkle.LogRoot(p.head.Batches, tables.LogNodes(r))
	first, _ := tables.Batch(r, 1)
	p.firstAt = first.At
	return p
}

// inclusion returns a record with its place in its batch.
func inclusion(t testing.TB, r store.Reader, rec *record.Record) record.Inclusion {
	t.Helper()
	header, known := tables.Batch(r, rec.Batch)
	if !known {
		t.Fatalf("batch %d is not there", rec.Batch)
	}
	var leaves []b3.Digest
	for _, raw := range tables.Raws(r, header.First, header.Last()+1) {
		leaves = append(leaves, merkle.Leaf(raw))
	}
	index := rec.Seq - header.First
	return record.Inclusion{
		Record: bytes.Clone(tables.Raw(r, rec.Seq)), Index: index, Header: header, Path: merkle.Path(leaves, index),
	}
}

// put writes the base.
func (p *past) put(w *store.Writes, generation uint64) {
	for ref, a := range p.accounts {
		tables.PutBaseAccount(w, generation, ref, a)
	}
	for k, b := range p.balances {
		tables.PutBaseBalance(w, generation, k, b)
	}
	for seq, h := range p.holds {
		tables.PutBaseHold(w, generation, seq, h)
	}
	for k, o := range p.onces {
		tables.PutBaseOnce(w, generation, k, o)
	}
	for ref, a := range p.assets {
		tables.PutBaseAsset(w, generation, ref, a)
	}
}

// statement returns the statement of the period that ends with p.
func (p *past) statement(prev *record.Statement, root b3.Digest, fromAt int64) record.Statement {
	s := record.Statement{
		Period: prev.Period + 1, FromSeq: prev.ToSeq + 1, ToSeq: p.head.Seq, FromBatch: prev.ToBatch + 1,
		ToBatch: p.head.Batches, FromAt: fromAt, ToAt: p.head.At, LogRoot: p.logRoot, LastRoot: p.head.LastRoot,
		Peaks: p.peaks, Accounts: p.head.Accounts, Assets: p.head.Assets, HoldsOpen: uint64(len(p.holds)),
		StateRoot: root, References: p.reference,
	}
	if prev.Period != 0 {
		s.Prev = prev.Digest()
	}
	return s
}

// closePeriod is the command that closes a period and appends the record of it.
type closePeriod struct {
	past   *past
	fromAt int64
	at     int64
}

func (closePeriod) Kind() string { return "ledger.tamper/1" }

func (c closePeriod) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (done struct{}, err error) {
	before := tables.GetHorizon(r)
	prev := tables.StatementOf(r, before.Period)
	generation := before.Generation + 1
	s := c.past.statement(&prev, tables.BaseAt(r, generation).StateRoot(), c.fromAt)
	head, _ := tables.GetHead(r)
	rec := record.NewClose(&s)
	rec.Seq, rec.Batch, rec.At = head.Seq+1, head.Batches+1, c.at
	raw := rec.Append(nil)
	var tree merkle.Tree
	tree.Add(raw)
	header := record.Batch{
		No: rec.Batch, First: rec.Seq, Count: 1, At: c.at, Prev: head.LastRoot, Merkle: tree.Root(),
	}
	tables.PutBatch(w, &head, &header, [][]byte{raw})
	tables.PutHead(w, head)
	tables.PutPeriod(w, s.Period, tables.Period{Statement: s.Text(), CloseSeq: rec.Seq, ClosedAt: c.at})
	tables.PutHorizon(w, tables.Horizon{
		Period: s.Period, Seq: s.ToSeq, Batch: s.ToBatch, At: s.ToAt, LastRoot: s.LastRoot, Accounts: s.Accounts,
		Assets: s.Assets, Generation: generation, Statement: s.Digest(),
	})
	for _, b := range tables.Buckets() {
		if b.Name == "ledger/meta" {
			w.Put(b, []byte("format"), binary.LittleEndian.AppendUint64([]byte{1}, tables.FormatClosed))
		}
	}
	return done, nil
}

// putPast is the command that writes the base of a generation.
type putPast struct {
	past       *past
	generation uint64
}

func (putPast) Kind() string { return "ledger.tamper/1" }

func (c putPast) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (done struct{}, err error) {
	c.past.put(w, c.generation)
	return done, nil
}

// droppable returns the rows that may be dropped, the oldest first, and the base of generations
// before.
func droppable(t testing.TB, r store.Reader) (all []row) {
	h := tables.GetHorizon(r)
	peaks := merkle.LogPeaks(h.Batch)
	upTo := map[string]uint64{"ledger/journal": h.Seq, "ledger/batches": h.Batch}
	for _, x := range rows(r) {
		drop := false
		switch x.b.Name {
		case "ledger/journal", "ledger/batches":
			drop = binary.BigEndian.Uint64(x.key) <= upTo[x.b.Name]
		case "ledger/mlog":
			pos := binary.BigEndian.Uint64(x.key)
			drop = pos < merkle.LogCount(h.Batch) && !slices.Contains(peaks, pos)
		case "ledger/base":
			drop = binary.BigEndian.Uint64(x.key) != h.Generation
		}
		if drop {
			all = append(all, row{x.b, x.key, nil})
		}
	}
	for k, seq := range tables.Marks(r) {
		if seq <= h.Seq {
			key := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, k.Account), k.Asset)
			all = append(all, row{bucket(t, "ledger/marks"), binary.BigEndian.AppendUint64(key, k.N), nil})
		}
	}
	for seq, hold := range tables.Holds(r, 0) {
		if !hold.Open() && hold.Closing <= h.Seq {
			all = append(all, row{bucket(t, "ledger/holds"), binary.BigEndian.AppendUint64(nil, seq), nil})
		}
	}
	return all
}

// closed makes a ledger of the calls of several periods, and closes all of them but the last. left
// is what may be dropped.
func closed(t testing.TB, seed uint64, calls ...int) (all, left []row) {
	t.Helper()
	var periods []func(f *file)
	for i, n := range calls {
		periods = append(periods, func(f *file) {
			if i == 0 {
				f.fill(seed, n)
			} else {
				f.calls(n)
			}
		})
	}
	return closedAfter(t, periods...)
}

// closedAfter is closed for any calls. It flushes after each period.
func closedAfter(t testing.TB, periods ...func(f *file)) (all, left []row) {
	t.Helper()
	f := newFile(t).open(true)
	var pasts []*past
	for _, fill := range periods {
		fill(f)
		f.flush()
		f.view(func(r store.Reader) {
			p := pastOf(t, r)
			if n := len(pasts); n == 0 || pasts[n-1].head.Seq < p.head.Seq { // else the period is empty
				pasts = append(pasts, p)
			}
		})
	}
	f.close()
	f.open(false)
	var fromAt int64
	var references uint64 // of the periods before
	for i, p := range pasts[:len(pasts)-1] {
		if fromAt = p.firstAt; i > 0 {
			fromAt = pasts[i-1].head.At + 1
		}
		p.reference, references = p.reference-references, p.reference
		at := pasts[len(pasts)-1].head.At + int64(i) + 1
		if _, err := store.Commit(t.Context(), f.s, store.Work, putPast{p, uint64(i + 1)}); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Commit(t.Context(), f.s, store.Work, closePeriod{p, fromAt, at}); err != nil {
			t.Fatal(err)
		}
	}
	f.view(func(r store.Reader) { all, left = rows(r), droppable(t, r) })
	f.close()
	return all, left
}

// dropped returns rows without those that left names.
func dropped(all, left []row) (rest []row) {
	gone := map[string]bool{}
	for _, r := range left {
		gone[r.b.Name+string(r.key)] = true
	}
	for _, r := range all {
		if !gone[r.b.Name+string(r.key)] {
			rest = append(rest, r)
		}
	}
	return rest
}
