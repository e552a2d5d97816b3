package index

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"ronbox/appliance/obs"
	"ronbox/engines/index"
	"ronbox/httpapi"
	"ronbox/httpapi/limit"
)

var (
	errRouteFull = errors.New("too many requests are inside this route; nothing was begun: send it again after Retry-After")
	errQuota     = errors.New("what all clients may ask for in a minute is used up; nothing was begun: send it again after Retry-After")
)

// Limits are what the routes have beside the limits of the service: slots in flight for each route, and quotas of lookups a minute.
type Limits struct {
	inflight  atomic.Int64 // the most inside one route
	resolves  quota
	providers quota
}

// quota is how many lookups of one kind all clients have in a minute. It is full at first.
type quota struct {
	bucket limit.Bucket
	used   func(int) // counts what is refused
}

// NewLimits are those of c; m counts quotas that are used up.
func NewLimits(c index.Config, m *obs.Metrics) *Limits {
	m.Declare(obs.Family{Name: "quota_exhaustions_total", Type: obs.Counter, Labels: []string{"dimension"}, Help: "Requests refused by a quota of a minute."})
	l := &Limits{}
	l.resolves.used = m.Counter("quota_exhaustions_total", service, "dimension", "resolves_per_min")
	l.providers.used = m.Counter("quota_exhaustions_total", service, "dimension", "providers_per_min")
	l.Set(c)
	return l
}

// Set takes the limits of another configuration. Requests that are inside go on.
func (l *Limits) Set(c index.Config) {
	l.inflight.Store(int64(c.Limits.Inflight))
	for q, perMin := range map[*quota]int{&l.resolves: c.Quotas.ResolvesPerMin, &l.providers: c.Quotas.ProvidersPerMin} {
		q.bucket.Set(float64(perMin)/60, perMin)
	}
}

// bound gives a route its own slots, and a lookup its quota. A request that is refused takes none.
func (l *Limits) bound(pattern string, next httpapi.Handler) httpapi.Handler {
	var inside atomic.Int64
	var q *quota
	switch pattern {
	case "/resolve/:key":
		q = &l.resolves
	case "/providers/:cid", "/routing/v1/providers/:cid":
		q = &l.providers
	}
	return func(c *httpapi.Request) error {
		for n := inside.Load(); ; n = inside.Load() {
			if n >= l.inflight.Load() {
				return errRouteFull
			}
			if inside.CompareAndSwap(n, n+1) {
				break
			}
		}
		defer inside.Add(-1)
		if q != nil {
			if ok, _ := q.bucket.Take(time.Now()); !ok {
				q.used(1)
				return errQuota
			}
		}
		return next(c)
	}
}

// ServiceLimits are those of c that the frame holds: no more inside all routes together than each alone may have, so that a route's own refusal
// is met first, and the bucket of one client network.
func ServiceLimits(c index.Config) httpapi.Limits {
	out := httpapi.Limits{Inflight: c.Limits.Inflight * routes}
	if r := c.RateLimit; r.RPS > 0 {
		each := httpapi.Rate{RPS: r.RPS, Burst: r.Burst}
		out.PerIP, out.ReadRPS, out.ReadShare = each, allReads, each
	}
	return out
}

const (
	routes   = 12      // that have slots
	allReads = 1 << 30 // reads a second of all clients together: no bound of its own
)

// refusal is a rule for what a later try does not change.
func refusal(is func(error) bool, status int, reason, code, title string) httpapi.ErrorRule {
	return httpapi.ErrorRule{Is: is, Outcome: httpapi.Outcome{Status: status, Reason: reason, Code: code}, Title: title}
}

// rules are what the index refuses.
func rules() []httpapi.ErrorRule {
	malformed := refusal(nil, http.StatusBadRequest, httpapi.ReasonMalformed, "Malformed", "Malformed request")
	full := httpapi.ErrorRule{Outcome: httpapi.Outcome{Status: http.StatusTooManyRequests, Reason: httpapi.ReasonInflight, Code: "Busy", Retry: true},
		Title: "Too many requests", Wait: httpapi.WaitBusy}
	lacks := httpapi.ErrorRule{Outcome: httpapi.Outcome{Status: http.StatusServiceUnavailable, Reason: "upstream", Code: "UpstreamUnready", Retry: true},
		Title: "No peer answers", Wait: httpapi.WaitDegraded}
	return []httpapi.ErrorRule{ // what became of a lookup comes first: it wraps the faults of what peers said
		refusal(httpapi.Any(httpapi.Is(index.ErrNotFound), httpapi.Is(index.ErrForeignCID)), http.StatusNotFound, httpapi.ReasonNotFound, "NotFound", "Not found").
			Say("nobody that was asked knows it"),
		refusal(httpapi.IsA[*index.ConflictError], http.StatusConflict, httpapi.ReasonConflict, "Conflict", "Written before").
			With(httpapi.Detail(func(e *index.ConflictError) httpapi.Details { return httpapi.Details{"manifest": e.Has.String()} })),
		full.When(httpapi.Is(errRouteFull)),
		full.When(httpapi.Is(errQuota)).As("quota"),
		lacks.When(httpapi.IsA[*index.BreakerOpenError]).As("breaker_open").
			With(httpapi.Detail(func(e *index.BreakerOpenError) httpapi.Details {
				return httpapi.Details{"retry_after_ms": e.RetryAfter.Milliseconds()}
			})),
		lacks.When(httpapi.Is(index.ErrUpstream)).Say("every peer that was asked failed; `ronbox index peers` shows how"),
		{Is: httpapi.Is(index.ErrTimeout), Outcome: httpapi.Outcome{Status: http.StatusGatewayTimeout, Reason: httpapi.ReasonTimeout, Code: "Timeout", Retry: true},
			Title: "Deadline passed", Hint: "no peer answered in time; nothing was changed"},
		malformed.When(httpapi.IsA[*index.KeyError]).With(httpapi.Told(httpapi.Details{"field": paramKey})),
		malformed.When(httpapi.IsA[*index.CIDError]).With(httpapi.Told(httpapi.Details{"field": paramCID})),
		malformed.When(httpapi.IsA[*index.RecordError]).With(httpapi.Field(func(e *index.RecordError) string { return e.Field })),
	}
}
