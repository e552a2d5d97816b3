package registry

import (
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/obs"
)

// Readiness keys.
const (
	keyCommitReady = "commit_ready" // hard: commits are taken and get through
	keyBusAttached = "bus_attached" // soft: the publisher follows the log
	keyHasGenesis  = "genesis"      // soft: a log without one is waiting for it, not broken

	keyForkGuard    = "fork_guard"         // soft: an older file serves reads, and the other services write
	keyCheckpointor = "checkpointor_ready" // soft: commits go on without checkpoints
)

// Bounds behind commit_ready.
const (
	probeEvery  = 250 * time.Millisecond
	maxOpAge    = 2 * time.Second
	queueFull   = 0.9
	queueFullIn = 5 * time.Second
)

func (e *Engine) probes() []obs.Probe {
	queues := &queueWatch{e: e}
	return []obs.Probe{
		{Service: service, Key: keyCommitReady, Hard: true, Plane: obs.WritePlane, Every: probeEvery, Bad: 2, Good: 4,
			Func: func() error { return e.commitReady(queues) }},
		{Service: service, Key: keyBusAttached, Plane: obs.WritePlane},
		{Service: service, Key: keyForkGuard, Plane: obs.WritePlane},
		{Service: service, Key: keyCheckpointor, Plane: obs.WritePlane},
		{Service: service, Key: keyHasGenesis, Plane: obs.WritePlane, Every: probeEvery, Bad: 1, Good: 1, Func: e.hasGenesis},
	}
}

// commitReady says why a commit would not get through now.
func (e *Engine) commitReady(queues *queueWatch) error {
	if err := e.ready(); err != nil && e.guard.Load() == nil { // fork_guard has a key of its own
		return err
	}
	if !e.running.Load() {
		return &NotReadyError{Cause: CausePipelineDown}
	}
	now := e.now()
	if since := e.busySince.Load(); since != 0 && now.Sub(time.Unix(0, since)) > maxOpAge {
		return fmt.Errorf("oldest request has waited %s", now.Sub(time.Unix(0, since)).Round(time.Millisecond))
	}
	return queues.check(now)
}

func (e *Engine) hasGenesis() error {
	if e.Head().Head.Version == 0 {
		return errors.New(CauseNoGenesis)
	}
	return nil
}

// queueWatch remembers since when a queue has been nearly full. One sampler at a time uses it: the board runs each sample
// of a probe once.
type queueWatch struct {
	e     *Engine
	since time.Time
}

func (q *queueWatch) check(now time.Time) error {
	if !nearlyFull(q.e.proposals.Len(), q.e.proposals.Cap()) && !nearlyFull(q.e.approvals.Len(), q.e.approvals.Cap()) {
		q.since = time.Time{}
		return nil
	}
	if q.since.IsZero() {
		q.since = now
	}
	if now.Sub(q.since) >= queueFullIn {
		return errors.New("queue over 90 % for 5 s")
	}
	return nil
}

func nearlyFull(n, bound int) bool { return float64(n) > queueFull*float64(bound) }
