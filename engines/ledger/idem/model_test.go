package idem

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// machine drives an index and its file, and keeps a list of all inserted entries for comparison.
type machine struct {
	tx      *storetest.Tx
	x       *Index
	shards  int
	cut     Cut
	sealer  *Sealer
	log     []entry // committed entries, in the order of the journal
	group   []entry // inserted since the last commit
	dropped uint64  // the last seq of the dropped runs
	at      int64
	keys    uint64 // the number of different keys that are drawn
}

func newMachine(t *rapid.T) *machine {
	m := &machine{
		tx: storetest.NewTx(t, tables.Buckets()...), shards: rapid.SampledFrom([]int{1, 2, 16}).Draw(t, "shards"),
		cut:  Cut{Width: 50, Max: rapid.SampledFrom([]int{3, 20, 1000}).Draw(t, "max")},
		keys: rapid.SampledFrom([]uint64{5, 40, 1 << 40}).Draw(t, "keys"),
	}
	m.x = New(m.shards, m.cut)
	m.sealer = m.x.Sealer()
	return m
}

func (m *machine) seq() uint64 { return uint64(len(m.log) + len(m.group)) }

func (m *machine) Insert(t *rapid.T) {
	for range rapid.IntRange(1, 12).Draw(t, "inserts") {
		m.at += rapid.Int64Range(1, 20).Draw(t, "pause")
		e := entry{Entry{keyOf(rapid.Uint64Max(m.keys).Draw(t, "key")), m.seq() + 1}, m.at}
		m.x.Insert(e.Key, e.Seq, e.at)
		m.group = append(m.group, e)
	}
}

func (m *machine) Commit(t *rapid.T) {
	group := m.group
	m.must(t, func(_ store.Reader, w *store.Writes) error {
		journal(w, group)
		return nil
	})
	m.x.Committed()
	m.log, m.group = append(m.log, m.group...), nil
}

func (m *machine) Abort(*rapid.T) {
	m.x.Aborted()
	m.group = nil
}

// Seal seals one or more slices. A group that fails loses its rows, and an answer may be lost. In
// both cases a new sealer starts.
func (m *machine) Seal(t *rapid.T) {
	for range rapid.IntRange(1, 8).Draw(t, "slices") {
		s, ok := m.sealer.Next()
		if !ok {
			return
		}
		if rapid.IntRange(0, 9).Draw(t, "fate") == 0 {
			m.failSeal(t, s)
			m.sealer = m.x.Sealer()
			return
		}
		m.Commit(t)
		m.must(t, func(r store.Reader, w *store.Writes) error { return m.x.Seal(r, w, &s) })
		m.x.Committed()
		if rapid.IntRange(0, 9).Draw(t, "answer") == 0 {
			m.sealer = m.x.Sealer()
		}
	}
}

// failSeal runs a group that is undone after its Thens have run.
func (m *machine) failSeal(t *rapid.T, s Slice) {
	_, err := storetest.Do(m.tx, command(func(r store.Reader, w *store.Writes) error {
		if err := m.x.Seal(r, w, &s); err != nil {
			return err
		}
		if s.Last() {
			m.x.group.sealed = append(m.x.group.sealed, readRun(r, bucketOf(s.First), *s.Meta))
		}
		return errRefused
	}))
	if err != errRefused {
		t.Fatal(err)
	}
	m.Abort(t)
}

func (m *machine) Drop(t *rapid.T) {
	first, due, err := m.x.Due(
		m.at-rapid.Int64Range(0, 500).Draw(t, "ttl"),
		func(fn func(store.Reader) error) error { return fn(m.tx.Reader()) },
	)
	if err != nil {
		t.Fatal(err)
	}
	if !due {
		return
	}
	m.Commit(t)
	last := m.x.set.Load().runs[0].meta.Last
	m.must(t, func(_ store.Reader, w *store.Writes) error {
		m.x.Drop(w, first)
		return nil
	})
	if rapid.IntRange(0, 4).Draw(t, "fate") != 0 {
		m.x.Committed()
	} else {
		m.Reload(t) // died between the sync and the hook
	}
	m.dropped = last
}

func (m *machine) Reload(t *rapid.T) {
	m.group = nil
	m.x = New(m.shards, m.cut)
	l := m.x.Loader()
	for !l.Step(m.tx.Reader()) {
	}
	for _, half := range l.Half() {
		if rapid.Bool().Draw(t, "half") {
			m.must(t, func(_ store.Reader, w *store.Writes) error { m.x.Drop(w, half); return nil })
			m.x.Committed()
		}
	}
	for from, end := l.From(), m.seq()+1; from < end; {
		from = m.x.Read(m.tx.Reader(), from, end, rapid.IntRange(1, 50).Draw(t, "slice"))
	}
	m.sealer = m.x.Sealer()
}

// Cut changes the rule for the ends of slots.
func (m *machine) Cut(t *rapid.T) {
	m.cut = Cut{
		Width: rapid.SampledFrom([]time.Duration{1, 50, 1 << 40}).Draw(t, "width"),
		Max:   rapid.SampledFrom([]int{1, 20, 1000}).Draw(t, "max"),
	}
	m.x.Reload(m.cut)
}

// Jump sets the clock far ahead.
func (m *machine) Jump(*rapid.T) { m.at += 1 << 40 }

func (m *machine) must(t *rapid.T, fn command) {
	if _, err := storetest.Do(m.tx, fn); err != nil {
		t.Fatal(err)
	}
}

// scan finds the newest record of a key.
func (m *machine) scan(k Key, entries ...[]entry) (newest entry) {
	for _, part := range entries {
		for _, e := range part {
			if e.Key == k && e.Seq > m.dropped {
				newest = e
			}
		}
	}
	return newest
}

// Check compares lookups of some keys with a scan.
func (m *machine) Check(t *rapid.T) {
	for range 8 {
		k := keyOf(rapid.Uint64Max(m.keys).Draw(t, "key"))
		notBefore := m.at - rapid.Int64Range(-1, 600).Draw(t, "ttl")
		checked := rapid.Uint64Max(m.x.Checked()).Draw(t, "checked")
		if n := len(m.log); n > 0 && rapid.Bool().Draw(t, "known") {
			e := m.log[rapid.IntRange(0, n-1).Draw(t, "which")]
			if k = e.Key; rapid.Bool().Draw(t, "just") { // old and unseen by a hair
				notBefore, checked = e.at, e.Seq-1
			}
		}
		m.find(t, k, notBefore)
		m.lookup(t, k, checked, notBefore)
	}
}

func (m *machine) find(t *rapid.T, k Key, notBefore int64) {
	seq, found, err := m.x.Find(k, notBefore, func(fn func(store.Reader) error) error { return fn(m.tx.Reader()) })
	want := m.scan(k, m.log)
	if err != nil || found != (seq != 0) || found && seq != want.Seq ||
		!found && want.Seq != 0 && want.at >= notBefore {
		t.Fatalf("find %x since %d: record %d, %v; the scan finds %d of %d", k, notBefore, seq, err, want.Seq, want.at)
	}
}

func (m *machine) lookup(t *rapid.T, k Key, checked uint64, notBefore int64) {
	seq, found := m.x.Lookup(m.tx.Reader(), k, checked, notBefore)
	want := m.scan(k, m.log, m.group)
	if found != (seq != 0) || found && seq != want.Seq || !found && want.Seq > checked && want.at >= notBefore {
		t.Fatalf("lookup %x since %d behind %d: record %d; the scan finds %d of %d", k, notBefore, checked, seq,
			want.Seq, want.at)
	}
}

// sizes compares the counts of the index with its set and with the committed entries.
func (m *machine) sizes(t *rapid.T) {
	end := m.dropped
	s := m.x.set.Load()
	for _, r := range s.runs {
		if r.meta.First != end+1 && end != m.dropped {
			t.Fatalf("run %d follows on %d", r.meta.First, end)
		}
		end = r.meta.Last
	}
	for _, slot := range s.slots {
		if slot.first != end+1 && end != 0 {
			t.Fatalf("slot %d follows on %d", slot.first, end)
		}
		end = slot.last
	}
	if n := uint64(len(m.log)); len(s.slots) > 0 && end != n || m.x.Checked() > n {
		t.Fatalf("slots end at %d, checked is %d, and %d is the last", end, m.x.Checked(), n)
	}
	stats := m.x.Stats()
	if stats.Slots != len(s.slots) || stats.Runs != len(s.runs) || m.x.Closed() != max(0, stats.Slots-1) {
		t.Fatalf("%+v", stats)
	}
}

// The index returns the same results as a scan of the journal, after any sequence of operations.
func TestIndexIsAScan(t *testing.T) { rapid.Check(t, indexIsAScan) }

// FuzzIndex checks the same law, guided by code coverage.
func FuzzIndex(f *testing.F) { f.Fuzz(rapid.MakeFuzz(indexIsAScan)) }

func indexIsAScan(t *rapid.T) {
	m := newMachine(t)
	t.Repeat(map[string]func(*rapid.T){
		"insert":  m.Insert,
		"commit":  m.Commit,
		"insert2": m.Insert,
		"commit2": m.Commit,
		"abort":   m.Abort,
		"seal":    m.Seal,
		"drop":    m.Drop,
		"reload":  m.Reload,
		"cut":     m.Cut,
		"jump":    m.Jump,
		"check":   m.Check,
		"":        m.sizes,
	})
}
