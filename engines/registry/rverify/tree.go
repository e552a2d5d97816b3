package rverify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// VerifyTree checks every tile against the entries, and every checkpoint against the tiles and the log keys of the signer sets. What r reads
// must have been verified. A bad tree is the Problem; the error is ctx's alone.
func VerifyTree(ctx context.Context, r LogReader, t TreeReader) (*Problem, error) {
	size, err := t.TreeSize()
	if err != nil {
		return problemf(KindIncomplete, 0, "size of the tree: %v", err), nil
	}
	head, err := r.Head()
	if err != nil {
		return problemf(KindIncomplete, 0, "HEAD: %v", err), nil
	}
	if size > head.Version {
		return problemf(KindTree, 0, "the tree covers %d entries, the log has %d", size, head.Version), nil
	}
	keys, p := keysOf(r)
	if p != nil {
		return p, nil
	}
	witnesses := witnessesOf(r)
	h, err := r.Horizon()
	if err != nil {
		return problemf(KindIncomplete, 0, "where the log begins: %v", err), nil
	}
	w := walk{r: r, t: t, edge: map[uint8]logTile{}}
	if h != nil {
		w.min = h.Min
	}
	for at, raw := range t.Notes() {
		signed, err := keys.Open(raw)
		switch {
		case err != nil:
			return problemf(KindCheckpoint, 0, "checkpoint of %d versions: %v", at, err), nil
		case signed.At.IsZero():
			return problemf(KindCheckpoint, 0, "checkpoint of %d versions: the node's cosignature does not hold", at), nil
		case signed.Size != at:
			return problemf(KindCheckpoint, 0, "the checkpoint kept for %d versions is of %d", at, signed.Size), nil
		case signed.Size > size:
			return problemf(KindCheckpoint, 0, "checkpoint of %d versions: the tree covers %d", signed.Size, size), nil
		}
		if err := keys.Whole(raw, witnesses); err != nil {
			return problemf(KindCheckpoint, 0, "checkpoint of %d versions: %v", at, err), nil
		}
		if p, err := w.to(ctx, signed.Size); p != nil || err != nil {
			return p, err
		}
		if root, err := w.root(); err != nil || root != signed.Root.String() {
			return problemf(KindCheckpoint, signed.Size, "signed root %s, the entries give %s (%v)", signed.Root, root, err), nil
		}
	}
	if p, err := w.to(ctx, size); p != nil || err != nil {
		return p, err
	}
	for level, e := range w.edge {
		if at := (logtree.At{Level: level, N: e.n}); !bytes.Equal(t.Tile(at), e.raw) {
			return problemf(KindTree, size, "tile %s is not that of the entries", logtree.Path(at, max(1, len(e.raw)/32), false)), nil
		}
	}
	if h == nil {
		return nil, nil
	}
	return h.covered(r, t), nil
}

// covered holds the tree against the statement of retention: what is gone was under the root that it names.
func (h *Horizon) covered(r LogReader, t TreeReader) *Problem {
	said, p := h.statement(r)
	if p != nil {
		return p
	}
	if root, err := (logtree.Reader{Tiles: t.Tile}).Root(said.Size); err != nil || root != said.Root {
		return problemf(KindCheckpoint, said.Size, "the statement of retention names root %s, the tree has %s (%v)", said.Root, root, err)
	}
	return nil
}

// keysOf are the log keys of all signer sets.
func keysOf(r LogReader) (checkpoint.Keys, *Problem) {
	var vkeys []string
	for _, raw := range r.Epochs() {
		if len(raw) < 8 {
			return checkpoint.Keys{}, problemf(KindChain, 0, "an epoch is cut")
		}
		set, err := record.ParseSignerSet(raw[8:])
		if err != nil {
			return checkpoint.Keys{}, problemf(KindChain, 0, "an epoch: %v", err)
		}
		vkeys = append(vkeys, set.LogKeys...)
	}
	keys, err := checkpoint.NewKeys(vkeys)
	if err != nil {
		return keys, problemf(KindChain, 0, "%v", err)
	}
	return keys, nil
}

// witnessesOf are the witnesses that all signer sets name. A policy that cannot be read names none: no witness was asked under it.
func witnessesOf(r LogReader) (all []checkpoint.Witness) {
	for _, raw := range r.Epochs() {
		set, err := record.ParseSignerSet(raw[8:]) // its form was checked
		if err != nil {
			continue
		}
		if policy, err := checkpoint.ParsePolicy(set.WitnessPolicy); err == nil {
			for _, w := range policy {
				all = append(all, w.Witness)
			}
		}
	}
	return all
}

// logTile is the tile in the making of a level.
type logTile struct {
	n   uint64
	raw []byte
}

// walk makes the tree again, entry by entry, and compares each tile that is full.
type walk struct {
	r    LogReader
	t    TreeReader
	size uint64
	edge map[uint8]logTile

	min  uint64  // versions below it may be gone
	gone logTile // the tile that the hash of one was read from last
}

func (w *walk) to(ctx context.Context, size uint64) (p *Problem, err error) {
	for ; w.size < size; w.size++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		leaf, err := w.leaf(w.size)
		if err != nil {
			return problemf(KindIncomplete, w.size+1, "entry: %v", err), nil
		}
		var bad error
		err = logtree.Append(w.tile, w.size, leaf, func(at logtree.At, raw []byte) {
			if w.edge[at.Level] = (logTile{at.N, raw}); len(raw) == logtree.Width*32 {
				if !bytes.Equal(w.t.Tile(at), raw) {
					bad = errors.Join(bad, fmt.Errorf("tile %s is not that of the entries", logtree.Path(at, logtree.Width, false)))
				}
				delete(w.edge, at.Level)
			}
		})
		if err = errors.Join(err, bad); err != nil {
			return problemf(KindTree, w.size+1, "%v", err), nil
		}
	}
	return nil, nil
}

// leaf is the hash of the entry at a place of the log; of one that is gone it is the kept hash.
func (w *walk) leaf(at uint64) (leaf tlog.Hash, err error) {
	raw, err := w.r.Entry(at + 1)
	if err == nil {
		return logtree.Leaf(raw), nil
	}
	if at+1 >= w.min || !errors.Is(err, ErrMissing) {
		return leaf, err
	}
	if n := at / logtree.Width; w.gone.raw == nil || w.gone.n != n {
		w.gone = logTile{n, w.t.Tile(logtree.At{N: n})}
	}
	from := at % logtree.Width * tlog.HashSize
	if uint64(len(w.gone.raw)) < from+tlog.HashSize {
		return leaf, logtree.ErrTile
	}
	return tlog.Hash(w.gone.raw[from:][:tlog.HashSize]), nil
}

// tile is one in the making, or a stored one, which was compared when it was full.
func (w *walk) tile(at logtree.At) []byte {
	if e, ok := w.edge[at.Level]; ok && e.n == at.N {
		return e.raw
	}
	if (at.N+1)<<(logtree.Height*uint(at.Level+1)) > w.size+1 {
		return nil // not full by now: nothing of it was checked
	}
	return w.t.Tile(at)
}

func (w *walk) root() (string, error) {
	root, err := logtree.Reader{Tiles: w.tile}.Root(w.size)
	return root.String(), err
}

// CheckSeen holds a verified log against a checkpoint that was seen of it: the log must begin with the tree that it names.
func CheckSeen(r LogReader, t TreeReader, note []byte) *Problem {
	keys, p := keysOf(r)
	if p != nil {
		return p
	}
	seen, err := keys.Open(note)
	if err != nil {
		return problemf(KindCheckpoint, 0, "the checkpoint that was seen: %v", err)
	}
	size, err := t.TreeSize()
	if err != nil || seen.Size > size {
		return problemf(KindCheckpoint, 0, "the log is older than the checkpoint that was seen: %d versions, %d were there", size, seen.Size)
	}
	if root, err := (logtree.Reader{Tiles: t.Tile}).Root(seen.Size); err != nil || root != seen.Root {
		return problemf(KindCheckpoint, seen.Size, "the log is inconsistent with the checkpoint that was seen: root %s, seen %s (%v)", root, seen.Root, err)
	}
	return nil
}
