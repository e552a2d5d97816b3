package edge

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
)

// partial is an object that is being fetched: the bytes so far, and the description of the whole
// object by the host. A later try asks the host for the rest.
type partial struct {
	intake
	etag  string    // of the whole, strong
	kind  string    // media type
	from  string    // the host that sent all bytes so far; "": several did
	until time.Time // when it is dropped, unless a fill resumes it before
}

// errStale is returned for a part that belongs to another object than the partial.
var errStale = errors.New("the object of the host has changed")

// ask sets the headers of the next try that request the rest of the object, if p has bytes.
func (p *partial) ask(h http.Header) {
	h.Del("Range")
	h.Del("If-Range")
	if p.size > 0 {
		h.Set("Range", fmt.Sprintf("bytes=%d-", p.size))
		h.Set("If-Range", p.etag)
	}
}

// sentBy notes the host of an answer before its body is read.
func (p *partial) sentBy(host string, a *upstream.Answer) {
	switch {
	case a.Status != http.StatusPartialContent || p.size == 0:
		p.from = host
	case p.from != host:
		p.from = ""
	}
}

// resume checks that a 206 is the rest of the object. It returns errStale for a part of another
// object, and another error for a part that was not requested.
func (p *partial) resume(a *upstream.Answer) error {
	if p.size == 0 || a.ETag() != p.etag {
		return &asset.FillError{Reason: asset.NotCacheable, Cause: errStale}
	}
	first, last, total, ok := contentRange(a.Header)
	if ok && first == p.size && last < total-1 { // the host serves ranges in slices: fetch the whole object
		return &asset.FillError{Reason: asset.NotCacheable, Cause: errStale}
	}
	if !ok || first != p.size || last != total-1 || p.total >= 0 && total != p.total ||
		a.Length >= 0 && a.Length != total-first {
		return &asset.FillError{
			Reason: asset.NotCacheable,
			Cause: fmt.Errorf("the host sent another part than requested: bytes %d to the end, Content-Range %.64q",
				p.size, a.Header["Content-Range"]),
		}
	}
	p.total = total
	return nil
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

// outdated reports whether err means that the host does not have the rest of p, because its object
// has changed or has no such bytes.
func (p *partial) outdated(err error) bool {
	if p.size == 0 {
		return false
	}
	return errors.Is(err, errStale) || upstream.StatusOf(err) == http.StatusRequestedRangeNotSatisfiable
}

// partials holds the partials of failed fills until the next fill of their URL, at most partialFor.
// The room of each is reserved.
type partials struct {
	most int64 // bytes of all

	mu  sync.Mutex          // a leaf
	all map[string]*partial // by URL; guarded by mu
	sum int64               // bytes of all; guarded by mu
}

// Bounds of partials that are not configurable.
const (
	mostPartials = 64              // each is an open file
	partialFor   = 2 * time.Minute // a reload of a page or a repeated fill comes sooner
)

// newPartials returns an empty set that holds at most most bytes.
func newPartials(most int64) *partials { return &partials{most: most, all: map[string]*partial{}} }

// take removes and returns the partial of a URL, or returns an empty one.
func (s *partials) take(url string) *partial {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[url]
	if p == nil {
		return &partial{intake: intake{total: -1}}
	}
	s.remove(url, p)
	return p
}

// keep stores p until now + partialFor. It returns the partials that p displaces, or p itself if it
// is too large. The caller must discard them.
func (s *partials) keep(url string, p *partial, now time.Time) (left []*partial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.until = now.Add(partialFor); p.size > s.most {
		return []*partial{p}
	}
	if old := s.all[url]; old != nil {
		s.remove(url, old)
		left = append(left, old)
	}
	for len(s.all) >= mostPartials || s.sum+p.size > s.most {
		left = append(left, s.oldest())
	}
	s.all[url] = p
	s.sum += p.size
	return left
}

// expired removes and returns the partials that have expired.
func (s *partials) expired(now time.Time) (left []*partial) {
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

// shed removes and returns the partial that would expire first, or nil.
func (s *partials) shed() *partial {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.oldest()
}

// oldest removes and returns the partial that would expire first, or nil. It is called with mu
// held.
func (s *partials) oldest() (p *partial) {
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
func (s *partials) remove(url string, p *partial) {
	delete(s.all, url)
	s.sum -= p.size
}

// drop drops the bytes of p and releases its room. p is empty afterwards.
func (p *partial) drop() {
	p.intake.drop()
	p.etag, p.kind, p.until = "", "", time.Time{}
}

// keepPartial stores p for the next fill of its URL if that may succeed, and discards it otherwise.
func (e *Engine) keepPartial(url string, p *partial, err error) {
	failed, _ := errors.AsType[*asset.FillError](err)
	left := []*partial{p}
	if p.size > 0 && failed != nil && failed.Retryable() && !e.draining() {
		e.room.reserve(p.size - p.reserved)
		p.reserved = p.size
		left = e.partials.keep(url, p, e.now())
	}
	for _, p := range left {
		p.drop()
	}
}

// shedPartials discards every partial and reports whether there was one.
func (e *Engine) shedPartials() (some bool) {
	for p := e.partials.shed(); p != nil; p = e.partials.shed() {
		p.drop()
		some = true
	}
	return some
}
