package idem

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// hooks notifies an index when groups of the store end.
type hooks struct{ *Index }

func (hooks) Begin() {}

// openStore returns a real store with a running committer. With a path the store is a file.
func openStore(t testing.TB, path string, x *Index) *store.Store {
	t.Helper()
	catalog := flow.NewCatalog(nil, nil)
	cfg, opt := store.DefaultConfig(), store.Options{
		Catalog: catalog, Path: path, Producers: map[store.Lane][]string{store.Work: {"test"}, store.Bulk: {"test"}},
	}
	if path == "" {
		memory := store.DefaultAmnesiaConfig()
		opt.Memory = &memory
	} else {
		id, err := store.NewIdentity(time.Now())
		if err = errors.Join(err, store.Create(path, id)); err != nil {
			t.Fatal(err)
		}
	}
	cfg.LockTimeout = unit.Duration(0)
	s := store.New(cfg, opt)
	s.Declare("ledger", tables.Buckets()...)
	s.RegisterGroup(hooks{x})
	if err := errors.Join(s.Open(t.Context()), s.Prepare(t.Context())); err != nil {
		t.Fatal(err)
	}
	sup := flow.NewSupervisor(context.WithoutCancel(t.Context()), catalog, flow.Hooks{})
	sup.Start(s.Tasks()...)
	t.Cleanup(func() {
		s.CloseLanes()
		sup.CancelBackground()
		sup.Drain("store", 30*time.Second, time.Second)
		sup.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func commit(t testing.TB, s *store.Store, l store.Lane, fn command) {
	t.Helper()
	if _, err := store.Commit(t.Context(), s, l, fn); err != nil {
		t.Error(err)
	}
}

// Readers concurrent with the writer and the sealer never miss a key that was committed before they
// began.
func TestReadersBesideTheWriter(t *testing.T) {
	x := New(4, Cut{Width: time.Hour, Max: 200})
	s := openStore(t, "", x)
	const total, burst = 6000, 60
	var committed atomic.Uint64
	var all sync.WaitGroup
	all.Go(func() {
		for seq := uint64(1); seq <= total; seq += burst {
			commit(t, s, store.Work, func(_ store.Reader, w *store.Writes) error {
				log := make([]entry, burst)
				for i := range log {
					n := seq + uint64(i)
					log[i] = entry{Entry{keyOf(n), n}, int64(n)}
				}
				journal(w, log)
				w.Then(func() {
					for _, e := range log {
						x.Insert(e.Key, e.Seq, e.at)
					}
				})
				return nil
			})
			committed.Store(seq + burst - 1)
		}
	})
	all.Go(func() {
		for committed.Load() < total {
			sealAll(t, x, s)
		}
	})
	for range 3 {
		all.Go(func() {
			for committed.Load() < total {
				readSome(t, x, s, committed.Load())
			}
		})
	}
	all.Wait()
	sealAll(t, x, s)
	if stats := x.Stats(); stats.Open+stats.Sealed != total || stats.Runs < 20 || x.Closed() != 0 {
		t.Errorf("%+v", stats)
	}
}

func readSome(t *testing.T, x *Index, s *store.Store, committed uint64) {
	for range 100 {
		n := 1 + rand.Uint64N(committed+50)
		seq, found, err := x.Find(keyOf(n), 0,
			func(fn func(store.Reader) error) error { return s.View(t.Context(), fn) })
		if err != nil || found && seq != n || !found && n <= committed {
			t.Errorf("key %d of %d: record %d, %v", n, committed, seq, err)
		}
	}
}

func sealAll(t testing.TB, x *Index, s *store.Store) {
	sealer := x.Sealer()
	for part, ok := sealer.Next(); ok; part, ok = sealer.Next() {
		commit(t, s, store.Bulk, func(r store.Reader, w *store.Writes) error { return x.Seal(r, w, &part) })
	}
}

// A group that inserts and seals and then fails does not change the index.
func TestAbortedGroup(t *testing.T) {
	x, tx := filled(t, 100)
	parts := seal(t, x, tx)
	before := x.set.Load()
	x.Insert(keyOf(500), 500, 500)
	x.group.sealed = append(x.group.sealed, readRun(tx.Reader(), bucketOf(1), *parts[2].Meta))
	x.group.dropped = append(x.group.dropped, 1)
	if seq, _ := x.Lookup(tx.Reader(), keyOf(500), 0, 0); seq != 500 {
		t.Errorf("the group does not see its own key: %d", seq)
	}
	x.Aborted()
	if seq, found := x.Lookup(tx.Reader(), keyOf(500), 0, 0); found || x.set.Load() != before {
		t.Errorf("the group was aborted, and its key leads to %d", seq)
	}
	x.Committed()
	if x.set.Load() != before {
		t.Error("the next group published what the aborted one did")
	}
}

// The lookup of a new key does not read the file, except after a false positive of a filter.
func TestFreshKeysReadNothing(t *testing.T) {
	x, tx := filled(t, 20_000)
	seal(t, x, tx)
	views := 0
	for n := range uint64(10_000) {
		seq, found, err := x.Find(keyOf(1<<40+n), 0, func(fn func(store.Reader) error) error {
			views++
			return fn(tx.Reader())
		})
		if found || err != nil {
			t.Fatalf("a fresh key leads to %d, %v", seq, err)
		}
	}
	if views > 80 || uint64(views) != x.Stats().Mistaken { // 0.3 % of them, and as much again
		t.Errorf("%d of 10000 fresh keys read from the file; %+v", views, x.Stats())
	}
}

// The lookup of a new key does not allocate, because it runs for every request.
func TestFreshKeysAllocateNothing(t *testing.T) {
	x, tx := filled(t, 20_000)
	seal(t, x, tx)
	view := func(fn func(store.Reader) error) error { return fn(tx.Reader()) }
	keys := make([]Key, 1500)
	for i := range keys {
		keys[i] = keyOf(1<<40 + uint64(i))
	}
	r, n := tx.Reader(), 0
	for name, fresh := range map[string]func(){
		"Find":   func() { n++; _, _, _ = x.Find(keys[n%len(keys)], 0, view) },
		"Lookup": func() { n++; _, _ = x.Lookup(r, keys[n%len(keys)], 0, 0) },
	} {
		if allocs := testing.AllocsPerRun(1000, fresh); allocs != 0 { // a mistaken filter now and then rounds to none
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

// Find returns the error of its view.
func TestFindFails(t *testing.T) {
	x, tx := filled(t, 100)
	seal(t, x, tx)
	if _, found, err := x.Find(keyOf(7), 0, func(func(store.Reader) error) error { return errRefused }); found ||
		!errors.Is(err, errRefused) {
		t.Errorf("%v, %v", found, err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, shards := range []int{0, 3, 2048} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d shards are taken", shards)
				}
			}()
			New(shards, Cut{})
		}()
	}
}

// A slot ends by time, by keys and by records. A change of the rule applies from the next group.
func TestSlotsEnd(t *testing.T) {
	x := New(1, Cut{Width: 100, Max: 10})
	insert := func(seq uint64, at int64) int {
		x.Insert(keyOf(seq), seq, at)
		x.Committed()
		return x.Stats().Slots
	}
	steps := []struct {
		seq  uint64
		at   int64
		want int
	}{{5, 1, 1}, {6, 100, 1}, {7, 101, 2}, {8, 102, 2}, {7 + slotSpan, 103, 3}, {8 + slotSpan, 104, 3}}
	for _, s := range steps {
		if got := insert(s.seq, s.at); got != s.want {
			t.Errorf("record %d of %d: %d slots, want %d", s.seq, s.at, got, s.want)
		}
	}
	x.Reload(Cut{Width: 100, Max: 3})
	if got := insert(9+slotSpan, 105); got != 3 {
		t.Errorf("up to the keys of the new rule: %d slots", got)
	}
	if got := insert(10+slotSpan, 106); got != 4 {
		t.Errorf("beyond the keys of the new rule: %d slots", got)
	}
}

// A slot begins with the capacity that the previous slot reached, up to its limit.
func TestSlotsBeginSmall(t *testing.T) {
	x := New(1, Cut{Width: time.Hour, Max: 10_000})
	insert := func(seq uint64) {
		x.Insert(keyOf(seq), seq, int64(seq))
		x.Committed()
	}
	for seq := range uint64(10_000) {
		insert(seq + 1)
	}
	x.Reload(Cut{Width: time.Hour, Max: 100})
	insert(10_001)
	if slots := x.set.Load().slots; len(slots) != 2 || len(slots[1].shards[0].table.rows) > 200 {
		t.Errorf("%d slots, the last has room for %d keys", len(slots), len(slots[len(slots)-1].shards[0].table.rows))
	}
}

// benchFile returns the path of a benchmark's store.
func benchFile(b *testing.B) string { return filepath.Join(b.TempDir(), "ronbox.db") }
