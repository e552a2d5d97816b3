package archive

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/archive/history"
	"ronbox/engines/archive/object"
	"ronbox/store"
)

// clustered is the tap of a node that a cluster was formed of: the chain of entries begins anew.
type clustered struct {
	store.Tap
	goesOn bool
}

func (c *clustered) Last() (sum b3.Digest) {
	if c.goesOn {
		return c.Tap.Last()
	}
	c.goesOn = true
	return sum
}

// An entry that does not follow the last one of the line ends the line.
func TestChainBeginsAnew(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	n.pump()
	n.stop()
	n.wrap = func(to store.Tap) store.Tap { return &clustered{Tap: to} }
	n.boot()
	n.put("b", 1)
	n.pump()
	n.put("c", 1)
	n.pump()
	_, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Latest: true}, n.options())
	if l := n.arc.record.read().current(); err != nil || l.Reason != reasonGap || n.arc.Status().State != StateOK {
		t.Errorf("%+v, %+v, %v", l, n.arc.Status(), err)
	}
	n.stop()
}

// A line keeps its bounds from its first write on, and none begins without room for it.
func TestNewLineHasBounds(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	n.pump()
	was := n.arc.tap.limits.Load()
	n.arc.tap.limits.Store(&limits{maxLocal: was.maxLocal, spare: func() int64 { return 0 }})
	for range 3 {
		n.put("a", 1)
		n.pump()
	}
	if s := n.arc.Status(); s.State != StateFull || n.arc.record.read().current().Reason != reasonFirst {
		t.Errorf("%+v", s)
	}
	if err := n.arc.beginLine(reasonFull); err != nil {
		t.Fatal(err)
	}
	n.put("a", 1)
	if s := n.arc.Status(); s.State != StateFull || s.Unsent != 0 {
		t.Errorf("%+v", s)
	}
	n.arc.tap.limits.Store(was)
	n.pump()
	if s := n.arc.Status(); s.State != StateOK {
		t.Errorf("%+v", s)
	}
	n.stop()
}

// A file whose line was forgotten while its object was made takes no other file along.
func TestForgottenWhilePacked(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	files := n.arc.tap.take(true, n.store.Info().Seq)
	n.arc.tap.stop(reasonForeign)
	n.arc.tap.forget(files[0].line)
	if err := n.arc.beginLine(reasonForeign); err != nil {
		t.Fatal(err)
	}
	n.put("b", 1)
	later := n.arc.tap.take(true, n.store.Info().Seq)
	if err := n.arc.packFile(files[0]); err != nil {
		t.Fatal(err)
	}
	if err := n.arc.dropLine(files[0].line); err != nil {
		t.Fatal(err)
	}
	if _, err := n.arc.send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(later) != 1 || !n.arc.tap.has(later[0].line) || n.arc.Status().Local != later[0].size {
		t.Errorf("%+v, %+v", later, n.arc.Status())
	}
	n.stop()
}

// A write that is undone after a failed sync is not archived, and the line ends.
func TestUndoneAfterFailedSync(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	tap := &n.arc.tap
	entry, err := os.ReadFile(n.onlyRaw())
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe() // which cannot be synced
	if err != nil {
		t.Fatal(err)
	}
	real := tap.file
	tap.file = w
	if err := tap.sync(); err == nil {
		t.Error("a pipe was synced")
	}
	tap.file = real
	tap.Undo()
	if bytes, _ := tap.waiting(); bytes != 0 {
		t.Errorf("%d bytes of what was undone", bytes)
	}
	tap.Write(entry[4:])
	if tap.reason() != reasonGap {
		t.Errorf("the line has ended for %q", tap.reason())
	}
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	n.stop()
}

// A log object ends at 16 MiB of entries, however seldom objects are made: here of some 50 MB.
func TestLogObjectsAreBounded(t *testing.T) {
	n := made(t)
	n.pump()
	for i := range 60 {
		if _, err := store.Commit(t.Context(), n.store, store.Work, put{string(rune('a' + i%5)), 300_000}); err != nil {
			t.Fatal(err)
		}
	}
	n.pump()
	logs := 0
	for _, name := range n.objects() {
		if !strings.Contains(name, "/log/") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(n.root(), name))
		if err != nil {
			t.Fatal(err)
		}
		if h, _, err := object.ParseHeader(raw); err != nil || h.Bytes > rawSize {
			t.Errorf("%s: %d bytes, %v", name, h.Bytes, err)
		}
		logs++
	}
	if logs < 3 {
		t.Errorf("%d log objects", logs)
	}
	n.sound()
	n.stop()
}

// BenchmarkTap commits a command that writes 4 KiB, without a tap and with one. cpu-µs/op is what
// the process computes.
func BenchmarkTap(b *testing.B) {
	for _, bm := range []struct {
		name, fsync string
		tap         bool
	}{{"without", syncInterval, false}, {"interval", syncInterval, true}, {"always", syncAlways, true}} {
		b.Run(bm.name, func(b *testing.B) {
			n := made(b)
			n.stop()
			n.cfg.Fsync = bm.fsync
			if !bm.tap {
				n.wrap = func(store.Tap) store.Tap { return nil }
			}
			n.boot()
			defer n.stop()
			was := cpu(b)
			for b.Loop() {
				if _, err := store.Commit(b.Context(), n.store, store.Work, put{"a", 2 << 10}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpu(b)-was).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

// cpu returns the time that this process has computed.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
