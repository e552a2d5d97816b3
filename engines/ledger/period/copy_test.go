package period_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// shelf is an archive in memory. Parts are of 1,000 bytes.
type shelf struct {
	mu     sync.Mutex
	parts  map[string][]byte
	away   error                               // it does not answer
	unread bool                                // nothing is read back
	fault  func(part int) error                // of a part that is not there; may be nil
	after  func(ctx context.Context, part int) // of a part that was made; may be nil
}

const shelfPart = 1000

func (a *shelf) Parts(bytes uint64) int { return int((bytes + shelfPart - 1) / shelfPart) }

func (a *shelf) Reach(context.Context) error { return a.away }

func (a *shelf) Holds(_ context.Context, p *tables.Period) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, holds := a.parts[fmt.Sprintf("%s/%05d", p.FileB3, a.Parts(p.Bytes)-1)]
	return holds, nil
}

func (a *shelf) CopyPart(ctx context.Context, p *tables.Period, part, _ int) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	raw, err := os.ReadFile(p.File)
	if err != nil {
		return false, err
	}
	raw = raw[part*shelfPart : min((part+1)*shelfPart, len(raw))]
	name := fmt.Sprintf("%s/%05d", p.FileB3, part)
	if have, there := a.parts[name]; there {
		if !bytes.Equal(have, raw) {
			return false, errors.New("another object")
		}
		return !a.unread, nil
	}
	if a.fault != nil {
		if err := a.fault(part); err != nil {
			return false, err
		}
	}
	a.parts[name] = raw
	if a.after != nil {
		a.after(ctx, part)
	}
	return !a.unread, context.Cause(ctx)
}

// holds checks that the archive has the file of a period.
func (a *shelf) holds(n *node, no uint64) {
	n.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	n.view(func(r store.Reader) {
		row, _ := tables.GetPeriod(r, no)
		var bytes int
		for part := range a.Parts(row.Bytes) {
			bytes += len(a.parts[fmt.Sprintf("%s/%05d", row.FileB3, part)])
		}
		if row.Copies != 1 || bytes != int(row.Bytes) {
			n.Errorf("period %d has %d copies, and %d of its %d bytes are in the archive", no, row.Copies, bytes, row.Bytes)
		}
	})
}

// keeps returns a closer with an archive, whose task runs until stop is called.
func (n *node) keeps(a period.Archive, cfg period.Config) (c *period.Closer, stop func()) {
	n.Helper()
	c = period.NewCloser(cfg, period.Deps{
		Store: n.s, Ledger: n.l, Catalog: flow.NewCatalog(nil, nil), Now: n.clock.Now, Archive: a,
	})
	return c, n.runs(c)
}

// closes closes what there is, and waits for the end. It returns the path of the file.
func (n *node) closes(c *period.Closer, dir string) string {
	n.Helper()
	n.pay(20)
	n.clock.Advance(time.Hour)
	p, err := c.Close(n.Context(), period.Ask{Before: n.clock.Now(), Dir: dir, Fast: true})
	n.must(err)
	n.until(func() bool {
		if s := c.State(); s.State == "failed" {
			n.Fatal(s.Error)
		}
		return n.horizon().Period == p.Period
	})
	n.await(c, "idle")
	return p.File
}

func (n *node) exists(path string, want bool) {
	n.Helper()
	if gone(path) == want {
		n.Errorf("%s: want it there: %v", path, want)
	}
}

func gone(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// until waits until a condition holds.
func (n *node) until(holds func() bool) {
	n.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			n.Fatal("it never holds")
		}
	}
}

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
	a.away = errors.New("away")
	n.pay(5)
	n.clock.Advance(time.Hour)
	if _, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now()}); !errors.Is(err, a.away) {
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

// holding is an archive that does not answer.
type holding struct{ period.Archive }

func (holding) CopyPart(ctx context.Context, _ *tables.Period, _, _ int) (bool, error) {
	<-ctx.Done()
	return false, context.Cause(ctx)
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
