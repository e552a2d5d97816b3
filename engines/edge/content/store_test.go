package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/tables"
)

// An object that was replaced since a reader found it corrupt is not set aside.
func TestLateSetAside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, size := range []int{100, hotObject + 1} {
		d := r.mustInstall("https://a/x", strings.Repeat("x", size))
		if err := r.s.quarantineSoon(t.Context(), d, nil); err != nil {
			t.Error(err)
		}
		if err := r.open(t.Context(), d); err != nil {
			t.Errorf("%d bytes: set aside although sound: %v", size, err)
		}
	}
}

// A large object is hashed before its first use, and again after damage was found.
func TestLargeObjectIsHashedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.mustInstall("https://a/x", strings.Repeat("x", hotObject+5))
	if !r.s.sums.has(d) {
		t.Error("an object that was written is to be hashed again")
	}
	r.s.sums.forget(d) // as after a restart
	if err := r.open(t.Context(), d); err != nil || !r.s.sums.has(d) {
		t.Errorf("an object that was read is to be hashed again: %v", err)
	}
	r.flip(d)
	if found := r.verified(false); len(found) != 1 || r.s.sums.has(d) {
		t.Errorf("a damaged object counts as hashed: %+v", found)
	}
	if err := r.open(t.Context(), d); !errors.Is(err, asset.ErrCorrupt) {
		t.Errorf("a damaged object: %v", err)
	}
}

// A large object that was read before is opened by its name alone, until its row or its file goes.
func TestLargeObjectIsWarm(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := strings.Repeat("x", hotObject+5)
	d := r.mustInstall("https://a/x", body)
	name := asset.PathOf(d)
	warm := func() *asset.Object { return r.s.Warm(name) }
	if o := warm(); o != nil {
		t.Error("an object that nobody has read is warm")
	}
	if err := r.open(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	r.s.hot.Settle()
	o := warm()
	if o == nil {
		t.Fatal("an object that was read is not warm")
	}
	if b, err := io.ReadAll(o.File); err != nil || string(b) != body || o.From != asset.FromCAS {
		t.Errorf("%d bytes of %s, %v", len(b), o.From, err)
	}
	o.Close()
	r.s.sums.forget(d)
	if o := warm(); o != nil {
		t.Error("an object that is to be hashed is warm")
	}
	r.s.sums.add(d)
	if _, _, err := r.s.Keep(t.Context(), asset.Remove, []string{"https://a/x"}); err != nil {
		t.Fatal(err)
	}
	if o := warm(); o != nil {
		t.Error("an object that was removed is warm")
	}
}

// Concurrent first readers of a large object share one reading of it.
func TestFirstReadersShare(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.mustInstall("https://a/x", strings.Repeat("x", hotObject+5))
	r.s.sums.forget(d)
	for range hashAtOnce {
		if !r.s.sums.slots.TryAcquire() {
			t.Fatal("a slot is not free")
		}
	}
	var all sync.WaitGroup
	var waiting atomic.Int64
	for range 20 {
		all.Go(func() {
			waiting.Add(1)
			if err := r.open(t.Context(), d); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "all wait", func() bool { return waiting.Load() == 20 && r.s.sums.flights.Len() == 1 })
	early, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.open(early, d); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller that leaves: %v", err)
	}
	for range hashAtOnce {
		r.s.sums.slots.Release()
	}
	all.Wait()
}

// An object with several pinned URLs counts once for eviction: other objects are evicted when the
// disk fills. The rows are searched only once for bytes that cannot be freed.
func TestSharedPinsDoNotStopEviction(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) { r.cfg.CAS.MinFree = 4000 })
	var same []string
	for i := range 4 {
		same = append(same, fmt.Sprint("https://a/same/", i))
		r.mustInstall(same[i], strings.Repeat("s", 1000))
	}
	if _, _, err := r.s.Keep(t.Context(), asset.Pin, same); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r.mustInstall(fmt.Sprint("https://a/", i), strings.Repeat(fmt.Sprint(i), 1000))
	}
	r.free.Store(4000 + 1000 + 2000) // the objects have 4000, and the eviction adds a headroom
	until(t, "the others leave", func() bool {
		r.s.EvictForDisk()
		has, _ := r.s.Held()
		return has.Objects == 1
	})
	r.free.Store(4000 + 1000 + 1100) // the pinned object has 1000 of them
	full := func() {
		t.Helper()
		if err := r.s.Room().Reserve(t.Context(), 1000); !errors.Is(err, asset.ErrFull) {
			t.Errorf("room for more: %v", err)
		}
	}
	full()
	walks := r.s.walks.Load()
	for range 5 {
		full()
		if err := r.s.hasRoom(t.Context(), 1000); !errors.Is(err, asset.ErrFull) {
			t.Error(err)
		}
	}
	if n := r.s.walks.Load() - walks; n != 0 {
		t.Errorf("the rows were walked %d times although nothing has changed", n)
	}
	if _, _, err := r.s.Keep(t.Context(), asset.Unpin, same); err != nil {
		t.Fatal(err)
	}
	if err := r.s.hasRoom(t.Context(), 1000); err != nil {
		t.Errorf("after the pins: %v", err)
	}
}

// A verification with very many damaged objects scans the rows a few times, not once per object.
func TestVerifyManyDamaged(t *testing.T) {
	t.Parallel()
	const n = 300
	r, names, bodies := newRig(t), map[string]string{}, map[string]string{}
	r.refetch = func(row tables.Stored) error {
		_, err := r.install(row.URL, bodies[row.URL])
		return err
	}
	for i := range n {
		url := fmt.Sprint("https://a/", i)
		bodies[url] = "of " + url
		d := r.mustInstall(url, bodies[url])
		r.flip(d)
		names[d.String()] = url
	}
	before := r.s.walks.Load()
	for _, fix := range []bool{false, true} {
		found := r.verified(fix)
		for _, f := range found {
			if names[f.Name] != f.URL || f.Done != map[bool]string{false: Kept, true: Refetched}[fix] {
				t.Errorf("%+v", f)
			}
		}
		if len(found) != n {
			t.Errorf("%d found", len(found))
		}
	}
	if walks := r.s.walks.Load() - before; walks > 10 {
		t.Errorf("the rows were walked %d times for %d objects", walks, n)
	}
	if found := r.verified(false); len(found) != 0 {
		t.Errorf("after it: %d", len(found))
	}
}

// A shelf on a full disk takes nothing, and keeps no room for what it has refused.
func TestFullShelf(t *testing.T) {
	t.Parallel()
	s := NewShelf(config.DefaultConfig(), t.TempDir())
	if err := s.Prepare(); err != nil {
		t.Fatal(err)
	}
	body := "none"
	s.free = func() (int64, error) { return s.spare + 3, nil }
	put := func() error { return s.Put(t.Context(), b3.Sum([]byte(body)), 4, strings.NewReader(body)) }
	if err := put(); !errors.Is(err, asset.ErrFull) {
		t.Errorf("a full disk: %v", err)
	}
	s.free = func() (int64, error) { return s.spare + 4, nil }
	if err := put(); err != nil {
		t.Error(err)
	}
	if n := s.takes.Load(); n != 0 {
		t.Errorf("%d bytes are reserved", n)
	}
}

// Readiness shows the fault that heals, whichever of a fault and its end comes last.
func TestFaultIsShownWhileItLasts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var shown error
	r.fault = func(err error) { shown = err }
	for range 2000 {
		var wg sync.WaitGroup
		for _, err := range []error{syscall.EIO, nil} {
			wg.Go(func() { _ = r.s.Failed(err) })
		}
		wg.Wait()
		if broken := r.s.broken.Load(); (shown != nil) != broken {
			t.Fatalf("shown %v, broken %t", shown, broken)
		}
	}
}
