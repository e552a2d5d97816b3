package registry

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// commitDeltas commits n versions of a changed descriptor each, and returns the roots after each
// version from 1.
func (r *rig) commitDeltas(s signers, n int) []string {
	r.t.Helper()
	roots := []string{"", r.e.Head().Items.Root()}
	for v := uint64(2); v < uint64(2+n); v++ {
		draft := fmt.Appendf(nil,
			`{"schema_version":"1.0.0","version":%d,"mode":"delta","put":[{"id":"s%d","kind":"service","meta":{"v":%d}}]}`,
			v, v%7, v)
		p, err := r.e.Propose(r.ctx(), alice, draft, "", "")
		if err != nil {
			r.t.Fatal(err)
		}
		r.approve(p, s.keys...)
		r.commit(p)
		roots = append(roots, r.e.Head().Items.Root())
	}
	return roots
}

// An old version is read from the nearest kept set, whatever the length of the log, and a fresh
// start finds the same sets.
func TestOldVersionsFromKeptSets(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(1, 1)
	r.genesis(s)
	roots := r.commitDeltas(s, 40)
	for _, v := range []uint64{9, 25} {
		items, err := r.e.Materialise(r.ctx(), v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.e.KeepSet(r.ctx(), v, items); err != nil {
			t.Fatal(err)
		}
	}
	r.stop()
	r.open()
	for _, tt := range []struct{ v, from uint64 }{{8, 0}, {9, 9}, {24, 9}, {25, 25}, {30, 25}} {
		var from uint64
		err := r.e.View(r.ctx(), func(rd store.Reader) (err error) {
			from, _, _, err = tables.KeptSet(rd, tt.v)
			return err
		})
		if err != nil || from != tt.from {
			t.Errorf("version %d is read from %d, %v; want %d", tt.v, from, err, tt.from)
		}
		items, err := r.e.Materialise(r.ctx(), tt.v)
		if err != nil || items.Root() != roots[tt.v] {
			t.Errorf("items of version %d: %v", tt.v, err)
		}
	}
}

// A stored set without its header does not exist, one without a row is a fault of the file. Neither
// yields other items.
func TestDamagedKeptSet(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(1, 1)
	r.genesis(s, "a", "b", "c")
	r.commitDeltas(s, 5)
	items, err := r.e.Materialise(r.ctx(), 4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Commit(r.ctx(), r.store, store.Bulk,
		tables.PutSet{Version: 4, Part: 1, Packed: []byte{0, 1, 2}}); err != nil {
		t.Fatal(err)
	}
	r.e.Purge()
	if got, err := r.e.Materialise(r.ctx(), 4); err != nil || got.Root() != items.Root() {
		t.Errorf("a set without header: %v", err)
	}
	head := tables.SetHeader{Count: 1, Root: items.Root(), Chunks: 1}
	if _, err := store.Commit(r.ctx(), r.store, store.Bulk,
		tables.PutSet{Version: 4, Part: 1, Packed: []byte{0, 1, 2}, Header: &head}); err != nil {
		t.Fatal(err)
	}
	r.e.Purge()
	if got, err := r.e.Materialise(r.ctx(), 4); err != nil || got.Root() != items.Root() ||
		r.board.Report(service, "").Causes["registry.stored_rows"] == "" {
		t.Errorf("a damaged set: %v, want the items by a replay, and a word of it", err)
	}
}

// While as many reads of old versions run as there are cores, the next is StorageBusy after its
// tries, and counted.
func TestReadsOfOldVersionsAreBounded(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(1, 1)
	r.genesis(s)
	r.commitDeltas(s, 3)
	r.e.Purge()
	for range cap(r.e.readSlots) {
		r.e.readSlots <- struct{}{}
	}
	if _, err := r.e.Version(r.ctx(), 2, true); !errors.Is(err, store.ErrSlow) {
		t.Errorf("no place: %v", err)
	}
	const tries = 3
	if n := r.metric("storage_backoff_total", "op", "read"); n != tries {
		t.Errorf("storage_backoff_total = %v, want %d", n, tries)
	}
	if n := r.metric("backoff_retries_total", "op", "read"); n != tries-1 {
		t.Errorf("backoff_retries_total = %v, want %d", n, tries-1)
	}
	<-r.e.readSlots
	if _, err := r.e.Version(r.ctx(), 2, true); err != nil {
		t.Errorf("a place is free: %v", err)
	}
	for range cap(r.e.readSlots) - 1 {
		<-r.e.readSlots
	}
}

func TestDiffBothWays(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(1, 1)
	r.genesis(s, "a", "b")
	p := r.propose(2, "c")
	r.approve(p, s.keys...)
	r.commit(p)
	for _, tt := range []struct {
		from, to    uint64
		put, remove int
	}{{1, 2, 1, 0}, {2, 1, 0, 1}, {0, 1, 2, 0}, {1, 0, 0, 2}, {2, 2, 0, 0}} {
		d, err := r.e.Diff(r.ctx(), tt.from, tt.to)
		if err != nil || len(d.Put) != tt.put || len(d.Remove) != tt.remove {
			t.Errorf("diff %d %d: %d put, %d removed, %v", tt.from, tt.to, len(d.Put), len(d.Remove), err)
		}
	}
	if _, err := r.e.Diff(r.ctx(), 3, 1); !errors.Is(err, document.ErrNotFound) {
		t.Errorf("beyond HEAD: %v", err)
	}
}

// BenchmarkBootAndOldRead opens a log of b.N versions, each of a changed descriptor, and reads one
// in its middle after that. Run it with -benchtime 20000x.
func BenchmarkBootAndOldRead(b *testing.B) {
	r, s := newLogRig(b)
	r.genesis(s)
	b.ResetTimer()
	for i := range b.N {
		v := uint64(i + 2)
		draft := fmt.Appendf(nil,
			`{"schema_version":"1.0.0","version":%d,"mode":"delta","put":[{"id":"s%d","kind":"service","meta":{"v":%d}}]}`,
			v, v%4001, v)
		p, err := r.e.Propose(r.ctx(), alice, draft, "", "")
		if err != nil {
			b.Fatal(err)
		}
		r.approve(p, s.keys...)
		r.commit(p)
	}
	b.StopTimer()
	r.stop()
	begun := time.Now()
	r.open()
	b.ReportMetric(float64(time.Since(begun).Microseconds())/1000, "boot-ms")
	begun = time.Now()
	if _, err := r.e.Version(r.ctx(), uint64(b.N/2+1), true); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(begun).Microseconds())/1000, "old-read-ms")
}
