package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/engines/archive/target"
)

// A base is due until the target has it.
func TestBaseDue(t *testing.T) {
	n := made(t)
	defer n.stop()
	n.put("a", 1)
	if err := n.arc.keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := n.arc.Status(); s.BaseDue.IsZero() || time.Since(s.BaseDue) > time.Hour {
		t.Errorf("%+v", s)
	}
	n.pump()
	if s := n.arc.Status(); !s.BaseDue.IsZero() || s.BaseAt.IsZero() {
		t.Errorf("%+v", s)
	}
}

// A base is sent part by part, through restarts, and one whose snapshot is lost is taken again.
func TestBaseInParts(t *testing.T) {
	n := made(t)
	for i := range 12 {
		n.put(string(rune('a'+i)), 300_000)
	}
	ctx := t.Context()
	if err := n.arc.keep(ctx); err != nil {
		t.Fatal(err)
	}
	next := n.arc.record.read().current().Next
	if next == nil || next.Parts < 3 {
		t.Fatalf("%+v", next)
	}
	for n.arc.record.read().current().Next.Sent < 1 {
		n.arc.rotated = time.Time{}
		if err := n.arc.pack(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := n.arc.send(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if s := n.arc.Status(); s.PartsSent != 1 || s.BaseParts != next.Parts || s.State != StateStarting {
		t.Errorf("%+v", s)
	}
	k := n.killed()
	n.stop()
	if err := os.RemoveAll(k.arc.d.Dir + "/none"); err != nil {
		t.Fatal(err)
	}
	lost := k.killed()
	k.boot()
	k.pump()
	if s := k.arc.Status(); s.State != StateOK || s.BaseParts != 0 || s.BaseSeq != 12 {
		t.Errorf("%+v", s)
	}
	k.restores(12)
	k.stop()
	if err := os.RemoveAll(filepath.Join(lost.dir, Folder, "base")); err != nil {
		t.Fatal(err)
	}
	for _, name := range n.objects() { // as it was when the copy was taken
		if strings.Contains(name, "/base/") && !strings.HasSuffix(name, "00000") {
			if err := n.target().Delete(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	lost.boot()
	if err := lost.pumps(); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	lost.pump()
	if s := lost.arc.Status(); s.State == StateForeign || s.BaseSeq != 0 {
		t.Errorf("%+v", s)
	}
	lost.put("more", 1)
	lost.pump()
	if s := lost.arc.Status(); s.State != StateOK || s.BaseSeq != 13 {
		t.Errorf("%+v", s)
	}
	lost.stop()
}

// The files of a base may be removed while the target does not take its next part: by the base of the
// next line, or by hand. The sender goes on.
func TestBaseIsRemovedWhileSent(t *testing.T) {
	for _, ended := range []string{reasonFull, ""} {
		n := made(t)
		n.put("a", 1)
		if err := n.arc.keep(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.arc.pause = func(int) time.Duration { return 0 }
		to := n.flaws()
		to.create = target.ErrUnreachable
		to.creating = func() {
			to.creating = nil
			change := func(r *record) { r.current().Ended = ended }
			if err := errors.Join(n.arc.dropBase(), n.arc.record.update(change)); err != nil {
				t.Error(err)
			}
		}
		l := n.arc.record.read().current()
		err := n.arc.sendPart(t.Context(), *l)
		if lost := ended == ""; errors.Is(err, errGone) != lost || !lost && err != nil {
			t.Errorf("after the end %q: %v", ended, err)
		}
		if next := n.arc.record.read().current().Next; next != nil {
			t.Errorf("after the end %q: %+v is still to be sent", ended, next)
		}
		n.stop()
	}
}

// A base stays to be sent if the sender stops while a file of the target's credentials is missing.
func TestBaseStaysAtAStop(t *testing.T) {
	n := made(t)
	if err := n.arc.keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.arc.pause = func(int) time.Duration { return 0 }
	ctx, cancel := context.WithCancel(t.Context())
	to := n.flaws()
	to.create = fmt.Errorf("%w: %w", target.ErrDenied, fs.ErrNotExist)
	to.creating = cancel
	l := n.arc.record.read().current()
	if err := n.arc.sendPart(ctx, *l); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if l := n.arc.record.read().current(); l.Next == nil || l.Lost != 0 {
		t.Errorf("%+v", l)
	}
	n.stop()
}

// A call of Base waits for a line that begins: at the start, and after a gap.
func TestBaseWaitsForALine(t *testing.T) {
	n := made(t)
	based := make(chan error)
	for range 2 {
		n.arc.asked.Store(false)
		go func() {
			_, err := n.arc.Base(t.Context(), nil)
			based <- err
		}()
		for !n.arc.asked.Load() {
			select {
			case err := <-based:
				t.Fatalf("it does not wait: %v", err)
			case <-time.After(time.Millisecond):
			}
		}
		n.pump()
		if err := <-based; err != nil {
			t.Error(err)
		}
		n.put("a", 1)
		n.arc.tap.stop(reasonGap)
	}
	n.stop()
}

// A new target gets its mark though the first base may take long.
func TestMarkBeforeTheBase(t *testing.T) {
	n := made(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- n.arc.runSender(ctx) }()
	for n.target().Open(t.Context(), false) != nil {
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	<-ended
	n.stop()
}

// A call of Base that finds the next snapshot under way waits for it, though an earlier one has
// failed.
func TestBaseAfterAFailure(t *testing.T) {
	n := made(t)
	n.pump()
	n.put("a", 1)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	n.arc.asked.Store(true)
	if n.arc.takeBase(gone) == nil {
		t.Fatal("the first one has not failed")
	}
	n.arc.stage.Store(&copying{})
	within, stop := context.WithTimeout(t.Context(), 5*sendEvery)
	defer stop()
	if _, err := n.arc.Base(within, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it does not wait: %v", err)
	}
	n.arc.stage.Store(nil)
	n.stop()
}

// The next base may be taken as soon as one is complete: the files of the one are removed, and not
// those of the next.
func TestBaseBesideTheLast(t *testing.T) {
	n := made(t)
	n.pump()
	seq := n.put("a", 1)
	n.arc.asked.Store(true)
	n.arc.d.Based = func(time.Time) {
		n.arc.d.Based = nil
		seq = n.put("b", 1)
		n.arc.asked.Store(true)
		if err := n.arc.keep(t.Context()); err != nil {
			t.Error(err)
		}
	}
	n.pump()
	if s := n.arc.Status(); s.BaseSeq != seq || s.LastError != "" {
		t.Errorf("%+v, want a base of %d", s, seq)
	}
	if left, err := os.ReadDir(n.arc.baseDir()); err != nil || len(left) != 0 {
		t.Errorf("%d files of bases are left, %v", len(left), err)
	}
	n.sound()
	n.stop()
}
