package lverify_test

import (
	"bytes"
	"fmt"
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
)

// busy is a flushed ledger of some 100 000 transfers among 10 000 accounts.
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
					Code: record.OpTransfer, From: name(i), To: name(i + 1 + round*1713), Asset: "ron", Amount: engines.AmountOf(0, 1), Nonce: uint64(round),
				}
				if round == 0 {
					o = ledger.Op{Code: record.OpIssue, To: name(i), Asset: "ron", Amount: engines.AmountOf(0, 1000), Nonce: uint64(i + 1)}
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

// BenchmarkVerify checks a ledger whole; one operation is all of it.
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

// BenchmarkVerifyExport checks an export by its lines.
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

// BenchmarkRebuild makes the derived tables again.
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

// BenchmarkImport makes a ledger of an export, the derived tables too.
func BenchmarkImport(b *testing.B) {
	f := busy(b)
	text := f.export()
	f.close()
	var rep lverify.Report
	for b.Loop() {
		in := newFile(b).open(false)
		in.clock.Advance(1e15)
		var err error
		if rep, err = lverify.Import(b.Context(), in.s, bytes.NewReader(text), lverify.ImportOptions{Now: in.clock.Now}); err != nil || !rep.OK {
			b.Fatalf("%v, %v", rep.Findings, err)
		}
		in.close()
	}
	b.ReportMetric(float64(rep.Records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
