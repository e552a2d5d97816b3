package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/origin"
)

// FillRequest asks the engine to fetch and store an object.
type FillRequest struct {
	URL     string    // https://<host of edge.allow>/<path>, optionally with a query
	Expect  b3.Digest // the digest that the bytes must have; zero accepts any
	Refresh bool      // fetch the object even if it is stored
	Pin     bool      // pin the URL, unless the pin would exceed the cap
}

// Fill fetches the object of a URL unless it is stored, and waits until ctx ends; the fill
// continues after that. Each try may last as long as postTry. After an error of errors.go, either
// nothing was stored, or the URL was not pinned in time.
func (e *Engine) Fill(ctx context.Context, r FillRequest) (f Filled, err error) {
	t, path, err := asset.ParseURL(r.URL)
	if err == nil {
		err = e.count()
	}
	if err != nil {
		return f, err
	}
	j := &fillJob{Target: t, path: path, try: postTry, expect: r.Expect, again: r.Refresh, counted: true}
	if r.Refresh {
		e.absent.Set(t.URL, pastAnswer{}, 1)
	}
	if f, err = e.known(ctx, j); content.IsMiss(err) {
		f, err = e.fill(ctx, j)
	}
	if err != nil {
		return Filled{}, err
	}
	if err = expect(f.Stored, r.Expect); err != nil {
		return f, err
	}
	if r.Pin {
		f.Pinned, f.Unpinned, err = e.content.PinFilled(ctx, f.URL)
	} else {
		f.Pinned, _ = e.content.Pinned(ctx, f.URL) // an error does not undo the fill
	}
	return f, err
}

// known returns the stored object of a job. It returns ErrNotFound if the job is a refresh.
func (e *Engine) known(ctx context.Context, j *fillJob) (Filled, error) {
	if j.again {
		return Filled{}, asset.ErrNotFound
	}
	o, row, err := e.content.Open(ctx, j.Target)
	if err == nil {
		o.Close()
	}
	return Filled{Stored: row}, err
}

// fill joins the running fill of a URL, or begins one, and waits until ctx ends. A fill that a
// worker has taken, or that a POST began, continues after that. The joined fill may have had a
// shorter try or another expected digest, or may have found the object stored although this caller
// needs a refresh. In these cases fill begins another one.
func (e *Engine) fill(ctx context.Context, j *fillJob) (f Filled, err error) {
	if err := e.mayFill(j); err != nil {
		return f, err
	}
	for {
		c, first, err := e.flights.Join(j.URL, struct{}{})
		if err != nil {
			return f, content.BusyIfFull(err)
		}
		if first {
			e.enqueue(ctx, j, c)
		}
		f, err = c.Await(ctx)
		if c.Canceled() {
			e.work.drop(j.Host, c)
		}
		failed, _ := errors.AsType[*asset.FillError](err)
		better := err == nil && j.again && !f.New
		if failed != nil {
			better = failed.Reason == asset.DigestMismatch || failed.Reason == asset.Timeout && j.posted()
		}
		if first || ctx.Err() != nil || !better {
			return f, err
		}
	}
}

// mayFill returns an error if the fill may not begin now. Otherwise it counts the request.
func (e *Engine) mayFill(j *fillJob) error {
	switch past, known := e.past(j.URL); {
	case e.content.Ready() != nil:
		return e.content.Ready()
	case e.Config().Mode != config.ModeLive:
		return asset.ErrOffline
	case !e.origins.Load().Names(j.Host):
		return &asset.FillError{Reason: asset.NotAllowed, URL: j.URL, Cause: origin.ErrHost}
	case e.draining():
		return flow.ErrClosed
	case known && (past.reason == asset.UpstreamNotFound || !j.posted()):
		return &asset.FillError{
			Reason: past.reason,
			URL:    j.URL,
			Cause:  fmt.Errorf("the host answered %d to this path a moment ago", past.status),
		}
	case j.counted:
		return nil
	}
	return e.count()
}

// count counts a request against edge.ingress.rps_limit. It returns a RateError beyond the limit.
func (e *Engine) count() error {
	if wait := e.rate.take(float64(e.Config().Ingress.RPSLimit), e.now()); wait > 0 {
		return &asset.RateError{Wait: wait}
	}
	return nil
}

// enqueue queues a job, unless the object was stored since the caller looked. It never waits for
// room; it answers the call if the queue is full.
func (e *Engine) enqueue(ctx context.Context, j *fillJob, c *fillCall) {
	queued := false
	defer func() {
		if !queued {
			c.Fail(flow.ErrCanceled) // after a panic
		}
	}()
	if f, err := e.known(context.WithoutCancel(ctx), j); err == nil {
		c.Answer(f)
		return
	}
	if j.call = c; j.posted() {
		c.Claim() // the fill continues after all callers have left
	}
	left, err := e.work.add(j)
	e.cancelFills(left...)
	if err != nil {
		e.lastBusy.Store(e.now().UnixNano())
		c.Fail(err)
		return
	}
	queued = true
}

// bucket is a token bucket with the tokens of one second.
type bucket struct {
	mu  *flow.Mutex
	has float64   // guarded by mu
	at  time.Time // of the last take; zero means a full bucket; guarded by mu
}

// take takes one token of a bucket that gains limit tokens a second. If the bucket is empty, take
// returns the wait until there is.
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

// pastAnswer is a remembered refusal by a host. The host is not asked for the path again until
// then.
type pastAnswer struct {
	reason asset.Reason
	status int
	until  time.Time
}

// past returns the remembered refusal of a URL.
func (e *Engine) past(url string) (pastAnswer, bool) {
	p, known := e.absent.Get(url)
	return p, known && e.now().Before(p.until)
}

// remember stores the refusal of a fill: a 404 for negativeFor, a 5xx for faultyFor.
func (e *Engine) remember(f *asset.FillError) {
	status, keep := upstream.StatusOf(f.Cause), faultyFor
	switch {
	case f.Reason == asset.UpstreamNotFound:
		keep = negativeFor
	case status < http.StatusInternalServerError:
		return
	}
	e.absent.Set(f.URL, pastAnswer{f.Reason, status, e.now().Add(keep)}, 1)
}

// ask requests an object from a host of the current configuration.
func (e *Engine) ask(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error {
	return e.origins.Load().Ask(ctx, host, r, take)
}
