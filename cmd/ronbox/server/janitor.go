package server

import (
	"context"
	"errors"
	"time"

	"ronbox/cmd/ronbox/server/tokens"
	nodehttp "ronbox/httpapi/node"
)

// Periods of the jobs that no configuration sets.
const (
	sweepEvery  = time.Minute
	rotateEvery = time.Minute
)

// job is a periodic job of the janitor.
type job struct {
	name  string
	every func() time.Duration // 0: never
	do    func(ctx context.Context) error
	last  time.Time // last start; owned by the janitor
}

// due reports whether the job is due.
func (j *job) due(now time.Time) bool {
	every := j.every()
	return every > 0 && now.Sub(j.last) >= every
}

// fixed returns a constant period.
func fixed(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// jobs returns all jobs, the most urgent first.
func (n *Node) jobs(now time.Time) []*job {
	out := []*job{{name: "purge", every: n.purgeEvery, do: n.purgeCaches, last: now}}
	for _, r := range n.recovered() {
		if r.jobs != nil {
			out = append(out, r.jobs(n, now)...)
		}
	}
	return append(
		out,
		&job{name: "auth_sweep", every: fixed(sweepEvery), do: n.Sweep},
		&job{
			name:  "key_rotation",
			every: fixed(rotateEvery),
			do:    func(ctx context.Context) error { return n.RotateDue(ctx, tokens.Self("janitor")) },
		},
		&job{name: "expiries", every: fixed(expiryEvery), do: n.readExpiries},
		&job{
			name:  "snapshot",
			every: n.snapshotEvery,
			do:    n.scheduledSnapshot,
			last:  n.lastSnapshot(now),
		},
	)
}

// runJanitor runs the jobs that are due, one after the other. A failed job is logged and runs again
// when it is due again.
func (n *Node) runJanitor(ctx context.Context) error {
	defer n.janitorTick.Stop()
	all := n.jobs(n.now())
	for {
		n.janitorTick.Set(n.pace())
		n.doDue(ctx, all)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.janitorTick.C():
		}
	}
}

// doDue runs the jobs that are due.
func (n *Node) doDue(ctx context.Context, all []*job) {
	for _, j := range all {
		if now := n.now(); ctx.Err() == nil && j.due(now) {
			j.last = now
			n.doJob(ctx, j)
		}
	}
}

// pace returns the interval of the janitor, at most that of the cache purges.
func (n *Node) pace() time.Duration {
	if every := n.purgeEvery(); every > 0 {
		return min(every, tickEvery)
	}
	return tickEvery
}

func (n *Node) doJob(ctx context.Context, j *job) {
	err := j.do(ctx)
	if err == nil || ctx.Err() != nil {
		return
	}
	next := "runs again when it is due"
	if dir, ok := errors.AsType[*nodehttp.SnapshotDirError](err); ok {
		next = dir.Next(dir.Error())
	}
	n.log.Warn("job_failed", "job", j.name, "reason", err.Error(), "next", next)
}

// purgeEvery returns the interval of cache purges, or 0 if the node has a disk.
func (n *Node) purgeEvery() time.Duration {
	if !n.boot.Amnesia.Enabled {
		return 0
	}
	return time.Duration(n.conf().Amnesia.PurgeIntervalMS) * time.Millisecond
}

// purgeCaches empties the caches and resets the probe of writes to a disk.
func (n *Node) purgeCaches(context.Context) error {
	for _, r := range n.recovered() {
		if r.cache != "" {
			r.Purge()
			n.metrics.Counter("amnesia_purge_total", ownService, "kind", r.cache)(1)
		}
	}
	n.board.Set(ownService, keyAmnesia, nil)
	return nil
}
