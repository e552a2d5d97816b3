package merkle

import (
	"math/bits"

	"ronbox/appliance/b3"
)

// LeafPrefix is the byte before those of a leaf, for digests that a b3.Gang makes.
const LeafPrefix = 0

const nodePrefix = 1

// leafRoom is the length up to which Leaf allocates nothing, bytes: that of a ledger's record.
const leafRoom = 800

// Leaf is the digest of a leaf that holds b.
func Leaf(b []byte) b3.Digest {
	if len(b) > leafRoom {
		return b3.Sum(append([]byte{LeafPrefix}, b...))
	}
	var buf [1 + leafRoom]byte
	return b3.Sum(buf[:1+copy(buf[1:], b)])
}

// Node is the digest of a node with the children l and r.
func Node(l, r b3.Digest) b3.Digest {
	var buf [1 + 2*b3.Size]byte
	buf[0] = nodePrefix
	copy(buf[1:], l[:])
	copy(buf[1+b3.Size:], r[:])
	return b3.Sum(buf[:])
}

// Root is the root of the tree over the leaves, in the shape of RFC 6962: the left side of a node is full and as large as it can be.
// It is the zero Digest for no leaves. It changes nothing and allocates nothing.
func Root(leaves []b3.Digest) b3.Digest {
	var open [64]b3.Digest // roots of full subtrees, the largest first: one for each bit of the number of leaves so far
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

// fold joins roots of subtrees, the largest first, into one.
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

// Path is what leads from leaf i to the root of the tree over the leaves: the digests beside the way, from below. i is one of them.
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

// parents is the level of the tree above level; one without a sibling goes up as it is.
func parents(level []b3.Digest) []b3.Digest {
	above := make([]b3.Digest, 0, (len(level)+1)/2)
	for ; len(level) > 1; level = level[2:] {
		above = append(above, Node(level[0], level[1]))
	}
	return append(above, level...)
}

// Climb is the root to which path leads from the leaf at index of size leaves; ok is false if the path has another length than it must, or
// there is no such leaf. It is the check of what Path and LogInclusion answer.
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
