package record

import (
	"crypto/sha256"
	"encoding/hex"
)

// hash is a node of an RFC 6962 tree.
type hash [sha256.Size]byte

// leafHash is RFC 6962's hash of a leaf: a zero byte, then the data.
func leafHash(data []byte) hash {
	buf := make([]byte, 0, 512)
	return sha256.Sum256(append(append(buf, 0), data...))
}

func nodeHash(left, right *hash) hash {
	var buf [1 + 2*sha256.Size]byte
	buf[0] = 1
	copy(buf[1:], left[:])
	copy(buf[1+sha256.Size:], right[:])
	return sha256.Sum256(buf[:])
}

// tree holds every complete subtree of an RFC 6962 tree: levels[k][i] covers the leaves i·2^k … (i+1)·2^k-1. It never changes.
type tree struct{ levels [][]hash }

// newTree builds the tree over leaves. Where two neighbours are those of old at the same place, their parent is copied from it: a change in
// place costs one path, an insertion what stands right of it.
func newTree(leaves []hash, old tree) tree {
	t := tree{levels: [][]hash{leaves}}
	for k := 0; len(t.levels[k]) > 1; k++ {
		below, parents := t.levels[k], make([]hash, len(t.levels[k])/2)
		known, knownParents := old.level(k), old.level(k+1)
		for i := range parents {
			if i < len(knownParents) && below[2*i] == known[2*i] && below[2*i+1] == known[2*i+1] {
				parents[i] = knownParents[i]
			} else {
				parents[i] = nodeHash(&below[2*i], &below[2*i+1])
			}
		}
		t.levels = append(t.levels, parents)
	}
	return t
}

func (t tree) level(k int) []hash {
	if k < len(t.levels) {
		return t.levels[k]
	}
	return nil
}

// root folds the complete subtrees that make up the tree, from the right; of no leaves it is the hash of nothing.
func (t tree) root() hash {
	var acc hash
	have := false
	for _, level := range t.levels {
		switch n := len(level); {
		case n%2 == 0:
		case !have:
			acc, have = level[n-1], true
		default:
			acc = nodeHash(&level[n-1], &acc)
		}
	}
	if !have {
		return sha256.Sum256(nil)
	}
	return acc
}

// rootPrefix opens the text of a root.
const rootPrefix = "sha256:"

func (h hash) String() string { return rootPrefix + hex.EncodeToString(h[:]) }

// validRoot says whether s is the text of some root.
func validRoot(s string) bool {
	if len(s) != len(rootPrefix)+2*sha256.Size || s[:len(rootPrefix)] != rootPrefix {
		return false
	}
	for _, c := range []byte(s[len(rootPrefix):]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
