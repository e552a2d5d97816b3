package obs

import (
	"bytes"
	"errors"
	"io"
	"runtime/trace"
	"sync"
	"time"
)

// Flight keeps an execution trace of the last seconds, to be read after something was slow. It
// records from the first Start to the last Stop. The runtime has one recorder per process. A Flight
// is safe for concurrent use.
type Flight struct {
	mu    sync.Mutex            // a leaf
	rec   *trace.FlightRecorder // nil while stopped; guarded by mu
	users int                   // Starts without a Stop; guarded by mu
	began time.Time             // when rec was started; guarded by mu
}

// The window of a Flight is long enough for a commit that took two seconds. The size is a hint to
// the runtime, which drops whole generations of about a second: a busy node keeps up to 12 MB.
const (
	flightAge   = 5 * time.Second
	flightBytes = 4 << 20
)

// ErrNotRecording is returned when the recorder is not running.
var ErrNotRecording = errors.New("obs: the flight recorder is not running")

// NewFlight returns a Flight that is not recording.
func NewFlight() *Flight {
	return new(Flight)
}

// Start starts recording, unless it is running. Each Start needs a Stop, except one that fails
// because another Flight of the process is recording.
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

// Recording reports whether the recorder is running.
func (f *Flight) Recording() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rec != nil
}

// Lacks returns how much longer it must record until the window is full.
func (f *Flight) Lacks() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rec == nil {
		return flightAge
	}
	return max(0, flightAge-time.Since(f.began))
}

// WriteTo writes the window as of the call, in the format of "go tool trace".
func (f *Flight) WriteTo(w io.Writer) (int64, error) {
	var window bytes.Buffer // so that the recorder is held only for a copy in memory
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

// Stop cancels one Start. The last one stops recording and drops the window.
func (f *Flight) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users == 0 {
		panic("obs: Stop of a flight recorder without Start")
	}
	if f.users--; f.users == 0 {
		f.rec.Stop()
		f.rec = nil
	}
}
