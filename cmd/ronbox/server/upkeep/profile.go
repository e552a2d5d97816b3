package upkeep

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"time"

	"ronbox/httpapi"
	nodehttp "ronbox/httpapi/node"
)

// maxProfile bounds the duration of a profile, which slows the node down.
const maxProfile = 5 * time.Minute

// Rates of the profiles that are off by default: every blocking event of 10 µs or longer, and every
// tenth contention.
const (
	blockRate     = 10_000
	mutexFraction = 10
)

// Profile writes a Go profile, an execution trace, or the window of the flight recorder. A profile
// over time takes d, or until ctx ends; only one runs at a time. A flight recorder that is off is
// started and records for its window, but at most for d.
func (r *Recorder) Profile(ctx context.Context, name string, d time.Duration, w io.Writer) error {
	d = min(max(d, 0), maxProfile)
	switch name {
	case "heap", "allocs", "goroutine", "threadcreate":
		return pprof.Lookup(name).WriteTo(w, 0)
	case "flight":
		return r.writeFlight(ctx, d, w)
	case "block", "mutex", "profile", "trace":
	default:
		return httpapi.ErrNoSuch
	}
	if !r.profiling.CompareAndSwap(false, true) {
		return &nodehttp.ConflictError{Reason: "a profile is being taken: wait until it is done"}
	}
	defer r.profiling.Store(false)
	return watch(ctx, name, d, w)
}

// watch takes a profile over time.
func watch(ctx context.Context, name string, d time.Duration, w io.Writer) error {
	switch name {
	case "profile":
		if err := pprof.StartCPUProfile(w); err != nil {
			return &nodehttp.ConflictError{Reason: err.Error()}
		}
		defer pprof.StopCPUProfile()
	case "trace":
		if err := trace.Start(w); err != nil {
			return &nodehttp.ConflictError{Reason: err.Error()}
		}
		defer trace.Stop()
	case "block":
		runtime.SetBlockProfileRate(blockRate)
		defer runtime.SetBlockProfileRate(0)
	case "mutex":
		defer runtime.SetMutexProfileFraction(runtime.SetMutexProfileFraction(mutexFraction))
	}
	if err := pass(ctx, d); err != nil {
		return err
	}
	if name == "block" || name == "mutex" {
		return pprof.Lookup(name).WriteTo(w, 0)
	}
	return nil
}

// pass waits for d or until ctx ends.
func pass(ctx context.Context, d time.Duration) error {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writeFlight writes the window of the flight recorder once it is complete or d long.
func (r *Recorder) writeFlight(ctx context.Context, d time.Duration, w io.Writer) error {
	if err := r.d.Flight.Start(); err != nil {
		return &nodehttp.ConflictError{Reason: "the flight recorder does not run: " + err.Error()}
	}
	defer r.d.Flight.Stop()
	if err := pass(ctx, min(d, r.d.Flight.Lacks())); err != nil {
		return err
	}
	if _, err := r.d.Flight.WriteTo(w); err != nil {
		return fmt.Errorf("flight recorder: %w", err)
	}
	return nil
}
