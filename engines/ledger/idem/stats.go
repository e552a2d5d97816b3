package idem

// Stats are sizes of an index.
type Stats struct {
	Open     int64  // keys in memory
	Sealed   int64  // keys in runs
	Slots    int    // in memory
	Runs     int    // in the file
	Filters  int64  // bytes of memory that the filters of the runs take
	Mistaken uint64 // how often a filter let a key pass that its run lacks, since the start
}

// Stats may be called by anyone.
func (x *Index) Stats() Stats {
	s := x.set.Load()
	out := Stats{Slots: len(s.slots), Runs: len(s.runs), Mistaken: x.probes.Load()}
	for _, slot := range s.slots {
		out.Open += slot.keys.Load()
	}
	for _, r := range s.runs {
		out.Sealed += int64(r.meta.Keys)
		out.Filters += int64(8 * len(r.filter.words))
	}
	return out
}
