package lverify

import (
	"math/bits"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/engines/merkle"
)

// frontier is the right end of the log of batch roots: the digests of its largest full subtrees, the largest first.
type frontier struct {
	size uint64
	open []b3.Digest
}

// add appends a batch root, and gives the nodes that it brings.
func (f *frontier) add(root b3.Digest) []merkle.LogNode {
	pos, d := merkle.LogCount(f.size), merkle.Leaf(root[:])
	nodes := []merkle.LogNode{{Pos: pos, Hash: d}}
	f.size++
	for range bits.TrailingZeros64(f.size) {
		d = merkle.Node(f.open[len(f.open)-1], d)
		f.open = f.open[:len(f.open)-1]
		pos++
		nodes = append(nodes, merkle.LogNode{Pos: pos, Hash: d})
	}
	f.open = append(f.open, d)
	return nodes
}

// root is that of the log, the zero Digest of an empty one.
func (f *frontier) root() (d b3.Digest) {
	for i := len(f.open) - 1; i >= 0; i-- {
		if i == len(f.open)-1 {
			d = f.open[i]
			continue
		}
		d = merkle.Node(f.open[i], d)
	}
	return d
}

// node checks the nodes of the log that a batch brings, as far as they are flushed.
func (v *file) node(b record.Batch) {
	if !v.rep.Whole {
		v.tailNode(b)
		return
	}
	nodes, flushed := v.log.add(b.Root()), tables.GetFlushed(v.r).Batches
	v.compare(b, nodes, flushed)
}

// tailNode takes what lies before the batches that are checked from the table itself.
func (v *file) tailNode(b record.Batch) {
	flushed := tables.GetFlushed(v.r).Batches
	if b.No > flushed {
		return
	}
	nodes, err := merkle.LogNodes(b.No-1, b.Root(), tables.LogNodes(v.r))
	if err != nil {
		v.rep.found(Finding{Where: "mlog", Batch: b.No, Detail: err.Error()})
		return
	}
	v.compare(b, nodes, flushed)
}

// compare holds nodes against the table: those of flushed batches are there, others may be.
func (v *file) compare(b record.Batch, nodes []merkle.LogNode, flushed uint64) {
	for _, n := range nodes {
		stored, known := tables.LogNode(v.r, n.Pos)
		if known && stored != n.Hash || !known && b.No <= flushed {
			v.rep.found(Finding{Where: "mlog", Batch: b.No, Detail: "the log of batch roots has another node, or none, for it"})
			return
		}
	}
}
