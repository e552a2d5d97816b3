package edge

import (
	"net/http"
	"sync"
	"time"

	"ronbox/engines/upstream"
)

// origin is one host of edge.allow.
type origin struct {
	*upstream.Client
	faulty faultyPaths
}

// Bounds of what counts against a host.
const (
	severalPaths = 3           // paths that answer 502, 503 or 504 within a faultWindow before any of them counts: one page may be broken, a host is not
	faultWindow  = time.Minute // the window of the breaker
)

// faultyPaths is the URLs that a host answered with 502, 503 or 504 most recently.
type faultyPaths struct {
	mu   sync.Mutex
	last [severalPaths]struct { // guarded by mu
		url string
		at  time.Time
	}
}

// add records url and reports whether severalPaths different URLs have failed within faultWindow.
func (p *faultyPaths) add(url string, now time.Time) (several bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := 0
	for i, one := range p.last {
		if one.url == url {
			at = i
			break
		}
		if one.at.Before(p.last[at].at) {
			at = i
		}
	}
	p.last[at].url, p.last[at].at = url, now
	for _, one := range p.last {
		if one.url == "" || now.Sub(one.at) > faultWindow {
			return false
		}
	}
	return true
}

// blames reports whether a failed try counts against the host: a connection that failed, a whole try without an answer, and 502, 503 and 504
// once several paths have answered so. Any other 5xx counts against its path alone.
func (h *origin) blames(url string, err error, now time.Time) bool {
	switch status := upstream.StatusOf(err); status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return h.faulty.add(url, now)
	case 0:
		return upstream.IsTimeout(err) || upstream.IsConnect(err)
	}
	return false
}

// pastAnswer is a refusal of a host that is remembered, so that the host is not asked for the same path again too soon.
type pastAnswer struct {
	reason Reason
	status int
	until  time.Time
}

// past returns the remembered refusal of a URL.
func (e *Engine) past(url string) (pastAnswer, bool) {
	p, known := e.absent.Get(url)
	return p, known && e.now().Before(p.until)
}

// remember keeps the refusal of a fill: a 404 for negativeFor, a 5xx for faultyFor.
func (e *Engine) remember(f *FillError) {
	status, keep := upstream.StatusOf(f.Cause), faultyFor
	switch {
	case f.Reason == UpstreamNotFound:
		keep = negativeFor
	case status < http.StatusInternalServerError:
		return
	}
	e.absent.SetFor(f.URL, pastAnswer{f.Reason, status, e.now().Add(keep)}, 1, keep)
}
