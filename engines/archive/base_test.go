package archive

import (
	"context"
	"errors"
	"testing"
	"time"
)

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
	n.sound()
	n.stop()
}
