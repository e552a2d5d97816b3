package upkeep

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	nodehttp "ronbox/httpapi/node"
	"ronbox/store"
)

// tickEvery is the longest interval between two turns of the janitor.
const tickEvery = time.Second

// busyFor is the time after which a job is due again that found the store busy, for example with
// another snapshot, unless its interval is shorter.
const busyFor = time.Minute

// Job is a periodic job of the janitor.
type Job struct {
	Name  string
	Every func() time.Duration // 0: never
	Do    func(ctx context.Context) error
	Last  time.Time // last start, or earlier if the store was busy; owned by the janitor
}

// due reports whether the job is due.
func (j *Job) due(now time.Time) bool {
	every := j.Every()
	return every > 0 && now.Sub(j.Last) >= every
}

// Fixed returns a constant period.
func Fixed(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// Janitor runs the jobs of a node, one at a time.
type Janitor struct {
	d    JanitorDeps
	tick *flow.Ticker
}

// JanitorDeps are the neighbours of a Janitor.
type JanitorDeps struct {
	Catalog *flow.Catalog
	Service string // whose task it is
	Log     hclog.Logger
	Now     func() time.Time
	Jobs    func(now time.Time) []*Job // the most urgent first
	Pace    func() time.Duration       // bounds the interval between turns; 0: no bound
}

// NewJanitor returns the janitor of a node. It starts nothing.
func NewJanitor(d JanitorDeps) *Janitor {
	return &Janitor{d: d, tick: flow.Every(d.Catalog, flow.Spec{
		Service: d.Service, Name: "janitor_tick", Consumers: []string{"janitor"}, Doc: "looks for what is due",
	}, tickEvery)}
}

// Run runs the jobs that are due, one after the other. A failed job is logged and runs again when
// it is due again. If the store was busy, that is after a minute.
func (j *Janitor) Run(ctx context.Context) error {
	defer j.tick.Stop()
	all := j.d.Jobs(j.d.Now())
	for {
		j.tick.Set(j.pace())
		j.Turn(ctx, all)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-j.tick.C():
		}
	}
}

// Turn runs the jobs that are due.
func (j *Janitor) Turn(ctx context.Context, all []*Job) {
	for _, one := range all {
		if now := j.d.Now(); ctx.Err() == nil && one.due(now) {
			one.Last = now
			j.do(ctx, one)
		}
	}
}

// pace returns the interval of the turns.
func (j *Janitor) pace() time.Duration {
	if most := j.d.Pace(); most > 0 {
		return min(most, tickEvery)
	}
	return tickEvery
}

func (j *Janitor) do(ctx context.Context, one *Job) {
	err := one.Do(ctx)
	if err == nil || ctx.Err() != nil {
		return
	}
	next := "runs again when it is due"
	if errors.Is(err, store.ErrBusy) {
		every := one.Every()
		one.Last = one.Last.Add(min(every, busyFor) - every)
		next = "runs again within a minute"
	}
	if dir, ok := errors.AsType[*nodehttp.SnapshotDirError](err); ok {
		next = dir.Next(dir.Error())
	}
	j.d.Log.Warn("job_failed", "job", one.Name, "reason", err.Error(), "next", next)
}
