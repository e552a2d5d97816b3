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

	"ronbox/appliance/flow"
)

// Bounds of the dumps that are kept: each is at most some MiB.
const (
	flightDir   = "flight"
	flightFiles = 8
	flightEach  = time.Minute // between two: a disk that is slow already is not to be filled with dumps
)

// slowCommit is a commit that took over 2 s.
type slowCommit struct {
	op   string
	took time.Duration
}

// commitWasSlow is told by the committer; it does not wait for the disk that is slow.
func (n *Node) commitWasSlow(op string, took time.Duration) { _ = n.slow.TrySend(slowCommit{op, took}) }

// runFlightRecorder keeps what the scheduler did around a slow commit. In memory mode nothing is kept.
func (n *Node) runFlightRecorder(ctx context.Context) error {
	if err := n.flight.Start(); err != nil {
		n.log.Debug("flight recorder does not run", "reason", err.Error()) // another node of this process has it
	}
	defer n.flight.Stop()
	var last time.Time
	for {
		slow, err := n.slow.Recv(ctx)
		if errors.Is(err, flow.ErrClosed) {
			return nil // drained
		}
		if err != nil {
			return err
		}
		if n.boot.Amnesia.Enabled || !n.flight.Recording() || !last.IsZero() && time.Since(last) < flightEach {
			continue
		}
		last = time.Now()
		path, err := n.keepFlight(n.boot.Path(flightDir), slow)
		if err != nil {
			n.log.Warn("flight_not_kept", "reason", err.Error())
			continue
		}
		n.log.Warn("flight_kept", "file", path, "op", slow.op, "took_ms", slow.took.Milliseconds(), "next", "look at it with `go tool trace`")
	}
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
