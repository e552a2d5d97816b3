package record

import (
	"errors"
	"slices"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
)

// book is a ledger in memory.
type book struct {
	records [][]byte // of seq i+1
	batches []Batch
	log     []b3.Digest // nodes of the log of batch roots
	opened  map[uint64]uint64
	late    int64 // offset of the records' time from that of their batch
	past    bookPast
}

// newBook returns a book of 1 + n batches of one to nine records: names first, then transfers,
// holds and captures between them.
func newBook(t testing.TB, n int) *book {
	b := &book{opened: map[uint64]uint64{}}
	names := []Record{{Op: OpAsset, Asset: 1, Name: "ron"}}
	for i, name := range []string{"sys:issue:ron", "alice", "bob", "shop:till/7"} {
		names = append(names, Record{Op: OpOpen, From: uint64(i + 1), Name: name})
	}
	b.add(t, names)
	for i := range n {
		var group []Record
		for k := range 1 + i*7%9 {
			group = append(group, b.next(i, k, group))
		}
		b.add(t, group)
	}
	return b
}

func (b *book) next(i, k int, group []Record) Record {
	r := Record{
		Op:     OpTransfer,
		Asset:  1,
		From:   uint64(2 + k%3),
		To:     uint64(2 + (k+1)%3),
		Amount: engines.AmountOf(0, uint64(i+1)),
		Nonce:  uint64(k + 1),
	}
	switch k % 5 {
	case 1:
		r.Op, r.From = OpIssue, 1
	case 2:
		r.Op = OpHold
		r.Expires = 1
	case 3:
		before := group[len(group)-1] // the hold just before
		r.Op, r.Hold, r.From, r.To = OpCapture, uint64(len(b.records)+len(group)), before.From, before.To
	case 4:
		r = Record{Op: OpBatch, Parts: 1, Results: []byte{0, 1}}
	}
	return r
}

func (b *book) add(t testing.TB, group []Record) {
	first, no := uint64(len(b.records)+1), uint64(len(b.batches)+1)
	var leaves []b3.Digest
	for i := range group {
		r := &group[i]
		r.Seq, r.Batch, r.At, r.Rand = first+uint64(i), no, goldenAt+int64(no)+b.late, uint16(i)
		if r.Op == OpOpen {
			b.opened[r.From] = r.Seq
		}
		if r.Op == OpOpen || r.Op == OpAsset {
			b.past.named = append(b.past.named, NameProof{r.Op == OpAsset, max(r.From, uint64(r.Asset)), r.Name, r.Seq, nil})
		}
		raw := r.Append(nil)
		b.records, leaves = append(b.records, raw), append(leaves, merkle.Leaf(raw))
	}
	h := Batch{No: no, First: first, Count: uint64(len(group)), At: goldenAt + int64(no), Merkle: merkle.Root(leaves)}
	if no > 1 {
		h.Prev = b.batches[no-2].Root()
	}
	b.batches = append(b.batches, h)
	nodes, err := merkle.LogNodes(h.No-1, h.Root(), b.Node)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		b.log = append(b.log, n.Hash)
	}
}

var errNothing = errors.New("there is no such thing")

func (b *book) Record(seq uint64) ([]byte, error) {
	if seq <= b.past.last.ToSeq || seq > uint64(len(b.records)) {
		return nil, errNothing
	}
	return b.records[seq-1], nil
}

func (b *book) Batch(no uint64) (Batch, error) {
	if no <= b.past.last.ToBatch || no > uint64(len(b.batches)) {
		return Batch{}, errNothing
	}
	return b.batches[no-1], nil
}

func (b *book) Node(pos uint64) (b3.Digest, error) {
	size := b.past.last.ToBatch
	if pos >= uint64(len(b.log)) || pos < merkle.LogCount(size) && !slices.Contains(merkle.LogPeaks(size), pos) {
		return b3.Digest{}, errors.New("no such node")
	}
	return b.log[pos], nil
}
func (b *book) Opened(account uint64) (uint64, error) { return b.opened[account], nil }
func (b *book) Declared(asset uint32) (seq uint64, err error) {
	for _, n := range b.past.named {
		if n.Asset && n.Ref == uint64(asset) {
			return n.Index, nil
		}
	}
	return 0, errNothing
}
