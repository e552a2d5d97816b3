package record

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
)

// bookPast is what a book has of closed periods. It answers nothing else of them.
type bookPast struct {
	named      []NameProof // all names; Index is the seq of their record
	leaves     []NameProof // of the log of names
	last       Statement   // the zero Statement: no period was closed
	statements []string
	closing    []uint64             // seqs of the records that closed periods
	holds      map[uint64]Inclusion // of closed periods
}

// Past returns the past if the first batches have the newest closing.
func (b *book) Past(batches uint64) Past {
	if b.past.last.Period == 0 {
		return nil
	}
	if raw, err := b.Record(b.past.closing[len(b.past.closing)-1]); err != nil || batchOf(raw) > batches {
		return nil
	}
	return &b.past
}

func batchOf(raw []byte) uint64 {
	r, _ := Decode(raw)
	return r.Batch
}

func (p *bookPast) Closing() (string, uint64) {
	return p.statements[len(p.statements)-1], p.closing[len(p.closing)-1]
}

func (p *bookPast) Name(asset bool, ref uint64) (NameProof, error) {
	i := slices.IndexFunc(p.leaves, func(n NameProof) bool { return n.Asset == asset && n.Ref == ref })
	if i < 0 {
		return NameProof{}, errNothing
	}
	n := p.leaves[i]
	n.Index, n.Path = uint64(i), merkle.Path(p.digests(), uint64(i))
	return n, nil
}

func (p *bookPast) Hold(seq uint64) (Inclusion, error) {
	in, known := p.holds[seq]
	if !known {
		return in, errNothing
	}
	return in, nil
}

// digests returns the leaves of the log of names.
func (p *bookPast) digests() (all []b3.Digest) {
	for _, n := range p.leaves {
		leaf := NameLeaf(n.Asset, n.Ref, n.Name)
		all = append(all, merkle.Leaf(leaf[:]))
	}
	return all
}

// closePeriod closes a period that ends with the newest record.
func (b *book) closePeriod(t testing.TB) {
	t.Helper()
	p := &b.past
	head := b.batches[len(b.batches)-1]
	s := Statement{
		Period: p.last.Period + 1, FromSeq: p.last.ToSeq + 1, ToSeq: head.Last(), FromBatch: p.last.ToBatch + 1,
		ToBatch: head.No, FromAt: b.batches[p.last.ToBatch].At, ToAt: head.At, LastRoot: head.Root(),
		StateRoot: b3.Sum([]byte("state")),
	}
	if p.last.Period != 0 {
		s.Prev = p.last.Digest()
	}
	for _, pos := range merkle.LogPeaks(head.No) {
		s.Peaks = append(s.Peaks, b.log[pos])
	}
	s.LogRoot = merkle.FoldPeaks(s.Peaks)
	for _, asset := range []bool{false, true} {
		for _, n := range p.named {
			if n.Asset == asset && n.Index >= s.FromSeq {
				p.leaves = append(p.leaves, n)
			}
		}
	}
	for _, n := range p.leaves {
		if n.Asset {
			s.Assets++
		} else {
			s.Accounts++
		}
	}
	s.NamesRoot = merkle.Root(p.digests())
	p.keepHolds(t, b, head.No)
	p.last, p.statements = s, append(p.statements, s.Text())
	p.closing = append(p.closing, head.Last()+1)
	b.add(t, []Record{NewClose(&s)})
}

// keepHolds keeps the holds, each with its path up to the peak.
func (p *bookPast) keepHolds(t testing.TB, b *book, size uint64) {
	whole := *b
	whole.past.last = Statement{}
	p.holds = map[uint64]Inclusion{}
	for seq := uint64(1); seq <= uint64(len(b.records)); seq++ {
		if r, _ := Decode(b.records[seq-1]); r.Op != OpHold {
			continue
		}
		var in Inclusion
		if _, err := include(&whole, seq, size, &in); err != nil {
			t.Fatal(err)
		}
		in.LogPath = in.LogPath[:merkle.PeakLevel(size, in.Header.No-1)]
		p.holds[seq] = in
	}
}

// newClosedBook returns a book with two closed periods, of which nothing is left, and records
// between their accounts and newer ones.
func newClosedBook(t testing.TB) *book {
	b := newBook(t, 5)
	pay := func(op Op, asset uint32, from, to, hold uint64) Record {
		r := Record{Op: op, Asset: asset, From: from, To: to, Amount: engines.AmountOf(0, 1), Nonce: 1, Hold: hold}
		if op == OpHold {
			r.Expires = 1
		}
		return r
	}
	open := func(ref uint64, name string) Record { return Record{Op: OpOpen, From: ref, Name: name} }
	first := uint64(len(b.records)) + 1
	b.add(t, []Record{pay(OpTransfer, 1, 2, 3, 0), pay(OpHold, 1, 2, 3, 0)})
	b.closePeriod(t)
	b.add(t, []Record{open(5, "erin"), {Op: OpAsset, Asset: 2, Name: "sun"}, pay(OpTransfer, 2, 5, 2, 0)})
	second := uint64(len(b.records)) + 1
	b.add(t, []Record{pay(OpHold, 2, 5, 2, 0)})
	b.add(t, []Record{pay(OpTransfer, 1, 5, 2, 0)})
	b.closePeriod(t)
	b.add(t, []Record{open(6, "frank"), pay(OpTransfer, 1, 2, 6, 0)})
	b.add(t, []Record{open(7, "grace"), {Op: OpAsset, Asset: 3, Name: "moon"}, pay(OpTransfer, 3, 6, 7, 0)})
	b.add(t, []Record{
		pay(OpTransfer, 2, 5, 2, 0), pay(OpTransfer, 3, 4, 5, 0), pay(OpTransfer, 1, 7, 6, 0),
		pay(OpCapture, 1, 2, 3, first+1), pay(OpRelease, 2, 5, 2, second),
	})
	b.add(t, []Record{pay(OpHold, 1, 4, 7, 0)})
	b.add(t, []Record{pay(OpExpire, 1, 4, 7, uint64(len(b.records)))})
	return b
}

// eachClosed calls fn with the proof of each record after the horizon in the log of the head.
func eachClosed(t testing.TB, b *book, fn func(r Record, p Proof)) {
	t.Helper()
	for seq := b.past.last.ToSeq + 1; seq <= uint64(len(b.records)); seq++ {
		p, err := Prove(b, seq, uint64(len(b.batches)))
		if err != nil {
			t.Fatalf("seq %d: %v", seq, err)
		}
		r, _ := Decode(b.records[seq-1])
		fn(r, p)
	}
}

// The names of closed periods are those of their records, and a record with others only has a proof
// of the first format.
func TestPastProofsVerify(t *testing.T) {
	b := newClosedBook(t)
	names := map[nameRef]string{}
	for _, n := range b.past.named {
		names[nameRef{n.Asset, n.Ref}] = n.Name
	}
	formats := map[string]int{}
	eachClosed(t, b, func(r Record, p Proof) {
		want := Names{names[nameRef{false, r.From}], names[nameRef{false, r.To}], names[nameRef{true, uint64(r.Asset)}], TxID{}}
		old := 0
		for _, n := range r.nameRefs() {
			if n.ref != 0 && b.past.last.counts(n) {
				old++
			}
		}
		if r.Hold != 0 {
			hold, _ := Decode(b.records[r.Hold-1])
			want.Hold = hold.TxID()
		}
		text, err := json.Marshal(p)
		var back Proof
		if err == nil {
			err = json.Unmarshal(text, &back)
		}
		if err != nil {
			t.Fatalf("seq %d: %s: %v", r.Seq, text, err)
		}
		got, err := back.Verify()
		if err != nil || got != r.Receipt(want, b.batches[r.Batch-1].Root()) {
			t.Errorf("seq %d: %+v, %v, want the names %+v", r.Seq, got, err, want)
		}
		format := proofFormat
		if old > 0 {
			format = proofPastFormat
		}
		if !strings.HasPrefix(string(text), `{"format":"`+format+`",`) || (old > 0) != (p.Past != nil) {
			t.Errorf("seq %d refers to %d old names: %s", r.Seq, old, text)
		}
		formats[format]++
	})
	if formats[proofFormat] < 5 || formats[proofPastFormat] < 5 {
		t.Errorf("too few proofs: %v", formats)
	}
}

// In a log that ends before the closing nothing shows the names of closed periods.
func TestPastProofNeedsClosing(t *testing.T) {
	b := newClosedBook(t)
	_, closing := b.past.Closing()
	for name, no := range map[string]uint64{"before": batchOf(b.records[closing-1]) - 1, "closing": 0} {
		seq, at := b.past.last.ToSeq, no
		if no == 0 {
			seq, at = closing, batchOf(b.records[closing-1])
		}
		if p, err := Prove(b, seq, at); (err == nil) != (no == 0) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

// A proof with one altered byte in its JSON is refused, whichever byte it is.
func TestPastProofsFlipped(t *testing.T) {
	b := newClosedBook(t)
	last := Proof{}
	eachClosed(t, b, func(r Record, p Proof) {
		if r.Op == OpRelease {
			last = p
		}
	})
	text, err := json.Marshal(last)
	if err != nil || last.Past == nil || last.Hold == nil {
		t.Fatalf("%+v, %v", last, err)
	}
	for i := range text {
		bad := bytes.Clone(text)
		bad[i] ^= 1 << (i % 8)
		var p Proof
		if p.UnmarshalJSON(bad) != nil {
			continue
		}
		if got, err := p.Verify(); err == nil {
			t.Fatalf("with byte %d flipped it proves %+v:\n%s", i, got, bad)
		}
	}
}

// A proof whose closed past is of another name, statement, period or place is refused.
func TestPastProofsAltered(t *testing.T) {
	b := newClosedBook(t)
	for name, tt := range map[string]struct {
		part  string
		alter func(p *Proof)
	}{
		"another's name": {"past.0", func(p *Proof) { p.Past.Names[0].Name = "mallory" }},
		"another's leaf": {"past.0", func(p *Proof) {
			p.Past.Names[0], _ = b.past.Name(false, 3)
		}},
		"another's leaf with its ref": {"past.0", func(p *Proof) {
			ref := p.Past.Names[0].Ref
			p.Past.Names[0], _ = b.past.Name(false, ref%4+1)
			p.Past.Names[0].Ref = ref
		}},
		"an asset with its ref": {"past.0", func(p *Proof) {
			p.Past.Names[0], _ = b.past.Name(true, p.Past.Names[0].Ref)
		}},
		"an asset for an account": {"past.0", func(p *Proof) { p.Past.Names[0].Asset = true }},
		"no name":                 {"past.0", func(p *Proof) { p.Past.Names[0].Name = "" }},
		"the next place":          {"past.0", func(p *Proof) { p.Past.Names[0].Index++ }},
		"the place before":        {"past.0", func(p *Proof) { p.Past.Names[0].Index-- }},
		"a place beyond":          {"past.0", func(p *Proof) { p.Past.Names[0].Index += b.past.last.Names() }},
		"a longer path":           {"past.0", func(p *Proof) { p.Past.Names[0].Path = append(p.Past.Names[0].Path, b3.Digest{}) }},
		"a shorter path":          {"past.0", func(p *Proof) { p.Past.Names[0].Path = p.Past.Names[0].Path[1:] }},
		"a name less":             {"past.2", func(p *Proof) { p.Past.Names = p.Past.Names[:2] }},
		"a name more":             {"names", func(p *Proof) { p.Past.Names = append(p.Past.Names, p.Past.Names[0]) }},
		"a record more":           {"names", func(p *Proof) { p.Names = append(p.Names, p.Tx) }},
		"no past":                 {"names.0", func(p *Proof) { p.Past = nil }},
		"the statement before":    {"close", func(p *Proof) { p.Past.Statement = b.past.statements[0] }},
		"another statement": {"close", func(p *Proof) {
			s := b.past.last
			s.NamesRoot[0] ^= 1
			p.Past.Statement = s.Text()
		}},
		"no statement": {"statement", func(p *Proof) { p.Past.Statement = "" }},
		"a record that closes nothing": {"close", func(p *Proof) {
			p.Past.Close = p.Tx
		}},
		"no record of the closing": {"close", func(p *Proof) { p.Past.Close = Inclusion{} }},
	} {
		n := 0
		eachClosed(t, b, func(r Record, p Proof) {
			if p.Past == nil || len(p.Past.Names) < 3 || r.From != 2 && r.From != 5 {
				return
			}
			n++
			p.Past.Names = slices.Clone(p.Past.Names)
			tt.alter(&p)
			bad := new(ProofError)
			if got, err := p.Verify(); !errors.As(err, &bad) || bad.Part != tt.part {
				t.Errorf("%s, seq %d: it proves %+v, %v", name, r.Seq, got, err)
			}
		})
		if n == 0 {
			t.Errorf("%s: there was no proof", name)
		}
	}
}

// A closing of another period or in its own period, names for a record of a closed period and a past
// without names are refused, even if all else fits.
func TestPastForged(t *testing.T) {
	b := newClosedBook(t)
	within := b.past.last
	within.ToSeq = uint64(len(b.records)) + 1
	b.add(t, []Record{NewClose(&within)})
	_, seq := b.past.Closing()
	var closing Inclusion
	if _, err := include(b, seq, uint64(len(b.batches)), &closing); err != nil {
		t.Fatal(err)
	}
	head, _ := HeadOf(b, uint64(len(b.batches)))
	r := Record{Seq: seq + 1}
	good := PastProof{Names: make([]NameProof, 1), Statement: b.past.statements[1], Close: closing}
	if s, err := good.verify(&r, head); err != nil || s.Period != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	none, other, early := good, good, Record{Seq: b.past.last.ToSeq}
	none.Names, other.Statement = nil, b.past.statements[0]
	own := PastProof{Names: good.Names, Statement: within.Text()}
	if _, err := include(b, within.ToSeq, head.Batches, &own.Close); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"no names":            second(none.verify(&r, head)),
		"of another period":   second(other.verify(&r, head)),
		"for an early record": second(good.verify(&early, head)),
		"in its own period":   second(own.verify(&Record{Seq: within.ToSeq + 1}, head)),
	} {
		if bad := new(ProofError); !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A name outside the grammar is refused, though the log of names has it.
func TestPastNameIsAName(t *testing.T) {
	for name, good := range map[string]bool{"alice": true, "": false, `a"b`: false} {
		leaf := NameLeaf(false, 1, name)
		s := Statement{Accounts: 1, NamesRoot: merkle.Leaf(leaf[:])}
		n := NameProof{Ref: 1, Name: name}
		if got, err := n.verify("past.0", &s, nameRef{false, 1}); (err == nil) != good || good && got != name {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}

// The bytes of a proof with closed names do not change.
func TestPastProofBytesAreFrozen(t *testing.T) {
	var lines [][]byte
	eachClosed(t, newClosedBook(t), func(r Record, p Proof) {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if p.Past != nil && (r.Op == OpRelease || len(p.Names) == 1) {
			lines = append(lines, text)
		}
	})
	frozen(t, filepath.Join("testdata", "proof.v2.ndjson"), lines)
	for _, text := range lines {
		var p Proof
		if err := p.UnmarshalJSON(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := p.Verify(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
