package idem

import (
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"ronbox/store"
)

// Index maps keys to records. The package comment lists the goroutine that may call each method.
type Index struct {
	shift   int // of a key's head, to its shard
	shards  int
	cut     atomic.Pointer[Cut]
	set     atomic.Pointer[set]
	checked atomic.Uint64
	probes  atomic.Uint64 // filters that let a foreign key pass

	group tentative // owned by the committer
}

// tentative holds the changes of the running group.
type tentative struct {
	entries         []Entry // in order of insertion
	table           Table   // of the same entries
	firstAt, lastAt int64
	sealed          []*run   // runs that are whole
	dropped         []uint64 // runs that went
}

// New returns an empty index. Its slots have the given number of shards, a power of two of at most
// 1024.
func New(shards int, c Cut) *Index {
	if shards < 1 || shards > 1024 || shards&(shards-1) != 0 {
		panic(fmt.Sprintf("idem: %d shards: must be a power of two up to 1024", shards))
	}
	x := &Index{shift: 64 - bits.TrailingZeros(uint(shards)), shards: shards}
	x.set.Store(&set{})
	x.Reload(c)
	return x
}

// Reload changes where slots end from the next group on.
func (x *Index) Reload(c Cut) { x.cut.Store(&c) }

// Checked is a seq up to which Find sees every key. A caller takes it before it looks, and hands it
// to Lookup with the command.
func (x *Index) Checked() uint64 { return x.checked.Load() }

// Insert adds a key with the seq and time of its record. Both are greater than those of all earlier
// insertions, aborted ones aside.
func (x *Index) Insert(k Key, seq uint64, at int64) {
	g := &x.group
	if len(g.entries) == 0 {
		g.firstAt = at
	}
	g.lastAt = at
	g.entries = append(g.entries, Entry{k, seq})
	g.table.Put(k, seq)
}

// Committed publishes the changes of the group. It is called after the sync of the group.
func (x *Index) Committed() {
	g := &x.group
	if n := len(g.entries); n > 0 {
		s := x.open()
		for i := range g.entries {
			e := &g.entries[i]
			s.put(x.shard(&e.Key), e)
		}
		s.last = g.entries[n-1].Seq
		s.lastAt.Store(g.lastAt)
		x.checked.Store(s.last)
	}
	if len(g.sealed) > 0 || len(g.dropped) > 0 {
		x.turn()
	}
	x.Aborted()
}

// Aborted drops the changes of the group. After Committed or Aborted the next group may begin.
func (x *Index) Aborted() {
	g := &x.group
	g.table.Clear(g.entries)
	clear(g.sealed) // lest a run that goes stay in memory
	g.entries, g.sealed, g.dropped = g.entries[:0], g.sealed[:0], g.dropped[:0]
}

// open is the slot that takes the group: the last one, unless it is full.
func (x *Index) open() *slot {
	g, s, before := &x.group, x.set.Load(), int64(0)
	if n := len(s.slots); n > 0 {
		last := s.slots[n-1]
		if !last.full(*x.cut.Load(), len(g.entries), g.entries[0].Seq, g.firstAt) {
			return last
		}
		before = min(last.keys.Load(), int64(x.cut.Load().Max))
	}
	next := newSlot(x.shards, s.end()+1, g.entries[0].Seq, g.firstAt, before)
	x.set.Store(&set{append(slices.Clip(s.slots), next), s.runs})
	return next
}

// end is the last seq that slots and runs cover.
func (s *set) end() uint64 {
	switch {
	case len(s.slots) > 0:
		return s.slots[len(s.slots)-1].last
	case len(s.runs) > 0:
		return s.runs[len(s.runs)-1].meta.Last
	}
	return 0
}

func (x *Index) shard(k *Key) int { return int(k.head() >> x.shift) }

// turn publishes complete runs in place of their slots, and removes dropped runs.
func (x *Index) turn() {
	g, s := &x.group, x.set.Load()
	next := &set{slices.Clone(s.slots), slices.Clone(s.runs)}
	for _, r := range g.sealed {
		next.runs = append(next.runs, r)
		next.slots = slices.DeleteFunc(next.slots, func(s *slot) bool { return s.first == r.meta.First })
	}
	next.runs = slices.DeleteFunc(next.runs, func(r *run) bool { return slices.Contains(g.dropped, r.meta.First) })
	x.set.Store(next)
}

// Find returns the seq of the newest synced record of a key. It may be called by any goroutine. It
// calls view, which runs a function in a read transaction begun meanwhile, only if a run may hold
// the key by its filter. It skips runs that end before notBefore, Unix ns. The record may still be
// older.
func (x *Index) Find(
	k Key,
	notBefore int64,
	view func(func(store.Reader) error) error,
) (seq uint64, found bool, err error) {
	// before the view: whatever leaves the slots after this is in the file by the time the view
	// begins
	s := x.set.Load()
	if seq = s.lookup(k, x.shard(&k)); seq != 0 {
		return seq, true, nil
	}
	if len(s.runs) == 0 {
		return 0, false, nil
	}
	p := probe{runs: s.runs, key: k, notBefore: notBefore}
	if !p.next() {
		return 0, false, nil
	}
	return x.search(p, view)
}

// search reads p in a view. It is apart from Find, and takes a copy, so that a fresh key takes no
// memory.
func (x *Index) search(p probe, view func(func(store.Reader) error) error) (seq uint64, found bool, err error) {
	err = view(func(r store.Reader) error {
		seq = x.read(r, p)
		return nil
	})
	return seq, seq != 0, err
}

// Lookup is Find inside Apply: insertions of the running group count too. It skips runs that end at
// checked or before: the caller has searched those after it called Checked.
func (x *Index) Lookup(r store.Reader, k Key, checked uint64, notBefore int64) (seq uint64, found bool) {
	if seq = x.group.table.Get(k); seq != 0 {
		return seq, true
	}
	s := x.set.Load()
	if seq = s.lookup(k, x.shard(&k)); seq != 0 {
		return seq, true
	}
	if len(s.runs) == 0 {
		return 0, false
	}
	p := probe{runs: s.runs, key: k, notBefore: notBefore, checked: checked}
	if p.next() {
		seq = x.read(r, p)
	}
	return seq, seq != 0
}

// probe walks the runs that may hold a key, the newest first.
type probe struct {
	runs      []*run // the ones not yet looked at; the last one is the candidate
	key       Key
	notBefore int64
	checked   uint64
}

// next moves to the next run that may hold the key by its filter, and reports whether there is one.
func (p *probe) next() bool {
	for ; len(p.runs) > 0; p.runs = p.runs[:len(p.runs)-1] {
		r := p.runs[len(p.runs)-1]
		if r.meta.LastAt < p.notBefore || r.meta.Last <= p.checked {
			p.runs = nil
			return false
		}
		if r.filter.has(&p.key) {
			return true
		}
	}
	return false
}

// read looks into the candidate of p and those after it.
func (x *Index) read(r store.Reader, p probe) uint64 {
	for ok := true; ok; ok = p.next() {
		if seq := p.runs[len(p.runs)-1].get(r, &p.key); seq != 0 {
			return seq
		}
		x.probes.Add(1)
		p.runs = p.runs[:len(p.runs)-1]
	}
	return 0
}

// warmParts is in how many views a run is read before it goes: some fifty pages each of a slot of
// the usual size.
const warmParts = 64

// Due is the oldest run, if every key of it is older than before, Unix ns. The newest run stays: it
// says where a boot begins to read. Drop goes through every page of a run, and a commit must not
// wait for a disk that has them, perhaps a day after anyone read them: so Due reads the run first,
// part by part, by calls of view, which runs a function on a read transaction.
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

// Drop takes a run away with all its rows, inside Apply; one that is not there is no fault. Readers
// lose it once the group is synced.
func (x *Index) Drop(w *store.Writes, first uint64) {
	w.Drop(bucketOf(first))
	w.Then(func() { x.group.dropped = append(x.group.dropped, first) })
}

// First returns a seq that the record of every key since a time, Unix ns, is at or after, 0 if
// there is no such key. It may be called by any goroutine.
func (x *Index) First(since int64) uint64 {
	s := x.set.Load()
	for _, r := range s.runs {
		if r.meta.LastAt >= since {
			return r.meta.First
		}
	}
	for _, slot := range s.slots {
		if slot.lastAt.Load() >= since {
			return slot.firstSeq
		}
	}
	return 0
}

// Leads reports whether a key since a time may lead to a record up to seq, which was made at at.
// Times are Unix ns. It may be called by any goroutine.
func (x *Index) Leads(since int64, seq uint64, at int64) bool {
	s := x.set.Load()
	for _, r := range s.runs {
		if r.meta.LastAt >= since && r.meta.First <= seq && r.meta.FirstAt <= at {
			return true
		}
	}
	for _, slot := range s.slots {
		if slot.lastAt.Load() >= since && slot.firstSeq <= seq {
			return true
		}
	}
	return false
}

// Within returns the number of keys with times after one and until another, Unix ns. It counts
// whole slots and runs of which any key may have such a time, so there are that many at most. It
// may be called by any goroutine.
func (x *Index) Within(after, until int64) (keys int64) {
	s := x.set.Load()
	for _, r := range s.runs {
		if r.meta.LastAt > after && r.meta.FirstAt <= until {
			keys += int64(r.meta.Keys)
		}
	}
	for _, slot := range s.slots {
		if slot.lastAt.Load() > after && slot.firstAt <= until {
			keys += slot.keys.Load()
		}
	}
	return keys
}

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
