package merkle

import (
	"math/bits"

	"ronbox/appliance/b3"
)

// LeafPrefix is the byte before the content of a leaf, for digests computed with a b3.Gang.
const LeafPrefix = 0

const nodePrefix = 1

// leafRoom is the length in bytes up to which Leaf does not allocate: that of a ledger record.
const leafRoom = 800

// Leaf returns the digest of a leaf with the content b.
func Leaf(b []byte) b3.Digest {
	if len(b) > leafRoom {
		return b3.Sum(append([]byte{LeafPrefix}, b...))
	}
	var buf [1 + leafRoom]byte
	return b3.Sum(buf[:1+copy(buf[1:], b)])
}

// Node returns the digest of a node with the children l and r.
func Node(l, r b3.Digest) b3.Digest {
	var buf [1 + 2*b3.Size]byte
	buf[0] = nodePrefix
	copy(buf[1:], l[:])
	copy(buf[1+b3.Size:], r[:])
	return b3.Sum(buf[:])
}

// Root returns the root of the tree over the leaves, in the shape of RFC 6962: the left side of a
// node is full and as large as possible. It is the zero Digest for no leaves. Root does not
// allocate.
func Root(leaves []b3.Digest) b3.Digest {
	var open [64]b3.Digest // roots of full subtrees, largest first: one per bit of the number of leaves
	n := 0
	for i := range leaves {
		d := leaves[i]
		for range bits.TrailingZeros64(uint64(i) + 1) {
			n--
			d = Node(open[n], d)
		}
		open[n] = d
		n++
	}
	return fold(open[:n])
}

// fold joins the roots of subtrees, largest first, into one.
func fold(open []b3.Digest) b3.Digest {
	if len(open) == 0 {
		return b3.Digest{}
	}
	d := open[len(open)-1]
	for i := len(open) - 2; i >= 0; i-- {
		d = Node(open[i], d)
	}
	return d
}

// Path returns the siblings on the path from leaf i to the root, lowest first. i must be less than
// the number of leaves.
func Path(leaves []b3.Digest, i uint64) []b3.Digest {
	var path []b3.Digest
	for level := leaves; len(level) > 1; i /= 2 {
		if beside := i ^ 1; beside < uint64(len(level)) {
			path = append(path, level[beside])
		}
		level = parents(level)
	}
	return path
}

// parents returns the next level of the tree. A node without a sibling moves up unchanged.
func parents(level []b3.Digest) []b3.Digest {
	above := make([]b3.Digest, 0, (len(level)+1)/2)
	for ; len(level) > 1; level = level[2:] {
		above = append(above, Node(level[0], level[1]))
	}
	return append(above, level...)
}

// Climb returns the root that path leads to from the leaf at index in a tree of size leaves. ok is
// false if the path has the wrong length or index is not less than size. It checks the results of
// Path and LogInclusion.
func Climb(leaf b3.Digest, index, size uint64, path []b3.Digest) (root b3.Digest, ok bool) {
	if index >= size {
		return b3.Digest{}, false
	}
	root = leaf
	for last := size - 1; last > 0; index, last = index/2, last/2 {
		if index == last && index%2 == 0 {
			continue // no sibling on this level
		}
		if len(path) == 0 {
			return b3.Digest{}, false
		}
		if index%2 == 1 {
			root = Node(path[0], root)
		} else {
			root = Node(root, path[0])
		}
		path = path[1:]
	}
	return root, len(path) == 0
}
