package lverify_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
)

// busy returns a flushed ledger of about 100 000 transfers among 10 000 accounts.
func busy(b *testing.B) *file {
	f := newFile(b).open(true)
	commit := func(ops []ledger.Op) {
		f.clock.Advance(1e6)
		outs, err := f.l.Commit(b.Context(), ops)
		if err != nil {
			b.Fatal(err)
		}
		for _, out := range outs {
			if out.Reject != nil {
				b.Fatal(out.Reject)
			}
		}
	}
	commit([]ledger.Op{{Code: record.OpAsset, Asset: "ron"}})
	const accounts, each = 10_000, 10
	name := func(i int) string { return fmt.Sprint("acct/", i%accounts) }
	for round := range 1 + each {
		for from := 0; from < accounts; from += 4000 {
			var ops []ledger.Op
			for i := from; i < min(accounts, from+4000); i++ {
				o := ledger.Op{
					Code:   record.OpTransfer,
					From:   name(i),
					To:     name(i + 1 + round*1713),
					Asset:  "ron",
					Amount: engines.AmountOf(0, 1),
					Nonce:  uint64(round),
				}
				if round == 0 {
					o = ledger.Op{
						Code:   record.OpIssue,
						To:     name(i),
						Asset:  "ron",
						Amount: engines.AmountOf(0, 1000),
						Nonce:  uint64(i + 1),
					}
				}
				if o.From != o.To {
					ops = append(ops, o)
				}
			}
			commit(ops)
		}
	}
	f.flush()
	return f
}

// made generates the text of an export with n accounts, each with a flags record.
type made struct {
	n, next uint64
	batch   record.Batch
	prev    b3.Digest
	text    []byte
	leaves  []b3.Digest
}

// Read generates batches of about 4000 records.
func (m *made) Read(p []byte) (int, error) {
	if len(m.text) == 0 && m.next > 2*m.n {
		return 0, io.EOF
	}
	if len(m.text) == 0 {
		m.more()
	}
	n := copy(p, m.text)
	m.text = m.text[n:]
	return n, nil
}

func (m *made) more() {
	if m.next == 0 {
		m.next = 1
		l := record.Line{Kind: record.LineFormat, From: 1}
		m.text = l.Append(m.text[:0])
		return
	}
	m.batch = record.Batch{No: m.batch.No + 1, First: m.next, At: int64(m.batch.No + 1), Prev: m.prev}
	m.text, m.leaves = m.text[:0:0], m.leaves[:0]
	for ; m.next <= 2*m.n && m.batch.Count < 4000; m.next++ {
		r := record.Record{Op: record.OpFlags, Seq: m.next, Batch: m.batch.No, At: m.batch.At, From: (m.next + 1) / 2}
		name := fmt.Sprint("account/", r.From)
		if m.next%2 == 1 {
			r.Op, r.Name = record.OpOpen, name
		}
		raw := r.Append(nil)
		m.leaves = append(m.leaves, merkle.Leaf(raw))
		l := record.Line{Kind: record.LineRecord, Raw: raw, Record: r, Names: record.Names{From: name}}
		m.text = l.Append(m.text)
		m.batch.Count++
	}
	m.batch.Merkle = merkle.Root(m.leaves)
	m.prev = m.batch.Root()
	l := record.Line{Kind: record.LineBatch, Batch: m.batch}
	m.text = l.Append(m.text)
}

// BenchmarkVerifyMemory reports the peak heap of a whole check per account, without the heap in use
// before it.
func BenchmarkVerifyMemory(b *testing.B) {
	const accounts = 1 << 18
	f := newFile(b).open(false)
	f.clock.Advance(1e15)
	if rep, err := lverify.Import(b.Context(), f.s, &made{n: accounts},
		lverify.ImportOptions{Now: f.clock.Now}); err != nil ||
		!rep.OK {
		b.Fatalf("%v, %v", rep.Findings, err)
	}
	heap := func() float64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	runtime.GC()
	before, most := heap(), 0.0
	for b.Loop() {
		calls := 0
		rep := f.verify(lverify.Options{Progress: func(done, total uint64) {
			if calls++; calls%32 == 0 {
				runtime.GC()
				most = max(most, heap())
			}
		}})
		if !rep.OK {
			b.Fatal(rep.Findings)
		}
	}
	b.ReportMetric((most-before)/accounts, "B/account-most")
	f.close()
}

// BenchmarkVerify checks a whole ledger per iteration.
func BenchmarkVerify(b *testing.B) {
	f := busy(b)
	var rep lverify.Report
	for b.Loop() {
		if rep = f.verify(lverify.Options{}); !rep.OK {
			b.Fatal(rep.Findings)
		}
	}
	b.ReportMetric(float64(rep.Records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
	f.close()
}

// BenchmarkVerifyExport checks an export line by line.
func BenchmarkVerifyExport(b *testing.B) {
	f := busy(b)
	text := f.export()
	f.close()
	var rep lverify.Report
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if rep = verifyExport(b, text); !rep.OK {
			b.Fatal(rep.Findings)
		}
	}
	b.ReportMetric(float64(rep.Records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkRebuild rebuilds the derived tables.
func BenchmarkRebuild(b *testing.B) {
	f := busy(b)
	records := f.verify(lverify.Options{}).Records
	f.close()
	f.open(false)
	for b.Loop() {
		if err := lverify.Rebuild(b.Context(), f.s, lverify.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
	f.close()
}

// BenchmarkImport imports an export, including the derived tables.
func BenchmarkImport(b *testing.B) {
	f := busy(b)
	text := f.export()
	f.close()
	var rep lverify.Report
	for b.Loop() {
		in := newFile(b).open(false)
		in.clock.Advance(1e15)
		var err error
		if rep, err = lverify.Import(b.Context(), in.s, bytes.NewReader(text),
			lverify.ImportOptions{Now: in.clock.Now}); err != nil ||
			!rep.OK {
			b.Fatalf("%v, %v", rep.Findings, err)
		}
		in.close()
	}
	b.ReportMetric(float64(rep.Records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
