package tables

import (
	"bytes"
	"slices"

	"ronbox/appliance/merkle"
	"ronbox/store"
)

// A dropping deletes rows at or below the horizon, the oldest first. Each function looks at up to n
// rows from the key cursor on and deletes those that are to go. It returns the cursor to go on
// from, nil at the end, and the number of deleted rows.

// rowsFrom looks at n rows of b from cursor up to the key end, nil for the end of the bucket, and
// deletes those for which goes reports true.
func rowsFrom(r store.Reader, w *store.Writes, b *store.Bucket, cursor, end []byte, n int,
	goes func(k, v []byte) bool,
) (next []byte, dropped int) {
	for k, v := range r.Range(b, cursor, end) {
		if n--; n < 0 {
			return bytes.Clone(k), dropped
		}
		if goes(k, v) {
			w.Delete(b, bytes.Clone(k))
			dropped++
		}
	}
	return nil, dropped
}

func always(_, _ []byte) bool { return true }

// DropRecords deletes records up to h.
func DropRecords(r store.Reader, w *store.Writes, h Horizon, cursor []byte, n int) (next []byte, dropped int) {
	return rowsFrom(r, w, bJournal, cursor, seqKey(h.Seq+1), n, always)
}

// DropBatches deletes headers up to h. The row of the head may have the newest of them.
func DropBatches(r store.Reader, w *store.Writes, h Horizon, cursor []byte, n int) (next []byte, dropped int) {
	return rowsFrom(r, w, bBatches, cursor, seqKey(h.Batch+1), n, always)
}

// DropLogNodes deletes the nodes of the log of batch roots up to h, except its peaks.
func DropLogNodes(r store.Reader, w *store.Writes, h Horizon, cursor []byte, n int) (next []byte, dropped int) {
	peaks := merkle.LogPeaks(h.Batch)
	end := seqKey(merkle.LogCount(h.Batch))
	return rowsFrom(r, w, bMlog, cursor, end, n, func(k, _ []byte) bool {
		pos, err := store.U64().Decode(k)
		return err == nil && !slices.Contains(peaks, pos)
	})
}

// DropMarks deletes marks at records up to h.
func DropMarks(r store.Reader, w *store.Writes, h Horizon, cursor []byte, n int) (next []byte, dropped int) {
	return rowsFrom(r, w, bMarks, cursor, nil, n, func(k, v []byte) bool {
		return marks.Parse(k, v) <= h.Seq
	})
}

// DropHolds deletes holds that ended at a record up to h.
func DropHolds(r store.Reader, w *store.Writes, h Horizon, cursor []byte, n int) (next []byte, dropped int) {
	return rowsFrom(r, w, bHolds, cursor, seqKey(h.Seq+1), n, func(k, v []byte) bool {
		hold := holds.Parse(k, v)
		return !hold.Open() && hold.Closing <= h.Seq
	})
}

// DropOlderBases deletes the rows of the base of generations before that of h.
func DropOlderBases(r store.Reader, w *store.Writes, h Horizon, cursor []byte, n int) (next []byte, dropped int) {
	return rowsFrom(r, w, bBase, cursor, generationKey(h.Generation), n, always)
}

// DropGeneration deletes the rows of one generation of the base.
func DropGeneration(r store.Reader, w *store.Writes, generation uint64, cursor []byte, n int) []byte {
	if cursor == nil {
		cursor = generationKey(generation)
	}
	next, _ := rowsFrom(r, w, bBase, cursor, generationKey(generation+1), n, always)
	return next
}

// DropNames deletes the nodes of the log of names behind its first size leaves.
func DropNames(r store.Reader, w *store.Writes, size uint64, cursor []byte, n int) []byte {
	if cursor == nil {
		cursor = seqKey(merkle.LogCount(size))
	}
	next, _ := rowsFrom(r, w, bNlog, cursor, nil, n, always)
	return next
}
