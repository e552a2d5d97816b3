package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// Errors of a Get that a retry cannot change, besides *StatusError and ErrAddress.
var (
	ErrURL      = errors.New("upstream: URL is not allowed")
	ErrRedirect = errors.New("upstream: redirect is not followed")
	ErrTooLarge = errors.New("upstream: body is longer than allowed")
	ErrOpen     = errors.New("upstream: the circuit breaker is open") // nothing was sent
)

// StatusError is returned for an answer that is neither a success nor 304.
type StatusError struct{ Status int }

func (e *StatusError) Error() string { return fmt.Sprintf("upstream: answered %d", e.Status) }

// Spec configures a Client.
type Spec struct {
	Service, Svc, Op string // labels of its metrics: the engine, the callee, the call
	Guard            Guard
	// refuses URLs that must not be requested, redirects included; nil: any URL
	URL       func(*url.URL) error
	Roots     *x509.CertPool // trusted roots; nil: the system's
	Pins      []Pin          // keys of the host, which replace its chain and name; nil: no pins
	Redirects int            // most redirects to follow
	Timeout   time.Duration  // of one try, including its body
	LateOp    string         // label op of io_timeouts_total; "": Op
	Tries     int
	// reports whether a failed try is retried; nil: after a time-out, a broken connection, 503 and
	// 504
	Again   func(error) bool
	Delay   func(n int) time.Duration // after failure n, from 0
	Breaker *flow.Breaker             // stepped here; nil: no breaker
}

// Client requests content from one upstream. Its methods may be called from any goroutine.
type Client struct {
	*Transport
	spec  Spec
	http  *http.Client
	retry flow.Retrier

	tries    func() trySeries // exported from the first try on
	timeouts func(int)
	connects func(int) // time-outs before there was a connection
	failed   func(int)
}

// trySeries counts the tries by outcome, and their times.
type trySeries struct {
	calls   map[string]func(int)
	seconds func(float64)
}

func newTrySeries(m *obs.Metrics, s *Spec) trySeries {
	t := trySeries{
		calls:   map[string]func(int){},
		seconds: m.Histogram("upstream_latency_seconds", s.Service, "svc", s.Svc, "op", s.Op),
	}
	for _, o := range []string{outcomeOK, outcomeRefused, outcomeTimeout, outcomeFailed, outcomeLeft} {
		t.calls[o] = m.Counter("upstream_calls_total", s.Service, "svc", s.Svc, "op", s.Op, "outcome", o)
	}
	return t
}

// Outcomes of a try: values of a label of upstream_calls_total.
const (
	outcomeOK      = "ok"
	outcomeRefused = "refused" // the host refused, or the policy forbids the request
	outcomeTimeout = "timeout"
	outcomeFailed  = "failed"
	outcomeLeft    = "left" // the caller had no time left, or rejected the answer
)

// maxHeader bounds the header of an answer, in bytes.
const maxHeader = 64 << 10

// New returns a client with a transport of its own, and resolves its metrics. It does no I/O.
func New(c *flow.Catalog, m *obs.Metrics, s Spec) *Client { return NewTransport(s).Client(c, m, s) }

// Client returns a client that makes its calls over the connections of t. The fields of s that
// decide who is called do not count: those of t do. Client resolves metrics and does no I/O.
func (t *Transport) Client(c *flow.Catalog, m *obs.Metrics, s Spec) *Client {
	if s.Again == nil {
		s.Again = transient
	}
	if s.LateOp == "" {
		s.LateOp = s.Op
	}
	cl := &Client{
		Transport: t,

		spec:     s,
		retry:    flow.Retry(s.Delay, s.Tries, s.Again).Counting(c, s.Service, s.Op, "svc", s.Svc),
		tries:    sync.OnceValue(func() trySeries { return newTrySeries(m, &s) }),
		timeouts: m.Counter("io_timeouts_total", s.Service, "op", s.LateOp),
		connects: m.Counter("io_timeouts_total", s.Service, "op", "connect"),
		failed:   m.Counter("upstream_fail_total", s.Service, "svc", s.Svc),
	}
	cl.http = &http.Client{CheckRedirect: t.redirect, Transport: t.rounds}
	return cl
}

// Request describes a request.
type Request struct {
	URL    string
	Header http.Header // sent as is; may be nil
	Post   []byte      // body of a POST; nil: GET
	Head   bool        // HEAD: the answer has a Length and no body
	Also   int         // a status accepted besides successes; 0: none
	ETag   string      // of the caller's copy: the answer may be NotModified; "": no copy
	Max    int64       // largest body in bytes
	// Timeout of one try, including its body; 0: that of Spec.
	Timeout time.Duration
	// Idle ends a try after this time without a byte while one is expected; 0: no such limit.
	Idle time.Duration
	// Blame reports whether the error of a failed try counts against the host's breaker; nil: every
	// failure does. Metrics do not use it.
	Blame func(error) bool
	// Trying is called before each try that the breaker permits, and may change Header. It may be
	// nil.
	Trying func()
}

// Get requests r, with retries, and calls take to read the answer. If a try breaks off while take
// reads, take is called again with a new answer. An error of take itself ends the Get. Get returns
// when ctx ends, at the latest.
func (c *Client) Get(ctx context.Context, r Request, take func(*Answer) error) error {
	u, err := url.Parse(r.URL)
	if err != nil {
		return fmt.Errorf("%w: it is malformed", ErrURL)
	}
	if err := c.allowed(u); err != nil {
		return err
	}
	defer c.ended()
	r.Timeout = cmp.Or(r.Timeout, c.spec.Timeout)
	var judged verdict
	err = c.retry.Do(ctx, func(ctx context.Context) (err error) {
		judged, err = c.try(ctx, r, take)
		return err
	})
	if err != nil && (judged.outcome == outcomeTimeout || judged.outcome == outcomeFailed) {
		c.failed(1)
	}
	return err
}

// verdict is the conclusion about a host that a try allows.
type verdict struct {
	outcome string
	result  flow.CallResult
}

// try makes one call, if the breaker permits it, and records the result.
func (c *Client) try(ctx context.Context, r Request, take func(*Answer) error) (v verdict, err error) {
	v = verdict{outcomeFailed, flow.Failed}
	record := func(flow.CallResult) {}
	if b := c.spec.Breaker; b != nil {
		b.Step(time.Now())
		pass, ok := b.Permit()
		if !ok {
			return v, ErrOpen
		}
		var once sync.Once
		record = func(r flow.CallResult) { once.Do(func() { b.Record(pass, r, 1); b.Step(time.Now()) }) }
	}
	if r.Trying != nil {
		r.Trying()
	}
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	var connected atomic.Bool
	defer func() { // deferred, because take may panic
		record(v.result)
		c.tries().calls[v.outcome](1)
		c.tries().seconds(time.Since(began).Seconds())
		switch {
		case v.outcome == outcomeTimeout && !connected.Load():
			c.connects(1)
		case v.outcome == outcomeTimeout:
			c.timeouts(1)
		}
	}()
	within = httptrace.WithClientTrace(
		within,
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }},
	)
	err = c.call(within, r, take, record)
	v = judge(ctx, err)
	if v.result == flow.Failed && r.Blame != nil && !r.Blame(err) {
		v.result = flow.Neither
	}
	return v, err
}

// call sends the request and reads the answer. It calls heard when the header has arrived.
func (c *Client) call(ctx context.Context, r Request, take func(*Answer) error, heard func(flow.CallResult)) error {
	method, sent := r.method()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	req, err := http.NewRequestWithContext(ctx, method, r.URL, sent)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrURL, err)
	}
	if r.Header != nil {
		req.Header = r.Header.Clone()
	}
	if r.ETag != "" {
		req.Header.Set("If-None-Match", r.ETag)
	}
	silence := newSilence(r.Idle, stop)
	defer silence.end()
	res, err := c.http.Do(req)
	silence.end()
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode < http.StatusInternalServerError {
		heard(flow.Succeeded) // otherwise the end of the try decides
	}
	a := &Answer{
		Status:      res.StatusCode,
		NotModified: r.ETag != "" && res.StatusCode == http.StatusNotModified,
		Header:      res.Header,
		Length:      res.ContentLength,
	}
	a.Unframed = a.Length < 0 && len(res.TransferEncoding) == 0 && res.ProtoMajor == 1
	if !a.NotModified && (res.StatusCode < 200 || res.StatusCode > 299) &&
		res.StatusCode != cmp.Or(r.Also, http.StatusOK) {
		return &StatusError{res.StatusCode}
	}
	if res.ContentLength > r.Max && !r.Head {
		return ErrTooLarge
	}
	body := &body{in: res.Body, left: r.Max, since: time.Now(), silence: silence}
	a.Body = body
	err = take(a)
	switch {
	case body.err == nil && err != nil:
		return &takeError{err}
	case body.err != nil && body.err != ErrTooLarge && body.own > r.Timeout/2:
		return &takeError{
			fmt.Errorf("%w: the body was read too slowly: %s of %s went by between reads", context.DeadlineExceeded,
				body.own, r.Timeout),
		}
	}
	return body.err
}

// takeError is an error that the host is not responsible for: one of take, or a time-out of a try
// in which take used most of the time.
type takeError struct{ error }

func (e *takeError) Unwrap() error { return e.error }

// IsOwn reports whether take ended a Get, with an error of its own or, as a
// context.DeadlineExceeded, by being slow.
func IsOwn(err error) bool {
	_, own := errors.AsType[*takeError](err)
	return own
}

// refusedHere reports whether an error says nothing about the host.
func refusedHere(err error) bool {
	return errors.Is(err, ErrURL) || errors.Is(err, ErrRedirect) || errors.Is(err, ErrTooLarge) ||
		errors.Is(err, ErrAddress)
}

// judge returns the verdict of a try that ended with err. ctx is the context of its caller.
func judge(ctx context.Context, err error) verdict {
	var own *takeError
	var status *StatusError
	switch {
	case err == nil:
		return verdict{outcomeOK, flow.Succeeded}
	case errors.As(err, &own), ctx.Err() != nil:
		return verdict{outcomeLeft, flow.Neither}
	case errors.As(err, &status) && status.Status < http.StatusInternalServerError:
		return verdict{outcomeRefused, flow.Succeeded}
	case refusedHere(err):
		return verdict{outcomeRefused, flow.Neither}
	case IsTimeout(err):
		return verdict{outcomeTimeout, flow.Failed}
	}
	return verdict{outcomeFailed, flow.Failed}
}

// StatusOf returns the status of an answer that was not a success, or 0 if there was no such
// answer.
func StatusOf(err error) int {
	if answer, ok := errors.AsType[*StatusError](err); ok {
		return answer.Status
	}
	return 0
}

// IsTimeout reports whether a try timed out.
func IsTimeout(err error) bool {
	var late net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late) && late.Timeout()
}

// IsConnect reports whether a try could not connect: no address, no listener, no trusted
// certificate, or no pinned key.
func IsConnect(err error) bool {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "remote error") || errors.As(err, &cert) ||
		errors.As(err, &record) || errors.Is(err, ErrPin)
}

// transient reports whether a retry may succeed soon: after a time-out, a broken connection, 503
// and
// 504.
func transient(err error) bool {
	var own *takeError
	var status *StatusError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &status):
		return status.Status == http.StatusServiceUnavailable || status.Status == http.StatusGatewayTimeout
	case errors.As(err, &own), errors.As(err, &cert), errors.Is(err, ErrOpen), errors.Is(err, ErrPin),
		errors.Is(err, context.Canceled):
		return false
	}
	return !refusedHere(err)
}
