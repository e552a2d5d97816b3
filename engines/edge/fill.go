package edge

import (
	"context"
	"errors"
	"fmt"
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

// fillCall is a fill and the callers that wait for it.
type fillCall = flow.Call[string, struct{}, Filled]

// fillJob is one fill on its way to a worker. It is answered exactly once. In the queue it lives as long as the latest deadline of the callers
// that wait for it, and until a worker has taken it if a POST began it.
type fillJob struct {
	target
	path    string
	try     time.Duration // that a try lasts at most
	expect  b3.Digest
	again   bool // although it is stored
	counted bool // against edge.ingress.rps_limit
	call    *fillCall
}

// posted reports whether a POST began the fill.
func (j *fillJob) posted() bool { return j.try == postTry }

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
		e.absent.Set(t.url, pastAnswer{}, 1)
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

// fill joins the fill of a URL that is under way, or begins one. It waits until ctx ends; a fill that a worker has taken goes on then, and so
// does one that a POST began. A fill that others began may have had less time for a try, or other expectations, or have found the object stored
// where the caller wants it anew: the caller then begins its own.
func (e *Engine) fill(ctx context.Context, j *fillJob) (f Filled, err error) {
	if err := e.mayFill(j); err != nil {
		return f, err
	}
	for {
		c, first, err := e.flights.Join(j.url, struct{}{})
		if err != nil {
			return f, busyIfFull(err)
		}
		if first {
			e.enqueue(ctx, j, c)
		}
		f, err = c.Await(ctx)
		if c.Canceled() {
			e.work.drop(j.host, c)
		}
		failed, _ := errors.AsType[*FillError](err)
		better := failed != nil && (failed.Reason == DigestMismatch || failed.Reason == Timeout && j.posted()) || err == nil && j.again && !f.New
		if first || ctx.Err() != nil || !better {
			return f, err
		}
	}
}

// busyIfFull returns flow.ErrBusy for a fill that too many wait for, and other errors as they are.
func busyIfFull(err error) error {
	if errors.Is(err, flow.ErrFlightFull) {
		return flow.ErrBusy
	}
	return err
}

// mayFill refuses a fill that is not to be begun now, or counts it.
func (e *Engine) mayFill(j *fillJob) error {
	switch past, known := e.past(j.url); {
	case e.d.Amnesia:
		return ErrAmnesia
	case e.Config().Mode != ModeLive:
		return ErrOffline
	case e.origins.Load().hosts[j.host] == nil:
		return &FillError{Reason: NotAllowed, URL: j.url, Cause: errHost}
	case e.draining():
		return flow.ErrClosed
	case known && (past.reason == UpstreamNotFound || !j.posted()):
		return &FillError{Reason: past.reason, URL: j.url, Cause: fmt.Errorf("the host answered %d to this path a moment ago", past.status)}
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

// enqueue queues a job, unless a fill has ended since its caller looked. It never waits for room; the call is answered if there is none.
func (e *Engine) enqueue(ctx context.Context, j *fillJob, c *fillCall) {
	queued := false
	defer func() {
		if !queued {
			c.Fail(flow.ErrCanceled) // of a panic; else it is answered
		}
	}()
	if f, err := e.known(context.WithoutCancel(ctx), j); err == nil {
		c.Answer(f)
		return
	}
	if j.call = c; j.posted() {
		c.Claim() // it goes on when all have left
	}
	left, err := e.work.add(j)
	e.giveUp(left...)
	if err != nil {
		e.lastBusy.Store(e.now().UnixNano())
		c.Fail(err)
		return
	}
	queued = true
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
