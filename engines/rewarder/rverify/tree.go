package rverify

import (
	"encoding/binary"

	"ronbox/appliance/b3"
)

// leafPrefix begins the input of a leaf hash. The tree has the shape of RFC 6962 and uses BLAKE3: a
// leaf hashes 0x00 and its bytes, a node 0x01 and its children, and an empty tree no bytes.
const leafPrefix = 0

func leafHash(raw []byte) b3.Digest     { return b3.Sum(append([]byte{leafPrefix}, raw...)) }
func nodeHash(l, r b3.Digest) b3.Digest { return b3.Sum(append(append([]byte{1}, l[:]...), r[:]...)) }

// tree computes the root of leaves that are added one by one. It holds one hash per bit of their
// number.
type tree struct {
	full []b3.Digest // roots of full subtrees, the largest first
	n    uint64      // number of leaves
	raw  []byte      // buffer for the input of a node hash
}

func (t *tree) add(leaf b3.Digest) {
	for n := t.n; n&1 == 1; n >>= 1 { // each set bit is a full subtree to merge
		last := len(t.full) - 1
		t.raw = append(append(append(t.raw[:0], 1), t.full[last][:]...), leaf[:]...)
		leaf, t.full = b3.Sum(t.raw), t.full[:last]
	}
	t.full = append(t.full, leaf)
	t.n++
}

func (t *tree) root() b3.Digest {
	if t.n == 0 {
		return b3.Sum(nil)
	}
	last := len(t.full) - 1
	root := t.full[last]
	for i := last - 1; i >= 0; i-- {
		root = nodeHash(t.full[i], root)
	}
	return root
}

// chunkTree computes the root of the tree over chunks of 512 rows. metrics lists all metrics of the
// rows.
type chunkTree struct {
	tree
	metrics []string
	rows    uint64
	chunk   []byte // the chunk in progress
}

func (t *chunkTree) add(r *Row) {
	t.chunk = r.appendTo(t.chunk, t.metrics)
	if t.rows++; t.rows%chunkRows == 0 {
		t.close()
	}
}

func (t *chunkTree) close() {
	t.tree.add(leafHash(t.chunk))
	t.chunk = t.chunk[:0]
}

func (t *chunkTree) root() b3.Digest {
	if len(t.chunk) > 0 {
		t.close()
	}
	return t.tree.root()
}

// appendAllocation appends the leaf of an allocation in the tree of a run.
func appendAllocation(raw []byte, runKey b3.Digest, index uint64, actor string, amount, score number) []byte {
	raw = binary.BigEndian.AppendUint64(append(raw, runKey[:]...), index)
	raw = append(binary.BigEndian.AppendUint16(raw, uint16(len(actor))), actor...)
	return append(append(raw, amount[:]...), score[:]...)
}
