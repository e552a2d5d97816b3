package rverify

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"golang.org/x/mod/sumdb/tlog"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
)

// KindCheckpoint is the kind of a checkpoint that is not true of the log, or that nobody trusted has signed.
const KindCheckpoint Kind = "checkpoint"

// TreeReader reads the log tree that is kept beside a log, and the checkpoints over it.
type TreeReader interface {
	// TreeSize is how many entries the tiles cover; a log from before its tree has fewer than versions.
	TreeSize() (uint64, error)
	// Tile gives the stored bytes of a tile, nil for none.
	Tile(at logtree.At) []byte
	// Notes gives all checkpoints that are kept, by ascending size as they say it themselves.
	Notes() iter.Seq2[uint64, []byte]
}

// verifyTree checks every tile against the entries, and every checkpoint against the tiles and the log keys of the signer sets. v has
// verified what r reads.
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
		if err := checkNote(tree, size, keys, witnesses, at, raw); err != nil {
			return err
		}
	}
	if gone := v.said; gone.Size > 0 { // under the root that the statement names
		if root, err := tree.Root(gone.Size); err != nil || root != gone.Root {
			return problemf(KindCheckpoint, gone.Size, "the statement of retention names root %s, the tree has %s (%v)", gone.Root, root, err)
		}
	}
	if v.o.Seen == nil {
		return nil
	}
	return checkSeen(tree, size, keys, v.o.Seen)
}

// checkNote holds a checkpoint that is kept for a size against the tree.
func checkNote(tree logtree.Reader, size uint64, keys checkpoint.Keys, witnesses []checkpoint.Witness, at uint64, raw []byte) error {
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
		return problemf(KindCheckpoint, signed.Size, "signed root %s, the entries give %s (%v)", signed.Root, root, err)
	}
	return nil
}

// checkSeen holds the log against a checkpoint that was seen of it: the log must begin with the tree that it names.
func checkSeen(tree logtree.Reader, size uint64, keys checkpoint.Keys, note []byte) error {
	seen, err := keys.Open(note)
	if err != nil {
		return problemf(KindCheckpoint, 0, "the checkpoint that was seen: %v", err)
	}
	if seen.Size > size {
		return problemf(KindCheckpoint, 0, "the log is older than the checkpoint that was seen: %d versions, %d were there", size, seen.Size)
	}
	if root, err := tree.Root(seen.Size); err != nil || root != seen.Root {
		return problemf(KindCheckpoint, seen.Size, "the log is inconsistent with the checkpoint that was seen: root %s, seen %s (%v)", root, seen.Root, err)
	}
	return nil
}

// trustedKeys are the log keys and the witnesses that all signer sets name. A policy that cannot be read names no witness: none was asked
// under it.
func trustedKeys(r LogReader) (keys checkpoint.Keys, witnesses []checkpoint.Witness, err error) {
	var vkeys []string
	for epoch, raw := range r.Epochs() {
		if len(raw) < 8 {
			return keys, nil, problemf(KindChain, 0, "epoch %d is cut", epoch)
		}
		set, err := record.ParseSignerSet(raw[8:])
		if err != nil {
			return keys, nil, problemf(KindChain, 0, "epoch %d: %v", epoch, err)
		}
		vkeys = append(vkeys, set.LogKeys...)
		policy, err := checkpoint.ParsePolicy(set.WitnessPolicy)
		if err != nil {
			continue
		}
		for _, w := range policy {
			witnesses = append(witnesses, w.Witness)
		}
	}
	if keys, err = checkpoint.NewKeys(vkeys); err != nil {
		err = problemf(KindChain, 0, "%v", err)
	}
	return keys, witnesses, err
}

// checkTiles makes every tile of a tree of size entries, of which those before version first may be gone, again: those of leaves from the entries, and those of each level above from the
// tiles below it, which hold by then.
func checkTiles(ctx context.Context, r LogReader, t TreeReader, size, first uint64) error {
	tree := logtree.Reader{Tiles: t.Tile}
	err := checkLevel(ctx, t, 0, size, func(n uint64, stored []byte) (tlog.Hash, error) { return leaf(r, n+1, stored, first) })
	for level, n := 1, size/logtree.Width; err == nil && n > 0; level, n = level+1, n/logtree.Width {
		err = checkLevel(ctx, t, level, n, func(n uint64, _ []byte) (tlog.Hash, error) { return top(tree, level, n) })
	}
	return err
}

// checkLevel holds the tiles of a level of n hashes against what hash gives for each place, beside the tile as it is stored.
func checkLevel(ctx context.Context, t TreeReader, level int, n uint64, hash func(uint64, []byte) (tlog.Hash, error)) error {
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

// leaf is the hash of the entry of a version; of one before first that is gone it is the hash that its tile keeps.
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

// top is the hash over a full tile of the level below, which has place n in its own level.
func top(tree logtree.Reader, level int, n uint64) (hash tlog.Hash, err error) {
	below := level*logtree.Height - 1
	halves, err := tree.ReadHashes([]int64{tlog.StoredHashIndex(below, int64(2*n)), tlog.StoredHashIndex(below, int64(2*n+1))})
	if err != nil {
		return hash, problemf(KindTree, 0, "%v", err)
	}
	return tlog.NodeHash(halves[0], halves[1]), nil
}
