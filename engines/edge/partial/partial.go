package partial

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/intake"
)

// Partial is an object that is being fetched: the bytes so far, and the description of the whole
// object by the host. A later try asks the host for the rest.
type Partial struct {
	intake.Intake
	Type  string    // media type
	From  string    // the host that sent all bytes so far; "": several did
	etag  string    // of the whole, strong
	until time.Time // when it is dropped, unless a fill resumes it before
}

// errStale is returned for a part that belongs to another object than the partial.
var errStale = errors.New("the object of the host has changed")

// Ask sets the headers of the next try that request the rest of the object, if p has bytes. An
// object without a strong tag is not resumed.
func (p *Partial) Ask(h http.Header) {
	if p.etag == "" && p.Size > 0 {
		p.Drop()
	}
	h.Del("Range")
	h.Del("If-Range")
	if p.Size > 0 {
		h.Set("Range", fmt.Sprintf("bytes=%d-", p.Size))
		h.Set("If-Range", p.etag)
	}
}

// SentBy notes the host of an answer before its body is read.
func (p *Partial) SentBy(host string, a *upstream.Answer) {
	switch {
	case a.Status != http.StatusPartialContent || p.Size == 0:
		p.From = host
	case p.From != host:
		p.From = ""
	}
}

// resume checks that a 206 is the rest of the object. It returns errStale for a part of another
// object, and another error for a part that was not requested.
func (p *Partial) resume(a *upstream.Answer) error {
	if p.Size == 0 || a.ETag() != p.etag {
		return &asset.FillError{Reason: asset.NotCacheable, Cause: errStale}
	}
	first, last, total, ok := contentRange(a.Header)
	if ok && first == p.Size && last < total-1 { // the host serves ranges in slices: fetch the whole object
		return &asset.FillError{Reason: asset.NotCacheable, Cause: errStale}
	}
	if !ok || first != p.Size || last != total-1 || p.Total >= 0 && total != p.Total ||
		a.Length >= 0 && a.Length != total-first {
		return &asset.FillError{
			Reason: asset.NotCacheable,
			Cause: fmt.Errorf("the host sent another part than requested: bytes %d to the end, Content-Range %.64q",
				p.Size, a.Header["Content-Range"]),
		}
	}
	p.Total = total
	return nil
}

// Receive appends the body of an answer to p. If the answer is the whole object, p starts over.
func (p *Partial) Receive(ctx context.Context, a *upstream.Answer) error {
	if a.Status == http.StatusPartialContent {
		if err := p.resume(a); err != nil {
			return err
		}
	} else {
		p.Drop()
		p.Total, p.etag, p.Type = a.Length, a.ETag(), a.MediaType()
	}
	if p.Total > p.Most {
		return &asset.FillError{Reason: asset.ObjectCap, Cause: fmt.Errorf("the object has %d bytes", p.Total)}
	}
	switch err := p.Read(ctx, a.Body); err {
	case intake.ErrShort:
		return &asset.FillError{
			Reason: asset.UpstreamTruncated,
			Cause:  fmt.Errorf("received %d of %d bytes", p.Size, p.Total),
		}
	case intake.ErrLong:
		return &asset.FillError{
			Reason: asset.NotCacheable,
			Cause:  fmt.Errorf("the answer is longer than the announced %d bytes", p.Total),
		}
	case intake.ErrMost:
		return &asset.FillError{Reason: asset.ObjectCap, Cause: upstream.ErrTooLarge}
	default:
		return err
	}
}

// contentRange reads the Content-Range of a 206, "bytes first-last/total".
func contentRange(h http.Header) (first, last, total int64, ok bool) {
	lines := h["Content-Range"]
	if len(lines) != 1 {
		return 0, 0, 0, false
	}
	unit, spec, _ := strings.Cut(lines[0], " ")
	span, whole, _ := strings.Cut(spec, "/")
	low, high, _ := strings.Cut(span, "-")
	var n [3]int64
	for i, text := range []string{low, high, whole} {
		v, err := strconv.ParseUint(text, 10, 62)
		if err != nil || strings.HasPrefix(text, "+") {
			return 0, 0, 0, false
		}
		n[i] = int64(v)
	}
	return n[0], n[1], n[2], strings.EqualFold(unit, "bytes") && n[0] <= n[1] && n[1] < n[2]
}

// Outdated reports whether err means that the host does not have the rest of p, because its object
// has changed or has no such bytes.
func (p *Partial) Outdated(err error) bool {
	if p.Size == 0 {
		return false
	}
	return errors.Is(err, errStale) || upstream.StatusOf(err) == http.StatusRequestedRangeNotSatisfiable
}

// Set holds the partials of failed fills until the next fill of their URL, at most partialFor.
// The room of each is reserved.
type Set struct {
	most int64 // bytes of all

	mu  sync.Mutex          // a leaf
	all map[string]*Partial // by URL; guarded by mu
	sum int64               // bytes of all; guarded by mu
}

// Bounds of partials that are not configurable.
const (
	mostPartials = 64              // each is an open file
	partialFor   = 2 * time.Minute // a reload of a page or a repeated fill comes sooner
)

// New returns an empty set that holds at most most bytes.
func New(most int64) *Set { return &Set{most: most, all: map[string]*Partial{}} }

// Take removes and returns the partial of a URL, or returns an empty one.
func (s *Set) Take(url string) *Partial {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[url]
	if p == nil {
		return &Partial{Intake: intake.Intake{Total: -1}}
	}
	s.remove(url, p)
	return p
}

// Keep stores p until now + partialFor. It returns the partials that p displaces, or p itself if it
// is too large. The caller must discard them.
func (s *Set) Keep(url string, p *Partial, now time.Time) (left []*Partial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.until = now.Add(partialFor); p.Size > s.most {
		return []*Partial{p}
	}
	if old := s.all[url]; old != nil {
		s.remove(url, old)
		left = append(left, old)
	}
	for len(s.all) >= mostPartials || s.sum+p.Size > s.most {
		left = append(left, s.oldest())
	}
	s.all[url] = p
	s.sum += p.Size
	return left
}

// Expired removes and returns the partials that have expired.
func (s *Set) Expired(now time.Time) (left []*Partial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for url, p := range s.all {
		if now.After(p.until) {
			s.remove(url, p)
			left = append(left, p)
		}
	}
	return left
}

// Shed removes and returns the partial that would expire first, or nil.
func (s *Set) Shed() *Partial {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.oldest()
}

// oldest removes and returns the partial that would expire first, or nil. It is called with mu
// held.
func (s *Set) oldest() (p *Partial) {
	var at string
	for url, one := range s.all {
		if p == nil || one.until.Before(p.until) {
			p, at = one, url
		}
	}
	if p != nil {
		s.remove(at, p)
	}
	return p
}

// remove removes p. It is called with mu held.
func (s *Set) remove(url string, p *Partial) {
	delete(s.all, url)
	s.sum -= p.Size
}

// Drop drops the bytes of p and releases its room. p is empty afterwards.
func (p *Partial) Drop() {
	p.Intake.Drop()
	p.etag, p.Type, p.until = "", "", time.Time{}
}
