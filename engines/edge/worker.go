package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/origin"
	"ronbox/engines/edge/partial"
	"ronbox/engines/edge/site"
	"ronbox/engines/edge/tables"
)

// runWorker executes fills, one at a time.
func (e *Engine) runWorker(ctx context.Context) error {
	e.workers.Add(1)
	defer e.workers.Add(-1)
	for {
		select {
		case <-ctx.Done():
			if e.draining() {
				e.cancelFills(e.work.ready.Discard("the drain deadline has passed")...)
				e.cancelFills(e.work.close()...)
			}
			return context.Cause(ctx)
		case j, ok := <-e.work.ready.C():
			if !ok {
				e.cancelFills(e.work.close()...)
				return nil
			}
			e.take(ctx, j)
		}
	}
}

// take executes a fill from ready, unless all its callers have left or the node drains.
func (e *Engine) take(ctx context.Context, j *fillJob) {
	e.work.begin(j)
	defer func() { e.cancelFills(e.work.end(j)...) }()
	switch {
	case e.draining(), ctx.Err() != nil:
		e.cancelFills(j)
	case j.posted() || j.call.Claim():
		e.serve(ctx, j)
	}
}

// cancelFills answers fills that have not begun when the node drains, with flow.ErrCanceled.
func (e *Engine) cancelFills(jobs ...*fillJob) {
	for _, j := range jobs {
		if j.call.Fail(flow.ErrCanceled) {
			e.m.canceled(1)
		}
	}
}

// serve executes one fill and answers its call, even after a panic.
func (e *Engine) serve(ctx context.Context, j *fillJob) {
	defer j.call.Fail(flow.ErrCanceled) // after a panic
	f, err := e.fetch(ctx, j)
	result := f.Digest.String()
	if err != nil {
		result = err.Error()
	}
	e.events.Publish(asset.Event{Kind: "live_fill", Of: asset.Shown(j.URL), Result: result, Size: f.Size})
	if err != nil {
		j.call.Fail(err)
		return
	}
	j.call.Answer(f)
}

// fetch downloads an object, hashes it on the way, and installs it when it is complete. A try
// resumes an interrupted one, also one of an earlier fill of the URL.
func (e *Engine) fetch(ctx context.Context, j *fillJob) (f Filled, err error) {
	p := e.partials.Take(j.URL)
	p.Dir, p.Room = e.content.Dir(), e.content.Room()
	p.Most = e.Config().Fill.MaxObjectBytes.Bytes()
	if j.most > 0 {
		p.Most = min(p.Most, j.most)
	}
	p.Guess = j.node != nil && j.most == 0
	defer func() { e.keepPartial(j.URL, p, err) }()
	tries, err := e.download(ctx, j, p)
	if p.Outdated(err) || err == nil && j.spoilt(p) {
		p.Drop()
		var more int
		more, err = e.download(ctx, j, p)
		tries += more
	}
	if err != nil {
		return f, e.fillError(j, err, tries)
	}
	row := tables.Stored{URL: j.URL, Path: j.path, Type: p.Type}
	if j.node != nil {
		row.Type = site.Served(p.Type) // the hash says nothing of it
	}
	row.Digest, row.Size = p.Temp.Sum()
	if err := expect(row, j.expect); err != nil {
		j.lied(p)
		return f, err
	}
	temp, err := p.Seal()
	if err != nil {
		return f, e.content.Failed(err)
	}
	f = Filled{Stored: row, New: true, sent: j.sent}
	loose, err := e.content.Install(ctx, row, temp)
	if j.node != nil {
		f.from = j.node.ID
	}
	if err == nil {
		f.Unpinned = loose
	}
	return f, err
}

// download requests the missing bytes of p from the host, and returns the number of tries.
func (e *Engine) download(ctx context.Context, j *fillJob, p *partial.Partial) (tries int, err error) {
	// end is the deadline of a try. A wait for room has the same deadline, so that such a wait does
	// not count against the host.
	end, header := time.Time{}, http.Header{}
	r := upstream.Request{URL: j.URL, Header: header, Timeout: j.try, Max: p.Most, Idle: j.idle, Trying: func() {
		tries, end = tries+1, time.Now().Add(j.try)
		p.Ask(header)
	}}
	if j.posted() && r.Idle == 0 {
		r.Idle = e.Config().Fill.Idle.D()
	}
	take := func(a *upstream.Answer) error {
		within, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		p.SentBy(j.Host, a)
		return p.Receive(within, a)
	}
	if j.node != nil {
		began, had := time.Now(), p.Size
		r.URL = objectPath(j.Digest)
		err = e.askNode(ctx, j.node, r, take)
		got := p.Size - had
		if got < 0 { // it started over
			got = p.Size
		}
		j.sent = got
		j.node.stalled(err, got, time.Since(began))
		return tries, err
	}
	err = e.get(ctx, j.Host, r, take)
	return tries, err
}

// fillError converts the error of a fetch to the error of the fill.
func (e *Engine) fillError(j *fillJob, err error, tries int) error {
	f, refused := errors.AsType[*asset.FillError](err)
	switch {
	case errors.Is(err, flow.ErrAborted), errors.Is(err, context.Canceled):
		return fmt.Errorf("fill %s: %w", asset.Shown(j.URL), flow.ErrCanceled)
	case refused:
		f.URL, f.Tries = j.URL, tries
		return f
	case upstream.IsOwn(err):
		return e.content.Failed(err) // an error of the content store
	}
	f = &asset.FillError{Reason: origin.ReasonOf(err), URL: j.URL, Tries: tries, Cause: err}
	if j.node == nil { // otherwise other nodes may have the object
		e.remember(f)
	}
	return f
}

// keepPartial stores p for the next fill of its URL if that may succeed, and discards it otherwise.
func (e *Engine) keepPartial(url string, p *partial.Partial, err error) {
	failed, _ := errors.AsType[*asset.FillError](err)
	left := []*partial.Partial{p}
	if p.Size > 0 && failed != nil && failed.Retryable() && !e.draining() {
		p.Trim()
		left = e.partials.Keep(url, p, e.now())
	}
	for _, p := range left {
		p.Drop()
	}
}

// shedPartials discards every partial and reports whether there was one.
func (e *Engine) shedPartials() (some bool) {
	for p := e.partials.Shed(); p != nil; p = e.partials.Shed() {
		p.Drop()
		some = true
	}
	return some
}
