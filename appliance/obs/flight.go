package obs

import (
	"bytes"
	"errors"
	"io"
	"runtime/trace"
	"sync"
	"time"
)

// Flight keeps the last seconds of what the Go scheduler did, for a look back after something was slow. It records while anyone wants it
// to. The runtime has one recorder for the process. It is safe for concurrent use.
type Flight struct {
	mu    sync.Mutex
	rec   *trace.FlightRecorder // nil while stopped; guarded by mu
	users int                   // Starts without their Stop; guarded by mu
	began time.Time             // when rec was started; guarded by mu
}

// The window of a Flight: long enough to hold a commit that was slow for two seconds. The bytes are a hint to the runtime, which drops
// whole generations of about a second only: a busy node keeps up to 12 MB.
const (
	flightAge   = 5 * time.Second
	flightBytes = 4 << 20
)

// ErrNotRecording says that no window is kept.
var ErrNotRecording = errors.New("obs: the flight recorder is not running")

// NewFlight records nothing until Start.
func NewFlight() *Flight {
	return new(Flight)
}

// Start begins to record. A Flight that records already goes on, until each Start has had its Stop. After an error, which means that
// another Flight of the process records, there is nothing to stop.
func (f *Flight) Start() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rec == nil {
		rec := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: flightAge, MaxBytes: flightBytes})
		if err := rec.Start(); err != nil {
			return err
		}
		f.rec, f.began = rec, time.Now()
	}
	f.users++
	return nil
}

// Recording reports whether there is a window to look at.
func (f *Flight) Recording() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rec != nil
}

// Lacks is for how long it has to go on until the window is whole.
func (f *Flight) Lacks() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rec == nil {
		return flightAge
	}
	return max(0, flightAge-time.Since(f.began))
}

// WriteTo writes the window in the form that "go tool trace" reads, as it was when it was called.
func (f *Flight) WriteTo(w io.Writer) (int64, error) {
	var window bytes.Buffer // the recorder is held no longer than its own memory takes
	if err := f.copyTo(&window); err != nil {
		return 0, err
	}
	return window.WriteTo(w)
}

func (f *Flight) copyTo(window *bytes.Buffer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rec == nil {
		return ErrNotRecording
	}
	_, err := f.rec.WriteTo(window)
	return err
}

// Stop takes one Start back. The last one ends recording and drops the window.
func (f *Flight) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users == 0 {
		panic("obs: a flight recorder is stopped that nobody has started")
	}
	if f.users--; f.users == 0 {
		f.rec.Stop()
		f.rec = nil
	}
}
