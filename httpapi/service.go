package httpapi

import (
	"cmp"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/obs"
	"ronbox/httpapi/front"
	"ronbox/httpapi/limit"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/refusal"
	"ronbox/httpapi/wire"
)

// Service describes the routes, errors and limits of one engine. New reads it once. Its functions
// are called from any goroutine.
type Service struct {
	Name string // label of its limits and metrics, and part of the URNs of its problems
	// Prefix of its paths, such as "/v1/". A path below it without a route is refused with the
	// rows of this service. "": no prefix.
	Prefix string
	// Admits reports whether the paths below Prefix exist for the sender of a request; nil: they do
	// for all. It is called before all stages.
	Admits func(*Request) bool
	// Missing answers a GET below Prefix for which there is no route, if Admits permits it; nil: it
	// is refused as any.
	Missing Handler
	Routes  []Route
	Params  []PathParam // path parameters of its routes; other services may use the same names
	Errors  []Map       // tried before those that all services share
	// Refusals has the rows of Errors. The frame's own refusals have those of refusal.Shared,
	// unless Refusals has one of the same reason and cause.
	Refusals refusal.Table

	RetryAfter    int                 // seconds, with 503; 0: 5
	TimeoutStatus int                 // status of a passed deadline; 0: 504
	BusyByRoute   bool                // busy_rejections_total is labelled by route, not by endpoint
	RateHeader    bool                // answers carry RateLimit: the remaining part of the caller's own rate
	Clients       *obs.Family         // gauge of the clients of its streams; nil: none
	Ready         func(*wire.Ready)   // adds to /readyz; nil: nothing
	Refused       func(reason string) // called for every refusal, those of the frame included; may be nil
}

// PathParam describes a path parameter.
type PathParam struct {
	openapi.Param
	// reports whether value is valid; nil: any segment, or any path for a catch-all
	Check func(value string) bool
	Wrong string // text of a 400 if only this value keeps a path from matching; "": 404
}

// NumberParam returns a path parameter for integers from least, which is 0 or 1, to 2^53-1.
func NumberParam(name string, least uint64, doc string) PathParam {
	p := PathParam{
		Param: openapi.Param{Name: name, Doc: doc, Sample: uint64(0), Min: least, Max: MaxNumber},
		Check: CanonicalNumber,
	}
	if least == 0 {
		p.Check = func(v string) bool { return v == "0" || CanonicalNumber(v) }
	}
	return p
}

// DigestParam returns a path parameter for BLAKE3 digests.
func DigestParam(name, doc string) PathParam {
	return PathParam{
		Param: openapi.Param{Name: name, Doc: doc, Pattern: "^b3:[0-9a-f]{64}$"},
		Wrong: `must be "b3:" and 64 lower-case hex digits`,
		Check: func(v string) bool { _, err := b3.Parse(v); return err == nil },
	}
}

// Limits bound the requests to one service. A rate of 0 means no limit.
type Limits struct {
	RPS, Burst int // writes per second
	ReadRPS    int // other requests per second, and their burst
	Inflight   int // running requests, at least 1
	// NetworkInflight bounds the running requests of one client network, because clients that read
	// slowly hold their requests for long. 0: the same as Inflight.
	NetworkInflight int
	PerIP           Rate // writes, as the next two
	PerTenant       Rate
	PerPrincipal    Rate
	Share           Rate          // the part of RPS that one client network may use; 0: half of RPS and of Burst
	ReadShare       Rate          // the same for ReadRPS; 0: half, with a burst of a twentieth of a second, at least 64
	Rest            time.Duration // pause of a connection if its network has used its share, ± half; 0: 400 ms
	Timeout         time.Duration // of writes; 0: that of each route
	Streams         StreamLimits
	Body            BodyLimits
}

// BodyLimits lower the node's bounds of a body. They do not raise them, and a route with a bound of
// its own keeps that. 0: the bound of the node.
type BodyLimits struct {
	Bytes    int64 // before decompression
	Ratio    int   // of the decompressed size to the compressed size
	Inflated int64 // bytes after decompression
}

// within returns l with the bounds of the node where those are lower or l has none.
func (l BodyLimits) within(node *settings) BodyLimits {
	return BodyLimits{
		Bytes:    lower(l.Bytes, node.maxBody),
		Ratio:    lower(l.Ratio, node.ratio),
		Inflated: lower(l.Inflated, node.maxInflated),
	}
}

// lower returns the lower of two bounds, of which own may be 0 for none.
func lower[N int | int64](own, node N) N { return min(cmp.Or(own, node), node) }

// Rate is a rate per second with a burst.
type Rate struct{ RPS, Burst int }

// or returns r, or d if r is not set.
func (r Rate) or(d Rate) Rate {
	if r.RPS == 0 {
		return d
	}
	return Rate{r.RPS, max(r.Burst, 1)}
}

// StreamLimits bound the open streams of a service.
type StreamLimits struct {
	Max, PerNetwork int
	// events that a stream replays before it sends lagged; a source may have its own bound
	Replay int
	Ping   time.Duration // no stream is silent for longer
}

// writeShare returns the part of a service's rate that one network may use. The default is half,
// rounded up. Two networks that use their whole shares then leave most of the rate that a modest
// third network needs.
func (l Limits) writeShare() Rate { return l.Share.or(Rate{half(l.RPS), half(l.Burst)}) }

// readShare returns the read rate of one network. The default burst is that of a twentieth of a
// second, because a burst occupies a core for that long, or enough for a page with all its links.
func (l Limits) readShare() Rate {
	share := half(l.ReadRPS)
	return l.ReadShare.or(Rate{share, min(share, max(64, share/20))})
}

func half(n int) int { return (n + 1) / 2 }

// rest returns the pause of a connection. By default the 256 connections that one network may have
// send 640 requests per second, which costs a twentieth of a core.
func (l *Limits) rest() time.Duration {
	if l.Rest > 0 {
		return l.Rest
	}
	return 400 * time.Millisecond
}

// keyedRoom bounds the addresses, tenants or principals in a table of buckets. The least recently
// used one is evicted and starts again with a full bucket.
const keyedRoom = 65_536

// service is the state that all routes of one Service share.
type service struct {
	Service
	limits     atomic.Pointer[Limits] // current
	damaged    atomic.Bool            // shut out
	inflight   *limiter
	writes     *limit.Bucket
	reads      *limit.Bucket
	writeShare *limit.Keyed[netip.Addr] // of writes, by network
	readShare  *limit.Keyed[netip.Addr]
	byIP       *limit.Keyed[netip.Addr]
	byTenant   *limit.Keyed[string]
	byName     *limit.Keyed[string] // principals
	streams    *streams
	networks   *streams // running requests by network

	answers []answer // to errors; the first that matches counts

	lateReads, lateWrites func(int) // count time-outs
	lateConnects          func(int) // of requests to the node that leads
	show                  func()    // exports the series of the service
	endings               endings
}

func (s *Server) newService(def Service, l Limits) *service {
	m := s.d.Metrics
	sv := &service{
		Service:    def,
		answers:    answersOf(&def),
		lateReads:  m.CounterOnUse("io_timeouts_total", def.Name, "op", front.OpRead),
		lateWrites: m.CounterOnUse("io_timeouts_total", def.Name, "op", front.OpWrite),
		inflight:   newLimiter(l.Inflight),
		writes:     &limit.Bucket{},
		reads:      &limit.Bucket{},
		writeShare: limit.NewKeyed[netip.Addr](keyedRoom, 0, 0),
		readShare:  limit.NewKeyed[netip.Addr](keyedRoom, 0, 0),
		byIP:       limit.NewKeyed[netip.Addr](keyedRoom, 0, 0),
		byTenant:   limit.NewKeyed[string](keyedRoom, 0, 0),
		byName:     limit.NewKeyed[string](keyedRoom, 0, 0),
		streams:    newStreams(s.d.Catalog),
		networks:   newStreams(s.d.Catalog),
	}
	sv.lateConnects = m.CounterOnUse("io_timeouts_total", def.Name, "op", opConnect)
	sv.show = sync.OnceFunc(func() { s.showService(sv) })
	if sv.RetryAfter == 0 {
		sv.RetryAfter = nodeRetry
	}
	sv.set(l)
	if def.Clients != nil {
		m.Declare(*def.Clients)
		m.Gauge(def.Clients.Name, def.Name, sv.streams.count)
	}
	return sv
}

// showService exports the counters of a service at 0.
func (s *Server) showService(sv *service) {
	for _, reason := range loadReasons {
		s.rejected(sv.Name, reason, 0)
	}
	sv.lateReads(0)
	sv.lateWrites(0)
	sv.lateConnects(0)
}

// set changes the limits. It does not affect taken tokens and running requests.
func (s *service) set(l Limits) {
	s.limits.Store(&l)
	s.inflight.max.Store(int64(l.Inflight))
	s.writes.Set(float64(l.RPS), l.Burst)
	s.reads.Set(float64(l.ReadRPS), l.ReadRPS)
	setRate(s.writeShare, l.writeShare())
	setRate(s.readShare, l.readShare())
	setRate(s.byIP, l.PerIP)
	setRate(s.byTenant, l.PerTenant)
	setRate(s.byName, l.PerPrincipal)
}

func setRate[K comparable](table *limit.Keyed[K], r Rate) { table.Set(float64(r.RPS), r.Burst) }

// param returns the description of a path parameter in the routes of the service.
func (s *service) param(name string) (PathParam, bool) {
	for _, p := range s.Params {
		if p.Name == name {
			return p, true
		}
	}
	return PathParam{}, false
}
