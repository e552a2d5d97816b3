package record

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines"
)

var update = flag.Bool("update", false, "write golden files that are missing; those of a version are never rewritten")

// frozen compares lines with a golden file.
func frozen(t *testing.T, path string, lines [][]byte) {
	t.Helper()
	got := append(bytes.Join(lines, []byte{'\n'}), '\n')
	want, err := os.ReadFile(path)
	if os.IsNotExist(err) && *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is frozen, and this program writes something else:\n%s", path, got)
	}
}

const goldenAt = 1_767_323_045_678_901_234 // 2026-01-02T03:04:05.678901234Z

// goldenNamed returns records of version 2.
func goldenNamed() []Record {
	r := goldenRecords()[2]
	r.Named = true
	set, unset := r, r
	set.Seq, set.Set, set.Clear = 4, allFlags, 0
	unset.Seq, unset.Set, unset.Clear, unset.Dedupe, unset.Idem = 5, 0, NoDebit, Dedupe{}, ""
	return []Record{r, set, unset}
}

// goldenRecords returns version 1 records: one of each op, and those with the most parts.
func goldenRecords() []Record {
	who := func(r Record) Record {
		r.Principal, r.CapID = [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, [8]byte{8, 7, 6, 5, 4, 3, 2, 1}
		r.Dedupe = Dedupe{DedupeKey, [16]byte(bytes.Repeat([]byte{0xa1}, 16)), [32]byte(bytes.Repeat([]byte{0xb2}, 32))}
		r.Idem = "order-7.retry:1_a"
		return r
	}
	image := func(account, seq, prev uint64) Image {
		return Image{Account: account, Asset: 1, Prev: prev, State: State{
			CreditsPosted: engines.AmountOf(1, 1000),
			DebitsPosted:  engines.AmountOf(0, 25),
			DebitsHeld:    engines.AmountOf(0, 5),
			CreditsHeld:   engines.AmountOf(0, 6),
			DayDebits:     engines.AmountOf(0, 30),
			Day:           20455,
			LastSeq:       seq,
		}}
	}
	base := func(op Op, seq uint64) Record {
		return Record{Op: op, Seq: seq, Batch: 3, At: goldenAt, Rand: 0xbeef}
	}
	money := func(op Op, seq, from, to uint64, r func(*Record)) Record {
		v := base(op, seq)
		v.Asset, v.Amount, v.From, v.To, v.Nonce = 1, engines.AmountOf(0, 25), from, to, 4
		v.Images = []Image{image(from, seq, seq-2), image(to, seq, 0)}
		r(&v)
		return v
	}
	open, asset, flags, once, batch := base(OpOpen, 1), base(OpAsset, 2), base(OpFlags, 3), base(OpOnce, 4), base(
		OpBatch,
		12,
	)
	open.From, open.Name = 1, "sys:issue:ron"
	asset.Asset, asset.Name, asset.From = 1, "ron", 1
	flags.From, flags.Set, flags.Clear = 2, Frozen|NoCredit, Closed
	once.Dedupe = Dedupe{DedupeOnce, [16]byte{1}, [32]byte{2}}
	once.Guard = Guard{[16]byte{3}, [16]byte{4}}
	batch.Parts, batch.Results = 1, []byte{byte(Accepted), byte(InsufficientFunds), byte(Accepted)}
	scale := base(OpScale, 13)
	scale.Asset, scale.Amount = 1, engines.AmountOf(0, 2)
	settle := func(r *Record) { r.Nonce, r.Hold = 0, 8 }
	return []Record{
		open,
		asset,
		who(flags),
		once,
		who(money(OpIssue, 5, 1, 2, func(r *Record) { r.Amount = engines.AmountOf(^uint64(0), ^uint64(0)) })),
		who(money(OpTransfer, 6, 2, 3, func(r *Record) { r.Memo = "rent, \"May\" é" })),
		money(OpBurn, 7, 3, 1, func(r *Record) { r.Flags = FlagInner | FlagAtomic }),
		who(money(OpHold, 8, 2, 3, func(r *Record) { r.Expires = goldenAt + 3_600_000_000_000 })),
		who(money(OpCapture, 9, 2, 3, settle)),
		who(money(OpRelease, 10, 2, 3, settle)),
		money(OpExpire, 11, 2, 3, settle),
		who(batch),
		who(scale),
		fullest(),
	}
}

func goldenNames(r *Record) Names {
	names := map[uint64]string{1: "sys:issue:ron", 2: "alice", 3: "shop:till/7_a-B"}
	n := Names{From: names[r.From], To: names[r.To]}
	if r.Asset != 0 {
		n.Asset = "ron"
	}
	if r.Hold != 0 {
		n.Hold = NewTxID(goldenAt-5_000_000_000, r.Hold, 0xcafe)
	}
	return n
}

// The encoding of version 1 does not change. A golden line holds the op and the record in hex.
func TestRecordBytesAreFrozen(t *testing.T) {
	var lines [][]byte
	for _, r := range goldenRecords() {
		raw := r.Append(nil)
		lines = append(lines, []byte(r.Op.String()+" "+hex.EncodeToString(raw)))
		if back, err := Decode(raw); err != nil || !same(r, back) {
			t.Errorf("%s: %+v, %v", r.Op, back, err)
		}
	}
	b := Batch{No: 3, First: 1, Count: 12, At: goldenAt, Merkle: b3.Sum([]byte("merkle")), Prev: b3.Sum([]byte("prev"))}
	lines = append(lines, []byte("header "+hex.EncodeToString(b.Append(nil))), []byte("root "+b.Root().String()))
	s := goldenRecords()[5].Images[0].State
	lines = append(lines, []byte("state "+hex.EncodeToString(s.Append(nil))))
	frozen(t, filepath.Join("testdata", "v1.txt"), lines)
}

// The encoding of version 2 does not change. A golden line holds the op, the record in hex and the
// line of an export, which must be importable.
func TestNamedBytesAreFrozen(t *testing.T) {
	var lines [][]byte
	for _, r := range goldenNamed() {
		raw := r.Append(nil)
		l := Line{Kind: LineRecord, Raw: raw, Record: r, Names: goldenNames(&r)}
		shown := bytes.TrimSpace(l.Append(nil))
		lines = append(lines, []byte(r.Op.String()+" "+hex.EncodeToString(raw)), shown)
		if back, err := Decode(raw); err != nil || !same(r, back) {
			t.Errorf("%s: %+v, %v", r.Op, back, err)
		}
		if _, err := ParseLine(shown); err != nil {
			t.Errorf("%s: %v", shown, err)
		}
	}
	frozen(t, filepath.Join("testdata", "v2.txt"), lines)
}

// The output of the renderers and the content covered by receipt_hash do not change.
func TestReceiptBytesAreFrozen(t *testing.T) {
	frozenReceipts(t, "v1", goldenRecords()[:13])
	frozenReceipts(t, "v2", goldenNamed())
}

func frozenReceipts(t *testing.T, version string, of []Record) {
	t.Helper()
	var receipts, canonical [][]byte
	for _, r := range of {
		if r.Op == OpOpen || r.Op == OpOnce || r.Op == OpBatch {
			continue // these records have no receipt
		}
		v := r.Receipt(goldenNames(&r), b3.Sum([]byte("root")))
		text := v.AppendJSON(nil)
		receipts = append(receipts, text)
		canonical = append(canonical, v.appendCanonical(nil, appendStamp(nil, v.At)))
		if !strings.Contains(string(text), `"receipt_hash":"`+b3.Sum(canonical[len(canonical)-1]).String()+`"`) ||
			v.Hash() != b3.Sum(canonical[len(canonical)-1]) {
			t.Errorf("%s: the hash is not that of the canonical JSON", text)
		}
	}
	dir := filepath.Join("..", "..", "..", "testdata", "receipts")
	frozen(t, filepath.Join(dir, version+".ndjson"), receipts)
	frozen(t, filepath.Join(dir, version+".canonical.ndjson"), canonical)
}

// The lines of an export do not change, so that older exports stay importable.
func TestLineBytesAreFrozen(t *testing.T) {
	first := Line{Kind: LineFormat, From: 1}
	lines := [][]byte{bytes.TrimSpace(first.Append(nil))}
	for _, r := range goldenRecords()[:13] {
		l := Line{Kind: LineRecord, Raw: r.Append(nil), Record: r, Names: goldenNames(&r)}
		lines = append(lines, bytes.TrimSpace(l.Append(nil)))
	}
	last := Line{
		Kind:  LineBatch,
		Batch: Batch{No: 3, First: 1, Count: 12, At: goldenAt, Merkle: b3.Sum([]byte("merkle"))},
	}
	lines = append(lines, bytes.TrimSpace(last.Append(nil)))
	frozen(t, filepath.Join("testdata", "export.v1.ndjson"), lines)
	for _, l := range lines {
		if _, err := ParseLine(l); err != nil {
			t.Errorf("%s: %v", l, err)
		}
	}
}
