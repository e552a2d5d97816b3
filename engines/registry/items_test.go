package registry_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// commitDeltas commits n versions of a changed descriptor each, and returns the roots after each
// version from 1.
func commitDeltas(r *registrytest.Rig, s registrytest.Signers, n int) []string {
	r.T.Helper()
	roots := []string{"", r.Engine.Head().Items.Root()}
	for v := uint64(2); v < uint64(2+n); v++ {
		draft := fmt.Appendf(nil,
			`{"schema_version":"1.0.0","version":%d,"mode":"delta","put":[{"id":"s%d","kind":"service","meta":{"v":%d}}]}`,
			v, v%7, v)
		p, err := r.Engine.Propose(r.Ctx(), alice, draft, "", "")
		if err != nil {
			r.T.Fatal(err)
		}
		r.Approve(p, s.Keys...)
		r.Commit(p)
		roots = append(roots, r.Engine.Head().Items.Root())
	}
	return roots
}

// An old version is read from the nearest kept set, whatever the length of the log, and a fresh
// start finds the same sets.
func TestOldVersionsFromKeptSets(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s)
	roots := commitDeltas(r, s, 40)
	for _, v := range []uint64{9, 25} {
		items, err := r.Engine.Materialise(r.Ctx(), v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Engine.KeepSet(r.Ctx(), v, items); err != nil {
			t.Fatal(err)
		}
	}
	r.Stop()
	r.Open()
	for _, tt := range []struct{ v, from uint64 }{{8, 0}, {9, 9}, {24, 9}, {25, 25}, {30, 25}} {
		var from uint64
		err := r.Engine.View(r.Ctx(), func(rd store.Reader) (err error) {
			from, _, _, err = tables.KeptSet(rd, tt.v)
			return err
		})
		if err != nil || from != tt.from {
			t.Errorf("version %d is read from %d, %v; want %d", tt.v, from, err, tt.from)
		}
		items, err := r.Engine.Materialise(r.Ctx(), tt.v)
		if err != nil || items.Root() != roots[tt.v] {
			t.Errorf("items of version %d: %v", tt.v, err)
		}
	}
}

// A stored set without its header does not exist, one without a row is a fault of the file. Neither
// yields other items.
func TestDamagedKeptSet(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s, "a", "b", "c")
	commitDeltas(r, s, 5)
	items, err := r.Engine.Materialise(r.Ctx(), 4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Commit(r.Ctx(), r.Store, store.Bulk,
		tables.PutSet{Version: 4, Part: 1, Packed: []byte{0, 1, 2}}); err != nil {
		t.Fatal(err)
	}
	r.Engine.Purge()
	if got, err := r.Engine.Materialise(r.Ctx(), 4); err != nil || got.Root() != items.Root() {
		t.Errorf("a set without header: %v", err)
	}
	head := tables.SetHeader{Count: 1, Root: items.Root(), Chunks: 1}
	if _, err := store.Commit(r.Ctx(), r.Store, store.Bulk,
		tables.PutSet{Version: 4, Part: 1, Packed: []byte{0, 1, 2}, Header: &head}); err != nil {
		t.Fatal(err)
	}
	r.Engine.Purge()
	if got, err := r.Engine.Materialise(r.Ctx(), 4); err != nil || got.Root() != items.Root() ||
		r.Board.Report(tables.Service, "").Causes["registry.stored_rows"] == "" {
		t.Errorf("a damaged set: %v, want the items by a replay, and a word of it", err)
	}
}

// While as many reads of old versions run as there are cores, the next is StorageBusy after its
// tries, and counted.
func TestReadsOfOldVersionsAreBounded(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s)
	commitDeltas(r, s, 3)
	r.Engine.Purge()
	for range r.Engine.ReadSlots().Cap() {
		r.Engine.ReadSlots().TryAcquire()
	}
	if _, err := r.Engine.Version(r.Ctx(), 2, true); !errors.Is(err, store.ErrSlow) {
		t.Errorf("no place: %v", err)
	}
	const tries = 3
	if n := r.Metric("storage_backoff_total", "op", "read"); n != tries {
		t.Errorf("storage_backoff_total = %v, want %d", n, tries)
	}
	if n := r.Metric("backoff_retries_total", "op", "read"); n != tries-1 {
		t.Errorf("backoff_retries_total = %v, want %d", n, tries-1)
	}
	r.Engine.ReadSlots().Release()
	if _, err := r.Engine.Version(r.Ctx(), 2, true); err != nil {
		t.Errorf("a place is free: %v", err)
	}
	for range r.Engine.ReadSlots().Cap() - 1 {
		r.Engine.ReadSlots().Release()
	}
}

func TestDiffBothWays(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s, "a", "b")
	p := r.Propose(2, "c")
	r.Approve(p, s.Keys...)
	r.Commit(p)
	for _, tt := range []struct {
		from, to    uint64
		put, remove int
	}{{1, 2, 1, 0}, {2, 1, 0, 1}, {0, 1, 2, 0}, {1, 0, 0, 2}, {2, 2, 0, 0}} {
		d, err := r.Engine.Diff(r.Ctx(), tt.from, tt.to)
		if err != nil || len(d.Put) != tt.put || len(d.Remove) != tt.remove {
			t.Errorf("diff %d %d: %d put, %d removed, %v", tt.from, tt.to, len(d.Put), len(d.Remove), err)
		}
	}
	if _, err := r.Engine.Diff(r.Ctx(), 3, 1); !errors.Is(err, document.ErrNotFound) {
		t.Errorf("beyond HEAD: %v", err)
	}
}

// BenchmarkBootAndOldRead opens a log of b.N versions, each of a changed descriptor, and reads one
// in its middle after that. Run it with -benchtime 20000x.
func BenchmarkBootAndOldRead(b *testing.B) {
	r, s := newLogRig(b)
	r.Genesis(s)
	b.ResetTimer()
	for i := range b.N {
		v := uint64(i + 2)
		draft := fmt.Appendf(nil,
			`{"schema_version":"1.0.0","version":%d,"mode":"delta","put":[{"id":"s%d","kind":"service","meta":{"v":%d}}]}`,
			v, v%4001, v)
		p, err := r.Engine.Propose(r.Ctx(), alice, draft, "", "")
		if err != nil {
			b.Fatal(err)
		}
		r.Approve(p, s.Keys...)
		r.Commit(p)
	}
	b.StopTimer()
	r.Stop()
	begun := time.Now()
	r.Open()
	b.ReportMetric(float64(time.Since(begun).Microseconds())/1000, "boot-ms")
	begun = time.Now()
	if _, err := r.Engine.Version(r.Ctx(), uint64(b.N/2+1), true); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(begun).Microseconds())/1000, "old-read-ms")
}
