package fill

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/origin"
	"ronbox/engines/edge/tables"
)

// SparedFor is the time after a silence of a host during which no stale object of it is asked for.
const SparedFor = 10 * time.Second

// Results of a revalidation: values of a label of edge_revalidations_total.
const (
	Unchanged = "unchanged"
	Changed   = "changed"
	Gone      = "gone"   // 404 or 410
	Silent    = "silent" // no answer, or a 5xx
)

// Again asks the host of a stored object that has become stale, and waits until ctx ends; the host
// may answer after that. It asks at most once per edge.cache.interval for a URL, and not for 10 s
// after the host was silent, and returns a *FillError with UpstreamUnavailable instead. The other
// errors are those of Fill. The stored object stays after every error but UpstreamNotFound, which
// removes a URL that is not pinned.
func (s *Filler) Again(ctx context.Context, t asset.Target, path string) (Filled, error) {
	if s.spared.has(t.Host, s.d.Now()) {
		return Filled{}, unasked(t.URL, errSpared)
	}
	return s.fill(ctx, &job{Target: t, path: path, try: s.d.Config().Timeout(), again: true, stale: true})
}

// unasked returns the error of a revalidation whose host was not asked.
func unasked(url string, cause error) error {
	return &asset.FillError{Reason: asset.UpstreamUnavailable, URL: url, Cause: cause}
}

// ErrJust is the cause of a FillError if the host was asked for the URL less than
// edge.cache.interval ago.
var ErrJust = errors.New("the host was asked for this path a moment ago")

var errSpared = errors.New("the host did not answer a moment ago")

// mostPauses bounds the URLs that were just asked for. Beyond it no stale object is asked for.
const mostPauses = 65_536

// pauses holds the times until which hosts or URLs are not asked.
type pauses struct {
	mu     sync.Mutex              // a leaf
	until  map[b3.Digest]time.Time // by the hash of the host or URL; guarded by mu
	purged time.Time               // guarded by mu
}

func newPauses() *pauses { return &pauses{until: map[b3.Digest]time.Time{}} }

// has reports whether a host is not to be asked now.
func (p *pauses) has(host string, now time.Time) bool {
	key := b3.Sum([]byte(host))
	p.mu.Lock()
	defer p.mu.Unlock()
	return runs(p.until[key], now, SparedFor)
}

// runs reports whether a pause of d runs. One that ends later than in d began before the clock was
// set back.
func runs(until, now time.Time, d time.Duration) bool {
	left := until.Sub(now)
	return left > 0 && left <= d
}

// add pauses a host or a URL for d, unless it is paused or there are too many. It reports whether
// it did.
func (p *pauses) add(name string, now time.Time, d time.Duration) bool {
	key := b3.Sum([]byte(name))
	p.mu.Lock()
	defer p.mu.Unlock()
	if runs(p.until[key], now, d) {
		return false
	}
	if len(p.until) >= mostPauses && !runs(p.purged.Add(time.Second), now, time.Second) {
		p.purged = now
		maps.DeleteFunc(p.until, func(_ b3.Digest, end time.Time) bool { return !runs(end, now, d) })
	}
	if len(p.until) >= mostPauses {
		return false
	}
	p.until[key] = now.Add(d)
	return true
}

// date records when and until when an answer of a host holds, and its tag.
func (s *Filler) date(row *tables.Stored, h http.Header) {
	now, fresh := s.d.Now(), origin.FreshnessOf(h)
	if !fresh.Given {
		fresh.For = s.d.Config().Cache.Fresh.D()
	}
	row.Checked, row.Fresh = now.UnixNano(), now.Add(fresh.For).UnixNano()
	row.Demand, row.Tag = fresh.Demand, origin.WeakTag(h)
}

// renew records that the host has confirmed the stored object of a job. A 304 that names no
// freshness means that of the stored answer.
func (s *Filler) renew(ctx context.Context, j *job) (f Filled, err error) {
	row := j.had
	s.date(&row, j.header)
	row.Tag = cmp.Or(row.Tag, j.had.Tag)
	if len(j.header["Cache-Control"]) == 0 && len(j.header["Expires"]) == 0 && j.had.Checked != 0 {
		row.Fresh, row.Demand = row.Checked+j.had.Fresh-j.had.Checked, j.had.Demand
	}
	if err = s.d.Content.Renew(ctx, row); err != nil {
		return f, err
	}
	s.revalidated[Unchanged](1)
	return Filled{Stored: row, Same: true}, nil
}

// asked draws the consequences of a failed revalidation.
func (s *Filler) asked(ctx context.Context, j *job, f *asset.FillError) {
	switch {
	case !j.again || j.stored == "":
		return
	case f.Reason == asset.UpstreamNotFound:
		s.revalidated[Gone](1)
		if err := s.d.Content.Forget(ctx, j.stored); err != nil {
			f.Cause = err
		}
	case f.Retryable():
		s.revalidated[Silent](1)
		s.spared.add(j.Host, s.d.Now(), SparedFor)
	}
}
