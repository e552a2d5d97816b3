package record

import (
	"encoding/hex"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// tree holds every complete subtree of an RFC 6962 tree: levels[k][i] covers the leaves i·2^k … (i+1)·2^k-1. It never changes.
type tree struct{ levels [][]tlog.Hash }

// newTree builds the tree over leaves. Where two neighbours are those of old at the same place, their parent is copied from it: a change in
// place costs one path, an insertion what stands right of it.
func newTree(leaves []tlog.Hash, old tree) tree {
	t := tree{levels: [][]tlog.Hash{leaves}}
	for k := 0; len(t.levels[k]) > 1; k++ {
		below, parents := t.levels[k], make([]tlog.Hash, len(t.levels[k])/2)
		known, knownParents := old.level(k), old.level(k+1)
		for i := range parents {
			if i < len(knownParents) && below[2*i] == known[2*i] && below[2*i+1] == known[2*i+1] {
				parents[i] = knownParents[i]
			} else {
				parents[i] = tlog.NodeHash(below[2*i], below[2*i+1])
			}
		}
		t.levels = append(t.levels, parents)
	}
	return t
}

func (t tree) level(k int) []tlog.Hash {
	if k < len(t.levels) {
		return t.levels[k]
	}
	return nil
}

// ReadHashes makes the tree a tlog.HashReader. It never fails.
func (t tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		level, n := tlog.SplitStoredHashIndex(x)
		out[i] = t.levels[level][n]
	}
	return out, nil
}

// root is the root of the tree; of no leaves it is the hash of nothing.
func (t tree) root() tlog.Hash {
	root, err := tlog.TreeHash(int64(len(t.level(0))), t)
	if err != nil {
		panic("record: " + err.Error())
	}
	return root
}

// path is the audit path of leaf i, from the leaf upwards.
func (t tree) path(i int) []tlog.Hash {
	p, err := tlog.ProveRecord(int64(len(t.level(0))), int64(i), t)
	if err != nil {
		panic("record: " + err.Error())
	}
	return p
}

// rootPrefix opens the text of a root.
const rootPrefix = "sha256:"

func rootText(root tlog.Hash) string { return rootPrefix + hex.EncodeToString(root[:]) }

// parseRoot reads the text of a root in its one spelling.
func parseRoot(s string) (root tlog.Hash, ok bool) {
	raw, err := hex.DecodeString(strings.TrimPrefix(s, rootPrefix))
	if err != nil || len(raw) != tlog.HashSize {
		return root, false
	}
	root = tlog.Hash(raw)
	return root, rootText(root) == s
}
