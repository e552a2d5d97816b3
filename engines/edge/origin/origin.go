package origin

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
	"ronbox/appliance/obs"
	"ronbox/appliance/sig"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
)

// ErrHost is returned for a host that the configuration does not allow.
var ErrHost = errors.New("edge.allow does not name the host")

// service is the name of the edge in metrics and the catalogue.
const service = "edge"

// Hosts holds the hosts of one configuration, each with its own client and breaker. Its methods may
// be called from any goroutine.
type Hosts struct {
	hosts map[string]*Host
	ca    []byte // content of edge.ca_file
	weak  bool   // answers with a weak tag may be stored
}

// Deps holds the dependencies of Hosts. Metrics may be nil.
type Deps struct {
	Catalog  *flow.Catalog
	Metrics  *obs.Metrics
	Cooldown time.Duration // of a breaker
}

// New creates the clients for the hosts of a valid configuration. It reads edge.ca_file.
func New(c *config.Config, d Deps) (_ *Hosts, err error) {
	nets, _ := c.PrivateNets() // Validate has accepted them
	o := &Hosts{hosts: map[string]*Host{}, weak: c.Fill.ETag == config.ETagWeak}
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
			Ratio: 0.5, Min: 20, Window: FaultWindow, Cooldown: d.Cooldown, Probes: 1,
		})
		o.hosts[name] = &Host{Client: upstream.New(d.Catalog, d.Metrics, upstream.Spec{
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
			Breaker:   breaker.Counting(d.Catalog, service, name),
		})}
	}
	return o, nil
}

// Serve reports whether o, which was made for c, also suits next. If so, the state of its breakers
// is kept.
func (o *Hosts) Serve(c, next *config.Config) bool {
	ca, err := os.ReadFile(next.CAFile)
	sameCA := c.CAFile == next.CAFile && (c.CAFile == "" || err == nil && bytes.Equal(ca, o.ca))
	return sameCA && slices.Equal(c.Allow, next.Allow) && slices.Equal(c.AllowPrivate, next.AllowPrivate) &&
		c.Retry == next.Retry && c.Timeout() == next.Timeout()
}

// Close closes the connections.
func (o *Hosts) Close() {
	for _, h := range o.hosts {
		h.Close()
	}
}

// allowed returns an error for a URL, also of a redirect, that is not on one of the hosts.
func (o *Hosts) allowed(u *url.URL) error {
	if u.Scheme != "https" || o.hosts[strings.TrimSuffix(u.Host, ":443")] == nil {
		return fmt.Errorf("%w: %s://%s", ErrHost, u.Scheme, u.Host)
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

// Names reports whether the configuration names a host.
func (o *Hosts) Names(host string) bool { return o.hosts[host] != nil }

// Ask requests an object from a host, or the rest of an object if the header of r has a Range. It
// calls take with an answer that may be stored, that has an ETag of the kind that edge.fill.etag
// names, and that has a known end; or with one that is NotModified.
func (o *Hosts) Ask(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error {
	h := o.hosts[host]
	if h == nil {
		return ErrHost
	}
	r.Blame = func(err error) bool { return h.Blames(r.URL, err, time.Now()) }
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "ronbox")
	return h.Get(ctx, r, func(a *upstream.Answer) error {
		part := a.Status == http.StatusPartialContent && r.Header.Get("Range") != ""
		err := error(nil)
		if !a.NotModified {
			err = storable(a, part, o.weak)
		}
		if err != nil {
			return err
		}
		return take(a)
	})
}

// Storable returns an error for an answer that must not be stored, because of its form or because
// the host forbids it. It does not check that a part is the requested one.
func Storable(a *upstream.Answer, part bool) error { return storable(a, part, false) }

func storable(a *upstream.Answer, part, weak bool) error {
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
	case a.ETag() == "" && !part && (!weak || WeakTag(a.Header) == ""):
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

// ReasonOf returns the reason of a failed fetch.
func ReasonOf(err error) asset.Reason {
	code := upstream.StatusOf(err)
	switch is := func(target error) bool { return errors.Is(err, target) }; {
	case is(ErrHost), is(upstream.ErrURL), is(upstream.ErrAddress):
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

// Host is one host of edge.allow, or a node that is asked in the same way.
type Host struct {
	*upstream.Client
	faulty faultyPaths
}

// Bounds of the failures that count against a host.
const (
	// severalPaths is the number of paths that must answer 502, 503 or 504 within a FaultWindow
	// before these answers count: a single page may be broken although the host is not.
	severalPaths = 3
	FaultWindow  = time.Minute      // also the window of the breaker
	Cooldown     = 10 * time.Second // of the breaker of a host
)

// faultyPaths holds the URLs for which a host most recently answered 502, 503 or 504.
type faultyPaths struct {
	mu   sync.Mutex             // a leaf
	last [severalPaths]struct { // guarded by mu
		url string
		at  time.Time
	}
}

// add records url and reports whether severalPaths different URLs have failed within FaultWindow.
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
		if one.url == "" || now.Sub(one.at) > FaultWindow {
			return false
		}
	}
	return true
}

// Blames reports whether a failed try counts against the host: a failed connection, a whole try
// without an answer, or a 502, 503 or 504 after several paths had one. Any other 5xx counts against
// its path only.
func (h *Host) Blames(url string, err error, now time.Time) bool {
	switch status := upstream.StatusOf(err); status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return h.faulty.add(url, now)
	case 0:
		return upstream.IsTimeout(err) || upstream.IsConnect(err)
	}
	return false
}
