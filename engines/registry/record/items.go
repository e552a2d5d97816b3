package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// MaxItems is the most descriptors of one set.
const MaxItems = 1 << 16

// Items is a set of descriptors, sorted by id, with the Merkle tree over them. It never changes;
// the zero Items is the empty set.
type Items struct {
	sorted []*Item
	tree   tree
}

// NewItems returns the set of items, given in any order. It returns a *FieldError if an id occurs
// twice and ErrHardLimit above MaxItems.
func NewItems(items []Item) (Items, error) { return Items{}.Apply(items, nil) }

// Apply returns the set with put added or replaced and remove removed. s does not change. The order
// of put and remove does not matter. It returns a *FieldError if an id is named twice or removed
// without being present, and ErrHardLimit above MaxItems. The cost is that of the new descriptors
// and of the tree to the right of the first insertion or removal, plus a copy of 40 bytes per
// descriptor.
func (s Items) Apply(put []Item, remove []string) (Items, error) {
	changes, err := s.changes(put, remove)
	if err != nil {
		return Items{}, err
	}
	next := Items{sorted: make([]*Item, 0, max(0, len(s.sorted)+len(put)-len(remove)))}
	leaves, known := make([]tlog.Hash, 0, cap(next.sorted)), s.tree.level(0)
	at := 0
	for _, c := range changes {
		next.sorted = append(next.sorted, s.sorted[at:c.at]...)
		leaves = append(leaves, known[at:c.at]...)
		at = c.at
		if c.replaces {
			at++
		}
		if c.item != nil {
			next.sorted = append(next.sorted, c.item)
			leaves = append(leaves, tlog.RecordHash(c.item.Bytes))
		}
	}
	next.sorted = append(next.sorted, s.sorted[at:]...)
	leaves = append(leaves, known[at:]...)
	if len(next.sorted) > MaxItems {
		return Items{}, fmt.Errorf("%w: %d descriptors, at most %d", ErrHardLimit, len(next.sorted), MaxItems)
	}
	next.tree = newTree(leaves, s.tree)
	return next, nil
}

// change is one step of a delta: item replaces the one at a place or is inserted before it; nil
// removes.
type change struct {
	id       string
	item     *Item
	at       int
	replaces bool // the set has the id, at place at
}

// changes returns the delta sorted by id, each id once. It copies items, so that one item does not
// keep a whole payload in memory.
func (s Items) changes(put []Item, remove []string) ([]change, error) {
	all := make([]change, 0, len(put)+len(remove))
	for _, it := range put {
		all = append(all, change{id: it.ID, item: &Item{ID: it.ID, Bytes: bytes.Clone(it.Bytes)}})
	}
	for _, id := range remove {
		all = append(all, change{id: id})
	}
	slices.SortFunc(all, func(a, b change) int { return strings.Compare(a.id, b.id) })
	from := 0
	for i := range all {
		c := &all[i]
		if i > 0 && all[i-1].id == c.id {
			return nil, fieldf("put", "descriptor %q is named twice", c.id)
		}
		at, has := s.search(from, c.id)
		c.at, c.replaces, from = at, has, at
		if c.item == nil && !has {
			return nil, fieldf("remove", "descriptor %q is not in the set", c.id)
		}
	}
	return all, nil
}

func (s Items) search(from int, id string) (at int, has bool) {
	at, has = slices.BinarySearchFunc(s.sorted[from:], id,
		func(it *Item, id string) int { return strings.Compare(it.ID, id) })
	return from + at, has
}

// Root returns "sha256:" and the hex root of the RFC 6962 tree over the canonical descriptors in
// order of their ids.
func (s Items) Root() string { return rootText(s.tree.root()) }

// Len returns the number of descriptors.
func (s Items) Len() int { return len(s.sorted) }

// Get returns the descriptor of an id.
func (s Items) Get(id string) (Item, bool) {
	at, has := s.search(0, id)
	if !has {
		return Item{}, false
	}
	return *s.sorted[at], true
}

// All yields the set in order of ids.
func (s Items) All() iter.Seq[Item] {
	return func(yield func(Item) bool) {
		for _, it := range s.sorted {
			if !yield(*it) {
				return
			}
		}
	}
}

// Diff returns the smallest delta from one set to another, sorted by id: to equals from.Apply(put,
// remove).
func Diff(from, to Items) (put []Item, remove []string) {
	a, b := from.sorted, to.sorted
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].ID < b[0].ID:
			remove, a = append(remove, a[0].ID), a[1:]
		case len(a) == 0 || b[0].ID < a[0].ID:
			put, b = append(put, *b[0]), b[1:]
		default:
			if a[0] != b[0] && !bytes.Equal(a[0].Bytes, b[0].Bytes) {
				put = append(put, *b[0])
			}
			a, b = a[1:], b[1:]
		}
	}
	return put, remove
}

// become returns the set of exactly items. It shares those that s holds already.
func (s Items) become(items []Item) (Items, error) {
	to, err := NewItems(items)
	if err != nil || len(s.sorted) == 0 {
		return to, err
	}
	put, remove := Diff(s, to)
	return s.Apply(put, remove)
}

// ErrSnapshot is returned for a truncated snapshot.
var ErrSnapshot = errors.New("a snapshot of items is cut")

// AppendSnapshot appends an item in the form of a snapshot: its length in four bytes, then its
// canonical bytes.
func (it Item) AppendSnapshot(dst []byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(it.Bytes))), it.Bytes...)
}

// Snapshot returns the items of the set in order of ids, each as AppendSnapshot writes it.
func (s Items) Snapshot() []byte {
	var out []byte
	for it := range s.All() {
		out = it.AppendSnapshot(out)
	}
	return out
}

// ParseSnapshot parses a snapshot, or a part of one that ends with a whole item.
func ParseSnapshot(raw []byte) (all []Item, err error) {
	for len(raw) > 0 {
		if len(raw) < 4 || len(raw)-4 < int(binary.BigEndian.Uint32(raw)) {
			return nil, ErrSnapshot
		}
		n := 4 + int(binary.BigEndian.Uint32(raw))
		it, err := ParseItem(raw[4:n])
		if err != nil {
			return nil, err
		}
		all, raw = append(all, it), raw[n:]
	}
	return all, nil
}

// tree holds every complete subtree of an RFC 6962 tree: levels[k][i] covers the leaves i·2^k …
// (i+1)·2^k-1. It never changes.
type tree struct{ levels [][]tlog.Hash }

// newTree builds the tree over leaves. It copies a parent from old if both children are equal at
// the same place: a replaced leaf costs one path, an insertion the part to its right.
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

// root returns the root of the tree, the hash of the empty string if there are no leaves.
func (t tree) root() tlog.Hash {
	root, err := tlog.TreeHash(int64(len(t.level(0))), t)
	if err != nil {
		panic("record: " + err.Error())
	}
	return root
}

// path returns the audit path of leaf i, from the leaf upwards.
func (t tree) path(i int) []tlog.Hash {
	p, err := tlog.ProveRecord(int64(len(t.level(0))), int64(i), t)
	if err != nil {
		panic("record: " + err.Error())
	}
	return p
}

// rootPrefix is the prefix of the text of a root.
const rootPrefix = "sha256:"

func rootText(root tlog.Hash) string { return rootPrefix + hex.EncodeToString(root[:]) }

// parseRoot parses the text of a root in its one spelling.
func parseRoot(s string) (root tlog.Hash, ok bool) {
	raw, err := hex.DecodeString(strings.TrimPrefix(s, rootPrefix))
	if err != nil || len(raw) != tlog.HashSize {
		return root, false
	}
	root = tlog.Hash(raw)
	return root, rootText(root) == s
}
