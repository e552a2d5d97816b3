package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/obs"
	"ronbox/httpapi"
	nodehttp "ronbox/httpapi/node"
)

// Bounds of the saved dumps, each of a few MiB.
const (
	flightDir   = "flight"
	flightFiles = 8
	flightEach  = time.Minute // least interval, so that dumps do not fill a slow disk
)

// The recorder costs a busy node a tenth of its processor time, so it runs only while commits are
// slow.
const (
	recorderEvery = 250 * time.Millisecond
	// far longer than a sync, and early enough to record most of a commit that will be saved
	longCommit = 250 * time.Millisecond
	calmAfter  = time.Minute // slow commits often follow each other
)

// recorderSwitch runs the recorder while commits are slow. It is owned by runFlightRecorder.
type recorderSwitch struct {
	flight *obs.Flight
	long   time.Time // last time that a long commit was seen
	on     bool
}

// update starts the recorder if the current commit has been running for longCommit, and stops it
// after calmAfter without such a commit.
func (l *recorderSwitch) update(now time.Time, age time.Duration) error {
	if age < longCommit {
		if now.Sub(l.long) >= calmAfter {
			l.stop()
		}
		return nil
	}
	if !l.on {
		if err := l.flight.Start(); err != nil {
			return err
		}
		l.on = true
	}
	l.long = now
	return nil
}

func (l *recorderSwitch) stop() {
	if l.on {
		l.flight.Stop()
		l.on = false
	}
}

// slowCommit is a commit that took over 2 s.
type slowCommit struct {
	op   string
	took time.Duration
}

// commitWasSlow is called by the committer and does not block.
func (n *Node) commitWasSlow(op string, took time.Duration) { _ = n.slow.TrySend(slowCommit{op, took}) }

// runFlightRecorder records while commits are slow, and saves the execution trace around a commit
// of more than 2 s.
func (n *Node) runFlightRecorder(ctx context.Context) error {
	defer n.recorderTick.Stop()
	out := recorderSwitch{flight: n.flight}
	defer out.stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.recorderTick.C():
			n.watchCommit(&out)
		case slow, ok := <-n.slow.C():
			if !ok || ctx.Err() != nil {
				return context.Cause(ctx) // nil: drained
			}
			if n.canKeep() && (last.IsZero() || time.Since(last) >= flightEach) {
				last = time.Now()
				n.keepSlow(slow)
			}
		}
	}
}

// watchCommit checks the age of the current commit. In amnesia mode nothing could be saved.
func (n *Node) watchCommit(out *recorderSwitch) {
	if n.boot.Amnesia.Enabled {
		return
	}
	if err := out.update(time.Now(), n.store.CommitAge()); err != nil {
		n.log.Debug("flight recorder does not run", "reason", err.Error()) // another node of this process uses it
	}
}

// canKeep reports whether there is a trace to save and a disk to save it to.
func (n *Node) canKeep() bool { return n.flight.Recording() && !n.boot.Amnesia.Enabled }

// keepSlow saves and logs the trace around a slow commit.
func (n *Node) keepSlow(slow slowCommit) {
	path, err := n.keepFlight(n.boot.Path(flightDir), slow)
	if err != nil {
		n.log.Warn("flight_not_kept", "reason", err.Error())
		return
	}
	n.log.Warn(
		"flight_kept",
		"file",
		path,
		"op",
		slow.op,
		"took_ms",
		slow.took.Milliseconds(),
		"next",
		"look at it with `go tool trace`",
	)
}

// keepFlight writes a dump and removes the oldest ones.
func (n *Node) keepFlight(dir string, slow slowCommit) (path string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path = filepath.Join(dir, fmt.Sprintf("flight-%s.trace", n.wall().UTC().Format("20060102T150405.000000000Z")))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = n.flight.WriteTo(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return path, trim(dir, flightFiles)
}

// trim removes all but the newest keep dumps. Their names contain their times.
func trim(dir string, keep int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		return !strings.HasPrefix(e.Name(), "flight-") || !strings.HasSuffix(e.Name(), ".trace")
	})
	for _, e := range entries[:max(0, len(entries)-keep)] { // ReadDir sorts
		err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
	}
	return err
}

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
		return &nodehttp.ConflictError{Reason: "a profile is being taken: wait until it is done"}
	}
	defer n.profiling.Store(false)
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
func (n *Node) writeFlight(ctx context.Context, d time.Duration, w io.Writer) error {
	if err := n.flight.Start(); err != nil {
		return &nodehttp.ConflictError{Reason: "the flight recorder does not run: " + err.Error()}
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
