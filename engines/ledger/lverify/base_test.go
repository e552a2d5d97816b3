package lverify_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// A ledger with closed periods verifies from its horizon on, whatever is dropped up to there, and
// from any later batch on.
func TestVerifyClosedIsSound(t *testing.T) {
	for periods := 1; periods <= 3; periods++ {
		all, left := closed(t, uint64(periods), slices.Repeat([]int{30}, periods+1)...)
		for n := 0; n <= len(left); n += max(1, len(left)/7) {
			b := newBench(t, dropped(all, left[:n]))
			h := tables.GetHorizon(b.tx.Reader())
			rep := b.verify(t, lverify.Options{})
			if !rep.OK || !rep.Whole || rep.FromSeq != h.Seq+1 || rep.Periods != uint64(periods) ||
				rep.Records != rep.Head.Seq-h.Seq || rep.Batches != rep.Head.Batches-h.Batch {
				t.Fatalf("%d periods, %d of %d rows dropped: %+v", periods, n, len(left), rep)
			}
			if early := b.verify(t, lverify.Options{From: h.Batch}); !early.OK || !early.Whole {
				t.Fatalf("from a closed batch on: %+v", early)
			}
			for from := h.Batch + 2; from <= rep.Head.Batches; from += 5 {
				if part := b.verify(t, lverify.Options{From: from}); !part.OK || part.Whole {
					t.Fatalf("from batch %d on: %+v", from, part)
				}
			}
		}
		var leaves []b3.Digest
		for _, header := range tables.Batches(newBench(t, all).tx.Reader(), 1, math.MaxUint64) {
			root := header.Root()
			leaves = append(leaves, merkle.Leaf(root[:]))
		}
		rep := newBench(t, dropped(all, left)).verify(t, lverify.Options{})
		if want := merkle.Root(leaves); rep.Head.Root != want {
			t.Fatalf("the root of the log is %s, the batches have %s", rep.Head.Root, want)
		}
	}
}

// A flipped bit in any byte of a ledger with closed periods is noticed.
func TestClosedEveryFlippedByte(t *testing.T) {
	all, left := closed(t, 3, 6, 8, 8)
	b := newBench(t, dropped(all, left))
	for n, r := range b.rows {
		for i := range r.value {
			flip(r, 8*i+(n+i)%8)
			b.put(t, r)
			if rep := b.verify(t, lverify.Options{}); rep.OK {
				t.Errorf("%s %x, byte %d of %d: not noticed", r.b.Name, r.key, i, len(r.value))
			}
			flip(r, 8*i+(n+i)%8)
		}
		b.put(t, r)
	}
	if rep := b.verify(t, lverify.Options{}); !rep.OK {
		t.Errorf("the ledger was not put back: %v", rep.Findings)
	}
}

// A missing or moved row of a ledger with closed periods is noticed, but for the amounts that
// tokens moved and references of closed periods.
func TestClosedEveryLostRow(t *testing.T) {
	all, left := closed(t, 5, 14, 14, 14)
	b := newBench(t, dropped(all, left))
	h := tables.GetHorizon(b.tx.Reader())
	free := map[string]bool{}
	for k, o := range tables.Onces(b.tx.Reader()) {
		if _, based := tables.BaseOf(b.tx.Reader()).Once(k); k.Guard && o.Seq <= h.Seq && !based {
			free["ledger/once"+"g"+string(k.Key[:])] = true
		}
	}
	for _, r := range b.rows {
		if r.b.Name == "ledger/recent" { // the row of ledger/state may be there or not
			free["ledger/state"+string(r.key)] = true
		}
	}
	for _, r := range b.rows {
		b.put(t, row{r.b, r.key, nil})
		if rep := b.verify(t, lverify.Options{}); rep.OK && r.b.Name != "ledger/moved" &&
			!free[r.b.Name+string(r.key)] {
			t.Errorf("%s %x: lost, and not noticed", r.b.Name, r.key)
		}
		moved := row{r.b, slices.Clone(r.key), r.value}
		moved.key[len(moved.key)-1] ^= 0x40
		b.put(t, moved)
		if rep := b.verify(t, lverify.Options{}); rep.OK {
			t.Errorf("%s %x: moved, and not noticed", r.b.Name, r.key)
		}
		b.put(t, row{moved.b, moved.key, nil}, r)
	}
	if rep := b.verify(t, lverify.Options{}); !rep.OK {
		t.Errorf("the ledger was not put back: %v", rep.Findings)
	}
}

// forgery is a command that writes rows with valid checksums.
type forgery func(r store.Reader, w *store.Writes)

func (forgery) Kind() string { return "ledger.tamper/1" }

func (c forgery) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (done struct{}, err error) {
	c(r, w)
	return done, nil
}

// unclose takes out what says that periods are closed, but for the records.
func unclose(w *store.Writes) {
	for _, b := range tables.Buckets() {
		switch b.Name {
		case "ledger/periods", "ledger/base":
			w.Clear(b)
		case "ledger/meta":
			w.Delete(b, []byte("horizon"))
		}
	}
}

// A ledger in which nothing says that periods are closed but their records is bad, though all rows
// of before are there.
func TestVerifyLostHorizon(t *testing.T) {
	all, _ := closed(t, 7, 10, 10)
	b := newBench(t, all)
	format := slices.IndexFunc(all, func(r row) bool { return r.b.Name == "ledger/meta" && string(r.key) == "format" })
	all[format].value[1]--
	_, err := storetest.Do(b.tx, forgery(func(_ store.Reader, w *store.Writes) { unclose(w) }))
	if b.put(t, all[format]); err != nil {
		t.Fatal(err)
	}
	rep := b.verify(t, lverify.Options{})
	if len(rep.Findings) != 1 || rep.Findings[0].Where != "journal" {
		t.Errorf("%+v", rep)
	}
}

// Each row of a closed period, forged with a valid checksum, is found where it is.
func TestForgedClosedPeriods(t *testing.T) {
	all, left := closed(t, 6, 40, 40, 40)
	b := newBench(t, dropped(all, left))
	r := b.tx.Reader()
	h, base := tables.GetHorizon(r), tables.BaseOf(r)
	anAccount, _ := base.Account(2)
	aBalance, _ := base.Balance(tables.StateKey{Account: 2, Asset: 1})
	statement := func(change func(s *record.Statement)) forgery {
		return func(r store.Reader, w *store.Writes) {
			row, _ := tables.GetPeriod(r, h.Period)
			s := tables.StatementOf(r, h.Period)
			change(&s)
			row.Statement = s.Text()
			tables.PutPeriod(w, h.Period, row)
			end := h
			end.Seq, end.Batch, end.Accounts, end.Statement = s.ToSeq, s.ToBatch, s.Accounts, s.Digest()
			tables.PutHorizon(w, end)
		}
	}
	rowOf := func(change func(p *tables.Period)) forgery {
		return func(r store.Reader, w *store.Writes) {
			p, _ := tables.GetPeriod(r, h.Period)
			change(&p)
			tables.PutPeriod(w, h.Period, p)
		}
	}
	horizon := func(change func(h *tables.Horizon)) forgery {
		return func(_ store.Reader, w *store.Writes) {
			end := h
			change(&end)
			tables.PutHorizon(w, end)
		}
	}
	for _, tt := range []struct {
		name, where string
		forgery     forgery
	}{
		{"a nonce of the base", "base", func(_ store.Reader, w *store.Writes) {
			a := anAccount
			a.LastNonce++
			tables.PutBaseAccount(w, h.Generation, 2, a)
		}},
		{"a balance of the base", "base", func(_ store.Reader, w *store.Writes) {
			balance := aBalance
			balance.State.CreditsPosted = engines.AmountOf(7, 7)
			tables.PutBaseBalance(w, h.Generation, tables.StateKey{Account: 2, Asset: 1}, balance)
		}},
		{"a row more in the base", "base", func(_ store.Reader, w *store.Writes) {
			tables.PutBaseOnce(w, h.Generation, tables.OnceKey{Key: [16]byte{1}}, tables.Once{Seq: 1})
		}},
		{"the seq of a statement", "horizon", func(r store.Reader, w *store.Writes) {
			statement(func(s *record.Statement) { s.ToSeq++ })(r, w)
			tables.PutHorizon(w, h)
		}},
		{"a statement and the horizon", "journal", statement(func(s *record.Statement) { s.References++ })},
		{"a statement that ends elsewhere", "", statement(func(s *record.Statement) { s.ToSeq-- })},
		{"a statement of another state", "base", statement(func(s *record.Statement) { s.StateRoot[0]++ })},
		{"a statement of another log", "periods", statement(func(s *record.Statement) { s.LogRoot[0]++ })},
		{"a statement that lacks a peak", "periods", statement(func(s *record.Statement) {
			s.Peaks = append(s.Peaks, s.Peaks[0])
		})},
		{"a statement of other names", "refs", statement(func(s *record.Statement) { s.NamesRoot[0]++ })},
		{"a statement of another past", "periods", statement(func(s *record.Statement) { s.Prev[0]++ })},
		{"a statement with an account more", "refs", statement(func(s *record.Statement) { s.Accounts++ })},
		{"the record of a closing", "journal", rowOf(func(p *tables.Period) { p.CloseSeq++ })},
		{"the record of an earlier closing", "periods", rowOf(func(p *tables.Period) { p.CloseSeq = h.Seq })},
		{"an earlier horizon", "horizon", horizon(func(h *tables.Horizon) { h.Seq-- })},
		{"another batch at the horizon", "horizon", horizon(func(h *tables.Horizon) { h.Batch-- })},
		{"another root at the horizon", "horizon", horizon(func(h *tables.Horizon) { h.LastRoot[0]++ })},
		{"another base", "base", horizon(func(h *tables.Horizon) { h.Generation++ })},
		{"a name of closed accounts", "refs", func(_ store.Reader, w *store.Writes) {
			for _, b := range tables.Buckets() {
				if b.Name == "ledger/refs" {
					key := append([]byte("a"), store.U64().Append(nil, 2)...)
					w.Put(b, key, store.AddSum(key, []byte("\x01mallory")))
				}
			}
		}},
		{"the way to a closed name", "names", func(r store.Reader, w *store.Writes) {
			for _, b := range tables.Buckets() {
				if b.Name == "ledger/names" {
					name, _ := tables.Name(r, 2)
					w.Delete(b, []byte("a"+name))
				}
			}
		}},
		{"a permanent id that came from nowhere", "once", func(_ store.Reader, w *store.Writes) {
			tables.PutOnce(w, tables.OnceKey{Key: [16]byte{1}}, tables.Once{Seq: 1})
		}},
		{"a hold that came from nowhere", "holds", func(r store.Reader, w *store.Writes) {
			tables.PutHold(w, 1, tables.Hold{From: 2, To: 3, Asset: 1, At: 1, Expires: 2})
		}},
		{"a ledger without its closings", "journal", func(r store.Reader, w *store.Writes) { unclose(w) }},
	} {
		if _, err := storetest.Do(b.tx, tt.forgery); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		rep := b.verify(t, lverify.Options{})
		if rep.OK || !slices.ContainsFunc(rep.Findings, func(f lverify.Finding) bool {
			return tt.where == "" || f.Where == tt.where
		}) {
			t.Errorf("%s: %+v", tt.name, rep.Findings)
		}
		b = newBench(t, b.rows)
	}
	if rep := b.verify(t, lverify.Options{}); !rep.OK {
		t.Errorf("the ledger was not put back: %v", rep.Findings)
	}
}

// exportOf returns the export of a ledger of which nothing was dropped.
func exportOf(t testing.TB, all []row) (text []byte) {
	t.Helper()
	text = (&record.Line{Kind: record.LineFormat, From: 1}).Append(nil)
	return linesOf(newBench(t, all).tx.Reader(), text, 1, math.MaxUint64-1)
}

// linesOf appends the lines of records and batches, from one batch to another.
func linesOf(r store.Reader, text []byte, from, to uint64) []byte {
	for _, header := range tables.Batches(r, from, to+1) {
		for seq, rec := range tables.Records(r, header.First, header.Last()+1) {
			l := record.Line{Kind: record.LineRecord, Raw: tables.Raw(r, seq), Record: *rec}
			l.Names.From, _ = tables.Name(r, rec.From)
			l.Names.To, _ = tables.Name(r, rec.To)
			l.Names.Asset, _ = tables.AssetName(r, rec.Asset)
			text = l.Append(text)
		}
		text = (&record.Line{Kind: record.LineBatch, Batch: header}).Append(text)
	}
	return text
}

// Closings that no ledger makes are found by the chain alone.
func TestForgedClosings(t *testing.T) {
	all, _ := closed(t, 8, 20, 20, 20)
	export := exportOf(t, all)
	if rep := verifyExport(t, export); !rep.OK {
		t.Fatal(rep.Findings)
	}
	is := func(op record.Op) func(r *record.Record) bool {
		return func(r *record.Record) bool { return r.Op == op }
	}
	closing := func(r *record.Record) {
		again := record.NewClose(&record.Statement{Period: 1})
		again.Seq, again.Batch, again.At = r.Seq, r.Batch, r.At
		*r = again
	}
	renumber := func(r *record.Record, period uint64) {
		again := record.NewClose(&record.Statement{Period: period})
		r.Amount, r.Dedupe.Key = again.Amount, again.Dedupe.Key
	}
	for _, tt := range []struct {
		name, want string
		of         func(r *record.Record) bool
		edit       func(r *record.Record)
	}{
		{"the first period is the second", "it closes period 2, the next one is 1", is(record.OpClose),
			func(r *record.Record) { renumber(r, 2) }},
		{"a period is left out", "it closes period 3, the next one is 2",
			func(r *record.Record) bool { return r.Op == record.OpClose && r.Amount == engines.AmountOf(0, 2) },
			func(r *record.Record) { renumber(r, 3) }},
		{"inside a batch", "and inside a batch", is(record.OpClose), func(r *record.Record) { r.Flags |= record.FlagInner }},
		{"part of a whole", "part of a whole", is(record.OpClose), func(r *record.Record) { r.Flags |= record.FlagAtomic }},
		{"with words", "members that none can have", is(record.OpClose), func(r *record.Record) { r.Memo = "x" }},
		{"behind another record", "not alone in its batch", is(record.OpAsset), closing},
		{"before another record", "not alone in its batch",
			func(r *record.Record) bool { return r.Op == record.OpOnce && r.Flags&record.FlagInner == 0 },
			closing},
	} {
		done := false
		rep := verifyExport(t, forge(t, export, func(r *record.Record) bool {
			if done || !tt.of(r) {
				return false
			}
			done = true
			tt.edit(r)
			return true
		}))
		if !slices.ContainsFunc(rep.Findings, func(f lverify.Finding) bool { return strings.Contains(f.Detail, tt.want) }) {
			t.Errorf("%s: %v", tt.name, rep.Findings)
		}
	}
}
