package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/upstream"
)

// runWorker does fills, one at a time.
func (e *Engine) runWorker(ctx context.Context) error {
	e.workers.Add(1)
	defer e.workers.Add(-1)
	for {
		select {
		case <-ctx.Done():
			if e.draining() {
				e.giveUp(e.work.ready.Discard("the drain deadline is over")...)
				e.giveUp(e.work.close()...)
			}
			return context.Cause(ctx)
		case j, ok := <-e.work.ready.C():
			if !ok {
				e.giveUp(e.work.close()...)
				return nil
			}
			e.take(ctx, j)
		}
	}
}

// take does a fill that is ready, unless all its callers have left or the node drains.
func (e *Engine) take(ctx context.Context, j *fillJob) {
	e.work.begin(j)
	defer func() { e.giveUp(e.work.end(j)...) }()
	switch {
	case e.draining(), ctx.Err() != nil:
		e.giveUp(j)
	case j.posted() || j.call.Claim():
		e.serve(ctx, j)
	}
}

// giveUp answers fills that have not begun when the node drains.
func (e *Engine) giveUp(jobs ...*fillJob) {
	for _, j := range jobs {
		if j.call.Fail(flow.ErrCanceled) {
			e.m.canceled(1)
		}
	}
}

// serve does one fill, and answers it whatever happens.
func (e *Engine) serve(ctx context.Context, j *fillJob) {
	defer j.call.Fail(flow.ErrCanceled) // answers for a panic
	f, err := e.fetch(ctx, j)
	result := f.Digest.String()
	if err != nil {
		result = err.Error()
	}
	e.events.Publish(Event{Kind: "live_fill", Of: j.url, Result: result, Size: f.Size})
	if err != nil {
		j.call.Fail(err)
		return
	}
	j.call.Answer(f)
}

// fetch gets an object from its host and has it installed. It is written beside the others first, hashed on the way; only a whole one gets its
// name.
func (e *Engine) fetch(ctx context.Context, j *fillJob) (f Filled, err error) {
	var reserved int64
	defer func() { e.room.add(tally{}, -reserved) }()
	install := &writeJob{row: Stored{URL: j.url, Path: j.path}}
	defer func() { install.drop() }()
	tries, end := 0, time.Time{} // of the try; a wait for room ends no later, so that it is not laid to the host
	r := upstream.Request{URL: j.url, Timeout: j.try, Max: e.Config().Fill.MaxObjectBytes.Bytes(), Trying: func() { tries, end = tries+1, time.Now().Add(j.try) }}
	err = e.get(ctx, j.host, r, func(a *upstream.Answer) error {
		install.drop()
		install.row.Type = a.MediaType()
		within, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		return e.receive(within, install, a, &reserved)
	})
	if err != nil {
		return f, e.fillError(j, err, tries)
	}
	install.row.Digest, install.row.Size = install.temp.Sum()
	if err := install.row.expect(j.expect); err != nil {
		return f, err
	}
	if err := install.temp.Seal(); err != nil {
		return f, e.failed(err)
	}
	own := *install
	install.temp = nil // the writer's
	return Filled{Stored: own.row, New: true}, e.write(ctx, &own)
}

// receive writes the body of an answer, for which room is reserved before it is read.
func (e *Engine) receive(ctx context.Context, j *writeJob, a *upstream.Answer, reserved *int64) (err error) {
	reach := func(total int64) error {
		need := total - *reserved
		if need <= 0 {
			return nil
		}
		if total > a.Length {
			need = max(need, growBy)
		}
		err := e.reserve(ctx, need)
		if err == nil {
			*reserved += need
		}
		return err
	}
	if err := reach(a.Length); err != nil {
		return err
	}
	if j.temp, err = e.cas.Create(reach); err != nil {
		return err
	}
	_, err = io.CopyBuffer(j.temp, a.Body, make([]byte, 128<<10))
	return err
}

// fillError words why nothing came of a fill.
func (e *Engine) fillError(j *fillJob, err error, tries int) error {
	f, refused := errors.AsType[*FillError](err)
	switch {
	case errors.Is(err, flow.ErrAborted), errors.Is(err, context.Canceled):
		return fmt.Errorf("fill %s: %w", j.url, flow.ErrCanceled)
	case refused:
		f.URL, f.Tries = j.url, tries
		return f
	case upstream.IsOwn(err):
		return e.failed(err) // the content store's
	}
	f = &FillError{Reason: reasonOf(err), URL: j.url, Tries: tries, Cause: err}
	e.remember(f)
	return f
}
