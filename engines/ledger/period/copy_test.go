package period_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// TestCloserCopies closes periods with an archive, and stops the task after each part. The copy goes
// on, and each part is made once.
func TestCloserCopies(t *testing.T) {
	n := newNode(t, 7)
	n.pay(100)
	cfg := period.Config{Dir: t.TempDir()}
	sent := make(chan int)
	var made []int
	a := &shelf{parts: map[string][]byte{}, after: func(ctx context.Context, part int) {
		sent <- part
		<-ctx.Done()
	}}
	c, stop := n.keeps(a, cfg)
	n.clock.Advance(time.Hour)
	p, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
	n.must(err)
	n.until(func() bool {
		select {
		case part := <-sent:
			s := c.State()
			if made = append(made, part); s.State != "copying" || s.Done != uint64(part) || s.Total < 2 {
				t.Errorf("%+v at part %d", s, part)
			}
			stop()
			c, stop = n.keeps(a, cfg)
		case <-time.After(time.Millisecond):
		}
		return n.horizon().Period == 1
	})
	n.await(c, "idle")
	stop()
	slices.Sort(made)
	if all := len(slices.Compact(slices.Clone(made))); all != len(made) || all < 2 {
		t.Errorf("parts %v", made)
	}
	a.holds(n, 1)
	n.exists(p.File, true)
	n.dropped()
}

// TestCopyFails ends a closing whose archive takes a part of the file: nothing is changed, and the
// state says why. A later closing of more records is copied whole.
func TestCopyFails(t *testing.T) {
	n := newNode(t, 7)
	n.pay(100)
	a := &shelf{parts: map[string][]byte{}, fault: func(part int) error {
		if part == 1 {
			return errors.New("the archive is away")
		}
		return nil
	}}
	c, stop := n.keeps(a, period.Config{Dir: t.TempDir()})
	defer stop()
	n.clock.Advance(time.Hour)
	p, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
	n.must(err)
	if s := n.await(c, "failed"); s.Error != "copy the file into the archive: the archive is away" {
		t.Errorf("%+v", s)
	}
	n.exists(p.File, false)
	n.view(func(r store.Reader) {
		if h, closing := tables.GetHorizon(r), tables.GetClosing(r); h.Period != 0 || closing.Step != 0 {
			t.Errorf("the horizon is %+v, the closing %+v", h, closing)
		}
	})
	a.mu.Lock()
	a.fault = nil
	a.mu.Unlock()
	n.exists(n.closes(c, ""), true)
	a.holds(n, 1)
	away := errors.New("away")
	a.mu.Lock()
	a.away = away
	a.mu.Unlock()
	n.pay(5)
	n.clock.Advance(time.Hour)
	if _, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now()}); !errors.Is(err, away) {
		t.Errorf("the archive is away, and closing is %v", err)
	}
}

// TestFileIsWrittenAgain copies on a machine that does not have the file, as another member of a
// cluster that leads since: it writes the file again.
func TestFileIsWrittenAgain(t *testing.T) {
	n := newNode(t, 8)
	a := &shelf{parts: map[string][]byte{}}
	cfg := period.Config{Dir: t.TempDir()}
	n.pay(50)
	n.clock.Advance(time.Hour)
	c, stop := n.keeps(holding{a}, cfg)
	p, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
	n.must(err)
	n.await(c, "copying")
	stop()
	n.must(os.Remove(p.File))
	_, stop = n.keeps(a, cfg)
	defer stop()
	n.until(func() bool { return n.horizon().Period == 1 })
	a.holds(n, 1)
	n.exists(p.File, true)
}

// TestFileGoes removes the files that are to be in the archive alone: not before they were read back,
// and not those of a folder that was named.
func TestFileGoes(t *testing.T) {
	n := newNode(t, 9)
	a := &shelf{parts: map[string][]byte{}, unread: true}
	cfg := period.Config{Dir: t.TempDir(), Away: true}
	c, stop := n.keeps(a, cfg)
	unread := n.closes(c, "")
	n.exists(unread, true)
	a.mu.Lock()
	a.unread = false
	a.mu.Unlock()
	n.exists(n.closes(c, ""), false)
	named := n.closes(c, t.TempDir())
	c.Reload(cfg) // it looks once more
	n.until(func() bool { return gone(unread) })
	n.exists(named, true)
	for no := range uint64(3) {
		a.holds(n, no+1)
	}
	stop()
	left, _ := filepath.Glob(filepath.Join(cfg.Dir, "*"))
	if len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// TestOtherAttemptDoesNotCount cancels a closing whose copy was read back. The copy of the next one
// is not, so its file stays.
func TestOtherAttemptDoesNotCount(t *testing.T) {
	n := newNode(t, 9)
	a := &shelf{parts: map[string][]byte{}}
	deps := n.heldAtSealing(n.clock.Now)
	held := deps.Holds
	var free atomic.Bool
	deps.Archive, deps.Holds = a, func() error {
		if free.Load() {
			return nil
		}
		return held()
	}
	c := period.NewCloser(period.Config{Dir: t.TempDir(), Away: true}, deps)
	defer n.runs(c)()
	n.pay(20)
	n.clock.Advance(time.Hour)
	_, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
	n.must(err)
	n.await(c, "closing")
	n.must(c.Cancel(t.Context()))
	n.await(c, "idle")
	a.mu.Lock()
	a.unread = true
	a.mu.Unlock()
	free.Store(true)
	n.exists(n.closes(c, ""), true)
}

// TestCopyGoesOn copies a file whose disk is not mounted at first, and whose second part fails once:
// the first one is not asked for again. A part that the archive loses later is made again.
func TestCopyGoesOn(t *testing.T) {
	n := newNode(t, 12)
	cfg := period.Config{Dir: t.TempDir()}
	c, stop := n.keeps(nil, cfg)
	file := n.closes(c, "")
	stop()
	n.must(os.Rename(file, file+".away"))
	failed := false
	a := &shelf{parts: map[string][]byte{}, fault: func(part int) error {
		if part == 1 && !failed {
			failed = true
			return errors.New("away")
		}
		return nil
	}}
	c, stop = n.keeps(a, cfg)
	defer stop()
	n.until(func() bool { return a.reached.Load() > 0 })
	n.must(os.Rename(file+".away", file))
	asks := func(parts int) func() bool {
		return func() bool {
			n.clock.Advance(time.Minute)
			a.mu.Lock()
			defer a.mu.Unlock()
			return len(a.asked) >= parts
		}
	}
	n.until(asks(3)) // the second one again
	n.until(func() (is bool) {
		n.view(func(r store.Reader) {
			row, _ := tables.GetPeriod(r, 1)
			is = row.Copies == 1
		})
		return is
	})
	a.holds(n, 1)
	a.mu.Lock()
	if len(a.parts) < 3 || !slices.Equal(a.asked[:4], []int{0, 1, 1, 2}) {
		t.Errorf("of %d parts it asks for %v", len(a.parts), a.asked)
	}
	lost := slices.Sorted(maps.Keys(a.parts))[1]
	delete(a.parts, lost)
	a.mu.Unlock()
	c.Reload(cfg)
	n.until(func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.parts[lost] != nil
	})
}

// TestCopyGoesOnElsewhere replaces the archive between two parts of a copy, once or twice: the parts of
// before are made again, and the file goes only when all of them were read back.
func TestCopyGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	for _, faults := range []int{1, 2} {
		n := newNode(t, 12)
		cfg := period.Config{Dir: t.TempDir(), Away: true}
		c, stop := n.keeps(nil, cfg)
		file := n.closes(c, "")
		stop()
		a := &shelf{parts: map[string][]byte{}}
		a.fault = func(part int) error {
			if part != 1 || faults == 0 {
				return nil
			}
			faults--
			n.clock.Advance(time.Hour) // it is tried again at once
			clear(a.parts)
			return errors.New("away")
		}
		_, stop = n.keeps(a, cfg)
		n.until(func() bool { return gone(file) })
		a.holds(n, 1)
		stop()
	}
}

// TestCopyIsTriedInAnHour measures the time from an error to the next try.
func TestCopyIsTriedInAnHour(t *testing.T) {
	t.Parallel()
	n := newNode(t, 12)
	cfg := period.Config{Dir: t.TempDir()}
	c, stop := n.keeps(nil, cfg)
	n.closes(c, "")
	stop()
	a := &shelf{parts: map[string][]byte{}}
	var tried []time.Time
	a.fault = func(int) error {
		tried = append(tried, n.clock.Now())
		return errors.New("away")
	}
	times := func() (all []time.Time) {
		a.mu.Lock()
		defer a.mu.Unlock()
		return slices.Clone(tried)
	}
	_, stop = n.keeps(a, cfg)
	defer stop()
	n.until(func() bool { return len(times()) == 1 })
	begun := a.reached.Load()
	n.clock.Advance(time.Hour)
	n.until(func() bool { return a.reached.Load() > begun })
	n.until(func() bool { return len(times()) == 2 })
	if all := times(); all[1].Sub(all[0]) != time.Hour {
		t.Errorf("tried at %v", all)
	}
}

// TestFileIsNowhere copies a file that was damaged here while another archive had no copy of it, once it
// is as it was.
func TestFileIsNowhere(t *testing.T) {
	t.Parallel()
	for _, damaged := range []bool{true, false} {
		n := newNode(t, 12)
		cfg := period.Config{Dir: t.TempDir()}
		a := &shelf{parts: map[string][]byte{}}
		c, stop := n.keeps(a, cfg)
		file := n.closes(c, "")
		stop()
		raw, err := os.ReadFile(file)
		n.must(err)
		n.must(os.Remove(file))
		if damaged {
			n.must(os.WriteFile(file, raw[1:], 0o600))
		}
		b := &shelf{parts: map[string][]byte{}}
		_, stop = n.keeps(b, cfg)
		n.until(func() bool { // a second look: the first one has found nothing
			n.clock.Advance(time.Minute)
			return b.reached.Load() > 1
		})
		n.must(os.WriteFile(file, raw, 0o600))
		n.until(func() bool {
			n.clock.Advance(time.Minute)
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.parts) == b.Parts(uint64(len(raw)))
		})
		stop()
	}
}

// TestOlderPeriodsAreCopied closes periods without an archive. Once there is one it gets their files,
// also while rows are dropped and after a try that failed, and then they may go. A file that was
// changed is neither copied nor removed.
func TestOlderPeriodsAreCopied(t *testing.T) {
	n := newNode(t, 10)
	cfg := period.Config{Dir: t.TempDir()}
	c, stop := n.keeps(nil, cfg)
	var files []string
	for range 3 {
		files = append(files, n.closes(c, ""))
	}
	stop()
	n.must(os.WriteFile(files[1], []byte("changed"), 0o600))
	tries := 0
	a := &shelf{parts: map[string][]byte{}, fault: func(part int) error {
		if tries++; tries == 2 {
			return errors.New("away")
		}
		return nil
	}}
	c, stop = n.keeps(a, cfg)
	defer stop()
	copies := func(no uint64) (all int) {
		n.view(func(r store.Reader) {
			row, _ := tables.GetPeriod(r, no)
			all = row.Copies
		})
		return all
	}
	n.until(func() bool {
		n.clock.Advance(time.Minute)
		return copies(1)+copies(3) == 2
	})
	if s := c.State(); s.State != "idle" {
		t.Errorf("%+v", s)
	}
	a.mu.Lock()
	clear(a.parts) // another archive
	a.mu.Unlock()
	c.Reload(cfg)
	n.until(func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.parts) > 1
	})
	cfg.Away = true
	c.Reload(cfg)
	n.until(func() bool { return gone(files[0]) && gone(files[2]) })
	a.holds(n, 1)
	a.holds(n, 3)
	n.exists(files[1], true)
	if copies(2) != 0 {
		t.Error("a changed file was copied")
	}
}

// TestBadFileKeepsNoOtherBack has a file that cannot be read. The files of later periods are copied.
func TestBadFileKeepsNoOtherBack(t *testing.T) {
	n := newNode(t, 11)
	cfg := period.Config{Dir: t.TempDir()}
	c, stop := n.keeps(nil, cfg)
	bad := n.closes(c, "")
	n.closes(c, "")
	stop()
	n.must(os.Remove(bad))
	n.must(os.Mkdir(bad, 0o700))
	a := &shelf{parts: map[string][]byte{}}
	_, stop = n.keeps(a, cfg)
	defer stop()
	n.until(func() bool {
		n.clock.Advance(time.Minute)
		copies := 0
		n.view(func(r store.Reader) {
			row, _ := tables.GetPeriod(r, 2)
			copies = row.Copies
		})
		return copies == 1
	})
	a.holds(n, 2)
}
