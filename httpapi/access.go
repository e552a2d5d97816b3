package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
)

// boundRoute is a route with one method: its handler with all stages, and its metrics.
type boundRoute struct {
	route    *Route
	service  *service
	method   string // also a metric label, from a closed set
	run      Handler
	inflight atomic.Int64
	show     func() // exports the series of route and service; every request calls it, the first has an effect
	latency  func(seconds float64)
	byStatus statusCounter
	busy     func(n int) // nil if nothing can be full
	logged   loggedOf
}

// loggedOf holds the fields that all log lines about a route share.
type loggedOf struct{ service, route []any }

// statusCounter resolves the series of a status on first use, so that only statuses in use are
// exported.
type statusCounter struct {
	resolve func(status int) func(n int)
	seen    sync.Map // status to func(int)
}

func (s *statusCounter) inc(status int) {
	f, ok := s.seen.Load(status)
	if !ok {
		f, _ = s.seen.LoadOrStore(status, s.resolve(status))
	}
	f.(func(int))(1)
}

// bind returns a route bound to one of its methods. Its series are exported from its first request
// on: a node has some hundred routes, most of which are never called.
func (s *Server) bind(r *Route, method string) *boundRoute {
	m, b := s.d.Metrics, &boundRoute{route: r, service: s.services[r.Service], method: method}
	b.show = b.service.show
	b.logged = loggedOf{service: []any{"service", r.Service}, route: []any{"route", r.Pattern, "method", method}}
	b.latency = m.HistogramOnUse("request_latency_seconds", r.Service, "route", r.Pattern, "method", method)
	b.byStatus.resolve = func(status int) func(int) {
		return m.Counter("http_requests_total", r.Service,
			"route", r.Pattern, "method", method, "status", strconv.Itoa(status))
	}
	switch {
	case b.service.BusyByRoute:
		b.busy = m.CounterOnUse("busy_rejections_total", r.Service, "route", r.Pattern)
	case r.Endpoint != "":
		b.busy = m.CounterOnUse("busy_rejections_total", r.Service, "endpoint", r.Endpoint)
	}
	b.run = s.fit(b)
	return b
}

// showOnRequest has the first request of a route, whichever its method, export the number of
// running requests over all methods, and the count of those that were refused because something was
// full.
func showOnRequest(m *obs.Metrics, r *Route, all []*boundRoute) {
	show := sync.OnceFunc(func() {
		all[0].service.show()
		m.Gauge("inflight_requests", r.Service, func() (n float64) {
			for _, b := range all {
				n += float64(b.inflight.Load())
			}
			return n
		}, "route", r.Pattern)
		if all[0].busy != nil {
			all[0].busy(0)
		}
	})
	for _, b := range all {
		b.show = show
	}
}

// account times, counts and logs a request, and answers its error.
func account(s *Server, b *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		b.show()
		b.inflight.Add(1)
		defer b.inflight.Add(-1)
		if err := s.limitIO(c); err != nil {
			return err // the connection is already closed
		}
		var span obs.Span
		c.base, span = s.d.Tracer.StartRequest(c.r.Context(), c.r, b.route.Service)
		err := next(c)
		if err == nil {
			s.record(c, b, span, nil)
			return nil
		}
		answered := s.refuse(c, b, err)
		s.record(c, b, span, err)
		if !answered {
			return http.ErrAbortHandler // a truncated answer must not look complete
		}
		return nil
	}
}

// limitIO sets the deadlines of the answer, as a whole or per window, and of the body if there is
// one. The body has one even if no handler reads it, because net/http reads the rest of it. The
// connection of a chunked body is not reused: net/http would have dropped a Content-Length next to
// the chunks without notice.
func (s *Server) limitIO(c *Request) error {
	if c.r.ContentLength < 0 {
		c.Header().Set("Connection", "close")
	}
	control, windowed := c.control(), false
	if c.route.long() {
		window := cmp.Or(c.route.Window, c.settings.write)
		windowed = c.peer.SendWindow(window)
		if c.peer.Relay != nil {
			c.w = newPacedWriter(c.w, window)
		}
	}
	var err error
	if !windowed {
		err = control.SetWriteDeadline(c.started.Add(c.budget() + c.settings.write))
	}
	if err == nil && c.r.ContentLength != 0 {
		err = control.SetReadDeadline(c.started.Add(c.settings.read))
	}
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// record counts and logs an answered request, and ends its span.
func (s *Server) record(c *Request, b *boundRoute, span obs.Span, err error) {
	status := c.status
	if status == 0 {
		status = http.StatusOK // sent by net/http if the handler wrote nothing
	}
	b.byStatus.inc(status)
	took := time.Since(c.started)
	if b.route.Class != ClassStream {
		b.latency(took.Seconds())
	}
	if err == nil && status >= http.StatusBadRequest {
		s.rejected(c.route.Service, ReasonDegraded, 1)
	}
	if s.gate.load() >= GateDraining && guarded(b.route) {
		b.service.ended(c)
	}
	s.log(c, &b.logged, status, took, err)
	endSpan(c, span, status, err)
}

// endSpan ends the span. An error of the caller does not fail the span. It costs nothing if tracing
// is off.
func endSpan(c *Request, span obs.Span, status int, err error) {
	span.Attr("corr_id", c.corrID)
	span.Attr("http.route", c.route.Pattern)
	span.Int("http.response.status_code", status)
	if status >= http.StatusInternalServerError {
		span.Fail(err)
	}
	span.End()
}

// log writes a line about a request: failures, refusals and changes at their level, others at
// debug.
func (s *Server) log(c *Request, of *loggedOf, status int, took time.Duration, err error) {
	level := logLevel(c, status)
	if level == hclog.Debug && !s.d.Log.IsDebug() || level == hclog.Info && !s.d.Log.IsInfo() {
		return
	}
	fields := append(append(make([]any, 0, maxFields), of.service...), "corr_id", c.corrID)
	fields = append(append(fields, of.route...), "status", status, "latency_ms", float64(took.Microseconds())/1000,
		"peer_addr", c.peer.String())
	fields = actorFields(fields, &c.actor)
	if err != nil {
		fields = append(append(fields, "reason", c.reason, "error", err.Error()), errorFields(err)...)
	}
	s.d.Log.Log(level, "http.request", fields...)
}

// logLevel returns error for a failure of the node, and lower levels for refusals, writes and
// reads.
func logLevel(c *Request, status int) hclog.Level {
	switch c.reason {
	case ReasonInternal:
		return hclog.Error
	case ReasonStoreFailed, ReasonStoreFull, ReasonCommitUnsure:
		return hclog.Warn
	}
	switch {
	case c.route.Class == ClassBypass:
		return hclog.Debug
	case c.route.Writes(), status >= http.StatusInternalServerError,
		status == http.StatusUnauthorized, status == http.StatusForbidden:
		return hclog.Info
	}
	return hclog.Debug
}

// maxFields is the number of keys and values in a line about a successful request.
const maxFields = 28

// actorFields appends the caller.
func actorFields(to []any, a *engines.Actor) []any {
	if a.Anonymous() {
		return to
	}
	return tokenFields(append(to, "cap_id", a.CapID, "principal", a.Principal), "", a.Kid, a.Tenant, a.Fingerprint)
}

// errorFields returns the part of an error that is not shown to the caller.
func errorFields(err error) []any {
	var p *panicError
	var invalid *auth.InvalidError
	var denied *auth.DeniedError
	var limited *auth.LimitedError
	switch {
	case errors.As(err, &p):
		return []any{"stack", string(p.stack)}
	case errors.As(err, &invalid):
		return tokenFields([]any{"auth_stage", invalid.Stage, "auth_reason", invalid.Reason, "scope", invalid.Scope},
			invalid.TID, invalid.Kid, invalid.Tenant, invalid.Fingerprint)
	case errors.As(err, &denied):
		return tokenFields(
			[]any{"auth_stage", "caveat", "auth_reason", strings.Join(denied.Reasons, "; "), "scope", denied.Scope},
			denied.TID,
			denied.Kid,
			denied.Tenant,
			denied.Fingerprint,
		)
	case errors.As(err, &limited):
		return tokenFields([]any{"auth_stage", limited.Stage}, limited.TID, "", "", "")
	}
	return nil
}

// tokenFields appends the identity of a token, as far as it is known, and its digest, but not the
// token.
func tokenFields(to []any, tid, kid, tenant, b3 string) []any {
	for _, f := range [...][2]string{{"tid", tid}, {"kid", kid}, {"tenant", tenant}, {"token_b3", b3}} {
		if f[1] != "" {
			to = append(to, f[0], f[1])
		}
	}
	return to
}

// loadReasons are the reasons that a node under load or in trouble refuses for. Their counters are
// exported at 0 from the first request to the service on, so that the first refusal is seen as an
// increase.
var loadReasons = [...]string{
	ReasonBusy, ReasonRate, ReasonInflight, ReasonTimeout, ReasonDegraded, ReasonStoreFull, ReasonInternal,
}

// rejected counts n refusals.
func (s *Server) rejected(service, reason string, n int) {
	key := service + "\xff" + reason
	f, ok := s.refusals.Load(key)
	if !ok {
		f, _ = s.refusals.LoadOrStore(key, s.d.Metrics.Counter("rejected_total", service, "reason", reason))
	}
	f.(func(int))(n)
}

// timedOut counts a request that was not read in time, or an answer that was not written in time.
func (s *Server) timedOut(service, op string) {
	sv := s.services[service]
	if op == front.OpWrite {
		sv.lateWrites(1)
		return
	}
	sv.lateReads(1)
}
