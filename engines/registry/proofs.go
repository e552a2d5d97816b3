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

// InclusionProof proves that the entry of a version is in the log of Size versions.
type InclusionProof struct {
	Index      uint64      `json:"index" doc:"version - 1"`
	Size       uint64      `json:"size"`
	Hashes     []tlog.Hash `json:"hashes" doc:"standard base64 of 32 bytes each, from the leaf upwards"`
	Checkpoint string      `json:"checkpoint,omitzero" doc:"the signed note of that size, if it is kept"`
}

// ConsistencyProof proves that the log of From versions is the beginning of that of To.
type ConsistencyProof struct {
	From   uint64      `json:"from"`
	To     uint64      `json:"to"`
	Hashes []tlog.Hash `json:"hashes" doc:"standard base64 of 32 bytes each"`
}

// LatestCheckpoint is the checkpoint over the log; ErrNotFound before the first.
func (e *Engine) LatestCheckpoint() (*checkpoint.Signed, error) {
	if s := e.latest.Load(); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("checkpoint: %w: none is signed yet", ErrNotFound)
}

// maxCheckpointPage bounds a page of archived checkpoints.
const maxCheckpointPage = 100

// ArchivedCheckpoints gives up to limit archived checkpoints of a size below before, the newest first; before 0 is beyond all.
func (e *Engine) ArchivedCheckpoints(ctx context.Context, before uint64, limit int) (notes [][]byte, err error) {
	if limit < 1 || limit > maxCheckpointPage {
		limit = maxCheckpointPage
	}
	size := e.checkpointSize() // beyond it the file may be ahead by what is not synced
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

// provable refuses a size that no checkpoint covers.
func (e *Engine) provable(size uint64) error {
	switch covered := e.checkpointSize(); {
	case covered == 0:
		return fmt.Errorf("proof: %w: no checkpoint is signed yet", ErrNotFound)
	case size == 0 || size > covered:
		return fmt.Errorf("%w: size %d; the latest checkpoint covers %d versions", ErrRange, size, covered)
	}
	return nil
}

// Inclusion proves version v within the log of size versions, 0 for that of the latest checkpoint.
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

// Consistency proves that the log of from versions is the beginning of that of to, 0 for that of the latest checkpoint.
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

// ItemProof proves what version v says of a descriptor id, presence or absence, under the root that was signed.
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

// Tile gives a tile of hashes, or of entries, as the tlog-tiles layout has it: as wide as it is asked for, up to what the
// latest checkpoint covers. Entries stand one behind the other, each behind its length in two bytes.
func (e *Engine) Tile(ctx context.Context, at logtree.At, width int, ofEntries bool) (raw []byte, err error) {
	missing := fmt.Errorf("tile: %w", ErrNotFound)
	if last := (at.N*logtree.Width + uint64(width)) << (logtree.Height * uint(at.Level)); at.N >= 1<<40 || last > e.checkpointSize() {
		return nil, missing
	}
	err = e.view(ctx, func(r store.Reader) error {
		if !ofEntries {
			if raw = tilesOf(r)(at); len(raw) < width*tlog.HashSize {
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
