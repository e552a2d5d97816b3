package record

import (
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
)

// transfer returns a typical record, with a key, a principal and two images.
func transfer() Record {
	r := goldenRecords()[5]
	r.Memo = ""
	return r
}

func BenchmarkAppend(b *testing.B) {
	r, buf := transfer(), make([]byte, 0, MaxRecord)
	b.SetBytes(int64(len(r.Append(nil))))
	b.ReportAllocs()
	for b.Loop() {
		buf = r.Append(buf[:0])
	}
}

// BenchmarkAppendInner appends a transfer inside a batch, which has neither key nor principal.
func BenchmarkAppendInner(b *testing.B) {
	r, buf := goldenRecords()[6], make([]byte, 0, MaxRecord)
	b.SetBytes(int64(len(r.Append(nil))))
	b.ReportAllocs()
	for b.Loop() {
		buf = r.Append(buf[:0])
	}
}

func BenchmarkDecode(b *testing.B) {
	r := transfer()
	raw := r.Append(nil)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeInner(b *testing.B) {
	r := goldenRecords()[6]
	raw := r.Append(nil)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReceiptJSON(b *testing.B) {
	r := transfer()
	v, buf := r.Receipt(goldenNames(&r), b3.Digest{1}), make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = v.AppendJSON(buf[:0])
	}
}

func BenchmarkBatchRoot(b *testing.B) {
	h := Batch{No: 1, First: 1, Count: 1}
	b.ReportAllocs()
	for b.Loop() {
		_ = h.Root()
	}
}

func BenchmarkLineAppend(b *testing.B) {
	r := transfer()
	l, buf := Line{Kind: LineRecord, Raw: r.Append(nil), Record: r, Names: goldenNames(&r)}, make([]byte, 0, MaxLine)
	b.ReportAllocs()
	for b.Loop() {
		buf = l.Append(buf[:0])
	}
}

func BenchmarkParseLine(b *testing.B) {
	r := transfer()
	l := Line{Kind: LineRecord, Raw: r.Append(nil), Record: r, Names: goldenNames(&r)}
	text := l.Append(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseLine(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyProof(b *testing.B) {
	p, err := Prove(newBook(b, 12), 20, 13)
	if err != nil {
		b.Fatal(err)
	}
	text, _ := json.Marshal(p)
	b.ReportAllocs()
	for b.Loop() {
		var back Proof
		if err := back.UnmarshalJSON(text); err != nil {
			b.Fatal(err)
		}
		if _, err := back.Verify(); err != nil {
			b.Fatal(err)
		}
	}
}
