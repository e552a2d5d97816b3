package flow

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func newSlots(n int) *Slots {
	return NewSlots(NewCatalog(nil, nil), Spec{Service: "t", Name: "slots", Cap: n})
}

// However many callers come, no more work than there are slots, and each gets its turn.
func TestSlotsBoundTheCallers(t *testing.T) {
	const most, callers = 3, 200
	k := newSlots(most)
	var working, done atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			if err := k.Acquire(t.Context()); err != nil {
				t.Error(err)
				return
			}
			defer k.Release()
			if n := working.Add(1); n > most {
				t.Errorf("%d work at once", n)
			}
			runtime.Gosched()
			working.Add(-1)
			done.Add(1)
		})
	}
	wg.Wait()
	if done.Load() != callers || k.Used() != 0 {
		t.Errorf("%d of %d were done, %d slots are taken", done.Load(), callers, k.Used())
	}
}

// A caller that waits leaves when its context ends, with the cause, and has no slot.
func TestSlotsAreLeftByTheImpatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, gone := newSlots(1), errors.New("gone")
		if !k.TryAcquire() || k.TryAcquire() {
			t.Fatal("there is one slot")
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		left := make(chan error, 1)
		go func() { left <- k.Acquire(ctx) }()
		synctest.Wait()
		cancel(gone)
		if err := <-left; !errors.Is(err, gone) {
			t.Errorf("Acquire = %v", err)
		}
		k.Release()
		if err := k.Acquire(ctx); !errors.Is(err, gone) || k.Used() != 0 {
			t.Errorf("after the end: %v, %d taken", err, k.Used())
		}
	})
}

// Slots are a row of the catalogue, with what is taken and what was refused.
func TestSlotsAreDeclared(t *testing.T) {
	c := NewCatalog(nil, nil)
	k := NewSlots(c, Spec{Service: "t", Name: "few", Cap: 1, Producers: []string{HTTP}})
	all := NewSlots(c, Spec{Service: "t", Name: "all"})
	if all.Cap() != runtime.GOMAXPROCS(0) {
		t.Errorf("%d slots", all.Cap())
	}
	k.TryAcquire()
	k.TryAcquire()
	for _, s := range c.Channels() {
		if s.Name == "few" && (s.Len != 1 || s.Dropped != 1 || s.Kind != KindSlots || s.Policy != Wait) {
			t.Errorf("%+v", s)
		}
	}
	text := c.Markdown()
	for _, want := range []string{"| `few` | slots | 1 | http → - | wait | - |", "| `all` | slots | processors |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nhas no %s", text, want)
		}
	}
	if strings.Contains(c.Mermaid()+c.Overview(), "few") {
		t.Error("slots are drawn as a flow")
	}
}

// A slot that nobody has cannot be released.
func TestSlotsAreReleasedOnce(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	newSlots(1).Release()
}
