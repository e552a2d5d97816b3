package index

import (
	"context"
	"errors"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
)

// leastRead is what must be left of a job's deadline when a worker takes it: with less the file is not read.
const leastRead = 5 * time.Millisecond

// runWorker answers queued lookups, one at a time, until work_tx is closed and empty. Every fourth worker takes from bg_tx too, and does what it
// has taken once work_tx is empty.
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
			if held = j; !ok { // the prefetcher has gone
				background = nil
			}
		}
	}
	return context.Cause(ctx)
}

// serveBackground does a job of bg_tx.
func (e *Engine) serveBackground(ctx context.Context, j *job) {
	e.m.background(1)
	if j.deadline = time.Now().Add(e.live().deadline); j.probe != nil {
		e.probe(ctx, j)
		return
	}
	e.serve(ctx, j)
}

// drained ends a worker: nothing new comes, and what bg_tx still has nobody waits for.
func (e *Engine) drained() error {
	e.bg.Discard("draining")
	return nil
}

// turnAway answers what waits in the queues when the workers were told to stop at once.
func (e *Engine) turnAway(ctx context.Context) {
	if ctx.Err() == nil {
		return
	}
	e.work.Discard("aborted")
	left := e.line.flush()
	for _, j := range left {
		j.call.Fail(flow.ErrCanceled)
	}
	e.m.canceled(len(left))
	e.bg.Discard("aborted")
}

// serveNext answers the job whose turn it is.
func (e *Engine) serveNext(ctx context.Context) {
	j := e.line.take()
	if j == nil { // it was turned away
		return
	}
	defer func() { e.line.done(j, j.asked) }()
	e.serve(ctx, j)
}

// serve answers j.
func (e *Engine) serve(ctx context.Context, j *job) {
	if j.call != nil {
		if !j.call.Claim() {
			e.m.canceled(1)
			return
		}
		defer j.call.Fail(ErrInternal) // of a panic
	}
	s := e.live()
	least := leastRead
	if j.read {
		least = s.least
	}
	if time.Until(j.deadline) < least {
		e.finish(s, j, outcome{err: ErrTimeout}, "queue")
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
	l := &lookup{e: e, s: s, j: j, order: e.orderFor(j.text, j.region)}
	l.done = func(o outcome) {
		if o.entry != nil {
			e.finishFound(s, j, o, SourcePeer)
		} else {
			e.finish(s, j, o, "dht")
		}
	}
	l.run(ctx)
	j.asked = time.Since(begun)
}

// here answers j from this node's file. It returns false if peers are to be asked.
func (e *Engine) here(ctx context.Context, s *settings, j *job) (settled bool) {
	settled = true
	defer func() {
		if settled && j.call != nil {
			j.call.Fail(ErrInternal) // of a panic; else it was answered
		}
	}()
	o, source, final := e.lookUpHere(ctx, s, j)
	if !final && e.admit != nil && j.cost > 0 {
		if ok, wait := e.admit(j.from, j.cost); !ok {
			o, final = outcome{err: &RateError{wait}}, true
		}
	}
	switch {
	case !final:
		j.read = true
		return false
	case o.entry != nil:
		e.finishFound(s, j, o, source)
	default:
		e.finish(s, j, o, "read")
	}
	return true
}

// syncedBy waits until a command is on the disk, until the deadline of j.
func (e *Engine) syncedBy(ctx context.Context, j *job, commit uint64) error {
	if at, _ := e.synced.Load(); commit <= at {
		return nil
	}
	ctx, stop := context.WithDeadlineCause(ctx, j.deadline, ErrTimeout)
	defer stop()
	return e.waitSynced(ctx, commit)
}

// lookUpHere reads the file. final is false where peers are to be asked.
func (e *Engine) lookUpHere(ctx context.Context, s *settings, j *job) (o outcome, source Source, final bool) {
	n := &entry{key: j.text, fence: j.fence}
	if j.isName() {
		row, err := e.readName(ctx, j.key)
		if err == nil {
			err = e.syncedBy(ctx, j, row.Commit)
		}
		if err == nil && !row.Deleted {
			n.found, n.manifest, n.seq, n.updated, n.etag = true, row.Manifest, row.Seq, row.UpdatedMS, quoted(row.Manifest)
			return outcome{entry: n, ttl: s.ttl}, SourceLocal, true
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return outcome{err: err}, "", true
		}
		j.trusted = s.keysFor(j.key)
		ask := err != nil && len(j.trusted) > 0 && len(e.peers) > 0 // the word of a tombstone is this node's own
		if ask && j.local {
			return outcome{err: ErrNotFound}, "", true // which says nothing of the peers
		}
		return outcome{entry: n, ttl: s.neg}, SourceLocal, !ask
	}
	known, last, err := e.readProviders(ctx, j.cid)
	if err == nil {
		err = e.syncedBy(ctx, j, last)
	}
	if err != nil {
		return outcome{err: err}, "", true
	}
	j.known = known
	ask := (len(j.known) == 0 || j.fresh) && len(e.peers) > 0
	switch {
	case len(j.known) > 0 && (!ask || j.local):
		n.found, n.providers, n.etag = true, capped(j.known), etagOf(j.known)
		return outcome{entry: n, ttl: s.ttl, until: firstExpiry(j.known)}, SourceLocal, true
	case ask && j.local:
		return outcome{err: ErrNotFound}, "", true
	}
	return outcome{entry: n, ttl: s.neg}, SourceLocal, !ask
}

// finishFound caches what was found, or that nothing was, and answers.
func (e *Engine) finishFound(s *settings, j *job, o outcome, source Source) {
	o.entry.filled, o.entry.heard = e.now().UnixNano(), source == SourcePeer
	if o.ttl > 0 {
		e.keep(s, o.entry, o.ttl, o.until)
	}
	if !o.entry.found {
		j.settle(result{}, ErrNotFound)
		return
	}
	j.settle(result{o.entry, source}, nil)
}

// finish answers a lookup that came to nothing: with what the cache still has, if it was the peers that failed, or with why.
func (e *Engine) finish(s *settings, j *job, o outcome, op string) {
	if errors.Is(o.err, ErrTimeout) {
		e.m.timeouts[op](1)
		e.m.deadlineHit(1)
	}
	_, open := errors.AsType[*BreakerOpenError](o.err)
	if s.Stale && !j.local && op != "read" && (open || errors.Is(o.err, ErrTimeout) || errors.Is(o.err, ErrUpstream)) {
		if n, ok := e.past(j.text, e.now()); ok && n.outlives(e.now()) {
			e.m.stale(1)
			j.settle(result{n, SourceStale}, nil)
			return
		}
	}
	if errors.Is(o.err, flow.ErrCanceled) || errors.Is(o.err, flow.ErrAborted) {
		o.err = flow.ErrCanceled
		e.m.canceled(1)
	}
	if !errors.Is(o.err, ErrNotFound) && !refused(o.err) {
		e.events.Publish(Event{Kind: eventFailed, Key: j.subject(), At: e.now()})
	}
	j.settle(result{}, o.err)
}

// outlives reports whether something of the entry is good at now: a name, or a provider that has not expired.
func (n *entry) outlives(now time.Time) bool {
	return n.providers == nil || len(rank(n.providers, "", 1, now.UnixMilli())) > 0
}

func (j *job) subject() string {
	if j.isName() {
		return j.key.text
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

// probe asks a peer whose breaker is half-open for an id that nobody has, so that it closes without a caller's help.
func (e *Engine) probe(ctx context.Context, j *job) {
	pass, ok := j.probe.breaker.Permit()
	if !ok {
		return
	}
	ctx, stop := context.WithDeadline(ctx, j.deadline)
	defer stop()
	_, err := j.probe.Providers(ctx, emptyID, 1)
	switch {
	case err == nil, errors.Is(err, ErrNotFound):
		j.probe.settle(pass, flow.Succeeded, nil)
	case ctx.Err() != nil && time.Now().Before(j.deadline): // the node stops
		j.probe.settle(pass, flow.Neither, nil)
	default:
		j.probe.settle(pass, flow.Failed, err)
		e.m.peerErrors[kindOf(err)](1)
	}
}

// emptyID is the BLAKE3 of no bytes: a valid id whose answer is of no interest.
var emptyID = b3.Sum(nil)
