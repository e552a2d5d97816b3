package edge

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/upstream"
)

var errHost = errors.New("edge.allow does not name the host")

// origins is the hosts of one configuration, each with a client and a breaker of its own. It is not changed once it is current.
type origins struct {
	hosts map[string]*origin
	ca    []byte // what edge.ca_file held
}

// newOrigins wires the hosts of a configuration.
func (e *Engine) newOrigins(c *Config) (_ *origins, err error) {
	nets, _ := c.privateNets() // Validate has read them
	o := &origins{hosts: map[string]*origin{}}
	var roots *x509.CertPool
	if c.CAFile != "" {
		o.ca, err = os.ReadFile(c.CAFile)
		if roots = x509.NewCertPool(); err != nil || !roots.AppendCertsFromPEM(o.ca) {
			return nil, errors.Join(fmt.Errorf("edge.ca_file = %q: must have certificates in PEM", c.CAFile), err)
		}
	}
	for _, name := range c.Allow {
		breaker := flow.NewBreaker(flow.BreakerRule{Ratio: 0.5, Min: 20, Window: time.Minute, Cooldown: 10 * time.Second, Probes: 1})
		o.hosts[name] = &origin{Client: upstream.New(e.d.Catalog, e.d.Metrics, upstream.Spec{
			Service: service, Svc: name, Op: "live_fill", LateOp: "fill", Guard: upstream.Guard{Allow: nets}, URL: o.allowed, Roots: roots,
			Redirects: 3, Timeout: c.timeout(), Tries: c.Retry.LiveFill.MaxRetries, Again: isTransient, Delay: c.Retry.LiveFill.after,
			Breaker: breaker.Counting(e.d.Catalog, service, name),
		})}
	}
	return o, nil
}

// serve reports whether next calls hosts as c does, whose origins they are, so that what their breakers know still holds.
func (o *origins) serve(c, next *Config) bool {
	ca, err := os.ReadFile(next.CAFile)
	return slices.Equal(c.Allow, next.Allow) && slices.Equal(c.AllowPrivate, next.AllowPrivate) && c.CAFile == next.CAFile &&
		(c.CAFile == "" || err == nil && bytes.Equal(ca, o.ca)) && c.Retry == next.Retry && c.timeout() == next.timeout()
}

// after is the pause after failure n: min(max_ms, base_ms·2ⁿ) + U[0, base_ms].
func (r RetryRule) after(n int) time.Duration {
	pause := min(r.MaxMS, r.BaseMS<<min(n, 16))
	if r.Jitter {
		pause += rand.IntN(r.BaseMS + 1)
	}
	return time.Duration(pause) * time.Millisecond
}

func (o *origins) close() {
	for _, h := range o.hosts {
		h.Close()
	}
}

// allowed refuses a URL that is not one of the hosts', a redirect's too.
func (o *origins) allowed(u *url.URL) error {
	if u.Scheme != "https" || o.hosts[strings.TrimSuffix(u.Host, ":443")] == nil {
		return fmt.Errorf("%w: %s://%s", errHost, u.Scheme, u.Host)
	}
	return nil
}

// isTransient reports whether the host may do better soon. That the content store was late is none of its.
func isTransient(err error) bool {
	status := upstream.StatusOf(err)
	return status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout || upstream.IsTimeout(err) && !upstream.IsOwn(err)
}

// ask asks a host for an object, and has take read one that could be told from a changed one, and from one that was cut.
func (e *Engine) ask(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error {
	h := e.origins.Load().hosts[host]
	if h == nil {
		return errHost
	}
	r.Blame = func(err error) bool { return h.blames(r.URL, err, time.Now()) }
	r.Header = http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {"ronbox"}}
	return h.Get(ctx, r, func(a *upstream.Answer) error {
		coding := a.Header.Get("Content-Encoding")
		switch refuse := func(why Reason, has string) error {
			return &FillError{Reason: why, Cause: errors.New(has)}
		}; {
		case a.Status != http.StatusOK || coding != "" && !strings.EqualFold(coding, "identity"):
			return refuse(NotCacheable, fmt.Sprintf("the answer is coded, or is not all of the object: status %d, Content-Encoding %.32q", a.Status, coding))
		case a.ETag() == "":
			return refuse(ETagInvalid, fmt.Sprintf("the answer has no strong ETag: %.64q", a.Header["Etag"]))
		case a.Unframed:
			return refuse(UpstreamUnframed, "the answer has neither a Content-Length nor chunks: one that was cut would look whole")
		}
		return take(a)
	})
}

// reasonOf finds the reason of a failure to fetch.
func reasonOf(err error) Reason {
	code := upstream.StatusOf(err)
	switch is := func(target error) bool { return errors.Is(err, target) }; {
	case is(errHost), is(upstream.ErrURL), is(upstream.ErrAddress):
		return NotAllowed
	case is(upstream.ErrRedirect):
		return RedirectLoop
	case is(upstream.ErrTooLarge):
		return ObjectCap
	case code == http.StatusNotFound, code == http.StatusGone:
		return UpstreamNotFound
	case is(upstream.ErrOpen), code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		return UpstreamUnavailable
	case code >= 500:
		return Upstream5xx
	case code >= 400:
		return Upstream4xx
	case code != 0:
		return NotCacheable
	case upstream.IsTimeout(err):
		return Timeout
	case upstream.IsConnect(err):
		return UpstreamConnect
	}
	return UpstreamTruncated
}
