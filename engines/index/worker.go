package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
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
	j.deadline = time.Now().Add(e.live().deadline)
	if j.probe != nil {
		e.probe(ctx, j)
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
	if time.Until(j.deadline) < least {
		e.m.dropped(1)
		e.finish(s, j, outcome{err: errNoWorker}, "queue")
		return
	}
	if !j.fresh {
		if n, ok := e.hit(j.text, j.local, e.now()); ok {
			res, err := n.answer()
			j.settle(res, err)
			return
		}
	}
	if j.call == nil {
		j.fence = e.mark(s, j)
	}
	if !j.read && e.here(ctx, s, j) {
		return
	}
	begun := time.Now()
	l := e.newLookup(s, j)
	l.done = func(o outcome) {
		if held, ok := j.fromHeld(s, o); ok {
			o = held
		} else if j.owner != nil && o.entry != nil {
			e.learn(j, &o)
		}
		if o.entry != nil {
			e.finishFound(s, j, o, name.SourcePeer)
		} else {
			e.finish(s, j, o, "dht")
		}
	}
	l.run(ctx)
	j.asked = time.Since(begun)
}

// finishFound caches an answer or a "not found", and answers j.
func (e *Engine) finishFound(s *settings, j *job, o outcome, source name.Source) {
	if o.late {
		e.m.timeouts["dht"](1)
		e.m.deadlineHit(1)
	}
	if o.entry.silent != nil && e.standIn(s, j, o.without) {
		return
	}
	o.entry.filled, o.entry.heard = e.now().UnixNano(), source == name.SourcePeer
	if o.ttl > 0 && j.set.Era == e.peers.Load().Era { // else the name may have another owner now
		e.keep(s, o.entry, o.ttl, o.until)
	}
	if !o.entry.found {
		j.settle(result{}, o.entry.missing())
		return
	}
	j.settle(result{o.entry, source}, nil)
}

// standIn answers j with a stale entry, if there is one. It does not if every peer that gave the
// entry now answers "not found".
func (e *Engine) standIn(s *settings, j *job, without []*peers.Peer) bool {
	if !s.Stale || j.local {
		return false
	}
	n, ok := e.past(j.text, e.now())
	if !ok || !n.outlives(e.now()) || without != nil && !n.heardBeside(without) {
		return false
	}
	e.m.stale(1)
	j.settle(result{n, name.SourceStale}, nil)
	return true
}

// heardBeside reports whether a peer outside the list gave the answer.
func (n *entry) heardBeside(list []*peers.Peer) bool {
	return slices.ContainsFunc(n.from, func(p *peers.Peer) bool { return !slices.Contains(list, p) })
}

// finish answers a failed lookup: with a stale entry if the peers failed, otherwise with the error.
func (e *Engine) finish(s *settings, j *job, o outcome, op string) {
	if errors.Is(o.err, name.ErrTimeout) {
		e.m.timeouts[op](1)
		e.m.deadlineHit(1)
	}
	_, open := errors.AsType[*name.BreakerOpenError](o.err)
	failed := open || errors.Is(o.err, name.ErrTimeout) || errors.Is(o.err, name.ErrUpstream) ||
		errors.Is(o.err, flow.ErrBusy)
	if failed && op != "read" && e.standIn(s, j, nil) {
		return
	}
	if errors.Is(o.err, flow.ErrCanceled) || errors.Is(o.err, flow.ErrAborted) {
		o.err = flow.ErrCanceled
		e.m.canceled(1)
	}
	if !errors.Is(o.err, name.ErrNotFound) && !refused(o.err) {
		e.events.Publish(name.Event{Kind: name.EventFailed, Key: j.subject(), At: e.now()})
	}
	j.settle(result{}, o.err)
}

// outlives reports whether the entry is still usable at now: it is a name, or one of its providers
// has not expired.
func (n *entry) outlives(now time.Time) bool {
	return n.providers == nil || len(name.Rank(n.providers, "", 1, now.UnixMilli())) > 0
}

func (j *job) subject() string {
	if j.isName() {
		return j.key.String()
	}
	return j.cid.String()
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

// probe asks a peer with a half-open breaker for an id that no node has, so that the breaker closes
// without traffic.
func (e *Engine) probe(ctx context.Context, j *job) {
	pass, ok := j.probe.Breaker.Permit()
	if !ok {
		return
	}
	ctx, stop := context.WithDeadline(ctx, j.deadline)
	defer stop()
	_, err := j.probe.Providers(ctx, emptyID, 1)
	switch {
	case err == nil, errors.Is(err, name.ErrNotFound):
		j.probe.Settle(pass, flow.Succeeded, nil)
	case ctx.Err() != nil && time.Now().Before(j.deadline): // the node stops
		j.probe.Settle(pass, flow.Neither, nil)
	default:
		j.probe.Settle(pass, flow.Failed, err)
		e.m.peerErrors[kindOf(err)](1)
	}
}

// emptyID is the BLAKE3 of no bytes, a valid id that no peer provides.
var emptyID = b3.Sum(nil)
