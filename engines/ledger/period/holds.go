package period

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// buildHolds writes the open holds, each with its record and the place of that in the log.
func (b *builder) buildHolds(ctx context.Context) error {
	for seqs := range slices.Chunk(slices.Sorted(maps.Keys(b.open)), commandRows/8) {
		err := b.write(ctx, len(seqs)*16, func(r store.Reader, w *store.Writes) error {
			for _, seq := range seqs {
				h, err := b.hold(r, seq)
				if err != nil {
					return fmt.Errorf("hold %d: %w", seq, err)
				}
				tables.PutBaseHold(w, b.c.Period, seq, h)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// hold returns the row of an open hold. The path of one that the base before has is made longer, up
// to the peak that is over its batch now: nodes below the peak of before may have been dropped.
func (b *builder) hold(r store.Reader, seq uint64) (h tables.BaseHold, err error) {
	if b.open[seq] {
		before, known := tables.BaseOf(r).Hold(seq)
		if !known {
			return h, fmt.Errorf("%w: the base before lacks it", store.ErrCorrupt)
		}
		h = before
	} else if h, err = newHold(r, seq); err != nil {
		return h, err
	}
	index, known := h.Header.No-1, h.LogPath
	read := tables.LogNodes(r)
	path, err := merkle.LogInclusionFrom(b.c.Batch, index, len(known), read)
	if err != nil {
		return h, err
	}
	h.LogPath = append(slices.Clip(known), path[:merkle.PeakLevel(b.c.Batch, index)-len(known)]...)
	return h, nil
}

// newHold returns the record of a hold of this period with its place in its batch.
func newHold(r store.Reader, seq uint64) (h tables.BaseHold, err error) {
	rec := tables.MustRecord(r, seq)
	head, known := tables.Batch(r, rec.Batch)
	if !known || seq < head.First || seq > head.Last() {
		return h, fmt.Errorf("%w: the header of batch %d does not cover it", store.ErrCorrupt, rec.Batch)
	}
	var leaves []b3.Digest
	for _, raw := range tables.Raws(r, head.First, head.Last()+1) {
		leaves = append(leaves, merkle.Leaf(raw))
	}
	if uint64(len(leaves)) != head.Count {
		return h, fmt.Errorf("%w: batch %d lacks records", store.ErrCorrupt, head.No)
	}
	h.Record, h.Index, h.Header = slices.Clone(tables.Raw(r, seq)), seq-head.First, head
	h.Path = merkle.Path(leaves, h.Index)
	return h, nil
}
