package rverify

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
)

// KindCheckpoint is the kind of a checkpoint that does not match the log, or that no trusted key
// has signed.
const KindCheckpoint Kind = "checkpoint"

// TreeReader reads the tree of a log, and the checkpoints over it.
type TreeReader interface {
	// TreeSize returns the number of entries that the tiles cover.
	TreeSize() (uint64, error)
	// Tile returns the stored bytes of a tile, nil if it does not exist.
	Tile(at logtree.At) []byte
	// Notes yields all stored checkpoints, by the ascending size that their key or their text
	// names.
	Notes() iter.Seq2[uint64, []byte]
}

// verifyTree checks every tile against the entries, and every checkpoint against the tiles and the
// log keys of the signer sets. v has verified the log of r.
func (v *Verifier) verifyTree(ctx context.Context, r LogReader, t TreeReader) error {
	size, err := t.TreeSize()
	if err != nil {
		return problemf(KindIncomplete, 0, "size of the tree: %v", err)
	}
	if size > v.at.Head.Version {
		return problemf(KindTree, 0, "the tree covers %d entries, the log has %d", size, v.at.Head.Version)
	}
	keys, witnesses, err := trustedKeys(r)
	if err != nil {
		return err
	}
	if err := checkTiles(ctx, r, t, size, v.report.First); err != nil {
		return err
	}
	tree := logtree.Reader{Tiles: t.Tile}
	for at, raw := range t.Notes() {
		if v.report.First > 0 && v.said.Size == 0 {
			return problemf(KindIncomplete, v.report.First, "versions before it are gone, and no statement says so")
		}
		if err := checkNote(tree, size, keys, witnesses, at, raw); err != nil {
			return err
		}
	}
	if v.said.Size > 0 {
		if err := checkStated(tree, v.said); err != nil {
			return err
		}
	}
	if v.o.Seen == nil {
		return nil
	}
	return checkSeen(tree, size, keys, v.o.Seen)
}

// checkStated checks that the pruned versions are under the root that a statement names.
func checkStated(tree logtree.Reader, said checkpoint.Retention) error {
	root, err := tree.Root(said.Size)
	if err != nil || root != said.Root {
		return problemf(KindCheckpoint, said.Size, "the statement of retention names root %s, the tree has %s (%v)",
			said.Root, root, err)
	}
	return nil
}

// checkNote compares a stored checkpoint with the tree.
func checkNote(tree logtree.Reader, size uint64, keys checkpoint.Keys, witnesses []checkpoint.Witness, at uint64,
	raw []byte) error {
	signed, err := keys.Open(raw)
	switch {
	case err != nil:
		return problemf(KindCheckpoint, 0, "checkpoint of %d versions: %v", at, err)
	case signed.At.IsZero():
		return problemf(KindCheckpoint, 0, "checkpoint of %d versions: the node's cosignature does not hold", at)
	case signed.Size != at:
		return problemf(KindCheckpoint, 0, "the checkpoint kept for %d versions is of %d", at, signed.Size)
	case signed.Size > size:
		return problemf(KindCheckpoint, 0, "checkpoint of %d versions: the tree covers %d", signed.Size, size)
	}
	if err := keys.Whole(raw, witnesses); err != nil {
		return problemf(KindCheckpoint, 0, "checkpoint of %d versions: %v", at, err)
	}
	if root, err := tree.Root(signed.Size); err != nil || root != signed.Root {
		return problemf(KindCheckpoint, signed.Size, "the signed root is %s, but that of the entries is %s "+
			"(%v)", signed.Root, root, err)
	}
	return nil
}

// CheckPublic compares a verified tree with a checkpoint over all of it and, unless it is nil, with
// an earlier checkpoint, which a log key of one of the sets must have signed.
func CheckPublic(tree logtree.Reader, s checkpoint.Signed, sets []*record.SignerSet, seen []byte) error {
	if root, err := tree.Root(s.Size); err != nil || root != s.Root {
		return problemf(KindCheckpoint, s.Size, "the signed root is %s, but that of the entries is %s (%v)",
			s.Root, root, err)
	}
	if seen == nil {
		return nil
	}
	keys, _, err := KeysOf(sets)
	if err != nil {
		return problemf(KindChain, 0, "%v", err)
	}
	return checkSeen(tree, s.Size, keys, seen)
}

// checkSeen checks that the log begins with the tree of an earlier checkpoint.
func checkSeen(tree logtree.Reader, size uint64, keys checkpoint.Keys, note []byte) error {
	seen, err := keys.Open(note)
	if err != nil {
		return problemf(KindCheckpoint, 0, "the checkpoint that was seen: %v", err)
	}
	if seen.Size > size {
		return problemf(KindCheckpoint, 0,
			"the log is older than the checkpoint that was seen: %d versions, %d were there", size, seen.Size)
	}
	if root, err := tree.Root(seen.Size); err != nil || root != seen.Root {
		return problemf(KindCheckpoint, seen.Size,
			"the log is inconsistent with the checkpoint that was seen: root %s, seen %s (%v)", root, seen.Root, err)
	}
	return nil
}

// trustedKeys returns the log keys and the witnesses of all signer sets of a log.
func trustedKeys(r LogReader) (keys checkpoint.Keys, witnesses []checkpoint.Witness, err error) {
	return keysFrom(r, 1)
}

// keysFrom returns the log keys and the witnesses of the signer sets in force at a version or after
// it.
func keysFrom(r LogReader, from uint64) (keys checkpoint.Keys, witnesses []checkpoint.Witness, err error) {
	var sets []*record.SignerSet
	for epoch, raw := range r.Epochs() {
		if len(raw) < 8 {
			return keys, nil, problemf(KindChain, 0, "epoch %d is cut", epoch)
		}
		set, err := record.ParseSignerSet(raw[8:])
		if err != nil {
			return keys, nil, problemf(KindChain, 0, "epoch %d: %v", epoch, err)
		}
		if binary.BigEndian.Uint64(raw) <= from {
			sets = sets[:0] // it replaces those before
		}
		sets = append(sets, set)
	}
	if keys, witnesses, err = KeysOf(sets); err != nil {
		err = problemf(KindChain, 0, "%v", err)
	}
	return keys, witnesses, err
}

// KeysOf returns the log keys and the witnesses of signer sets. A policy that cannot be parsed
// names no witness.
func KeysOf(sets []*record.SignerSet) (keys checkpoint.Keys, witnesses []checkpoint.Witness, err error) {
	var vkeys []string
	for _, set := range sets {
		vkeys = append(vkeys, set.LogKeys...)
		policy, err := checkpoint.ParsePolicy(set.WitnessPolicy)
		if err != nil {
			continue
		}
		for _, w := range policy {
			witnesses = append(witnesses, w.Witness)
		}
	}
	keys, err = checkpoint.NewKeys(vkeys)
	return keys, witnesses, err
}

// checkTiles recomputes every tile of a tree of size entries, of which those before version first
// may be pruned: the leaves from the entries, and each level above from the tiles below it.
func checkTiles(ctx context.Context, r LogReader, t TreeReader, size, first uint64) error {
	tree := logtree.Reader{Tiles: t.Tile}
	err := checkLevel(ctx, t, 0, size,
		func(n uint64, stored []byte) (tlog.Hash, error) { return leaf(r, n+1, stored, first) })
	for level, n := 1, size/logtree.Width; err == nil && n > 0; level, n = level+1, n/logtree.Width {
		err = checkLevel(ctx, t, level, n, func(n uint64, _ []byte) (tlog.Hash, error) { return top(tree, level, n) })
	}
	return err
}

// checkLevel compares the tiles of a level of n hashes with the results of hash, which gets each
// place and the stored tile.
func checkLevel(ctx context.Context, t TreeReader, level int, n uint64,
	hash func(uint64, []byte) (tlog.Hash, error)) error {
	for first := uint64(0); first < n; first += logtree.Width {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at := logtree.At{Level: uint8(level), N: first / logtree.Width}
		stored, width := t.Tile(at), min(logtree.Width, n-first)
		want := make([]byte, 0, width*tlog.HashSize)
		for i := range width {
			one, err := hash(first+i, stored)
			if err != nil {
				return err
			}
			want = append(want, one[:]...)
		}
		if !bytes.Equal(stored, want) {
			return problemf(KindTree, 0, "tile %s is not that of the entries", logtree.Path(at, int(width), false))
		}
	}
	return nil
}

// leaf returns the hash of an entry. For a pruned entry it returns the hash in its tile.
func leaf(r LogReader, version uint64, tile []byte, first uint64) (hash tlog.Hash, err error) {
	raw, err := r.Entry(version)
	if err == nil {
		return logtree.Leaf(raw), nil
	}
	from := (version - 1) % logtree.Width * tlog.HashSize
	if gone := version < first && errors.Is(err, ErrMissing); gone && uint64(len(tile)) >= from+tlog.HashSize {
		return tlog.Hash(tile[from:][:tlog.HashSize]), nil
	}
	return hash, problemf(KindIncomplete, version, "entry: %v", err)
}

// top returns the hash of a full tile of the level below, at place n of its own level.
func top(tree logtree.Reader, level int, n uint64) (hash tlog.Hash, err error) {
	below := level*logtree.Height - 1
	halves, err := tree.ReadHashes(
		[]int64{tlog.StoredHashIndex(below, int64(2*n)), tlog.StoredHashIndex(below, int64(2*n+1))},
	)
	if err != nil {
		return hash, problemf(KindTree, 0, "%v", err)
	}
	return tlog.NodeHash(halves[0], halves[1]), nil
}

// Kinds of problems of the newest checkpoint, which the log itself does not decide.
const (
	KindWitness Kind = "witness_quorum" // no checkpoint over the log meets the witness policy
	KindTooOld  Kind = "too_old"        // the newest checkpoint is older than the reader accepts
)

// Checkpoints returns the checkpoints of a log that one of its log keys has signed, the newest
// first.
func Checkpoints(r LogReader, t TreeReader) ([]checkpoint.Signed, error) {
	keys, _, err := trustedKeys(r)
	if err != nil {
		return nil, err
	}
	var all []checkpoint.Signed
	for _, raw := range t.Notes() {
		if s, err := keys.Open(slices.Clone(raw)); err == nil {
			all = append(all, s)
		}
	}
	slices.Reverse(all) // the latest comes last
	return all, nil
}

// SignersInForce returns the signer set of the last epoch; nil for a log without a genesis.
func SignersInForce(r LogReader) (set *record.SignerSet, err error) {
	for epoch, raw := range r.Epochs() {
		if len(raw) < 8 {
			return nil, problemf(KindChain, 0, "epoch %d is cut", epoch)
		}
		if set, err = record.ParseSignerSet(raw[8:]); err != nil {
			return nil, problemf(KindChain, 0, "epoch %d: %v", epoch, err)
		}
	}
	return set, nil
}
