package registry

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

// pipeline is one run of the pipeline task. It owns its state; a restart reads the file again.
type pipeline struct {
	e     *Engine
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
func (e *Engine) runPipeline(ctx context.Context) error {
	defer func() {
		if ctx.Err() != nil {
			e.turnAway()
		}
	}()
	cur, err := e.Load(ctx, e.pub.State.Load())
	if err != nil {
		return fmt.Errorf("read the registry: %w", err)
	}
	e.running.Store(true)
	defer e.running.Store(false)
	e.board.Set(service, keyCommitReady, e.sound()) // at once: the first sample may have been taken before
	p := &pipeline{e: e, cur: cur, props: e.proposals.C(), apprs: e.approvals.C()}
	defer p.answerHeld()
	defer e.tick.Stop()
	tick := e.tick.C()
	for p.closed < 2 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var first *job
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case j, ok := <-p.props:
			first = p.took(&p.props, j, ok)
		case j, ok := <-p.apprs:
			first = p.took(&p.apprs, j, ok)
		case <-tick:
			if err := p.sweep(ctx); err != nil {
				return err
			}
			continue
		}
		if first == nil {
			continue
		}
		if err := p.work(ctx, p.gather(ctx, first)); err != nil {
			return err
		}
	}
	return nil // drained
}

// took counts a closed queue and disables it.
func (p *pipeline) took(q *<-chan *job, j *job, ok bool) *job {
	if ok {
		return j
	}
	*q = nil
	p.closed++
	return nil
}

// gather returns first and the queued jobs after it, up to a batch. A busy pipeline waits for a
// moment, because the callers it has just answered call again; an idle one never waits.
func (p *pipeline) gather(ctx context.Context, first *job) []*job {
	jobs := append(make([]*job, 0, maxBatchJobs), first)
	var linger <-chan time.Time
	if p.last > 2 {
		t := time.NewTimer(busyLinger)
		defer t.Stop()
		linger = t.C
	}
	for len(jobs) < maxBatchJobs {
		var j *job
		var ok bool
		select {
		case j, ok = <-p.props:
			j = p.took(&p.props, j, ok)
		case j, ok = <-p.apprs:
			j = p.took(&p.apprs, j, ok)
		default:
			if linger == nil || len(jobs) >= p.last/2 || p.closed > 0 {
				return jobs
			}
			select {
			case j, ok = <-p.props:
				j = p.took(&p.props, j, ok)
			case j, ok = <-p.apprs:
				j = p.took(&p.apprs, j, ok)
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
func (p *pipeline) work(ctx context.Context, jobs []*job) error {
	p.last = len(jobs)
	oldest := jobs[0].queued
	for _, j := range jobs {
		if j.ctx.Err() == nil && j.reply.Claim() {
			p.held = append(p.held, j)
		} else {
			p.e.skipped(j)
		}
	}
	if len(p.held) == 0 {
		return nil
	}
	p.e.busySince.Store(oldest.UnixNano())
	defer p.e.busySince.Store(0)
	for len(p.held) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := p.batch(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sweep expires proposals and forgets old outcomes. A restored store accepts no work, so sweep
// leaves it alone.
func (p *pipeline) sweep(ctx context.Context) (err error) {
	if p.e.store.Info().Restored || p.e.ready() != nil {
		return nil
	}
	if p.over, err = p.outcomesOver(ctx); err != nil {
		p.forgetter = forgetter{rest: p.clock().Add(forgetEvery)} // so that a damaged row is not read at each tick
		err = p.e.Tolerate(ctx, err)
	}
	if err != nil {
		return fmt.Errorf("look for old outcomes: %w", err)
	}
	defer func() { p.over = nil }()
	if len(p.over) == 0 && len(p.cur.Expired(p.clock(), 1)) == 0 {
		return nil
	}
	return p.batch(ctx)
}

// batch makes one batch of the held jobs, or of a sweep if there are none, and answers the jobs in
// it. Jobs that did not fit stay held. An error ends this run of the pipeline.
func (p *pipeline) batch(ctx context.Context) error {
	made := &plan{}
	err := p.e.rebuild.Do(ctx, func(ctx context.Context) error {
		if p.stale {
			if err := p.reload(ctx); err != nil {
				return err
			}
		}
		made = p.plan(ctx, p.held)
		if len(made.steps) == 0 {
			return nil
		}
		return p.submit(ctx, made)
	})
	switch {
	case err == nil:
		p.succeed(made)
	case errors.Is(err, errReload):
		return err
	case ctx.Err() != nil && !errors.Is(err, flow.ErrUnknown):
		p.fail(made, flow.ErrCanceled) // stopped before anything was written
	default:
		p.fail(made, err)
	}
	return nil
}

// backOff returns the random delay before a refused batch is rebuilt, and counts it.
func (e *Engine) backOff(int) time.Duration {
	e.m.backoff["commit"](1)
	return 50*time.Millisecond + rand.N(50*time.Millisecond)
}

func isGuard(err error) bool {
	var guard *tables.GuardError
	return errors.As(err, &guard)
}

var errReload = errors.New("read the registry again")

func (p *pipeline) reload(ctx context.Context) error {
	cur, err := p.e.Load(ctx, p.cur)
	if err != nil {
		return fmt.Errorf("%w: %w", errReload, err)
	}
	p.cur, p.stale = cur, false
	return nil
}

// clock returns the wall clock in whole milliseconds. It never runs backwards within one run.
func (p *pipeline) clock() time.Time {
	if now := p.e.now().UTC().Truncate(time.Millisecond); now.After(p.now) {
		p.now = now
	}
	return p.now
}
