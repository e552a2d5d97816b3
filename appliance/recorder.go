package appliance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/obs"
)

// Bounds of the dumps that are kept: each is at most some MiB.
const (
	flightDir   = "flight"
	flightFiles = 8
	flightEach  = time.Minute // between two: a disk that is slow already is not to be filled with dumps
)

// When the recorder runs: it takes a tenth of what a busy node has of its processors.
const (
	lookEach   = 250 * time.Millisecond
	longCommit = 250 * time.Millisecond // far more than a sync takes, and early enough for most of one that will be kept
	calmAfter  = time.Minute            // slow commits seldom come alone
)

// lookout has the recorder run while commits take long. It is owned by runFlightRecorder.
type lookout struct {
	flight *obs.Flight
	long   time.Time // of the last look that saw a long commit
	on     bool
}

// look starts the recorder once a commit has been running for long, and stops it when there was none for a while.
func (l *lookout) look(now time.Time, age time.Duration) error {
	if age < longCommit {
		if now.Sub(l.long) >= calmAfter {
			l.rest()
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

func (l *lookout) rest() {
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

// commitWasSlow is told by the committer; it does not wait for the disk that is slow.
func (n *Node) commitWasSlow(op string, took time.Duration) { _ = n.slow.TrySend(slowCommit{op, took}) }

// runFlightRecorder records while commits take long, and keeps what the scheduler did around one that was slow.
func (n *Node) runFlightRecorder(ctx context.Context) error {
	defer n.glance.Stop()
	out := lookout{flight: n.flight}
	defer out.rest()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.glance.C():
			n.lookOut(&out)
		case slow, ok := <-n.slow.C():
			if !ok || ctx.Err() != nil {
				return context.Cause(ctx) // nil: drained
			}
			if n.keeps() && (last.IsZero() || time.Since(last) >= flightEach) {
				last = time.Now()
				n.keepSlow(slow)
			}
		}
	}
}

// lookOut looks at the commit that runs. In memory mode nothing would be kept.
func (n *Node) lookOut(out *lookout) {
	if n.boot.Amnesia.Enabled {
		return
	}
	if err := out.look(time.Now(), n.store.CommitAge()); err != nil {
		n.log.Debug("flight recorder does not run", "reason", err.Error()) // another node of this process has it
	}
}

// keeps tells whether there is a window to keep, and where to.
func (n *Node) keeps() bool { return n.flight.Recording() && !n.boot.Amnesia.Enabled }

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
