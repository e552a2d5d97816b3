package record

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/merkle"
)

// Input that decodes encodes to the same bytes. Each input is also tried with a valid checksum,
// which the fuzzer need not find.
func FuzzDecode(f *testing.F) {
	for _, r := range append(goldenRecords(), goldenNamed()...) {
		f.Add(r.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := Decode(b); err == nil && !bytes.Equal(r.Append(nil), b) {
			t.Errorf("%x is written as %x", b, r.Append(nil))
		}
		if len(b) < crcSize {
			return
		}
		reseal(b)
		if r, err := Decode(b); err == nil && !bytes.Equal(r.Append(nil), b) {
			t.Errorf("%x is written as %x", b, r.Append(nil))
		}
	})
}

func FuzzDecodeBatch(f *testing.F) {
	f.Add((&Batch{No: 1, First: 1, Count: 1}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < crcSize {
			return
		}
		reseal(b)
		if h, err := DecodeBatch(b); err == nil && !bytes.Equal(h.Append(nil), b) {
			t.Errorf("%x is written as %x", b, h.Append(nil))
		}
	})
}

func FuzzParseReceipt(f *testing.F) {
	for _, r := range append(goldenRecords()[:13], goldenNamed()...) {
		v := r.Receipt(goldenNames(&r), merkle.Leaf(r.Append(nil)))
		f.Add(v.AppendJSON(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseReceipt(b)
		if err != nil {
			return
		}
		if again, err := ParseReceipt(r.AppendJSON(nil)); err != nil || again != r {
			t.Errorf("%s reads as %+v, which reads as %+v, %v", b, r, again, err)
		}
	})
}

func FuzzParseLine(f *testing.F) {
	f.Add((&Line{Kind: LineFormat, From: 1}).Append(nil))
	f.Add((&Line{Kind: LineBatch, Batch: Batch{No: 1, First: 1, Count: 1}}).Append(nil))
	for _, r := range append(goldenRecords(), goldenNamed()...) {
		l := Line{Kind: LineRecord, Raw: r.Append(nil), Record: r, Names: goldenNames(&r)}
		f.Add(l.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ParseLine(b)
		if err != nil {
			return
		}
		if form := l.Append(nil); !bytes.Equal(bytes.TrimSuffix(b, []byte{'\n'}), form[:len(form)-1]) {
			t.Errorf("%s is written as %s", b, form)
		}
	})
}

// Parsing arbitrary bytes as a proof never panics. A proof that parses keeps its content when it is
// marshaled and parsed again.
func FuzzProof(f *testing.F) {
	b := newBook(f, 6)
	for seq := range uint64(len(b.records)) {
		p, err := Prove(b, seq+1, 7)
		if err != nil {
			f.Fatal(err)
		}
		text, _ := json.Marshal(p)
		f.Add(text)
	}
	eachClosed(f, newClosedBook(f), func(_ Record, p Proof) {
		text, _ := json.Marshal(p)
		f.Add(text)
	})
	f.Fuzz(func(t *testing.T, text []byte) {
		var p Proof
		if p.UnmarshalJSON(text) != nil {
			return
		}
		form, err := json.Marshal(p)
		var again Proof
		if err != nil || again.UnmarshalJSON(form) != nil {
			t.Errorf("%s is written as %s, %v", text, form, err)
		}
		_, _ = p.Verify()
	})
}

func FuzzParseTxID(f *testing.F) {
	f.Add(NewTxID(goldenAt, 7, 9).String())
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseTxID(s); err == nil && id.String() != s {
			t.Errorf("%q reads as %s", s, id)
		}
	})
}
