package views

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Root returns the root of the tree at a size that HEAD has reached.
func (rd *Reader) Root(ctx context.Context, size uint64) (root tlog.Hash, err error) {
	err = rd.WithTree(ctx, func(t logtree.Reader) error {
		root, err = t.Root(size)
		return err
	})
	return root, err
}

// WithTree calls fn with the tree in one read transaction.
func (rd *Reader) WithTree(ctx context.Context, fn func(logtree.Reader) error) error {
	return rd.View(ctx, func(r store.Reader) error { return fn(logtree.Reader{Tiles: tables.TilesOf(r)}) })
}

// LatestCheckpoint returns the latest checkpoint, or ErrNotFound before the first.
func (rd *Reader) LatestCheckpoint() (*checkpoint.Signed, error) {
	if s := rd.pub.Latest.Load(); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("checkpoint: %w: none is signed yet", document.ErrNotFound)
}

// maxCheckpointPage bounds a page of archived checkpoints.
const maxCheckpointPage = 100

// ArchivedCheckpoints returns up to limit archived checkpoints below size before, the newest
// first. If before is 0, it begins with the newest.
func (rd *Reader) ArchivedCheckpoints(ctx context.Context, before uint64, limit int) (notes [][]byte, err error) {
	if limit < 1 || limit > maxCheckpointPage {
		limit = maxCheckpointPage
	}
	size := rd.pub.Covered() // the file may hold later ones that are not synced yet
	if before == 0 || before > size {
		before = size + 1
	}
	err = rd.View(ctx, func(r store.Reader) error {
		notes = notes[:0]
		for _, raw := range tables.Checkpoints.Back(r, 0, before) {
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
func (rd *Reader) provable(size uint64) error {
	switch covered := rd.pub.Covered(); {
	case covered == 0:
		return fmt.Errorf("proof: %w: no checkpoint is signed yet", document.ErrNotFound)
	case size == 0 || size > covered:
		return fmt.Errorf("%w: size %d; the latest checkpoint covers %d versions", document.ErrRange, size, covered)
	}
	return nil
}

// Inclusion proves that version v is in the log of size versions. Size 0 stands for that of the
// latest checkpoint.
func (rd *Reader) Inclusion(ctx context.Context, v, size uint64) (document.InclusionProof, error) {
	last := rd.pub.Latest.Load()
	if size == 0 && last != nil {
		size = last.Size
	}
	if err := rd.provable(size); err != nil {
		return document.InclusionProof{}, err
	}
	if v == 0 || v > size {
		return document.InclusionProof{}, fmt.Errorf("version %d: %w in a log of %d versions", v,
			document.ErrNotFound, size)
	}
	out := document.InclusionProof{Index: v - 1, Size: size}
	err := rd.View(ctx, func(r store.Reader) (err error) {
		note := last.Note
		if last.Size != size {
			note, _ = tables.Checkpoints.Get(r, size)
		}
		out.Checkpoint = string(note)
		out.Hashes, err = logtree.Reader{Tiles: tables.TilesOf(r)}.Inclusion(size, v-1)
		return err
	})
	return out, err
}

// Consistency proves that the log of from versions is a prefix of the log of to versions. To 0
// stands for the size of the latest checkpoint.
func (rd *Reader) Consistency(ctx context.Context, from, to uint64) (document.ConsistencyProof, error) {
	if to == 0 {
		to = rd.pub.Covered()
	}
	if err := rd.provable(to); err != nil {
		return document.ConsistencyProof{}, err
	}
	if from == 0 || from > to {
		return document.ConsistencyProof{}, fmt.Errorf("%w: from %d to %d", document.ErrRange, from, to)
	}
	out := document.ConsistencyProof{From: from, To: to}
	err := rd.WithTree(ctx, func(t logtree.Reader) (err error) {
		out.Hashes, err = t.Consistency(from, to)
		return err
	})
	return out, err
}

// ItemProof proves the presence or absence of a descriptor id in version v, under the signed root.
func (rd *Reader) ItemProof(ctx context.Context, v uint64, id string) (record.ItemProof, error) {
	if err := rd.known(v); err != nil {
		return record.ItemProof{}, err
	}
	items, err := rd.itemsAt(ctx, v)
	if err != nil {
		return record.ItemProof{}, rd.orPruned(v, fmt.Errorf("version %d: %w", v, err))
	}
	p, err := items.Prove(id)
	p.Version = v
	return p, err
}

// Tile returns a tile of hashes or of entries in the tlog-tiles layout, in the requested width,
// within the latest checkpoint. Each entry follows its length in two bytes.
func (rd *Reader) Tile(ctx context.Context, at logtree.At, width int, ofEntries bool) (raw []byte, err error) {
	missing := fmt.Errorf("tile: %w", document.ErrNotFound)
	if last := (at.N*logtree.Width + uint64(width)) << (logtree.Height * uint(at.Level)); at.N >= 1<<40 ||
		last > rd.reach().covered {
		return nil, missing
	}
	err = rd.View(ctx, func(r store.Reader) error {
		if !ofEntries {
			raw = tables.TilesOf(r)(at)
			if len(raw) < width*tlog.HashSize {
				return missing
			}
			raw = raw[:width*tlog.HashSize]
			return nil
		}
		raw = raw[:0]
		first, n := at.N*logtree.Width+1, 0
		for _, entry := range tables.Entries.Range(r, first, first+uint64(width)) {
			raw = append(binary.BigEndian.AppendUint16(raw, uint16(len(entry))), entry...)
			n++
		}
		if n < width {
			return fmt.Errorf("entries of a tile: %w", document.ErrPruned)
		}
		return nil
	})
	return raw, err
}
