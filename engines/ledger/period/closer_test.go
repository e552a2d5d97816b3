package period_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// closer returns a closer for the node, whose task runs until stop is called.
func (n *node) closer(cfg period.Config) (c *period.Closer, stop func()) {
	n.Helper()
	c = n.newCloser(cfg)
	return c, n.runs(c)
}

// newCloser returns a closer whose task does not run.
func (n *node) newCloser(cfg period.Config) *period.Closer {
	n.Helper()
	if cfg.Dir == "" {
		cfg.Dir, cfg.Make = filepath.Join(n.TempDir(), "periods"), true
	}
	c := period.NewCloser(cfg, period.Deps{
		Store: n.s, Ledger: n.l, Catalog: flow.NewCatalog(nil, nil), Now: n.clock.Now,
	})
	n.c.Store(c)
	return c
}

// runs runs the task of a closer until stop is called.
func (n *node) runs(c *period.Closer) (stop func()) {
	ctx, cancel := context.WithCancel(n.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			n.Error(err)
		}
	}
}

// await waits until the closing has come to a state.
func (n *node) await(c *period.Closer, state string) period.State {
	n.Helper()
	for end := time.Now().Add(time.Minute); ; {
		s := c.State()
		if s.State == state {
			return s
		}
		if time.Now().After(end) {
			n.Fatalf("the closing is %+v, and not %s", s, state)
		}
		time.Sleep(time.Millisecond)
	}
}

// lines returns the lines of a period file.
func (n *node) lines(path string) (lines []record.PeriodLine) {
	n.Helper()
	raw, err := os.ReadFile(path)
	n.must(err)
	z, err := zstd.NewReader(bytes.NewReader(raw))
	n.must(err)
	defer z.Close()
	text, err := io.ReadAll(z)
	n.must(err)
	for line := range bytes.Lines(text) {
		l, err := record.ParsePeriodLine(line)
		n.must(err)
		lines = append(lines, l)
	}
	return lines
}

// TestCloserClosesAndDrops closes two periods with their files. Together the files have each record
// once, and nothing up to the horizon is left.
func TestCloserClosesAndDrops(t *testing.T) {
	n := newNode(t, 3)
	c, stop := n.closer(period.Config{})
	defer stop()
	next := uint64(1)
	for range 2 {
		n.pay(100)
		want := n.state()
		n.clock.Advance(time.Hour)
		at := n.clock.Now()
		n.pay(3)
		p, err := c.Close(t.Context(), period.Ask{Before: at, Fast: true, By: "test"})
		n.must(err)
		if p.ToSeq != want.seq {
			t.Fatalf("the plan %+v, want records up to %d", p, want.seq)
		}
		for n.horizon().Period != p.Period {
			n.await(c, "idle")
		}
		n.await(c, "idle")
		n.compare(want)
		n.dropped()
		lines := n.lines(p.File)
		if last := lines[len(lines)-1]; last.Close != n.statement(p.Period) {
			t.Errorf("the file ends with %q", last.Close)
		}
		for _, l := range lines {
			if l.Kind != record.LineRecord {
				continue
			}
			if l.Entry.Record.Seq != next {
				t.Fatalf("the file has record %d, not %d", l.Entry.Record.Seq, next)
			}
			next++
		}
		if next != p.ToSeq+1 {
			t.Errorf("the file ends with record %d", next-1)
		}
	}
}

// TestCloseWritesBehind closes records that were made a moment ago, before what they made is written
// behind.
func TestCloseWritesBehind(t *testing.T) {
	n := newNode(t, 3)
	c, stop := n.closer(period.Config{})
	defer stop()
	last := n.do(ledger.Op{Code: record.OpIssue, To: "bob", Asset: "ron", Amount: engines.AmountOf(0, 1)})[0].Receipt.Seq
	n.clock.Advance(time.Second)
	p, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
	n.must(err)
	for n.horizon().Period != p.Period {
		n.await(c, "idle")
	}
	if p.ToSeq != last {
		t.Errorf("the plan %+v, want records up to %d", p, last)
	}
}

// TestCanceledFileGoes cancels a closing whose file has its name already. The file goes, so that a
// later closing of more records can write its own. A file that was there before stays.
func TestCanceledFileGoes(t *testing.T) {
	n := newNode(t, 3)
	c := period.NewCloser(period.Config{Dir: t.TempDir()}, n.heldAtSealing(n.clock.Now))
	defer n.runs(c)()
	n.pay(50)
	for _, stays := range []bool{false, true} {
		n.clock.Advance(time.Hour)
		p, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
		n.must(err)
		n.await(c, "closing")
		kept := filepath.Join(t.TempDir(), "kept")
		n.must(os.Link(p.File, kept))
		n.must(c.Cancel(t.Context()))
		n.await(c, "idle")
		if _, err := os.Stat(p.File); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the file of a canceled closing is there: %v", err)
		}
		if !stays {
			n.pay(50)
			continue
		}
		n.must(os.Link(kept, p.File))
		_, err = c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
		n.must(err)
		n.await(c, "closing")
		n.must(c.Cancel(t.Context()))
		if _, err := os.Stat(p.File); err != nil {
			t.Errorf("the file that was there before: %v", err)
		}
	}
}

// left is the context of a caller that leaves as soon as the closing is no longer at Sealing.
type left struct {
	context.Context
	n *node
}

// Err implements context.Context.
func (c left) Err() (err error) {
	c.n.view(func(r store.Reader) {
		if tables.GetClosing(r).Step != tables.Sealing {
			err = context.Canceled
		}
	})
	return err
}

// TestCutCancelIsFinished cancels a closing whose file has its name already, for a caller that
// leaves right after the first commit. The task removes the file, that of the next process too, and
// the next closing has more records.
func TestCutCancelIsFinished(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		n := newNode(t, 3)
		n.pay(50)
		cfg := period.Config{Dir: t.TempDir()}
		c := period.NewCloser(cfg, n.heldAtSealing(n.clock.Now))
		stop := n.runs(c)
		n.clock.Advance(time.Hour)
		p, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
		n.must(err)
		n.await(c, "closing")
		if restarts {
			stop()
		}
		if err := c.Cancel(left{t.Context(), n}); !errors.Is(err, context.Canceled) {
			t.Errorf("restarts %v: canceled for a caller that has left: %v", restarts, err)
		}
		ended := func() (is bool) {
			n.view(func(r store.Reader) { is = tables.GetClosing(r).Step == 0 })
			return is
		}
		if !restarts {
			n.until(ended)
			stop()
		}
		c, stop = n.closer(cfg)
		n.until(ended)
		if !gone(p.File) {
			t.Errorf("restarts %v: the file is left", restarts)
		}
		n.closes(c, "")
		stop()
	}
}

// heldAtSealing returns the neighbours of a closer that goes no further than to Sealing.
func (n *node) heldAtSealing(now func() time.Time) period.Deps {
	return period.Deps{
		Store: n.s, Ledger: n.l, Catalog: flow.NewCatalog(nil, nil), Now: now,
		Holds: func() (err error) {
			n.view(func(r store.Reader) {
				if tables.GetClosing(r).Step == tables.Sealing {
					err = errors.New("held")
				}
			})
			return err
		},
	}
}

// TestLostFileIsWrittenAgain stops a node between the file of a period and the record that closes
// it. If the file is gone when the closing goes on, as after a restore on another machine, it is
// written again first.
func TestLostFileIsWrittenAgain(t *testing.T) {
	n := newNode(t, 3)
	n.pay(50)
	dir := t.TempDir()
	held := period.NewCloser(period.Config{Dir: dir}, n.heldAtSealing(n.clock.Now))
	stop := n.runs(held)
	n.clock.Advance(time.Hour)
	p, err := held.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
	n.must(err)
	n.await(held, "closing")
	stop()
	n.must(os.Remove(p.File))
	c, stop := n.closer(period.Config{Dir: dir})
	defer stop()
	n.closed(c, 1)
	if lines := n.lines(p.File); lines[len(lines)-1].Close != n.statement(1) {
		t.Error("the file does not end with the statement")
	}
}

func (n *node) statement(period uint64) (text string) {
	n.view(func(r store.Reader) {
		s := tables.StatementOf(r, period)
		text = s.Text()
	})
	return text
}

// TestCloserFails closes into a folder that takes no file. Nothing is changed, and the state says
// why.
func TestCloserFails(t *testing.T) {
	n := newNode(t, 4)
	n.pay(50)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	n.must(os.WriteFile(file, nil, 0o600))
	c, stop := n.closer(period.Config{})
	defer stop()
	for _, folder := range []string{filepath.Join(file, "periods"), filepath.Join(dir, "missing")} {
		_, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now().Add(time.Hour), Dir: folder, Fast: true})
		n.must(err)
		if s := n.await(c, "failed"); s.Error == "" {
			t.Errorf("%s: %+v", folder, s)
		}
		n.view(func(r store.Reader) {
			if h, closing := tables.GetHorizon(r), tables.GetClosing(r); h.Period != 0 || closing.Step != 0 {
				t.Errorf("%s: the horizon is %+v, the closing %+v", folder, h, closing)
			}
			for row := range tables.BaseAt(r, 1).Rows() {
				t.Errorf("%s: the base has a row of kind %c", folder, row.Kind)
				break
			}
		})
		if left, _ := filepath.Glob(filepath.Join(folder, "*.partial")); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
	}
	_, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now().Add(-time.Hour)})
	if !errors.Is(err, period.ErrNothing) {
		t.Errorf("nothing is old enough, and closing is %v", err)
	}
}

// TestCloserGoesOn stops the task at many moments of a closing. It goes on where it was stopped, and
// makes the same file.
func TestCloserGoesOn(t *testing.T) {
	n := newNode(t, 5)
	n.pay(200)
	want := n.state()
	cfg := period.Config{Dir: t.TempDir()}
	c, stop := n.closer(cfg)
	_, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now().Add(time.Hour), Fast: true})
	n.must(err)
	for stops := 0; ; stops++ {
		time.Sleep(time.Duration(stops*stops) * 10 * time.Microsecond)
		idle := false
		n.view(func(r store.Reader) { idle = tables.GetHorizon(r).Period == 1 && tables.GetClosing(r).Step == 0 })
		stop()
		if idle {
			t.Logf("after %d stops", stops)
			break
		}
		_, stop = n.closer(cfg)
	}
	n.compare(want)
	n.dropped()
	if len(n.lines(filepath.Join(cfg.Dir, record.PeriodFile(1)))) == 0 {
		t.Error("the file is empty")
	}
}

// TestRetentionCloses lets records become older than the retention: whole periods are closed by
// themselves, and no others.
func TestRetentionCloses(t *testing.T) {
	n := newNode(t, 6)
	day := unit.Duration(24 * time.Hour)
	n.pay(10)
	first := n.state()
	n.clock.Advance(25 * time.Hour)
	n.pay(10)
	c, stop := n.closer(period.Config{Retention: 7 * day, Period: day})
	n.until(func() bool { return !c.Due().IsZero() }) // it has looked
	stop()
	if h := n.horizon(); h.Period != 0 {
		t.Fatalf("closed before its time: %+v", h)
	}
	n.clock.Advance(7 * 24 * time.Hour)
	c, stop = n.closer(period.Config{Retention: 7 * day, Period: day})
	defer stop()
	n.closed(c, 1)
	n.await(c, "idle")
	n.compare(first)
}

// TestCloserFindsDamage closes a ledger in which an account has another name than its record. The
// name would be the only one left.
func TestCloserFindsDamage(t *testing.T) {
	n := newNode(t, 6)
	n.pay(50)
	c, stop := n.closer(period.Config{})
	defer stop()
	n.do(ledger.Op{Code: record.OpIssue, To: "carol", Asset: "ron", Amount: engines.AmountOf(0, 1)})
	n.must(n.l.Flush(t.Context()))
	_, err := store.Commit(t.Context(), n.s, store.Work, rename{from: "carol", to: "mallory"})
	n.must(err)
	n.clock.Advance(time.Hour)
	_, err = c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
	n.must(err)
	if s := n.await(c, "failed"); !strings.Contains(s.Error, "damaged") {
		t.Errorf("the closing is %+v", s)
	}
	if h := n.horizon(); h.Period != 0 {
		t.Errorf("period %d is closed", h.Period)
	}
}

// rename is a command that gives the account of a name another name.
type rename struct{ from, to string }

// Kind names the command.
func (rename) Kind() string { return "ledger.tamper/1" }

// Apply writes the name.
func (c rename) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	ref, _ := tables.Ref(r, c.from)
	tables.PutName(w, ref, c.to)
	return struct{}{}, nil
}

// A closing waits while the clock cannot tell whether keys have ended, and says so.
func TestClosingWaitsForKeys(t *testing.T) {
	n := newNode(t, 4)
	one := engines.AmountOf(0, 1)
	n.do(ledger.Op{
		Code: record.OpIssue, To: "alice", Asset: "ron", Amount: one, TTL: time.Hour,
		Dedupe: ledger.DedupeKey{Scope: "alice", Key: "k"},
	})
	n.clock.Advance(26 * time.Hour)
	a := &shelf{parts: map[string][]byte{}, after: func(context.Context, int) { n.unsettled.Store(true) }}
	c, stop := n.keeps(a, period.Config{Dir: t.TempDir()})
	defer stop()
	_, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
	n.must(err)
	n.until(func() bool { return c.State().Error != "" })
	if s := c.State(); s.State != "closing" || !strings.Contains(s.Error, "keys") || n.horizon().Period != 0 {
		t.Errorf("%+v, horizon %+v", s, n.horizon())
	}
	n.unsettled.Store(false)
	n.until(func() bool {
		n.clock.Advance(time.Minute) // more than once: the wait may begin after its error shows
		return n.horizon().Period == 1
	})
	n.await(c, "idle")
	if s := c.State(); s.Error != "" {
		t.Errorf("%+v", s)
	}
}

// A closing that was just accepted is shown at once.
func TestStateAfterClose(t *testing.T) {
	n := newNode(t, 3)
	n.pay(50)
	c := n.newCloser(period.Config{})
	n.clock.Advance(time.Hour)
	p, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now()})
	n.must(err)
	if s := c.State(); s.State == "idle" || s.Period != p.Period {
		t.Errorf("%+v, want period %d", s, p.Period)
	}
	defer n.runs(c)()
	n.await(c, "idle")
}
