package idem

import "ronbox/store"

// warmParts is in how many views a run is read before it goes: some fifty pages each of a slot of the usual size.
const warmParts = 64

// Due is the oldest run, if every key of it is older than before, Unix ns. The newest run stays: it says where a boot begins to read. Drop
// goes through every page of a run, and a commit must not wait for a disk that has them, perhaps a day after anyone read them: so Due reads
// the run first, part by part, by calls of view, which runs a function on a read transaction.
func (x *Index) Due(before int64, view func(func(store.Reader) error) error) (first uint64, due bool, err error) {
	runs := x.set.Load().runs
	if len(runs) < 2 || runs[0].meta.LastAt >= before {
		return 0, false, nil
	}
	for i := range warmParts {
		if err := view(func(r store.Reader) error { runs[0].warm(r, i); return nil }); err != nil {
			return 0, false, err
		}
	}
	return runs[0].meta.First, true, nil
}

// warm reads a part of the rows: all pages of it side by side, and then waits for each.
func (r *run) warm(rd store.Reader, part int) {
	n := uint64(blocks(r.meta.Keys))
	from, to := blockKey(uint32(n*uint64(part)/warmParts)), []byte(nil)
	if part+1 < warmParts {
		to = blockKey(uint32(n * uint64(part+1) / warmParts))
	}
	store.WarmRange(rd, r.bucket, from, to)
	for range rd.Range(r.bucket, from, to) {
	}
}

// Drop takes a run away with all its rows, inside Apply; one that is not there is no fault. Readers lose it once the group is synced.
func (x *Index) Drop(w *store.Writes, first uint64) {
	w.Drop(bucketOf(first))
	w.Then(func() { x.group.dropped = append(x.group.dropped, first) })
}
