package record

import (
	"bytes"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines"
)

// Every record can be proven against every later head, also through JSON. The proof contains the
// same receipt as the ledger's.
func TestProofsVerify(t *testing.T) {
	b := newBook(t, 12)
	accounts := map[uint64]string{0: "", 1: "sys:issue:ron", 2: "alice", 3: "bob", 4: "shop:till/7"}
	for seq := range uint64(len(b.records)) {
		r, _ := Decode(b.records[seq])
		n := Names{From: accounts[r.From], To: accounts[r.To]}
		if r.Asset != 0 {
			n.Asset = "ron"
		}
		if r.Hold != 0 {
			hold, _ := Decode(b.records[r.Hold-1])
			n.Hold = hold.TxID()
		}
		want := r.Receipt(n, b.batches[r.Batch-1].Root())
		for no := r.Batch; no <= uint64(len(b.batches)); no++ {
			p, err := Prove(b, r.Seq, no)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(p)
			var back Proof
			if err == nil {
				err = json.Unmarshal(text, &back)
			}
			if err != nil || !reflect.DeepEqual(normal(p), normal(back)) {
				t.Fatalf("seq %d at %d: %s came back as %+v, %v", r.Seq, no, text, back, err)
			}
			got, err := back.Verify()
			if err != nil || got != want {
				t.Fatalf("seq %d at %d: %+v, %v, want %+v", r.Seq, no, got, err, want)
			}
			if head, err := HeadOf(b, no); err != nil || head != p.Head {
				t.Fatalf("head %+v, %v, want %+v", head, err, p.Head)
			}
		}
	}
}

// normal replaces nil paths by empty ones.
func normal(p Proof) Proof {
	all := []*Inclusion{&p.Tx, p.Hold}
	p.Names = slices.Clone(p.Names)
	for i := range p.Names {
		all = append(all, &p.Names[i])
	}
	for _, in := range all {
		if in != nil {
			in.Path, in.LogPath = append([]b3.Digest{}, in.Path...), append([]b3.Digest{}, in.LogPath...)
		}
	}
	p.LastPath = append([]b3.Digest{}, p.LastPath...)
	return p
}

// drawProof returns the proof of a record of the book, sometimes of a capture.
func drawProof(t *rapid.T, b *book) Proof {
	seq := rapid.Uint64Range(1, uint64(len(b.records))).Draw(t, "seq")
	r, _ := Decode(b.records[seq-1])
	p, err := Prove(b, seq, rapid.Uint64Range(r.Batch, uint64(len(b.batches))).Draw(t, "at"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A proof with any altered byte in its JSON is refused, because it has one form and every member is
// bound.
func TestProofsFlipped(t *testing.T) {
	b := newBook(t, 12)
	rapid.Check(t, func(t *rapid.T) {
		text, err := json.Marshal(drawProof(t, b))
		if err != nil {
			t.Fatal(err)
		}
		bit := rapid.IntRange(0, 8*len(text)-1).Draw(t, "bit")
		text[bit/8] ^= 1 << (bit % 8)
		var p Proof
		if err := p.UnmarshalJSON(text); err != nil {
			return
		}
		if got, err := p.Verify(); err == nil {
			t.Fatalf("with bit %d flipped it proves %+v:\n%s", bit, got, text)
		}
	})
}

// A proof with any altered member is refused, too.
func TestProofsAltered(t *testing.T) {
	b := newBook(t, 12)
	rapid.Check(t, func(t *rapid.T) {
		p := drawProof(t, b)
		places := append([]*Inclusion{&p.Tx}, inclusions(&p)...)
		in := rapid.SampledFrom(places).Draw(t, "place")
		other := drawProof(t, b)
		changed := true
		switch rapid.IntRange(0, 13).Draw(t, "change") {
		case 0:
			in.Record = bytes.Clone(in.Record)
			in.Record[rapid.IntRange(0, len(in.Record)-1).Draw(t, "byte")] ^= 1
		case 1:
			in.Index++
		case 2:
			changed = alter(t, &in.Path)
		case 3:
			changed = alter(t, &in.LogPath)
		case 4:
			changed = alter(t, &p.LastPath)
		case 5:
			alterBatch(t, &in.Header)
		case 6:
			alterBatch(t, &p.Last)
		case 7:
			p.Head.Batches++
		case 8:
			p.Head.Root[3] ^= 1
		case 9:
			p.Head.LastRoot[3] ^= 1
		case 10:
			p.Head.Seq--
		case 11:
			changed = !bytes.Equal(in.Record, other.Tx.Record)
			*in = other.Tx
			// A proof of another record is valid if it needs the same names. Its receipt then
			// differs.
			changed = changed && in != &p.Tx
		case 12:
			changed = len(p.Names) > 0
			p.Names = p.Names[:max(0, len(p.Names)-1)]
		case 13:
			p.Names = append(slices.Clone(p.Names), other.Tx)
		}
		if got, err := p.Verify(); changed && err == nil {
			t.Fatalf("altered, it proves %+v", got)
		} else if bad := new(ProofError); err != nil && !errors.As(err, &bad) {
			t.Fatalf("%v is not a ProofError", err)
		}
	})
}

func inclusions(p *Proof) (all []*Inclusion) {
	for i := range p.Names {
		all = append(all, &p.Names[i])
	}
	if p.Hold != nil {
		all = append(all, p.Hold)
	}
	return all
}

func alter(t *rapid.T, path *[]b3.Digest) bool {
	p := slices.Clone(*path)
	defer func() { *path = p }()
	switch i := rapid.IntRange(0, 2).Draw(t, "how"); {
	case i == 0:
		p = append(p, b3.Digest{1})
	case len(p) == 0:
		return false
	case i == 1:
		p = p[1:]
	default:
		p[rapid.IntRange(0, len(p)-1).Draw(t, "step")][9] ^= 1
	}
	return true
}

func alterBatch(t *rapid.T, b *Batch) {
	switch rapid.IntRange(0, 5).Draw(t, "member") {
	case 0:
		b.No++
	case 1:
		b.First++
	case 2:
		b.Count++
	case 3:
		b.At++
	case 4:
		b.Merkle[0] ^= 1
	case 5:
		b.Prev[0] ^= 1
	}
}

// A proof includes a hold if and only if the record ends that hold.
func TestProofOfHold(t *testing.T) {
	b := newBook(t, 12)
	for seq := range uint64(len(b.records)) {
		p, err := Prove(b, seq+1, uint64(len(b.batches)))
		if err != nil {
			t.Fatal(err)
		}
		r, _ := Decode(p.Tx.Record)
		switch {
		case r.Hold == 0:
			p.Hold = &otherProof(t, b, p.Head).Tx
		case seq%2 == 0:
			p.Hold = nil
		default:
			wrong := p.Tx
			p.Hold = &wrong
		}
		bad := new(ProofError)
		if got, err := p.Verify(); !errors.As(err, &bad) || bad.Part != "hold" {
			t.Fatalf("seq %d: %+v, %v", r.Seq, got, err)
		}
	}
}

// A record refers only to earlier records. A proof with a name or hold that was made later is
// refused, as are a hold of other accounts and a record with a time other than that of its batch.
func TestProofOfForgedPast(t *testing.T) {
	pay := func(op Op, from, to uint64) Record {
		return Record{Op: op, Asset: 1, From: from, To: to, Amount: engines.AmountOf(0, 1), Nonce: 1}
	}
	hold := pay(OpHold, 2, 3)
	hold.Expires = 1
	end := pay(OpCapture, 2, 3)
	end.Hold = 5
	open := func(ref uint64, name string) Record { return Record{Op: OpOpen, From: ref, Name: name} }
	for name, tt := range map[string]struct {
		batches [][]Record
		seq     uint64 // of the record that is to be proven
		opened  map[uint64]uint64
		late    int64  // by how much the record comes after its batch
		part    string // "" for a proof that holds
	}{
		"as it was":        {batches: [][]Record{{pay(OpTransfer, 2, 3)}}, seq: 5},
		"a hold":           {batches: [][]Record{{hold, end}}, seq: 6},
		"a later name":     {batches: [][]Record{{pay(OpTransfer, 2, 3)}, {open(3, "mallory")}}, seq: 5, opened: map[uint64]uint64{3: 6}, part: "names.1"},
		"a later hold":     {batches: [][]Record{{func() Record { r := end; r.Hold = 6; return r }()}, {hold}}, seq: 5, part: "hold"},
		"another's hold":   {batches: [][]Record{{hold, func() Record { r := end; r.To = 4; return r }()}}, seq: 6, part: "hold"},
		"from another":     {batches: [][]Record{{hold, func() Record { r := end; r.From = 4; return r }()}}, seq: 6, part: "hold"},
		"after its batch":  {batches: [][]Record{{pay(OpTransfer, 2, 3)}}, seq: 5, late: 1, part: "tx"},
		"before its batch": {batches: [][]Record{{pay(OpTransfer, 2, 3)}}, seq: 5, late: -1, part: "tx"},
	} {
		b := &book{opened: map[uint64]uint64{}}
		b.add(t, []Record{{Op: OpAsset, Asset: 1, Name: "ron"}, open(2, "alice"), open(3, "bob"), open(4, "carol")})
		b.late = tt.late
		for _, group := range tt.batches {
			b.add(t, group)
		}
		maps.Copy(b.opened, tt.opened)
		p, err := Prove(b, tt.seq, uint64(len(b.batches)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := p.Verify()
		if bad := new(ProofError); tt.part == "" && err != nil ||
			tt.part != "" && (!errors.As(err, &bad) || bad.Part != tt.part) {
			t.Errorf("%s: it proves %+v, %v", name, got, err)
		}
	}
}

// otherProof returns the proof of the first record against the head.
func otherProof(t *testing.T, b *book, h Head) *Proof {
	other, err := Prove(b, 1, h.Batches)
	if err != nil {
		t.Fatal(err)
	}
	return &other
}

func TestConsistency(t *testing.T) {
	b := newBook(t, 12)
	rapid.Check(t, func(t *rapid.T) {
		to := rapid.Uint64Range(0, uint64(len(b.batches))).Draw(t, "to")
		from := rapid.Uint64Range(0, to).Draw(t, "from")
		c, err := ProveConsistency(b, from, to)
		if err != nil || c.Verify() != nil {
			t.Fatalf("%d to %d: %v, %v", from, to, err, c.Verify())
		}
		text, err := json.Marshal(c)
		var back Consistency
		if err != nil || back.UnmarshalJSON(text) != nil || back.Verify() != nil || back.From != c.From ||
			back.To != c.To ||
			!slices.Equal(back.Path, c.Path) {
			t.Fatalf("%s came back as %+v, %v", text, back, err)
		}
		if from == 0 {
			return // an empty log is how every log began
		}
		bit := rapid.IntRange(0, 8*len(text)-1).Draw(t, "bit")
		text[bit/8] ^= 1 << (bit % 8)
		if back.UnmarshalJSON(text) != nil || back.Verify() != nil || back.From.Root == back.To.Root {
			return
		}
		// a root does not include the number of its leaves
		if back.From.Root != c.From.Root || back.To.Root != c.To.Root || !slices.Equal(back.Path, c.Path) {
			t.Fatalf("with bit %d flipped it still holds:\n%s", bit, text)
		}
	})
	if _, err := ProveConsistency(b, 5, 4); err == nil {
		t.Error("a log was shown to grow backwards")
	}
	if err := new(Consistency).Verify(); err != nil {
		t.Errorf("an empty log is not how an empty one began: %v", err)
	}
	forged := Consistency{From: LogHead{1, b3.Digest{1}}, To: LogHead{2, b3.Digest{2}}, Path: []b3.Digest{{3}}}
	if err := forged.Verify(); !errors.Is(err, ErrInconsistent) {
		t.Errorf("a made-up proof: %v", err)
	}
}

func TestProveRefuses(t *testing.T) {
	b := newBook(t, 3)
	for name, err := range map[string]error{
		"empty log":   second(Prove(b, 1, 0)),
		"no batch":    second(Prove(b, 1, 99)),
		"no record":   second(Prove(b, 999, 4)),
		"later batch": second(Prove(b, uint64(len(b.records)), 1)),
	} {
		if err == nil {
			t.Errorf("%s: proven", name)
		}
	}
	if head, err := HeadOf(b, 0); err != nil || head != (Head{}) || head.Log() != (LogHead{}) {
		t.Errorf("%+v, %v", head, err)
	}
	many := b.batches[1]
	many.Count = 1 << 60
	if leaves, err := leavesOf(b, many); err == nil {
		t.Errorf("a batch that the ledger does not have: %d leaves", len(leaves))
	}
	for _, seq := range []uint64{1, 6} { // the asset's record, and the one that is to be proven
		good := b.records[seq-1]
		b.records[seq-1] = good[:len(good)-1]
		var want *FormatError
		if p, err := Prove(b, 6, 4); !errors.As(err, &want) {
			t.Errorf("record %d does not decode: %+v, %v", seq, p, err)
		}
		b.records[seq-1] = good
	}
	b.opened = map[uint64]uint64{}
	if _, err := Prove(b, 6, 4); err == nil {
		t.Error("proven without names")
	}
}

func second[T any](_ T, err error) error { return err }

func TestProofJSONIsStrict(t *testing.T) {
	b := newBook(t, 6)
	p, err := Prove(b, 6, 7)
	if err != nil {
		t.Fatal(err)
	}
	good, _ := json.Marshal(p)
	spaced := jsontext.Value(bytes.Clone(good))
	if err := spaced.Indent(); err != nil {
		t.Fatal(err)
	}
	if err := new(Proof).UnmarshalJSON(spaced); err != nil {
		t.Errorf("spaces between tokens: %v", err)
	}
	for _, change := range [][2]string{
		{`{"format"`, `{"more":1,"format"`}, {`proof-v1`, `proof-v2`}, {`"index":0,`, ``}, {`"names":[`, `"names":null,"x":[`}, {`"tx":{`, `"tx":{"index":0,`},
		{`"head":{`, `"head":{"batches":7,`}, {`"record":"A`, `"record":"\u0041`}, {`"header":"AQAA`, `"header":"AgAA`},
	} {
		bad := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
		var want *FormatError
		if err := new(Proof).UnmarshalJSON(bad); bytes.Equal(bad, good) || !errors.As(err, &want) {
			t.Errorf("%s for %s: %v", change[1], change[0], err)
		}
	}
	if err := new(Consistency).UnmarshalJSON(good); err == nil {
		t.Error("a proof was taken for a consistency proof")
	}
}
