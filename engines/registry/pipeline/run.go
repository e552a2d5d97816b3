package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/tables"
)

// Bounds of a batch and of the waits of the pipeline.
const (
	maxBatchJobs  = 64
	maxBatchBytes = 4 << 20
	// the most that one job adds: a payload, or an entry and thousands of stale proposals
	maxJobBytes = 5 << 19
	busyLinger  = 2 * time.Millisecond // a busy pipeline waits this long for a batch half as large as the last one
	maxSweep    = 256                  // proposals expired in one tick
	tickEvery   = time.Second
	rebuilds    = 3 // after a failed guard
)

// run is one run of the task. It owns its state; a restart reads the file again.
type run struct {
	*Pipeline
	cur   *tables.State // the base of the next batch
	stale bool          // a guard has failed: read the file before the next batch
	last  int           // jobs of the last batch
	now   time.Time

	forgetter forgetter
	over      []ulid.ULID // outcomes that the running sweep removes

	held   []*job // claimed, not yet answered
	sent   bool   // the store has the batch of held
	props  <-chan *job
	apprs  <-chan *job
	closed int // number of closed and empty queues
}

// runPipeline is the only writer of HEAD. It turns queued jobs into batches, one batch at a time.
func (p *Pipeline) runPipeline(ctx context.Context) error {
	defer func() {
		if ctx.Err() != nil {
			p.turnAway()
		}
	}()
	cur, err := p.deps.Reader.Load(ctx, p.deps.Published.State.Load())
	if err != nil {
		return fmt.Errorf("read the registry: %w", err)
	}
	p.running.Store(true)
	defer p.running.Store(false)
	p.deps.Keeper.Running()
	r := &run{Pipeline: p, cur: cur, props: p.proposals.C(), apprs: p.approvals.C()}
	defer r.answerHeld()
	defer p.tick.Stop()
	tick := p.tick.C()
	for r.closed < 2 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var first *job
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case j, ok := <-r.props:
			first = r.took(&r.props, j, ok)
		case j, ok := <-r.apprs:
			first = r.took(&r.apprs, j, ok)
		case <-tick:
			if err := r.sweep(ctx); err != nil {
				return err
			}
			continue
		}
		if first == nil {
			continue
		}
		if err := r.work(ctx, r.gather(ctx, first)); err != nil {
			return err
		}
	}
	return nil // drained
}

// took counts a closed queue and disables it.
func (r *run) took(q *<-chan *job, j *job, ok bool) *job {
	if ok {
		return j
	}
	*q = nil
	r.closed++
	return nil
}

// gather returns first and the queued jobs after it, up to a batch. A busy pipeline waits for a
// moment, because the callers it has just answered call again; an idle one never waits.
func (r *run) gather(ctx context.Context, first *job) []*job {
	jobs := append(make([]*job, 0, maxBatchJobs), first)
	var linger <-chan time.Time
	if r.last > 2 {
		t := time.NewTimer(busyLinger)
		defer t.Stop()
		linger = t.C
	}
	for len(jobs) < maxBatchJobs {
		var j *job
		var ok bool
		select {
		case j, ok = <-r.props:
			j = r.took(&r.props, j, ok)
		case j, ok = <-r.apprs:
			j = r.took(&r.apprs, j, ok)
		default:
			if linger == nil || len(jobs) >= r.last/2 || r.closed > 0 {
				return jobs
			}
			select {
			case j, ok = <-r.props:
				j = r.took(&r.props, j, ok)
			case j, ok = <-r.apprs:
				j = r.took(&r.apprs, j, ok)
			case <-linger:
				return jobs
			case <-ctx.Done():
				return jobs
			}
		}
		if j != nil {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// work claims jobs and runs batches until each is answered.
func (r *run) work(ctx context.Context, jobs []*job) error {
	r.last = len(jobs)
	oldest := jobs[0].queued
	for _, j := range jobs {
		if j.ctx.Err() == nil && j.reply.Claim() {
			r.held = append(r.held, j)
		} else {
			r.skipped(j)
		}
	}
	if len(r.held) == 0 {
		return nil
	}
	r.busySince.Store(oldest.UnixNano())
	defer r.busySince.Store(0)
	for len(r.held) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.batch(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sweep expires proposals and forgets old outcomes. A restored store accepts no work, so sweep
// leaves it alone.
func (r *run) sweep(ctx context.Context) (err error) {
	if r.deps.Store.Info().Restored || r.deps.Keeper.Ready() != nil {
		return nil
	}
	if r.over, err = r.outcomesOver(ctx); err != nil {
		r.forgetter = forgetter{rest: r.clock().Add(forgetEvery)} // so that a damaged row is not read at each tick
		err = r.deps.Reader.Tolerate(ctx, err)
	}
	if err != nil {
		return fmt.Errorf("look for old outcomes: %w", err)
	}
	defer func() { r.over = nil }()
	if len(r.over) == 0 && len(r.cur.Expired(r.clock(), 1)) == 0 {
		return nil
	}
	return r.batch(ctx)
}

// batch makes one batch of the held jobs, or of a sweep if there are none, and answers the jobs in
// it. Jobs that did not fit stay held. An error ends this run of the pipeline.
func (r *run) batch(ctx context.Context) error {
	made := &plan{}
	err := r.rebuild.Do(ctx, func(ctx context.Context) error {
		if r.stale {
			if err := r.reload(ctx); err != nil {
				return err
			}
		}
		made = r.plan(ctx, r.held)
		if len(made.steps) == 0 {
			return nil
		}
		return r.submit(ctx, made)
	})
	switch {
	case err == nil:
		r.succeed(made)
	case errors.Is(err, errReload):
		return err
	case ctx.Err() != nil && !errors.Is(err, flow.ErrUnknown):
		r.fail(made, flow.ErrCanceled) // stopped before anything was written
	default:
		r.fail(made, err)
	}
	return nil
}

// backOff returns the random delay before a refused batch is rebuilt, and counts it.
func (p *Pipeline) backOff(int) time.Duration {
	p.m.backoff(1)
	return 50*time.Millisecond + rand.N(50*time.Millisecond)
}

func isGuard(err error) bool {
	var guard *tables.GuardError
	return errors.As(err, &guard)
}

var errReload = errors.New("read the registry again")

func (r *run) reload(ctx context.Context) error {
	cur, err := r.deps.Reader.Load(ctx, r.cur)
	if err != nil {
		return fmt.Errorf("%w: %w", errReload, err)
	}
	r.cur, r.stale = cur, false
	return nil
}

// clock returns the wall clock in whole milliseconds. It never runs backwards within one run.
func (r *run) clock() time.Time {
	if now := r.deps.Keeper.Now().UTC().Truncate(time.Millisecond); now.After(r.now) {
		r.now = now
	}
	return r.now
}
