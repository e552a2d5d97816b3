package index

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/index"
	"ronbox/httpapi"
	"ronbox/httpapi/limit"
	"ronbox/store"
)

var (
	errRouteFull = errors.New("too many requests are inside this route; nothing was begun: send it again after Retry-After")
	errQuota     = errors.New("what all clients may ask for in a minute is used up; nothing was begun: send it again after Retry-After")
)

// freshCost is how much of its network's rate a fresh lookup costs a caller without a token.
const freshCost = 10

// Limits are what the routes have beside the limits of the service: slots in flight for each route, quotas of lookups a minute, and the rate
// of lookups of one network that leave the node.
type Limits struct {
	misses    *limit.Keyed[netip.Addr]
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
	l := &Limits{misses: limit.NewKeyed[netip.Addr](missNetworks, 0, 0)}
	l.resolves.used = m.Counter("quota_exhaustions_total", service, "dimension", "resolves_per_min")
	l.providers.used = m.Counter("quota_exhaustions_total", service, "dimension", "providers_per_min")
	l.Set(c)
	return l
}

// missNetworks is how many networks the rate of misses knows at once. The one idle longest gives way.
const missNetworks = 65_536

// Admit takes tokens of the rate of a network for a lookup that leaves the node, or returns how long to wait for the
// next. What a lookup that is refused has taken stays taken.
func (l *Limits) Admit(network netip.Addr, cost int) (ok bool, wait time.Duration) {
	now := time.Now()
	for range cost {
		if ok, wait = l.misses.Take(network, now); !ok {
			return false, wait
		}
	}
	return true, 0
}

// Set takes the limits of another configuration. Requests that are inside go on.
func (l *Limits) Set(c index.Config) {
	l.inflight.Store(int64(c.Limits.Inflight))
	l.misses.Set(float64(c.RateLimit.MissRPS), max(2*c.RateLimit.MissRPS, freshCost))
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
		err := next(c)
		if q != nil && refused(err) {
			c.Rest()
		}
		return err
	}
}

// refused reports whether a lookup was refused for the share or the rate of its network.
func refused(err error) bool {
	return errors.Is(err, flow.ErrBusy) || httpapi.IsA[*index.RateError](err)
}

// ServiceLimits are those of c that the frame holds: no more inside all routes together than each alone may have, so that a route's own refusal
// is met first, and the buckets of one client network. ratelimit.rps bounds writes too, where it is the lesser.
func ServiceLimits(c index.Config) httpapi.Limits {
	out := httpapi.Limits{Inflight: c.Limits.Inflight * routes}
	r := c.RateLimit
	out.PerIP = httpapi.Rate{RPS: r.PutRPS, Burst: 2 * r.PutRPS}
	if r.RPS > 0 {
		each := httpapi.Rate{RPS: r.RPS, Burst: r.Burst}
		out.ReadRPS, out.ReadShare = allReads, each
		if r.PutRPS == 0 || r.RPS < r.PutRPS {
			out.PerIP = each
		}
	}
	return out
}

const (
	routes   = 12      // that have slots
	allReads = 1 << 30 // reads a second of all clients together: no bound of its own
)

// missRule words a rate of misses that is used up.
func missRule(full httpapi.ErrorRule) httpapi.ErrorRule {
	full.Wait = httpapi.WaitToken
	return full.When(httpapi.IsA[*index.RateError]).As(httpapi.ReasonRate).
		Say("index.ratelimit.miss_rps: too many lookups of this network leave the node; nothing was begun: send it again after Retry-After")
}

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
		missRule(full),
		refusal(httpapi.IsA[*store.RowError], http.StatusInternalServerError, "corrupt", "corrupt", "Stored row is damaged").
			Say("nothing was changed; `ronbox index rm --forget KEY` drops the damaged row, then put the key again or restore a snapshot").
			With(httpapi.Detail(func(e *store.RowError) httpapi.Details {
				return httpapi.Details{"bucket": e.Bucket, "key": fmt.Sprintf("%x", e.Key)}
			})),
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
