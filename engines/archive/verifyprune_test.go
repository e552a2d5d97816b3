package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/engines/archive/history"
	"ronbox/engines/archive/target"
)

// baseDaily makes bases a day apart, of several parts each, and log objects between them.
func (n *node) baseDaily(bases int) {
	n.t.Helper()
	for i := range 6 {
		n.put(string(rune('a'+i)), 300_000)
	}
	for i := range bases {
		n.put("x", i+1)
		n.pump()
		n.put("y", i+1)
		n.arc.asked.Store(true)
		n.pump()
		n.aged(day)
	}
}

// killedAt is a target whose user is killed at a call of Delete.
type killedAt struct {
	target.Target
	left int // calls before it
}

func (k *killedAt) Delete(ctx context.Context, name string) error {
	if k.left--; k.left < 0 {
		return fmt.Errorf("%w: planted", target.ErrUnreachable)
	}
	return k.Target.Delete(ctx, name)
}

// prune prunes by the objects that a has listed, and keeps no time.
func prune(t testing.TB, a *history.Archive) (objects int, err error) {
	t.Helper()
	objects, _, err = a.Prune(t.Context(), history.Pruning{Now: time.Now()})
	return objects, err
}

// A prune that was killed anywhere leaves a sound archive, also if no node ever goes on with it: of
// the begin of a line, and of a whole one.
func TestVerifyAfterAKilledPrune(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 3
	}
	for _, lines := range []int{1, 2} {
		n := made(t)
		n.baseDaily(3)
		if lines == 2 {
			n.arc.tap.stop(reasonGap)
			n.baseDaily(2)
		}
		n.stop()
		for killed := false; ; killed = true {
			to := &killedAt{Target: n.target(), left: step}
			a, err := history.Open(t.Context(), to, "")
			if err != nil {
				t.Fatal(err)
			}
			_, err = prune(t, a)
			c := n.sound()
			if err == nil && killed && c.Lines == 1 {
				break
			}
			if !errors.Is(err, target.ErrUnreachable) || c.Bases < 2 {
				t.Fatalf("%+v, %v", c, err)
			}
		}
		n.restores(n.store.Info().Seq)
	}
}

// It is no prune if fewer than two complete bases are left, or if the base before is there.
func TestVerifyFirstPartsMissing(t *testing.T) {
	for _, tt := range []struct{ bases, cut, findings int }{
		{3, 1, 0}, {2, 1, 1}, {3, 2, 2}, {4, 2, 1}, {2, 2, 3}, // one of them: nothing can be restored
	} {
		n := made(t)
		n.baseDaily(tt.bases - 1)
		n.stop()
		left := tt.cut
		for _, name := range n.objects() {
			if left == 0 || !strings.HasSuffix(name, "/00000") {
				continue
			}
			left--
			if err := n.target().Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		if c, err := n.history().Verify(t.Context(), n.options()); err != nil || len(c.Findings) != tt.findings {
			t.Errorf("%+v: %+v, %v", tt, c, err)
		}
	}
}

// The bases of another node restore nothing of this one.
func TestVerifyNodeWithoutABase(t *testing.T) {
	n, other := made(t), made(t)
	n.put("a", 1)
	n.pump()
	n.stop()
	first := n.objects()[0]
	other.stop()
	other.cfg.Target = n.cfg.Target
	other.boot()
	other.put("b", 1)
	other.pump()
	other.stop()
	if err := n.target().Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	c, err := n.history().Verify(t.Context(), history.Options{})
	if err != nil || len(c.Findings) == 0 {
		t.Errorf("%s is gone: %+v, %v", first, c, err)
	}
}

// meddled is a target with another user, who comes before one of the calls of Read.
type meddled struct {
	target.Target
	left atomic.Int64 // calls before it
	do   func()
}

func (m *meddled) Read(ctx context.Context, name string, from, n int64) ([]byte, error) {
	if m.left.Add(-1) == -1 {
		m.do()
	}
	return m.Target.Read(ctx, name, from, n)
}

// besides calls use with an archive of copies of a target, each time with a prune before another read.
func (n *node) besides(every int, use func(a *history.Archive, calls int)) {
	n.t.Helper()
	all := os.DirFS(n.root())
	for calls, came := 0, true; came; calls += every {
		came = false
		n.cfg.Target = "file://" + n.t.TempDir()
		if err := os.CopyFS(n.root(), all); err != nil {
			n.t.Fatal(err)
		}
		to := &meddled{Target: n.target(), do: func() {
			came = true
			if objects, err := prune(n.t, n.history()); err != nil || objects == 0 {
				n.t.Errorf("%d objects, %v", objects, err)
			}
		}}
		to.left.Store(int64(calls))
		a, err := history.Open(n.t.Context(), to, "")
		if err != nil {
			n.t.Fatal(err)
		}
		use(a, calls)
	}
}

// A prune at any moment of a list, a verify or a drill makes no sound archive damaged.
func TestVerifyBesideAPrune(t *testing.T) {
	n := made(t)
	n.baseDaily(2)
	n.arc.tap.stop(reasonGap)
	n.baseDaily(3)
	n.stop()
	every := 1
	if testing.Short() {
		every = 4
	}
	n.besides(every, func(a *history.Archive, calls int) {
		for _, l := range a.Lines {
			if _, err := a.Span(t.Context(), l); err != nil {
				t.Errorf("a list with a prune before read %d: %v", calls, err)
			}
		}
	})
	noted := 0
	n.besides(every, func(a *history.Archive, calls int) {
		c, err := a.Verify(t.Context(), n.options())
		if err != nil || len(c.Findings) > 0 {
			t.Errorf("a prune before read %d: %+v, %v", calls, c, err)
		}
		noted += len(c.Notes)
	})
	if noted == 0 {
		t.Error("no prune was noted")
	}
	n.besides(5*every, func(a *history.Archive, calls int) {
		d, err := a.Rehearse(t.Context(), t.TempDir(), time.Now(), n.options())
		if err != nil || d.Restored.Manifest.StateHash.String() != n.states[d.Restored.Reached.Seq] {
			t.Errorf("a drill with a prune before read %d: %+v, %v", calls, d, err)
		}
	})
}

// An object that is lost after it was listed is found, unless it is the first one, no complete base
// needs it, and two others are left: a prune would delete it.
func TestVerifyLostMeanwhile(t *testing.T) {
	n := made(t)
	n.baseDaily(2)
	n.stop()
	for i, name := range n.objects() {
		path := filepath.Join(n.root(), name)
		a := n.history()
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		first := i == 0 || strings.HasSuffix(name, "/log/"+objectName(0))
		c, err := a.Verify(t.Context(), n.options())
		named := slices.ContainsFunc(c.Findings, func(f history.Finding) bool { return f.Object == name })
		if err != nil || named == first || first && len(c.Notes) == 0 {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
	}
}
