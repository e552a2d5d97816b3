package merkle

import (
	"fmt"
	"math/bits"

	"ronbox/appliance/b3"
)

// A log is a tree that grows at its right end. Its leaves hold digests: those of a ledger's
// batches. The digests of its full subtrees are stored in the order in which the subtrees became
// full, so the store only appends: after leaf n follow the subtrees that it completed, the smallest
// first. Other digests are computed on demand.

// LogNode is one stored digest of the log.
type LogNode struct {
	Pos  uint64
	Hash b3.Digest
}

// ReadNode returns the digest at a position.
type ReadNode func(pos uint64) (b3.Digest, error)

// LogCount returns the number of stored digests of a log with size leaves. Their positions are 0 to
// LogCount-1.
func LogCount(size uint64) uint64 { return 2*size - uint64(bits.OnesCount64(size)) }

// logPos returns the position of full subtree n of those with 2^level leaves.
func logPos(level int, n uint64) uint64 {
	last := (n+1)<<level - 1 // the leaf that completes it
	return LogCount(last) + uint64(level)
}

// LogPeaks returns the positions of the largest full subtrees that make up a log of size leaves,
// the largest first.
func LogPeaks(size uint64) []uint64 {
	at := make([]uint64, 0, bits.OnesCount64(size))
	for begin := uint64(0); begin < size; {
		level := bits.Len64(size-begin) - 1
		at = append(at, logPos(level, begin>>level))
		begin += 1 << level
	}
	return at
}

// LogNodes returns the digests to store when root is added as leaf number size, in ascending order
// of position.
func LogNodes(size uint64, root b3.Digest, read ReadNode) ([]LogNode, error) {
	pos, d := LogCount(size), Leaf(root[:])
	nodes := append(make([]LogNode, 0, 4), LogNode{pos, d})
	for level := range bits.TrailingZeros64(size + 1) {
		left, err := readNode(level, size>>level-1, read)
		if err != nil {
			return nil, err
		}
		d = Node(left, d)
		nodes = append(nodes, LogNode{pos + uint64(level) + 1, d})
	}
	return nodes, nil
}

func readNode(level int, n uint64, read ReadNode) (b3.Digest, error) {
	pos := logPos(level, n)
	d, err := read(pos)
	if err != nil {
		return b3.Digest{}, fmt.Errorf("log node %d: %w", pos, err)
	}
	return d, nil
}

// FoldPeaks returns the root of a log from the digests of its peaks.
func FoldPeaks(peaks []b3.Digest) b3.Digest { return fold(peaks) }

// PeakLevel returns the height of the peak over leaf index in the log of the first size leaves: so
// many digests of the path of the leaf lead to the peak.
func PeakLevel(size, index uint64) int {
	begin, level := uint64(0), 0
	for begin <= index {
		level = bits.Len64(size-begin) - 1
		begin += 1 << level
	}
	return level
}

// LogRoot returns the root of the log of the first size leaves. It is the zero Digest for none.
func LogRoot(size uint64, read ReadNode) (b3.Digest, error) {
	return subtree(0, size, read)
}

// LogInclusion returns the path from leaf index to the root of the log of the first size leaves.
// Climb checks it.
func LogInclusion(size, index uint64, read ReadNode) ([]b3.Digest, error) {
	if index >= size {
		return nil, fmt.Errorf("merkle: a log of %d has no leaf %d", size, index)
	}
	return besides(index, index+1, size, read)
}

// LogInclusionFrom returns what LogInclusion returns behind the first known digests, without
// reading nodes below them.
func LogInclusionFrom(size, index uint64, known int, read ReadNode) ([]b3.Digest, error) {
	begin := index >> known << known
	if index >= size || begin+1<<known > size {
		return nil, fmt.Errorf("merkle: a log of %d has no full subtree of height %d over leaf %d", size, known, index)
	}
	return besides(begin, begin+1<<known, size, read)
}

// LogConsistency returns a proof that the log of the first old leaves is a prefix of that of the
// first size leaves. CheckLogConsistency checks it. The proof is empty if old is 0 or size.
func LogConsistency(old, size uint64, read ReadNode) ([]b3.Digest, error) {
	if old > size {
		return nil, fmt.Errorf("merkle: a log of %d does not begin with one of %d", size, old)
	}
	if old == 0 || old == size {
		return nil, nil
	}
	// The old log ends with a full subtree that the new one contains. The path starts there. The
	// digest of that subtree is the first of the proof, unless it is the whole old log.
	begin := old & (old - 1)
	path, err := besides(begin, old, size, read)
	if err != nil || begin == 0 {
		return path, err
	}
	seed, err := subtree(begin, old, read)
	return append([]b3.Digest{seed}, path...), err
}

// besides returns the siblings on the path from the full subtree of leaves begin to end up to the
// root of size leaves, lowest first.
func besides(begin, end, size uint64, read ReadNode) ([]b3.Digest, error) {
	var path []b3.Digest
	level := bits.TrailingZeros64(end - begin)
	for index, last := begin>>level, (size-1)>>level; last > 0; level, index, last = level+1, index/2, last/2 {
		beside := index ^ 1
		if beside > last {
			continue
		}
		d, err := subtree(beside<<level, min(size, (beside+1)<<level), read)
		if err != nil {
			return nil, err
		}
		path = append(path, d)
	}
	return path, nil
}

// subtree returns the digest of leaves begin to end. begin is a multiple of a power of 2 that is
// not less than their number.
func subtree(begin, end uint64, read ReadNode) (b3.Digest, error) {
	var open [64]b3.Digest
	n := 0
	for ; begin < end; n++ {
		level := bits.Len64(end-begin) - 1
		d, err := readNode(level, begin>>level, read)
		if err != nil {
			return b3.Digest{}, err
		}
		open[n] = d
		begin += 1 << level
	}
	return fold(open[:n]), nil
}

// CheckLogConsistency reports whether path proves that the log of old leaves with root oldRoot is a
// prefix of the log of size leaves with root root.
func CheckLogConsistency(old, size uint64, oldRoot, root b3.Digest, path []b3.Digest) bool {
	switch {
	case old > size:
		return false
	case old == size:
		return len(path) == 0 && oldRoot == root && (size != 0 || root.IsZero())
	case old == 0:
		return len(path) == 0 && oldRoot.IsZero()
	}
	begin := old & (old - 1)
	seed := oldRoot
	if begin != 0 {
		if len(path) == 0 {
			return false
		}
		seed, path = path[0], path[1:]
	}
	level := bits.TrailingZeros64(old)
	was, is := seed, seed
	for index, last := begin>>level, (size-1)>>level; last > 0; index, last = index/2, last/2 {
		if index == last && index%2 == 0 {
			continue
		}
		if len(path) == 0 {
			return false
		}
		if index%2 == 1 {
			was, is = Node(path[0], was), Node(path[0], is)
		} else {
			is = Node(is, path[0])
		}
		path = path[1:]
	}
	return len(path) == 0 && was == oldRoot && is == root
}
