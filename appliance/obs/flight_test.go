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
		for range 2 { // a second start does nothing
			if err := f.Start(); err != nil {
				t.Fatal(err)
			}
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
		f.Stop()
	}
}

// Those who look at once all see a whole window.
func TestFlightConcurrently(t *testing.T) {
	f := NewFlight()
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			var out bytes.Buffer
			if _, err := f.WriteTo(&out); err != nil || !strings.HasPrefix(out.String(), "go 1.") {
				t.Errorf("%d bytes, %v", out.Len(), err)
			}
		})
	}
	all.Wait()
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
