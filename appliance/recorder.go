package appliance

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
	nodeapi "ronbox/httpapi/node"
)

// Bounds of the dumps that are kept: each is at most some MiB.
const (
	flightDir   = "flight"
	flightFiles = 8
	flightEach  = time.Minute // between two: a disk that is slow already is not to be filled with dumps
)

// When the recorder runs: it takes a tenth of the processors of a busy node.
const (
	recorderEvery = 250 * time.Millisecond
	longCommit    = 250 * time.Millisecond // far more than a sync takes, and early enough for most of one that will be kept
	calmAfter     = time.Minute            // slow commits seldom come alone
)

// recorderSwitch has the recorder run while commits take long. It is owned by runFlightRecorder.
type recorderSwitch struct {
	flight *obs.Flight
	long   time.Time // of the last look that saw a long commit
	on     bool
}

// look starts the recorder once a commit has been running for long, and stops it when there was none for a while.
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

// commitWasSlow is called by the committer; it does not wait for the disk that is slow.
func (n *Node) commitWasSlow(op string, took time.Duration) { _ = n.slow.TrySend(slowCommit{op, took}) }

// runFlightRecorder records while commits take long, and keeps what the scheduler did around one that was slow.
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

// lookOut looks at the commit that runs. In memory mode nothing would be kept.
func (n *Node) watchCommit(out *recorderSwitch) {
	if n.boot.Amnesia.Enabled {
		return
	}
	if err := out.update(time.Now(), n.store.CommitAge()); err != nil {
		n.log.Debug("flight recorder does not run", "reason", err.Error()) // another node of this process has it
	}
}

// keeps reports whether there is a window to keep, and where to.
func (n *Node) canKeep() bool { return n.flight.Recording() && !n.boot.Amnesia.Enabled }

// keepSlow keeps the window around a slow commit, and says so.
func (n *Node) keepSlow(slow slowCommit) {
	path, err := n.keepFlight(n.boot.Path(flightDir), slow)
	if err != nil {
		n.log.Warn("flight_not_kept", "reason", err.Error())
		return
	}
	n.log.Warn("flight_kept", "file", path, "op", slow.op, "took_ms", slow.took.Milliseconds(), "next", "look at it with `go tool trace`")
}

// keepFlight writes a dump and lets the oldest go.
func (n *Node) keepFlight(dir string, slow slowCommit) (path string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path = filepath.Join(dir, fmt.Sprintf("flight-%s.trace", n.now().UTC().Format("20060102T150405.000000000Z")))
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

// trim keeps the newest dumps; their names are their times.
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

// maxProfile bounds a profile that runs for a while: it slows the node down.
const maxProfile = 5 * time.Minute

// Rates of the profiles that are off until they are asked for: each blocking of 10 µs or longer, every tenth contention.
const (
	blockRate     = 10_000
	mutexFraction = 10
)

// Profile writes one of Go's profiles, an execution trace, or the last seconds that the flight recorder holds. One that
// watches the node does so for d, or until ctx ends; there is one at a time. A flight recorder that is off is started for
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
		return &nodeapi.ConflictError{Reason: "a profile is being taken: wait until it is done"}
	}
	defer n.profiling.Store(false)
	return watch(ctx, name, d, w)
}

// watch takes a profile that lasts.
func watch(ctx context.Context, name string, d time.Duration, w io.Writer) error {
	switch name {
	case "profile":
		if err := pprof.StartCPUProfile(w); err != nil {
			return &nodeapi.ConflictError{Reason: err.Error()}
		}
		defer pprof.StopCPUProfile()
	case "trace":
		if err := trace.Start(w); err != nil {
			return &nodeapi.ConflictError{Reason: err.Error()}
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
		return &nodeapi.ConflictError{Reason: "the flight recorder does not run: " + err.Error()}
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
