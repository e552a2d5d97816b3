package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

const mib = 1 << 20

func TestSpace(t *testing.T) {
	large := space{capacity: 8 << 30, disk: 100 << 30, total: 1 << 40, minFree: 256 * mib, step: allocSize}
	for _, tt := range []struct {
		name   string
		p      space
		edit   func(*space)
		full   bool
		healed bool
	}{
		{"empty", large, func(*space) {}, false, true},
		{"below 90 %", large, func(p *space) { p.used = p.capacity*90/100 - 1<<20 }, false, true},
		{"above 90 %", large, func(p *space) { p.used = p.capacity*90/100 + 1<<20 }, false, false},
		{"below 95 %", large, func(p *space) { p.used = p.capacity*95/100 - 1<<20 }, false, false},
		{"above 95 %", large, func(p *space) { p.used = p.capacity*95/100 + 1<<20 }, true, false},
		{"min_free and the growth step", large, func(p *space) { p.disk, p.own = 272*mib, 20<<30 }, false, true},
		{"min_free", large, func(p *space) { p.disk, p.own = 256*mib, 20<<30 }, false, false},
		{"less than min_free", large, func(p *space) { p.disk, p.own = 255*mib, 20<<30 }, true, false},
		{"300 MB in all", large, func(p *space) { p.disk = 300 * mib }, false, true},
		{"300 MB in all, 38 left", large, func(p *space) { p.disk, p.own = 38*mib, 262*mib }, false, false},
		{"300 MB in all, 37 left", large, func(p *space) { p.disk, p.own = 37*mib, 263*mib }, true, false},
		{"300 MB of others left", large, func(p *space) { p.disk, p.own = 300*mib, 0 }, false, true},
		{"less left than the file may grow by", large, func(p *space) { p.disk, p.own = 15*mib, 0 }, true, false},
		{"a tiny disk", large, func(p *space) { p.disk, p.own, p.total = 2*mib, 6*mib, 8*mib }, false, true},
		{"a tiny disk, full", large, func(p *space) { p.disk, p.own, p.total = mib-1024, 7*mib, 8*mib }, true, false},
		{"nothing left, no reserve wanted", large, func(p *space) { p.disk, p.own, p.minFree = 0, 20<<30, 0 }, false,
			false},
		{"a disk that does not say", large, func(p *space) { p.disk = -1 }, false, true},
	} {
		tt.edit(&tt.p)
		if err := tt.p.short(); (err != nil) != tt.full || err != nil && !errors.Is(err, ErrFull) ||
			tt.p.healed() != tt.healed {
			t.Errorf("%s: short = %v, healed = %v", tt.name, err, tt.p.healed())
		}
	}
}

// The bytes left are those up to the limit of the file or the reserve of the disk.
func TestSpaceLeft(t *testing.T) {
	p := space{capacity: 1000, used: 100, disk: -1, minFree: 50}
	for _, tt := range []struct {
		used, disk, want int64
	}{{100, -1, 850}, {960, -1, 0}, {100, 2000, 850}, {100, 150, 132}, {100, 0, 0}} {
		if p.used, p.disk = tt.used, tt.disk; p.left() != tt.want {
			t.Errorf("%d used, %d on the disk: %d left, want %d", tt.used, tt.disk, p.left(), tt.want)
		}
	}
}

// For any writes and deletes: a full store has no space, and a store that is no longer full can
// grow by the growth step, or a twentieth of the file, before it is full again. So Health cannot
// flap.
func TestRoomDoesNotFlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := space{
			used: rapid.Int64Range(0, 1<<30).
				Draw(t, "used"),
			capacity: rapid.Int64Range(1<<20, 1<<30).Draw(t, "capacity"),
			disk:     rapid.Int64Range(0, 1<<30).Draw(t, "disk"),
			own:      rapid.Int64Range(0, 1<<30).Draw(t, "own"),
			minFree:  rapid.Int64Range(0, 1<<29).Draw(t, "min_free"),
			step:     allocSize,
		}
		p.total = p.disk + p.own + rapid.Int64Range(0, 1<<30).Draw(t, "others")
		if p.short() != nil && p.healed() {
			t.Fatalf("%+v is full and healed", p)
		}
		if !p.healed() {
			return
		}
		n := min(p.growth(), p.capacity/25)
		p.used, p.disk, p.own = p.used+n, p.disk-n, p.own+n
		if err := p.short(); err != nil {
			t.Fatalf("full again after %d bytes: %+v, %v", n, p, err)
		}
	})
}

// inMemory opens a store of 16 MiB in memory without a running committer.
func inMemory(t *testing.T, o Options) *rig {
	t.Helper()
	cfg := DefaultAmnesiaConfig()
	cfg.MaxBytes = minMemory
	o.Memory = &cfg
	s := New(testConfig(), o)
	s.Declare("test", testRows, testDerived, testLog, testSubs)
	s.Declare("other", otherRows)
	if err := ready(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return &rig{Store: s, t: t}
}

// fillUp commits until work is refused and returns the committed keys.
func fillUp(r *rig, size int) (keys []string) {
	r.t.Helper()
	value := strings.Repeat("v", size)
	for len(keys) < 1<<16 {
		key := fmt.Sprintf("%06d", len(keys))
		_, err := Commit(r.t.Context(), r.Store, Work, put{Key: key, Value: value})
		if errors.Is(err, ErrFull) {
			return keys
		}
		if err != nil {
			r.t.Fatal(err)
		}
		keys = append(keys, key)
	}
	r.t.Fatal("never full")
	return nil
}

// sweep deletes rows and notes how far it came; with Put it grows the file instead.
func sweep(keys []string, grow bool) do[int] {
	return do[int]{"test.sweep/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
		for _, k := range keys {
			if grow {
				rows.Put(w, k+"+", make([]byte, 64<<10))
			} else {
				rows.Delete(w, k)
			}
		}
		rows.Put(w, "swept", []byte("far"))
		return len(keys), nil
	}}
}

// Near max_bytes work is refused, deletes and control go on, and readiness follows; below 90 % it
// is work again, without a restart.
func TestFullFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, Options{}).start()
		keys := fillUp(r, 32<<10)
		if err := r.Health(); !errors.Is(err, ErrFull) {
			t.Errorf("health: %v", err)
		}
		if _, err := TryCommit(t.Context(), r.Store, Work, put{Key: "k"}); !errors.Is(err, ErrFull) {
			t.Errorf("work: %v", err)
		}
		if _, err := Commit(t.Context(), r.Store, Bulk, sweep(keys[:8], true)); !errors.Is(err, ErrFull) {
			t.Errorf("a bulk command that grows the file: %v", err)
		}
		if _, err := Commit(t.Context(), r.Store, Control, put{Key: "control", Value: "v"}); err != nil {
			t.Errorf("control: %v", err)
		}
		if r.get(keys[0]) == "" || r.get("control") != "v" || r.Err() != nil {
			t.Error("reads do not go on")
		}
		flips, healthy := 0, false
		for left := keys; len(left) > len(keys)/2; {
			n := min(8, len(left))
			if _, err := Commit(t.Context(), r.Store, Bulk, sweep(left[:n], false)); err != nil {
				t.Fatalf("a bulk delete: %v", err)
			}
			left = left[n:]
			time.Sleep(probeEvery)
			synctest.Wait()
			if ok := r.Health() == nil; ok != healthy {
				healthy = ok
				flips++
			}
		}
		if !healthy || flips != 1 {
			t.Errorf("healthy %v after %d turns: %v", healthy, flips, r.Health())
		}
		mustCommit(r, put{Key: "k", Value: "v"})
		r.stop()
	})
}

// TestReclaimableRoom makes a full store healthy by rows that are being deleted: what they take does
// not count as used.
func TestReclaimableRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, Options{})
		var reclaim atomic.Int64
		r.reclaim = reclaim.Load // before the committer runs
		r.start()
		fillUp(r, 32<<10)
		full := r.usedBytes()
		reclaim.Store(full / 2)
		if _, err := Commit(t.Context(), r.Store, Control, put{Key: "control", Value: "v"}); err != nil {
			t.Fatal(err)
		}
		mustCommit(r, put{Key: "k", Value: "v"})
		if p := r.room.last.Load(); p.left() < full/4 || !p.holds(p.size-p.used, 0, true) || p.holds(full/2, 0, true) {
			t.Errorf("%d bytes are left, and a refused disk holds more than its free pages: %+v", p.left(), p)
		}
		reclaim.Store(0)
		mustCommit(r, put{Key: "k", Value: "v"})
		if p := r.room.last.Load(); p.left() > full/10 {
			t.Errorf("%d bytes are left, and nothing is reclaimable", p.left())
		}
		r.stop()
	})
}

// Commands that were queued before the file was full are refused by the committer, so the reserve
// stays.
func TestQueuedWhileFull(t *testing.T) {
	r := inMemory(t, Options{})
	got := make(chan error, 3)
	for l := range Lane(lanes) {
		go func() {
			_, err := Commit(t.Context(), r.Store, l, put{Key: l.String(), Value: strings.Repeat("v", sweepNotes)})
			got <- err
		}()
		r.awaitQueued(l, 1)
	}
	r.room.state.Store(&fullness{ErrFull})
	var g group
	g.open(r.Store)
	for lane, want := range []error{Control: nil, Work: ErrFull, Bulk: ErrFull} {
		j := <-r.lanes[lane].C()
		j.claim()
		g.jobs = append(g.jobs[:0], j)
		tx, err := r.db.Begin(true)
		if err != nil {
			t.Fatal(err)
		}
		g.use(tx)
		if err := g.apply(); err != nil {
			t.Fatal(err)
		}
		if err := j.header().err; !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", Lane(lane), err, want)
		}
		if err := g.rollback(tx); err != nil {
			t.Fatal(err)
		}
		j.fail(ErrFull)
		<-got
	}
	r.stop()
}

// What the disk refuses although it shows room, a quota, is not forgotten by the next probe: only
// by more room, or with time, the longer the more often it happens.
func TestRefusalIsNotForgottenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := idle(t, newFile(t), testConfig())
		var g group
		g.open(r.Store)
		for _, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
			r.refused(errRefused)
			r.room.refusal.disk = spaceMax // whatever others free of it meanwhile
			elapsed := time.Duration(0)
			for ; r.Health() != nil; elapsed += probeEvery {
				if !errors.Is(r.Health(), ErrFull) {
					t.Fatal(r.Health())
				}
				time.Sleep(probeEvery)
				if err := g.look(); err != nil {
					t.Fatal(err)
				}
			}
			if want *= time.Second; elapsed <= want || elapsed > want+2*probeEvery {
				t.Errorf("healed after %s, want %s", elapsed, want)
			}
		}
		time.Sleep(diskAgain)
		r.refused(errRefused)
		if r.room.refusal.rest != diskRest {
			t.Errorf("long after, the rest is %s", r.room.refusal.rest)
		}
		r.room.refusal.disk = 0 // there is more room than then
		if err := g.look(); err != nil || r.Health() != nil {
			t.Errorf("more room: %v, health %v", err, r.Health())
		}
		before := r.Bytes()
		if !grows(r.room.file, allocSize) || r.Bytes() != before {
			t.Errorf("the growth step does not fit, or stays: %d bytes, then %d", before, r.Bytes())
		}
		r.stop()
	})
}

// A file at its limit opens: it can be read, deletes make room, and the mark of an unclean stop is
// written with the first commit.
func TestBootOfAFullFile(t *testing.T) {
	path := newFile(t)
	r := open(t, path)
	mustCommit(r, put{Key: "k", Value: "v"})
	r.stop()
	r = &rig{Store: newStore(path, testConfig()), t: t}
	if err := r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := fileOf(t, r.db)
	hookWrites(t, r.db, noRoom)
	if err := r.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.get("k") != "v" || !errors.Is(r.Health(), ErrFull) || !r.inUseUnset {
		t.Errorf("k = %q, health %v, owed %v", r.get("k"), r.Health(), r.inUseUnset)
	}
	hookWrites(t, r.db, file.WriteAt)
	r.start()
	if _, err := Commit(t.Context(), r.Store, Control, put{Key: "c"}); err != nil {
		t.Fatal(err)
	}
	r.poison(errRefused, false) // as a crash: the file is not marked clean
	<-r.done
	r.cancel()
	if err := r.db.Close(); err != nil {
		t.Fatal(err)
	}
	back, err := OpenReader(path)
	if err != nil || back.Info().Clean {
		t.Errorf("clean = %v, %v", back.Info().Clean, err)
	}
	if err := back.Close(); err != nil {
		t.Error(err)
	}

	missing := New(testConfig(), Options{Path: path})
	missing.Declare("more", &Bucket{Name: "more/rows"})
	if err := missing.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	hookWrites(t, missing.db, noRoom)
	if err := missing.Prepare(t.Context()); !errors.Is(err, ErrFull) {
		t.Errorf("a bucket is missing and cannot be made: %v", err)
	}
	if err := missing.Close(); err != nil {
		t.Error(err)
	}
}

// A folder without room for it gives no snapshot and no rest of one.
func TestSnapshotWithoutRoom(t *testing.T) {
	r := open(t, newFile(t))
	for i := range 64 {
		mustCommit(r, put{Key: fmt.Sprint(i), Value: strings.Repeat("v", 64<<10)})
	}
	small(t, 1<<20, func(dir string) {
		for _, compact := range []bool{false, true} {
			if _, err := r.Snapshot(t.Context(), dir, SnapshotOptions{Compact: compact}, nil); !errors.Is(
				err,
				ErrFull,
			) {
				t.Errorf("compact %v: %v", compact, err)
			}
			if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 0 {
				t.Errorf("compact %v left %v, %v", compact, left, err)
			}
		}
	})
	if r.Err() != nil || r.room.full() {
		t.Errorf("store %v, room %v", r.Err(), r.room.cause())
	}
	r.stop()
}

// Create and Restore return ErrFull on a full disk and leave no partial file.
func TestMakingWithoutRoom(t *testing.T) {
	snapshot := snapshotOf(t)
	id, err := NewIdentity(day)
	if err != nil {
		t.Fatal(err)
	}
	small(t, 64<<10, func(dir string) {
		path := filepath.Join(dir, "ronbox.db")
		fillDisk(t, filepath.Join(dir, "ballast"), 4096)
		_, restored := Restore(t.Context(), snapshot, path, RestoreOptions{Now: day}, nil)
		for name, err := range map[string]error{"create": Create(path, id), "restore": restored} {
			if !errors.Is(err, ErrFull) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 0 {
			t.Errorf("left %v, %v", left, err)
		}
	})
}

// A copy of the file is refused if it would take the free space that writers need.
func TestHoldsCopy(t *testing.T) {
	s := open(t, newFile(t))
	defer s.stop()
	if err := s.HoldsCopy(); err != nil {
		t.Errorf("a small file: %v", err)
	}
	p := *s.room.last.Load()
	p.size = spaceMax
	s.room.last.Store(&p)
	if err := s.HoldsCopy(); !errors.Is(err, ErrFull) {
		t.Errorf("a file that is larger than the disk: %v", err)
	}
}
