package fill

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

// Request asks to fetch and store an object.
type Request struct {
	URL     string    // https://<host of edge.allow>/<path>, optionally with a query
	Expect  b3.Digest // the digest that the bytes must have; zero accepts any
	Refresh bool      // fetch the object even if it is stored
	Pin     bool      // pin the URL, unless the pin would exceed the cap
}

// Fill fetches the object of a URL unless it is stored, and waits until ctx ends; the fill
// continues after that. Each try may last as long as LongTry. After an error of package asset,
// either nothing was stored, or the URL was not pinned in time.
func (s *Filler) Fill(ctx context.Context, r Request) (f Filled, err error) {
	t, path, err := asset.ParseURL(r.URL)
	if err == nil {
		err = s.Count()
	}
	if err != nil {
		return f, err
	}
	j := &job{Target: t, path: path, try: LongTry, expect: r.Expect, again: r.Refresh}
	if r.Refresh {
		s.d.Absent.Set(t.URL, Answer{}, 1)
	}
	if f, err = s.known(ctx, j); content.IsMiss(err) {
		f, err = s.fill(ctx, j)
	}
	if err != nil {
		return Filled{}, err
	}
	if err = expect(f.Stored, r.Expect); err != nil {
		return f, err
	}
	if r.Pin {
		f.Pinned, f.Unpinned, err = s.d.Content.PinFilled(ctx, f.URL)
	} else {
		f.Pinned, _ = s.d.Content.Pinned(ctx, f.URL) // an error does not undo the fill
	}
	return f, err
}

// known returns the stored object of a job. It returns ErrNotFound if the job is a refresh.
func (s *Filler) known(ctx context.Context, j *job) (Filled, error) {
	if j.again {
		return Filled{}, asset.ErrNotFound
	}
	o, row, err := s.d.Content.Open(ctx, j.Target)
	if err == nil {
		o.Close()
	}
	return Filled{Stored: row}, err
}

// fill joins the running fill of a URL, or begins one, and waits until ctx ends. A fill that a
// worker has taken, or that a POST began, continues after that. The joined fill may have had a
// shorter try or another expected digest, or may have found the object stored although this caller
// needs a refresh. In these cases fill begins another one.
func (s *Filler) fill(ctx context.Context, j *job) (f Filled, err error) {
	if err := s.mayFill(j); err != nil {
		return f, err
	}
	for {
		c, first, err := s.d.Flights.Join(j.URL, struct{}{})
		if err != nil {
			return f, content.BusyIfFull(err)
		}
		if first {
			s.enqueue(ctx, j, c)
		}
		f, err = c.Await(ctx)
		if c.Canceled() {
			s.work.drop(j.Host, c)
		}
		failed, _ := errors.AsType[*asset.FillError](err)
		better := err == nil && j.again && !f.New && !f.Same
		if failed != nil {
			better = failed.Reason == asset.DigestMismatch || failed.Reason == asset.Timeout && j.posted()
		}
		if first || ctx.Err() != nil || !better {
			return f, err
		}
	}
}

// mayFill returns an error if the fill may not begin now. Otherwise it counts the request.
func (s *Filler) mayFill(j *job) error {
	if err := s.d.Content.Ready(); err != nil {
		return err
	}
	switch past, known := s.Past(j.URL); {
	case s.d.Config().Mode != config.ModeLive:
		return asset.ErrOffline
	case !s.d.Owner.Allows(j.Host):
		return &asset.FillError{Reason: asset.NotAllowed, URL: j.URL, Cause: origin.ErrHost}
	case s.d.Owner.Draining():
		return flow.ErrClosed
	case known && (past.Reason == asset.UpstreamNotFound || !j.posted()):
		return &asset.FillError{
			Reason: past.Reason,
			URL:    j.URL,
			Cause:  fmt.Errorf("the host answered %d to this path a moment ago", past.status),
		}
	case j.posted() && !j.stale:
		return nil
	}
	return s.Count()
}

// Count counts a request against edge.ingress.rps_limit. It returns a RateError beyond the limit.
func (s *Filler) Count() error {
	if wait := s.rate.take(float64(s.d.Config().Ingress.RPSLimit), s.d.Now()); wait > 0 {
		return &asset.RateError{Wait: wait}
	}
	return nil
}

// enqueue queues a job, unless the object was stored since the caller looked. It never waits for
// room; it answers the call if the queue is full.
func (s *Filler) enqueue(ctx context.Context, j *job, c *call) {
	queued := false
	defer func() {
		if !queued {
			c.Fail(flow.ErrCanceled) // after a panic
		}
	}()
	if f, err := s.known(context.WithoutCancel(ctx), j); err == nil {
		c.Answer(f)
		return
	}
	if j.stale && !s.justAsked.add(j.URL, s.d.Now(), s.d.Config().Cache.Interval.D()) {
		c.Fail(unasked(j.URL, ErrJust))
		return
	}
	if j.call = c; j.posted() {
		c.Claim() // the fill continues after all callers have left
	}
	left, err := s.work.add(j)
	s.cancelFills(left...)
	if err != nil {
		s.lastBusy.Store(s.d.Now().UnixNano())
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

// Answer is a remembered refusal. Nobody is asked for the object again until then.
type Answer struct {
	Reason asset.Reason
	status int // of a host
	until  time.Time
}

// Past returns the remembered refusal of a URL, or of another key of Refuse.
func (s *Filler) Past(url string) (Answer, bool) {
	p, known := s.d.Absent.Get(url)
	return p, known && s.d.Now().Before(p.until)
}

// Refuse remembers a refusal under a key: that there is no such object for negativeFor, and any
// other for faultyFor. status is that of a host, or 0.
func (s *Filler) Refuse(key string, why asset.Reason, status int) {
	keep := faultyFor
	if why == asset.UpstreamNotFound {
		keep = negativeFor
	}
	s.d.Absent.Set(key, Answer{why, status, s.d.Now().Add(keep)}, 1)
}

// remember stores the refusal of a fill if it is a 404 or a 5xx of a host.
func (s *Filler) remember(f *asset.FillError) {
	status := upstream.StatusOf(f.Cause)
	if f.Reason == asset.UpstreamNotFound || status >= http.StatusInternalServerError {
		s.Refuse(f.URL, f.Reason, status)
	}
}
