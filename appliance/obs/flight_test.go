package obs

import (
	"bytes"
	"errors"
	"runtime/trace"
	"strings"
	"sync"
	"testing"
)

// The window holds what just happened, and can be looked at, stopped and started again.
func TestFlight(t *testing.T) {
	f := NewFlight()
	var out bytes.Buffer
	if _, err := f.WriteTo(&out); !errors.Is(err, ErrNotRecording) || out.Len() > 0 || f.Recording() {
		t.Errorf("a window before the start: %v", err)
	}
	for range 2 {
		if lacks := f.Lacks(); lacks != flightAge || f.Recording() {
			t.Errorf("at rest a window lacks %s", lacks)
		}
		for range 2 {
			if err := f.Start(); err != nil {
				t.Fatal(err)
			}
		}
		f.Stop() // the other one goes on
		if lacks := f.Lacks(); lacks <= 0 || lacks >= flightAge {
			t.Errorf("a window that has begun lacks %s", lacks)
		}
		f.began = f.began.Add(-flightAge)
		if lacks := f.Lacks(); lacks != 0 {
			t.Errorf("a whole window lacks %s", lacks)
		}
		trace.Log(t.Context(), "mark", "slow commit")
		out.Reset()
		n, err := f.WriteTo(&out)
		if err != nil || n != int64(out.Len()) || !f.Recording() {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if !strings.HasPrefix(out.String(), "go 1.") || !strings.Contains(out.String(), "slow commit") {
			t.Errorf("%d bytes that are no trace of it", n)
		}
		f.Stop()
	}
	defer func() {
		if recover() == nil {
			t.Error("a stop without a start is taken")
		}
	}()
	f.Stop()
}

// One that the runtime does not let record has nothing to stop, and may record once the other is
// done.
func TestSecondFlight(t *testing.T) {
	f, other := NewFlight(), NewFlight()
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(); err == nil || f.Recording() {
		t.Errorf("two recorders: %v", err)
	}
	other.Stop()
	if err := f.Start(); err != nil {
		t.Error(err)
	}
	f.Stop()
}

// Those who start, look and stop at once all see a whole window, and the last one ends it.
func TestFlightConcurrently(t *testing.T) {
	f := NewFlight()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 3 {
				if err := f.Start(); err != nil {
					t.Error(err)
					return
				}
				var out bytes.Buffer
				if _, err := f.WriteTo(&out); err != nil || !strings.HasPrefix(out.String(), "go 1.") {
					t.Errorf("%d bytes, %v", out.Len(), err)
				}
				f.Stop()
			}
		})
	}
	all.Wait()
	if f.Recording() {
		t.Error("it goes on, and nobody wants it to")
	}
}

// What recording costs a program that does little but hand work from one goroutine to another.
func BenchmarkFlight(b *testing.B) {
	for _, on := range []bool{false, true} {
		name := map[bool]string{false: "off", true: "on"}[on]
		b.Run(name, func(b *testing.B) {
			if on {
				f := NewFlight()
				if err := f.Start(); err != nil {
					b.Fatal(err)
				}
				defer f.Stop()
			}
			ask, answer := make(chan int), make(chan int)
			go func() {
				defer close(answer)
				for v := range ask {
					answer <- v
				}
			}()
			for b.Loop() {
				ask <- 1
				<-answer
			}
			close(ask)
			<-answer
		})
	}
}
