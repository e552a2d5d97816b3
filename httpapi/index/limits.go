package index

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/httpapi"
	"ronbox/httpapi/limit"
)

var (
	errRouteFull = errors.New("too many requests are inside this route; nothing was begun")
	errQuota     = errors.New("the quota of all clients for this minute is used up")
)

// freshCost is the number of rate tokens that a fresh lookup takes if its caller has no bearer
// token.
const freshCost = 10

// Limits holds the limits of the index beside those of every service: requests in flight per route,
// quotas of lookups per minute, and the rate of lookups of one network that leave the node.
type Limits struct {
	misses    *limit.Keyed[netip.Addr]
	quiet     *limit.Keyed[netip.Prefix] // searches of a network, and of the block that it is in
	closed    bool                       // reads need a token
	inflight  atomic.Int64               // bound of requests inside one route
	resolves  quota
	providers quota
}

// quota bounds the lookups of one kind that all clients together may make in a minute. It starts
// full.
type quota struct {
	bucket limit.Bucket
	used   func(int) // counts refused requests
}

// NewLimits returns the limits of c. It registers the counter of refused requests in m.
func NewLimits(c index.Config, m *obs.Metrics) *Limits {
	m.Declare(obs.Family{
		Name:   "quota_exhaustions_total",
		Type:   obs.Counter,
		Labels: []string{"dimension"},
		Help:   "Requests refused by a quota per minute.",
	})
	l := &Limits{
		closed: !c.PublicReads,
		misses: limit.NewKeyed[netip.Addr](missNetworks, 0, 0),
		quiet:  limit.NewKeyed[netip.Prefix](missNetworks, 0, 0),
	}
	l.resolves.used = m.Counter("quota_exhaustions_total", service, "dimension", "resolves_per_min")
	l.providers.used = m.Counter("quota_exhaustions_total", service, "dimension", "providers_per_min")
	l.Set(c)
	return l
}

// readScope returns the scope that reads need, or "" if reads are public.
func (l *Limits) readScope() string {
	if l.closed {
		return ScopeRead
	}
	return ""
}

// missNetworks bounds the number of networks with a tracked rate. The network that has been idle
// longest is evicted first.
const missNetworks = 65_536

// Admit takes cost tokens of the rate of a network for a lookup that leaves the node. If the rate
// is used up, it returns false and the time until the next token. Tokens that a refused lookup has
// taken are not returned.
func (l *Limits) Admit(network netip.Addr, cost int) (ok bool, wait time.Duration) {
	now := time.Now()
	for range cost {
		if ok, wait = l.misses.Take(network, now); !ok {
			return false, wait
		}
	}
	return true, 0
}

// Searches a minute up to which a network, and the block of addresses that it is in, count as
// quiet. A block is an IPv4 /24 or an IPv6 /56: one customer often has as many.
const (
	quietSearches = 6
	quietBlock    = 4 * quietSearches
	blockBits     = 24
	blockBits6    = 56
)

// Quiet counts a search of a network, and reports whether the network and its block have asked
// little in the last minute. It is a share of the reserve of searches, as Admit is of their rate.
func (l *Limits) Quiet(network netip.Addr) bool {
	now, bits := time.Now(), blockBits
	if network.Is6() {
		bits = blockBits6
	}
	block, _ := network.Prefix(bits) // of a client without an address: the zero Prefix
	own, _ := l.quiet.TakeAt(netip.PrefixFrom(network, network.BitLen()), now, perMinute(quietSearches))
	all, _ := l.quiet.TakeAt(block, now, perMinute(quietBlock))
	return own && all
}

// perMinute returns the rate of n a minute.
func perMinute(n int) limit.Rate { return limit.Per(float64(n)/60, n) }

// Set applies the limits of another configuration. Requests that are inside a route go on.
func (l *Limits) Set(c index.Config) {
	l.inflight.Store(int64(c.Limits.Inflight))
	l.misses.Set(float64(c.RateLimit.MissRPS), max(2*c.RateLimit.MissRPS, freshCost))
	l.resolves.set(c.Quotas.ResolvesPerMin)
	l.providers.set(c.Quotas.ProvidersPerMin)
}

func (q *quota) set(perMin int) { q.bucket.Set(float64(perMin)/60, perMin) }

// bound limits the requests inside one route, and applies the quota of its lookups. A refused
// request takes no slot.
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
	return errors.Is(err, flow.ErrBusy) || httpapi.IsA[*name.RateError](err)
}

// ServiceLimits returns the limits of c that the frame applies to the whole service. The bound of
// requests in flight is the sum over all routes, so that a route's own bound is met first.
// ratelimit.rps also bounds writes if it is lower than ratelimit.put_rps.
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
	routes   = 12      // routes with a bound of their own
	allReads = 1 << 30 // reads a second of all clients together: in effect no bound
)
