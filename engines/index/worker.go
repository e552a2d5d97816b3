package index

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/index/lookup"
	"ronbox/engines/index/name"
	"ronbox/engines/index/peers"
)

// leastRead is the least time before its deadline at which a worker begins a job. With less, it
// does not read the file.
const leastRead = 5 * time.Millisecond

// errNoWorker is returned when a lookup waited too long for a worker and cannot be begun.
var errNoWorker = fmt.Errorf("no worker was free in time: %w", flow.ErrBusy)

// runWorker answers queued lookups, one at a time, until work_tx is closed and empty. Every fourth
// worker also takes jobs from bg_tx, and runs them while work_tx is empty.
func (e *Engine) runWorker(ctx context.Context) error {
	defer e.turnAway(ctx)
	var background <-chan *job
	if e.lives.Add(1)%4 == 1 {
		background = e.bg.C()
	}
	var held *job // of bg_tx
	for ctx.Err() == nil {
		select {
		case _, ok := <-e.work.C():
			if !ok {
				return e.drained()
			}
			e.serveNext(ctx)
			continue
		default:
		}
		if held != nil {
			e.serveBackground(ctx, held)
			held = nil
			continue
		}
		select {
		case <-ctx.Done():
		case _, ok := <-e.work.C():
			if !ok {
				return e.drained()
			}
			e.serveNext(ctx)
		case j, ok := <-background:
			if held = j; !ok { // closed
				background = nil
			}
		}
	}
	return context.Cause(ctx)
}

// serveBackground runs a job of bg_tx.
func (e *Engine) serveBackground(ctx context.Context, j *job) {
	e.m.background(1)
	j.Deadline = time.Now().Add(e.live().deadline)
	if j.probe != nil {
		e.asker.Probe(ctx, j.probe, j.Deadline)
		return
	}
	e.serve(ctx, j)
}

// drained ends a worker after work_tx was closed. Jobs left in bg_tx have no waiters and are
// discarded.
func (e *Engine) drained() error {
	e.bg.Discard("draining")
	return nil
}

// turnAway fails the queued jobs if the workers were told to stop at once.
func (e *Engine) turnAway(ctx context.Context) {
	if ctx.Err() == nil {
		return
	}
	e.work.Discard("aborted")
	left := e.line.Flush()
	for _, j := range left {
		j.call.Fail(flow.ErrCanceled)
	}
	e.m.canceled(len(left))
	e.bg.Discard("aborted")
}

// serveNext answers the next job of the line.
func (e *Engine) serveNext(ctx context.Context) {
	j := e.line.Take()
	if j == nil { // the job was evicted or failed
		return
	}
	defer func() { e.line.Done(j, j.asked) }()
	e.serve(ctx, j)
}

// serve answers j.
func (e *Engine) serve(ctx context.Context, j *job) {
	if j.call != nil {
		if !j.call.Claim() {
			e.m.canceled(1)
			return
		}
		defer j.call.Fail(name.ErrInternal) // of a panic
	}
	s := e.live()
	least := leastRead
	if j.read {
		least = s.least
	}
	if time.Until(j.Deadline) < least {
		e.m.dropped(1)
		e.finish(s, j, lookup.Outcome{Err: errNoWorker}, "queue")
		return
	}
	if !j.fresh {
		if n, ok := e.answers.Hit(j.Text, j.local, e.now()); ok {
			res, err := cached(n)
			j.settle(res, err)
			return
		}
	}
	if j.call == nil {
		j.Fence = e.mark(s, j)
	}
	if !j.read && e.here(ctx, s, j) {
		return
	}
	begun := time.Now()
	e.asker.LookUp(ctx, &s.pace, j.asking(), func(o lookup.Outcome) {
		if held, ok := j.fromHeld(s, o); ok {
			o = held
		} else if j.by != nil && o.Entry != nil {
			e.learn(j, &o)
		}
		if o.Entry != nil {
			e.finishFound(s, j, o, name.SourcePeer)
		} else {
			e.finish(s, j, o, "dht")
		}
	})
	j.asked = time.Since(begun)
}

// finishFound caches an answer or a "not found", and answers j.
func (e *Engine) finishFound(s *settings, j *job, o lookup.Outcome, source name.Source) {
	if o.Late {
		e.m.timeouts["dht"](1)
		e.m.deadlineHit(1)
	}
	if o.Entry.Silent != nil && e.standIn(s, j, o.Without) {
		return
	}
	o.Entry.Filled, o.Entry.Heard = e.now().UnixNano(), source == name.SourcePeer
	if o.TTL > 0 && j.set.Era == e.peers.Load().Era { // else the name may have another owner now
		if e.answers.Keep(o.Entry, o.TTL, s.pace.StaleFor, o.Until) {
			_ = e.fills.TrySend(o.Entry) // if it is full, the entry stays until it is evicted
		}
		if j.set.Era != e.peers.Load().Era { // the fleet has changed, and the cache may be empty already
			e.answers.Outdate(o.Entry.Key)
		}
	}
	if !o.Entry.Found {
		j.settle(result{}, o.Entry.Missing())
		return
	}
	j.settle(result{o.Entry, source}, nil)
}

// standIn answers j with a stale entry, if there is one. It does not if every peer that gave the
// entry now answers "not found".
func (e *Engine) standIn(s *settings, j *job, without []*peers.Peer) bool {
	if !s.Stale || j.local {
		return false
	}
	n, ok := e.answers.Past(j.Text, e.now())
	if !ok || !n.Outlives(e.now()) || without != nil && !n.HeardBeside(without) {
		return false
	}
	e.m.stale(1)
	j.settle(result{n, name.SourceStale}, nil)
	return true
}

// finish answers a failed lookup: with a stale entry if the peers failed, otherwise with the error.
func (e *Engine) finish(s *settings, j *job, o lookup.Outcome, op string) {
	if errors.Is(o.Err, name.ErrTimeout) {
		e.m.timeouts[op](1)
		e.m.deadlineHit(1)
	}
	_, open := errors.AsType[*name.BreakerOpenError](o.Err)
	failed := open || errors.Is(o.Err, name.ErrTimeout) || errors.Is(o.Err, name.ErrUpstream) ||
		errors.Is(o.Err, flow.ErrBusy)
	if failed && op != "read" && e.standIn(s, j, nil) {
		return
	}
	if errors.Is(o.Err, flow.ErrCanceled) || errors.Is(o.Err, flow.ErrAborted) {
		o.Err = flow.ErrCanceled
		e.m.canceled(1)
	}
	if !errors.Is(o.Err, name.ErrNotFound) && !refused(o.Err) {
		e.events.Publish(name.Event{Kind: name.EventFailed, Key: j.subject(), At: e.now()})
	}
	j.settle(result{}, o.Err)
}

func (j *job) subject() string {
	if j.IsName() {
		return j.Key.String()
	}
	return j.CID.String()
}

func (j *job) settle(res result, err error) {
	switch {
	case j.call == nil:
	case err != nil:
		j.call.Fail(err)
	default:
		j.call.Answer(res)
	}
}
