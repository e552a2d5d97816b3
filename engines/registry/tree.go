package registry

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// treeRow is the row "tree" of reg/meta. Size is the number of entries that the tiles cover, which
// is the version of HEAD. Bytes counts the stored bytes of entries and payloads.
type treeRow struct {
	Size  uint64 `cbor:"1,keyasint"`
	Bytes int64  `cbor:"2,keyasint"`
}

func tileKeys() store.Key[logtree.At] {
	return sized(9,
		func(dst []byte, at logtree.At) []byte {
			return binary.BigEndian.AppendUint64(append(dst, at.Level), at.N)
		},
		func(b []byte) logtree.At { return logtree.At{Level: b[0], N: binary.BigEndian.Uint64(b[1:])} })
}

// tilesOf returns the tiles in the transaction of r.
func tilesOf(r store.Reader) logtree.Tiles {
	return func(at logtree.At) []byte {
		raw, _ := tiles.Get(r, at)
		return raw
	}
}

// forest extends the log tree within one command, which does not see its own writes.
type forest struct {
	r    store.Reader
	w    *store.Writes
	row  treeRow
	made map[logtree.At][]byte // by this command
}

func newForest(r store.Reader, w *store.Writes) *forest {
	f := &forest{r: r, w: w, made: map[logtree.At][]byte{}}
	f.row, _ = metaTree.Get(r, keyTree)
	return f
}

func (f *forest) tile(at logtree.At) []byte {
	if raw := f.made[at]; raw != nil {
		return raw
	}
	return tilesOf(f.r)(at)
}

func (f *forest) put(at logtree.At, raw []byte) {
	f.made[at] = raw
	tiles.Put(f.w, at, raw)
}

// grow adds the entry of the next version.
func (f *forest) grow(entry, packed []byte) error {
	err := logtree.Append(f.tile, f.row.Size, logtree.Leaf(entry), f.put)
	f.row.Size++
	f.row.Bytes += int64(len(entry) + len(packed))
	metaTree.Put(f.w, keyTree, f.row)
	return err
}

// root returns the root of the tree at a size that HEAD has reached.
func (e *Engine) root(ctx context.Context, size uint64) (root tlog.Hash, err error) {
	err = e.withTree(ctx, func(t logtree.Reader) error {
		root, err = t.Root(size)
		return err
	})
	return root, err
}

// withTree calls fn with the tree in one read transaction.
func (e *Engine) withTree(ctx context.Context, fn func(logtree.Reader) error) error {
	return e.view(ctx, func(r store.Reader) error { return fn(logtree.Reader{Tiles: tilesOf(r)}) })
}

// LatestCheckpoint returns the latest checkpoint, or ErrNotFound before the first.
func (e *Engine) LatestCheckpoint() (*checkpoint.Signed, error) {
	if s := e.latest.Load(); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("checkpoint: %w: none is signed yet", ErrNotFound)
}

// maxCheckpointPage bounds a page of archived checkpoints.
const maxCheckpointPage = 100

// ArchivedCheckpoints returns up to limit archived checkpoints below size before, the newest
// first. If before is 0, it begins with the newest.
func (e *Engine) ArchivedCheckpoints(ctx context.Context, before uint64, limit int) (notes [][]byte, err error) {
	if limit < 1 || limit > maxCheckpointPage {
		limit = maxCheckpointPage
	}
	size := e.checkpointSize() // the file may hold later ones that are not synced yet
	if before == 0 || before > size {
		before = size + 1
	}
	err = e.view(ctx, func(r store.Reader) error {
		notes = notes[:0]
		for _, raw := range checkpoints.Back(r, 0, before) {
			if len(notes) == limit {
				break
			}
			notes = append(notes, raw)
		}
		return nil
	})
	return notes, err
}

// provable returns an error if no checkpoint covers a size.
func (e *Engine) provable(size uint64) error {
	switch covered := e.checkpointSize(); {
	case covered == 0:
		return fmt.Errorf("proof: %w: no checkpoint is signed yet", ErrNotFound)
	case size == 0 || size > covered:
		return fmt.Errorf("%w: size %d; the latest checkpoint covers %d versions", ErrRange, size, covered)
	}
	return nil
}

// Inclusion proves that version v is in the log of size versions. Size 0 stands for that of the
// latest checkpoint.
func (e *Engine) Inclusion(ctx context.Context, v, size uint64) (InclusionProof, error) {
	last := e.latest.Load()
	if size == 0 && last != nil {
		size = last.Size
	}
	if err := e.provable(size); err != nil {
		return InclusionProof{}, err
	}
	if v == 0 || v > size {
		return InclusionProof{}, fmt.Errorf("version %d: %w in a log of %d versions", v, ErrNotFound, size)
	}
	out := InclusionProof{Index: v - 1, Size: size}
	err := e.view(ctx, func(r store.Reader) (err error) {
		note := last.Note
		if last.Size != size {
			note, _ = checkpoints.Get(r, size)
		}
		out.Checkpoint = string(note)
		out.Hashes, err = logtree.Reader{Tiles: tilesOf(r)}.Inclusion(size, v-1)
		return err
	})
	return out, err
}

// Consistency proves that the log of from versions is a prefix of the log of to versions. To 0
// stands for the size of the latest checkpoint.
func (e *Engine) Consistency(ctx context.Context, from, to uint64) (ConsistencyProof, error) {
	if to == 0 {
		to = e.checkpointSize()
	}
	if err := e.provable(to); err != nil {
		return ConsistencyProof{}, err
	}
	if from == 0 || from > to {
		return ConsistencyProof{}, fmt.Errorf("%w: from %d to %d", ErrRange, from, to)
	}
	out := ConsistencyProof{From: from, To: to}
	err := e.withTree(ctx, func(t logtree.Reader) (err error) {
		out.Hashes, err = t.Consistency(from, to)
		return err
	})
	return out, err
}

// ItemProof proves the presence or absence of a descriptor id in version v, under the signed root.
func (e *Engine) ItemProof(ctx context.Context, v uint64, id string) (record.ItemProof, error) {
	if err := e.known(v); err != nil {
		return record.ItemProof{}, err
	}
	items, err := e.itemsAt(ctx, v)
	if err != nil {
		return record.ItemProof{}, e.orPruned(v, fmt.Errorf("version %d: %w", v, err))
	}
	p, err := items.Prove(id)
	p.Version = v
	return p, err
}

// Tile returns a tile of hashes or of entries in the tlog-tiles layout, in the requested width,
// within the latest checkpoint. Each entry follows its length in two bytes.
func (e *Engine) Tile(ctx context.Context, at logtree.At, width int, ofEntries bool) (raw []byte, err error) {
	missing := fmt.Errorf("tile: %w", ErrNotFound)
	if last := (at.N*logtree.Width + uint64(width)) << (logtree.Height * uint(at.Level)); at.N >= 1<<40 ||
		last > e.reach().covered {
		return nil, missing
	}
	err = e.view(ctx, func(r store.Reader) error {
		if !ofEntries {
			raw = tilesOf(r)(at)
			if len(raw) < width*tlog.HashSize {
				return missing
			}
			raw = raw[:width*tlog.HashSize]
			return nil
		}
		raw = raw[:0]
		first, n := at.N*logtree.Width+1, 0
		for _, entry := range entries.Range(r, first, first+uint64(width)) {
			raw = append(binary.BigEndian.AppendUint16(raw, uint16(len(entry))), entry...)
			n++
		}
		if n < width {
			return fmt.Errorf("entries of a tile: %w", ErrPruned)
		}
		return nil
	})
	return raw, err
}
