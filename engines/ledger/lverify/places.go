package lverify

import (
	"bytes"
	"fmt"
	"math/bits"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/record"
)

// places follows some records of a log that grows: their paths lead to the peak over their batch.
type places struct {
	leaves []b3.Digest // of the batch under way
	made   []*placed   // in the batch under way
	peaks  [][]*placed // under each peak of the log, the largest first
}

// placed is a record with its place in the log, or only the place of a header.
type placed struct {
	record.Inclusion
	ended bool // its path is of no more use
}

// newPlaces returns the places of no records in a log of batches.
func newPlaces(batches uint64) places {
	return places{peaks: make([][]*placed, bits.OnesCount64(batches))}
}

// had takes a record that was placed in the log of batches. The error is returned if the log has no
// such batch.
func (p *places) had(batches uint64, h *placed) error {
	if h.Header.No == 0 || h.Header.No > batches {
		return fmt.Errorf("batch %d is not closed", h.Header.No)
	}
	left, i := h.Header.No-1, 0
	for size := uint64(1) << (bits.Len64(batches) - 1); ; size >>= 1 {
		switch {
		case batches&size == 0:
			continue
		case left < size:
			p.peaks[i] = append(p.peaks[i], h)
			return nil
		}
		left -= size
		i++
	}
}

// keep follows the last record of leaves.
func (p *places) keep(raw []byte) *placed {
	h := &placed{Inclusion: record.Inclusion{Record: bytes.Clone(raw), Index: uint64(len(p.leaves) - 1)}}
	p.made = append(p.made, h)
	return h
}

// batch ends a batch: its records get their place in it, and paths grow where the batch completes
// subtrees of the log, to which it is not added yet.
func (p *places) batch(log *frontier, b *record.Batch) {
	for _, h := range p.made {
		if h.Header = *b; h.Record != nil {
			h.Path = merkle.Path(p.leaves, h.Index)
		}
	}
	root := b.Root()
	d, right := merkle.Leaf(root[:]), p.made
	for i := range bits.TrailingZeros64(log.size + 1) {
		left, beside := p.peaks[len(p.peaks)-1], log.open[len(log.open)-1-i]
		right = append(grow(left, d), grow(right, beside)...)
		p.peaks = p.peaks[:len(p.peaks)-1]
		d = merkle.Node(beside, d)
	}
	p.peaks = append(p.peaks, right)
	p.leaves, p.made = p.leaves[:0], nil
}

// grow appends a digest to the paths of the records that are of use, and returns these.
func grow(all []*placed, beside b3.Digest) []*placed {
	all = slices.DeleteFunc(all, func(h *placed) bool { return h.ended })
	for _, h := range all {
		h.LogPath = append(slices.Clip(h.LogPath), beside)
	}
	return all
}
