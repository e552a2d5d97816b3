package fill

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
func (s *Filler) runWorker(ctx context.Context) error {
	s.workers.Add(1)
	defer s.workers.Add(-1)
	for {
		select {
		case <-ctx.Done():
			if s.d.Owner.Draining() {
				s.cancelFills(s.work.ready.Discard("the drain deadline has passed")...)
				s.cancelFills(s.work.close()...)
			}
			return context.Cause(ctx)
		case j, ok := <-s.work.ready.C():
			if !ok {
				s.cancelFills(s.work.close()...)
				return nil
			}
			s.take(ctx, j)
		}
	}
}

// take executes a fill from ready, unless all its callers have left or the node drains.
func (s *Filler) take(ctx context.Context, j *job) {
	s.work.begin(j)
	defer func() { s.cancelFills(s.work.end(j)...) }()
	switch {
	case s.d.Owner.Draining(), ctx.Err() != nil:
		s.cancelFills(j)
	case j.posted() || j.call.Claim():
		s.serve(ctx, j)
	}
}

// cancelFills answers fills that have not begun when the node drains, with flow.ErrCanceled.
func (s *Filler) cancelFills(jobs ...*job) {
	for _, j := range jobs {
		if j.call.Fail(flow.ErrCanceled) {
			s.canceled(1)
		}
	}
}

// serve executes one fill and answers its call, even after a panic.
func (s *Filler) serve(ctx context.Context, j *job) {
	defer j.call.Fail(flow.ErrCanceled) // after a panic
	f, err := s.fetch(ctx, j)
	result := f.Digest.String()
	if err != nil {
		result = err.Error()
	}
	s.d.Owner.Event(asset.Event{Kind: "live_fill", Of: asset.Shown(j.URL), Result: result, Size: f.Size})
	if err != nil {
		j.call.Fail(err)
		return
	}
	j.call.Answer(f)
}

// fetch downloads an object, hashes it on the way, and installs it when it is complete. A try
// resumes an interrupted one, also one of an earlier fill of the URL.
func (s *Filler) fetch(ctx context.Context, j *job) (f Filled, err error) {
	p := s.partials.Take(j.URL)
	p.Dir, p.Room = s.d.Content.Dir(), s.d.Content.Room()
	p.Most = s.d.Config().Fill.MaxObjectBytes.Bytes()
	if j.most > 0 {
		p.Most = min(p.Most, j.most)
	}
	p.Guess = j.source != nil && j.most == 0
	if j.again && j.source == nil {
		row, err := s.d.Content.Row(ctx, j.Target)
		if err == nil {
			j.stored = row.URL
		}
		// A row with another spelling of the URL is not renewed: the whole object is fetched.
		if err == nil && row.URL == j.URL && p.Size == 0 {
			j.had = row
		}
	}
	defer func() { s.keepPartial(j.URL, p, err) }()
	tries, err := s.download(ctx, j, p)
	if p.Outdated(err) || err == nil && !j.same && j.spoilt(p) {
		p.Drop()
		var more int
		more, err = s.download(ctx, j, p)
		tries += more
	}
	if err != nil {
		return f, s.fillError(ctx, j, err, tries)
	}
	if j.same {
		return s.renew(ctx, j)
	}
	row := tables.Stored{URL: j.URL, Path: j.path, Type: p.Type}
	if j.source != nil {
		row.Type = site.Served(p.Type) // the hash says nothing of it
	} else {
		s.date(&row, j.header)
	}
	row.Digest, row.Size = p.Temp.Sum()
	if err := expect(row, j.expect); err != nil {
		j.lied(p)
		return f, err
	}
	temp, err := p.Seal()
	if err != nil {
		return f, s.d.Content.Failed(err)
	}
	f = Filled{Stored: row, New: true, Sent: j.sent}
	loose, err := s.d.Content.Install(ctx, row, temp)
	if j.source != nil {
		f.From = j.source.Name()
	}
	if err == nil {
		f.Unpinned = loose
	}
	if err == nil && j.stored != "" {
		s.revalidated[Changed](1)
	}
	return f, err
}

// download requests the missing bytes of p from the host, and returns the number of tries.
func (s *Filler) download(ctx context.Context, j *job, p *partial.Partial) (tries int, err error) {
	// end is the deadline of a try. A wait for room has the same deadline, so that such a wait does
	// not count against the host.
	end, header := time.Time{}, http.Header{}
	r := upstream.Request{URL: j.URL, Header: header, Timeout: j.try, Max: p.Most, Idle: j.idle, Trying: func() {
		tries, end = tries+1, time.Now().Add(j.try)
		p.Ask(header)
	}}
	if j.posted() && r.Idle == 0 {
		r.Idle = s.d.Config().Fill.Idle.D()
	}
	r.ETag = j.had.Tag
	take := func(a *upstream.Answer) error {
		if j.header, j.same = a.Header, a.NotModified; j.same {
			return nil
		}
		within, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		p.SentBy(j.Host, a)
		return p.Receive(within, a)
	}
	if j.source != nil {
		began, had := time.Now(), p.Size
		err = j.source.Ask(ctx, j.Digest, r, take)
		got := p.Size - had
		if got < 0 { // it started over
			got = p.Size
		}
		j.sent = got
		j.source.Stalled(err, got, time.Since(began))
		return tries, err
	}
	err = s.d.Owner.Ask(ctx, j.Host, r, take)
	return tries, err
}

// fillError converts the error of a fetch to the error of the fill.
func (s *Filler) fillError(ctx context.Context, j *job, err error, tries int) error {
	f, refused := errors.AsType[*asset.FillError](err)
	switch {
	case errors.Is(err, flow.ErrAborted), errors.Is(err, context.Canceled):
		return fmt.Errorf("fill %s: %w", asset.Shown(j.URL), flow.ErrCanceled)
	case refused:
		f.URL, f.Tries = j.URL, tries
		return f
	case upstream.IsOwn(err):
		return s.d.Content.Failed(err) // an error of the content store
	}
	f = &asset.FillError{Reason: origin.ReasonOf(err), URL: j.URL, Tries: tries, Cause: err}
	if j.source == nil { // otherwise others may have the object
		s.remember(f)
		s.asked(ctx, j, f)
	}
	return f
}

// keepPartial stores p for the next fill of its URL if that may succeed, and discards it otherwise.
func (s *Filler) keepPartial(url string, p *partial.Partial, err error) {
	failed, _ := errors.AsType[*asset.FillError](err)
	left := []*partial.Partial{p}
	if p.Size > 0 && failed != nil && failed.Retryable() && !s.d.Owner.Draining() {
		p.Trim()
		left = s.partials.Keep(url, p, s.d.Now())
	}
	for _, p := range left {
		p.Drop()
	}
}

// Expire discards the partials that were kept too long.
func (s *Filler) Expire() {
	for _, p := range s.partials.Expired(s.d.Now()) {
		p.Drop()
	}
}

// Shed discards every partial and reports whether there was one.
func (s *Filler) Shed() (some bool) {
	for p := s.partials.Shed(); p != nil; p = s.partials.Shed() {
		p.Drop()
		some = true
	}
	return some
}
