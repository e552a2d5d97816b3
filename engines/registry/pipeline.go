package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/flow"
)

// Bounds of one batch and of the pipeline's patience.
const (
	maxBatchJobs  = 64
	maxBatchBytes = 4 << 20
	maxJobBytes   = 5 << 19              // what one job adds: a payload, or an entry and thousands of proposals that go stale
	busyLinger    = 2 * time.Millisecond // how long a busy pipeline waits for a batch as large as half the last one
	maxSweep      = 256                  // proposals expired in one tick
	tickEvery     = time.Second
	rebuilds      = 3 // after a guard has failed
)

// pipeline is one life of the pipeline task. Its state is its own: a restart reads it from the file again.
type pipeline struct {
	e     *Engine
	cur   *state // what the next batch builds on
	stale bool   // a guard has failed: read the file before the next batch
	last  int    // jobs of the last batch
	now   time.Time

	forgetter forgetter
	over      []ulid.ULID // outcomes that the sweep under way removes

	held   []*job // claimed, not yet answered
	sent   bool   // held has been handed to the store
	props  <-chan *job
	apprs  <-chan *job
	closed int // queues that are closed and empty
}

// runPipeline is the sole writer of HEAD: it turns queued jobs into batches, one in flight at a time.
func (e *Engine) runPipeline(ctx context.Context) error {
	defer func() {
		if ctx.Err() != nil {
			e.turnAway()
		}
	}()
	cur, err := e.load(ctx, e.current.Load())
	if err != nil {
		return fmt.Errorf("read the registry: %w", err)
	}
	e.running.Store(true)
	defer e.running.Store(false)
	e.board.Set(service, keyCommitReady, e.sound()) // at once: the first sample may have come before
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

// took notes a closed queue, which is never ready again.
func (p *pipeline) took(q *<-chan *job, j *job, ok bool) *job {
	if ok {
		return j
	}
	*q = nil
	p.closed++
	return nil
}

// gather adds what waits to first, up to a batch. A busy pipeline lingers for a moment, since the callers it has just
// answered are coming back; an idle one never does.
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

// work claims jobs and puts them through batches until each is answered.
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

// sweep expires and forgets what is over. A restored store takes no work, so it is left alone.
func (p *pipeline) sweep(ctx context.Context) (err error) {
	if p.e.store.Info().Restored || p.e.ready() != nil {
		return nil
	}
	if p.over, err = p.outcomesOver(ctx); err != nil {
		p.forgetter = forgetter{rest: p.clock().Add(forgetEvery)} // a damaged row is met again then
		err = p.e.tolerate(ctx, err)
	}
	if err != nil {
		return fmt.Errorf("look for old outcomes: %w", err)
	}
	defer func() { p.over = nil }()
	if len(p.over) == 0 && len(p.cur.expired(p.clock(), 1)) == 0 {
		return nil
	}
	return p.batch(ctx)
}

// batch makes one batch of the jobs held, or of a sweep when there are none, and answers those that were in it. Jobs that
// did not fit stay held. An error ends this life of the pipeline.
func (p *pipeline) batch(ctx context.Context) error {
	made := &plan{}
	err := p.e.rebuild.Do(ctx, func(ctx context.Context) error {
		if p.stale {
			if err := p.reload(ctx); err != nil {
				return err
			}
		}
		made = p.plan(ctx, p.held)
		if len(made.ops) == 0 {
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
		p.fail(made, flow.ErrCanceled) // told to stop before anything was written
	default:
		p.fail(made, err)
	}
	return nil
}

// backOff spreads the rebuilds of a refused batch, and counts them.
func (e *Engine) backOff(int) time.Duration {
	e.m.backoff["commit"](1)
	return 50*time.Millisecond + rand.N(50*time.Millisecond)
}

func isGuard(err error) bool {
	var guard *GuardError
	return errors.As(err, &guard)
}

var errReload = errors.New("read the registry again")

func (p *pipeline) reload(ctx context.Context) error {
	cur, err := p.e.load(ctx, p.cur)
	if err != nil {
		return fmt.Errorf("%w: %w", errReload, err)
	}
	p.cur, p.stale = cur, false
	return nil
}

// clock is the wall clock in whole milliseconds, never running back within one life.
func (p *pipeline) clock() time.Time {
	if now := p.e.now().UTC().Truncate(time.Millisecond); now.After(p.now) {
		p.now = now
	}
	return p.now
}
