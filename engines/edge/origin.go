package edge

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/sig"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
)

var errHost = errors.New("edge.allow does not name the host")

// origins holds the hosts of one configuration, each with its own client and breaker. It is
// immutable once it is current.
type origins struct {
	hosts map[string]*origin
	ca    []byte // content of edge.ca_file
}

// newOrigins creates the clients for the hosts of a configuration.
func (e *Engine) newOrigins(c *config.Config) (_ *origins, err error) {
	nets, _ := c.PrivateNets() // Validate has accepted them
	o := &origins{hosts: map[string]*origin{}}
	var roots *x509.CertPool
	if c.CAFile != "" {
		o.ca, err = os.ReadFile(c.CAFile)
		if err == nil {
			roots, err = sig.Roots(o.ca)
		}
		if err != nil {
			return nil, fmt.Errorf("edge.ca_file = %q: %w", c.CAFile, err)
		}
	}
	for _, name := range c.Allow {
		breaker := flow.NewBreaker(flow.BreakerRule{
			Ratio: 0.5, Min: 20, Window: faultWindow, Cooldown: e.cooldown, Probes: 1,
		})
		o.hosts[name] = &origin{Client: upstream.New(e.d.Catalog, e.d.Metrics, upstream.Spec{
			Service:   service,
			Svc:       name,
			Op:        "live_fill",
			LateOp:    "fill",
			Guard:     upstream.Guard{Allow: nets},
			URL:       o.allowed,
			Roots:     roots,
			Redirects: 3,
			Timeout:   c.Timeout(),
			Tries:     c.Retry.LiveFill.MaxRetries,
			Again:     isTransient,
			Delay:     c.Retry.LiveFill.After,
			Breaker:   breaker.Counting(e.d.Catalog, service, name),
		})}
	}
	return o, nil
}

// serve reports whether o, which was made for c, also suits next. If so, the state of its breakers
// is kept.
func (o *origins) serve(c, next *config.Config) bool {
	ca, err := os.ReadFile(next.CAFile)
	sameCA := c.CAFile == next.CAFile && (c.CAFile == "" || err == nil && bytes.Equal(ca, o.ca))
	return sameCA && slices.Equal(c.Allow, next.Allow) && slices.Equal(c.AllowPrivate, next.AllowPrivate) &&
		c.Retry == next.Retry && c.Timeout() == next.Timeout()
}

func (o *origins) close() {
	for _, h := range o.hosts {
		h.Close()
	}
}

// allowed returns an error for a URL, also of a redirect, that is not on one of the hosts.
func (o *origins) allowed(u *url.URL) error {
	if u.Scheme != "https" || o.hosts[strings.TrimSuffix(u.Host, ":443")] == nil {
		return fmt.Errorf("%w: %s://%s", errHost, u.Scheme, u.Host)
	}
	return nil
}

// isTransient reports whether a retry may succeed soon. A delay in the content store is not an
// error of the host.
func isTransient(err error) bool {
	status := upstream.StatusOf(err)
	return status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout ||
		upstream.IsTimeout(err) && !upstream.IsOwn(err)
}

// ask requests an object from a host, or the rest of an object if the header of r has a Range. It
// calls take with an answer that may be stored, that has a strong ETag, and that has a known end.
func (e *Engine) ask(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error {
	h := e.origins.Load().hosts[host]
	if h == nil {
		return errHost
	}
	r.Blame = func(err error) bool { return h.blames(r.URL, err, time.Now()) }
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "ronbox")
	return h.Get(ctx, r, func(a *upstream.Answer) error {
		part := a.Status == http.StatusPartialContent && r.Header.Get("Range") != ""
		if err := storable(a, part); err != nil {
			return err
		}
		return take(a)
	})
}

// storable returns an error for an answer that must not be stored, because of its form or because
// the host forbids it. It does not check that a part is the requested one.
func storable(a *upstream.Answer, part bool) error {
	refuse := func(why asset.Reason, format string, args ...any) error {
		return &asset.FillError{Reason: why, Cause: fmt.Errorf(format, args...)}
	}
	coding := a.Header.Get("Content-Encoding")
	switch private := keptPrivate(a.Header); {
	case a.Status != http.StatusOK && !part:
		return refuse(asset.NotCacheable, "the answer is not all of the object: status %d", a.Status)
	case coding != "" && !strings.EqualFold(coding, "identity"):
		return refuse(asset.NotCacheable, "the answer is coded although that was not asked for: Content-Encoding %.32q",
			coding)
	case private != "":
		return refuse(asset.NotCacheable, "the host does not allow sharing the answer: %s", private)
	case a.ETag() == "" && !part:
		return refuse(asset.ETagInvalid, "the answer has no strong ETag: %.64q", a.Header["Etag"])
	case a.Unframed:
		return refuse(asset.UpstreamUnframed,
			"the answer has neither a Content-Length nor chunks: one that was cut would look whole")
	}
	return nil
}

// keptPrivate returns the part of a header that forbids a shared cache to store the answer, or "".
func keptPrivate(h http.Header) string {
	for _, directive := range listed(h["Cache-Control"]) {
		switch name, _, _ := strings.Cut(directive, "="); strings.ToLower(strings.TrimSpace(name)) {
		case "private", "no-store": // "private" with field names counts as "private", as in most caches
			return fmt.Sprintf("Cache-Control has %.32q", directive)
		}
	}
	switch {
	case slices.Contains(listed(h["Vary"]), "*"):
		return `Vary is "*"`
	case len(h["Set-Cookie"]) > 0:
		return "it sets a cookie"
	}
	return ""
}

// listed splits the lines of a header with a list as its value.
func listed(lines []string) (out []string) {
	for _, line := range lines {
		for one := range strings.SplitSeq(line, ",") {
			out = append(out, strings.TrimSpace(one))
		}
	}
	return out
}

// reasonOf returns the reason of a failed fetch.
func reasonOf(err error) asset.Reason {
	code := upstream.StatusOf(err)
	switch is := func(target error) bool { return errors.Is(err, target) }; {
	case is(errHost), is(upstream.ErrURL), is(upstream.ErrAddress):
		return asset.NotAllowed
	case is(upstream.ErrRedirect):
		return asset.RedirectLoop
	case is(upstream.ErrTooLarge):
		return asset.ObjectCap
	case code == http.StatusNotFound, code == http.StatusGone:
		return asset.UpstreamNotFound
	case is(upstream.ErrOpen), code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		return asset.UpstreamUnavailable
	case code >= 500:
		return asset.Upstream5xx
	case code >= 400:
		return asset.Upstream4xx
	case code != 0:
		return asset.NotCacheable
	case upstream.IsTimeout(err):
		return asset.Timeout
	case upstream.IsConnect(err):
		return asset.UpstreamConnect
	}
	return asset.UpstreamTruncated
}

// origin is one host of edge.allow.
type origin struct {
	*upstream.Client
	faulty faultyPaths
}

// Bounds of the failures that count against a host.
const (
	// severalPaths is the number of paths that must answer 502, 503 or 504 within a faultWindow
	// before these answers count: a single page may be broken although the host is not.
	severalPaths = 3
	faultWindow  = time.Minute // also the window of the breaker
	hostCooldown = 10 * time.Second
)

// faultyPaths holds the URLs for which a host most recently answered 502, 503 or 504.
type faultyPaths struct {
	mu   sync.Mutex             // a leaf
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

// blames reports whether a failed try counts against the host: a failed connection, a whole try
// without an answer, or a 502, 503 or 504 after several paths had one. Any other 5xx counts against
// its path only.
func (h *origin) blames(url string, err error, now time.Time) bool {
	switch status := upstream.StatusOf(err); status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return h.faulty.add(url, now)
	case 0:
		return upstream.IsTimeout(err) || upstream.IsConnect(err)
	}
	return false
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
