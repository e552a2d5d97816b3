package edge

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
)

// FillRequest asks for an object to be fetched and stored.
type FillRequest struct {
	URL     string    // https://<host of edge.allow>/<path>, without a query
	Expect  b3.Digest // refuses other bytes; zero: any
	Refresh bool      // fetches it although it is stored
}

// Filled is an object that is stored.
type Filled struct {
	Stored
	New bool // it was fetched; false: it was there
}

// fillJob is one fill on its way to a worker. It is answered exactly once.
type fillJob struct {
	target
	path    string
	try     time.Duration // that a try lasts at most
	expect  b3.Digest
	again   bool // although it is stored
	counted bool // against edge.ingress.rps_limit
	reply   *flow.Reply[Filled]
}

// Fill fetches what a URL has, unless it is stored, and waits for that until ctx ends; the fill goes on then. Each of its tries may last a
// minute. Errors are those of errors.go; nothing was stored then.
func (e *Engine) Fill(ctx context.Context, r FillRequest) (f Filled, err error) {
	t, path, err := parseURL(r.URL)
	if err == nil {
		err = e.count()
	}
	if err != nil {
		return f, err
	}
	j := &fillJob{target: t, path: path, try: postTry, expect: r.Expect, again: r.Refresh, counted: true}
	if r.Refresh {
		e.absent.Set(t.url, time.Time{}, 1)
	}
	if f, err = e.known(ctx, j); isMiss(err) {
		f, err = e.fill(ctx, j)
	}
	if err != nil {
		return Filled{}, err
	}
	return f, f.expect(r.Expect)
}

// known is what is stored and sound of a URL, unless it is to be fetched all the same.
func (e *Engine) known(ctx context.Context, j *fillJob) (Filled, error) {
	if j.again {
		return Filled{}, ErrNotFound
	}
	o, row, err := e.stored(ctx, j.path, j.target)
	if err == nil {
		o.Close()
	}
	return Filled{Stored: row}, err
}

// expect refuses bytes that are not those that were expected.
func (s Stored) expect(want b3.Digest) error {
	if want.IsZero() || want == s.Digest {
		return nil
	}
	return &FillError{Reason: DigestMismatch, URL: s.URL, Cause: fmt.Errorf("it has %s", s.Digest)}
}

// fill joins the fill of a URL that is under way, or begins one. It waits until ctx ends; the fill goes on then. A fill that others began may
// have had less time for a try, or other expectations, or have found the object stored where the caller wants it anew: the caller then begins
// its own.
func (e *Engine) fill(ctx context.Context, j *fillJob) (f Filled, err error) {
	if err := e.mayFill(j); err != nil {
		return f, err
	}
	for {
		var own atomic.Bool
		f, err = e.flights.Do(ctx, j.url, struct{}{}, e.longestFill(), func(ctx context.Context) (Filled, error) {
			own.Store(true)
			return e.enqueue(ctx, j)
		})
		if errors.Is(err, flow.ErrFlightFull) {
			err = flow.ErrBusy
		}
		failed, _ := errors.AsType[*FillError](err)
		better := failed != nil && (failed.Reason == DigestMismatch || failed.Reason == Timeout && j.try == postTry) || err == nil && j.again && !f.New
		if own.Load() || ctx.Err() != nil || !better {
			return f, err
		}
	}
}

// mayFill refuses a fill that is not to be begun now, or counts it.
func (e *Engine) mayFill(j *fillJob) error {
	switch until, absent := e.absent.Get(j.url); {
	case e.d.Amnesia:
		return ErrAmnesia
	case e.Config().Mode != ModeLive:
		return ErrOffline
	case e.origins.Load().hosts[j.host] == nil:
		return &FillError{Reason: NotAllowed, URL: j.url, Cause: errHost}
	case e.draining():
		return flow.ErrClosed
	case absent && e.now().Before(until):
		return &FillError{Reason: UpstreamNotFound, URL: j.url, Cause: errors.New("the host had no such object a moment ago")}
	case j.counted:
		return nil
	}
	return e.count()
}

// count counts a request against edge.ingress.rps_limit, unless that is reached.
func (e *Engine) count() error {
	if wait := e.rate.take(float64(e.Config().Ingress.RPSLimit), e.now()); wait > 0 {
		return &RateError{Wait: wait}
	}
	return nil
}

// enqueue hands a job to the workers and waits for its answer, unless a fill has ended since its caller looked. It never waits for room.
func (e *Engine) enqueue(ctx context.Context, j *fillJob) (Filled, error) {
	if f, err := e.known(ctx, j); err == nil {
		return f, nil
	}
	j.reply = flow.NewReply[Filled]()
	if err := e.work.TrySend(j); err != nil {
		e.lastBusy.Store(e.now().UnixNano())
		return Filled{}, err
	}
	return j.reply.Wait(ctx)
}

// longestFill is the longest that a fill can take that is accepted now: as many as the queue holds are before it, and each of their tries
// takes a minute. No fill that was accepted is given up before.
func (e *Engine) longestFill() time.Duration {
	rule := e.Config().Retry.LiveFill
	one := time.Duration(rule.MaxRetries) * (postTry + time.Duration(rule.MaxMS+rule.BaseMS)*time.Millisecond)
	return time.Duration(e.boot.Queues.WorkTX/e.boot.Fill.Workers+2) * one
}

// bucket holds tokens for a second.
type bucket struct {
	mu  *flow.Mutex
	has float64   // guarded by mu
	at  time.Time // as of which, zero: it is full; guarded by mu
}

// take takes one of limit tokens a second, or says how long it takes until there is one.
func (b *bucket) take(limit float64, now time.Time) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.has, b.at = min(limit, b.has+max(0, now.Sub(b.at).Seconds())*limit), now
	if b.has >= 1 {
		b.has--
		return 0
	}
	return time.Duration((1 - b.has) / limit * float64(time.Second))
}
