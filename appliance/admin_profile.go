package appliance

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"time"

	"ronbox/httpapi"
)

// maxProfile bounds a profile that runs for a while: it slows the node down.
const maxProfile = 5 * time.Minute

// Rates of the profiles that are off until they are asked for: each blocking of 10 µs or longer, every tenth contention.
const (
	blockRate     = 10_000
	mutexFraction = 10
)

// Profile writes one of Go's profiles, an execution trace, or the last seconds that the flight recorder holds. One that
// watches the node does so for d, or until ctx ends; there is one at a time. A flight recorder that rests is started for
// the length of its window, but for no more than d.
func (n *Node) Profile(ctx context.Context, name string, d time.Duration, w io.Writer) error {
	d = min(max(d, 0), maxProfile)
	switch name {
	case "heap", "allocs", "goroutine", "threadcreate":
		return pprof.Lookup(name).WriteTo(w, 0)
	case "flight":
		return n.writeFlight(ctx, d, w)
	case "block", "mutex", "profile", "trace":
	default:
		return httpapi.ErrNoSuch
	}
	if !n.profiling.CompareAndSwap(false, true) {
		return &httpapi.ConflictError{Reason: "a profile is being taken: wait until it is done"}
	}
	defer n.profiling.Store(false)
	return watch(ctx, name, d, w)
}

// watch takes a profile that lasts.
func watch(ctx context.Context, name string, d time.Duration, w io.Writer) error {
	switch name {
	case "profile":
		if err := pprof.StartCPUProfile(w); err != nil {
			return &httpapi.ConflictError{Reason: err.Error()}
		}
		defer pprof.StopCPUProfile()
	case "trace":
		if err := trace.Start(w); err != nil {
			return &httpapi.ConflictError{Reason: err.Error()}
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

// pass waits for d, or until ctx ends.
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

// writeFlight writes the window of the flight recorder as soon as it is whole, or d long.
func (n *Node) writeFlight(ctx context.Context, d time.Duration, w io.Writer) error {
	if err := n.flight.Start(); err != nil {
		return &httpapi.ConflictError{Reason: "the flight recorder does not run: " + err.Error()}
	}
	defer n.flight.Stop()
	if err := pass(ctx, min(d, n.flight.Lacks())); err != nil {
		return err
	}
	if _, err := n.flight.WriteTo(w); err != nil {
		return fmt.Errorf("flight recorder: %w", err)
	}
	return nil
}
