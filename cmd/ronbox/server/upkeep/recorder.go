package upkeep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// Bounds of the saved dumps, each of a few MiB.
const (
	flightFiles = 8
	flightEach  = time.Minute // least interval, so that dumps do not fill a slow disk
)

// slowCap is the size of the queue of slow commits: one dump covers those that follow it closely.
const slowCap = 1

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

// Recorder records what the scheduler does while commits are slow, and takes profiles.
type Recorder struct {
	d         RecorderDeps
	slow      *flow.Queue[slowCommit]
	tick      *flow.Ticker
	profiling atomic.Bool // one profile at a time
}

// RecorderDeps are the neighbours of a Recorder.
type RecorderDeps struct {
	Catalog   *flow.Catalog
	Service   string // whose task it is
	Log       hclog.Logger
	Flight    *obs.Flight
	Wall      func() time.Time
	CommitAge func() time.Duration // of the current commit
	Dir       string               // folder of the dumps; "": none are kept
}

// NewRecorder returns the recorder of a node. It starts nothing.
func NewRecorder(d RecorderDeps) *Recorder {
	return &Recorder{
		d: d,
		slow: flow.NewQueue[slowCommit](d.Catalog, flow.Spec{
			Service: d.Service, Name: "slow_commits", Cap: slowCap, Policy: "drop newest",
			Producers: []string{"store.committer"}, Consumers: []string{"flight_recorder"},
			Doc: "commits over 2 s, to be looked into; one at a time",
		}),
		tick: flow.Every(d.Catalog, flow.Spec{
			Service:   d.Service,
			Name:      "recorder_tick",
			Consumers: []string{"flight_recorder"},
			Doc:       "looks how long the commit that runs has taken",
		}, recorderEvery),
	}
}

// Slow is called by the committer after a slow commit, and does not block.
func (r *Recorder) Slow(op string, took time.Duration) { _ = r.slow.TrySend(slowCommit{op, took}) }

// Run records while commits are slow, and saves the execution trace around a commit
// of more than 2 s.
func (r *Recorder) Run(ctx context.Context) error {
	defer r.tick.Stop()
	out := recorderSwitch{flight: r.d.Flight}
	defer out.stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.tick.C():
			r.watchCommit(&out)
		case slow, ok := <-r.slow.C():
			if !ok || ctx.Err() != nil {
				return context.Cause(ctx) // nil: drained
			}
			if r.canKeep() && (last.IsZero() || time.Since(last) >= flightEach) {
				last = time.Now()
				r.keepSlow(slow)
			}
		}
	}
}

// watchCommit checks the age of the current commit, once a second while none is running. Without a
// folder nothing could be saved.
func (r *Recorder) watchCommit(out *recorderSwitch) {
	age := r.d.CommitAge()
	if age == 0 || r.d.Dir == "" {
		r.tick.Rest()
	} else {
		r.tick.Wake()
	}
	if r.d.Dir == "" {
		return
	}
	if err := out.update(time.Now(), age); err != nil {
		r.d.Log.Debug("flight recorder does not run", "reason", err.Error()) // another node of this process uses it
	}
}

// canKeep reports whether there is a trace to save and a disk to save it to.
func (r *Recorder) canKeep() bool { return r.d.Flight.Recording() && r.d.Dir != "" }

// keepSlow saves and logs the trace around a slow commit.
func (r *Recorder) keepSlow(slow slowCommit) {
	path, err := r.keepFlight(r.d.Dir, slow)
	if err != nil {
		r.d.Log.Warn("flight_not_kept", "reason", err.Error())
		return
	}
	r.d.Log.Warn(
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
func (r *Recorder) keepFlight(dir string, slow slowCommit) (path string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path = filepath.Join(dir, fmt.Sprintf("flight-%s.trace", r.d.Wall().UTC().Format("20060102T150405.000000000Z")))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = r.d.Flight.WriteTo(f)
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
