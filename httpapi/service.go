package httpapi

import (
	"net/netip"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/obs"
	"ronbox/httpapi/front"
	"ronbox/httpapi/limit"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
)

// Service is one engine's part of the surface. It is data: New reads it once and calls its functions from any goroutine.
type Service struct {
	Name   string // of its limits, its metrics and the URNs of its problems
	Prefix string // of its paths, such as "/v1/": one below it that has no route is refused in its words; "" for none
	Routes []Route
	Params []PathParam // the path parameters of its routes; another service may use a name for another kind
	Errors []ErrorRule // tried before those that all services share
	Words  []Outcome   // what the Classify functions of Errors may give: reasons and codes, for the document

	Code       func(reason string) string // its spelling of a shared reason; nil: the node's
	RetryAfter int                        // seconds, where it cannot do something for now; 0: 5
	LateStatus int                        // of a deadline that has passed; 0: 504
	BusyRoutes bool                       // busy_rejections_total names its routes, not their endpoints
	TellsRate  bool                       // RateLimit in an answer says what a caller has left of its own rate
	Clients    *obs.Family                // gauge of the clients of its streams; nil: none
	Ready      func(*wire.Ready)          // adds to /readyz; nil: nothing
	Refused    func(reason string)        // told of every refusal, those of the frame too; nil: nothing
}

// PathParam is one kind of value in a path.
type PathParam struct {
	openapi.Param
	Check func(value string) bool // reports whether value is the one spelling of one; nil: any segment, of a catch-all any path
	Wrong string                  // answered with 400 where this value alone keeps a path from being a route's; "": 404
}

// NumberParam is a path parameter that takes whole numbers from least, 0 or 1, to 2^53-1.
func NumberParam(name string, least uint64, doc string) PathParam {
	p := PathParam{Param: openapi.Param{Name: name, Doc: doc, Sample: uint64(0), Min: least, Max: MaxNumber}, Check: CanonicalNumber}
	if least == 0 {
		p.Check = func(v string) bool { return v == "0" || CanonicalNumber(v) }
	}
	return p
}

// DigestParam is a path parameter that takes BLAKE3 digests.
func DigestParam(name, doc string) PathParam {
	return PathParam{
		Param: openapi.Param{Name: name, Doc: doc, Pattern: "^b3:[0-9a-f]{64}$"}, Wrong: `must be "b3:" and 64 lower-case hex digits`,
		Check: func(v string) bool { _, err := b3.Parse(v); return err == nil },
	}
}

// Limits bound what reaches one service. A rate of 0 is no limit.
type Limits struct {
	RPS, Burst int // of what changes something, a second
	ReadRPS    int // of the rest; as many at once
	Inflight   int // calls at one time, at least 1
	// NetworkInflight is calls at one time of one client network: clients that read slowly hold their calls for long. 0: as Inflight.
	NetworkInflight int
	PerIP           Rate // of what changes something, as the two below
	PerTenant       Rate
	PerPrincipal    Rate
	Share           Rate          // of RPS, what one client network may take; 0: half of RPS and of Burst
	ReadShare       Rate          // of ReadRPS; 0: half, as many at once as in a twentieth of a second, at least 64
	Rest            time.Duration // of a connection whose network has taken its share, give or take a half; 0: 400 ms
	Timeout         time.Duration // of its writes; 0: each route's own
	Streams         StreamLimits
}

// Rate is how many a second, and how many at once.
type Rate struct{ RPS, Burst int }

// or is r, or d in place of what r leaves open.
func (r Rate) or(d Rate) Rate {
	if r.RPS == 0 {
		return d
	}
	return Rate{r.RPS, max(r.Burst, 1)}
}

// StreamLimits bound the open streams of a service.
type StreamLimits struct {
	Max, PerNetwork int
	Replay          int           // events that a stream replays before it says lagged instead; a source may have a bound of its own
	Ping            time.Duration // no stream is silent for longer
}

// writeShare is how much of a service's rate one network may take: by default half of it, rounded up, so that a third that asks for
// little gets nearly all of it beside two that ask for all they can get.
func (l Limits) writeShare() Rate { return l.Share.or(Rate{half(l.RPS), half(l.Burst)}) }

// readShare lets one network make, by default, as many reads at once as its share has in a twentieth of a second, or those of a page
// with all it links to. What a flood asks at once keeps a core from all others for as long.
func (l Limits) readShare() Rate {
	share := half(l.ReadRPS)
	return l.ReadShare.or(Rate{share, min(share, max(64, share/20))})
}

func half(n int) int { return (n + 1) / 2 }

// rest is how long a connection rests by default: the 256 that one network may have ask 640 times a second then, which costs a
// twentieth of a core.
func (l *Limits) rest() time.Duration {
	if l.Rest > 0 {
		return l.Rest
	}
	return 400 * time.Millisecond
}

// keyedRoom is how many addresses, tenants or principals a service's second bucket knows at once. The one idle longest
// gives way, and begins anew with a full bucket.
const keyedRoom = 65_536

// service is what all routes of one Service share.
type service struct {
	Service
	limits     atomic.Pointer[Limits] // current
	damaged    atomic.Bool            // the service is shut out
	inflight   *limiter
	writes     *limit.Bucket
	reads      *limit.Bucket
	writeShare *limit.Keyed[netip.Addr] // of writes, that one network may take
	readShare  *limit.Keyed[netip.Addr]
	byIP       *limit.Keyed[netip.Addr]
	byTenant   *limit.Keyed[string]
	byName     *limit.Keyed[string] // principals
	streams    *streams
	networks   *streams // calls in flight, by network

	lateReads, lateWrites func(int) // that did not end in time
}

func (s *Server) newService(def Service, l Limits) *service {
	m := s.d.Metrics
	sv := &service{
		Service:   def,
		lateReads: m.Counter("io_timeouts_total", def.Name, "op", front.OpRead), lateWrites: m.Counter("io_timeouts_total", def.Name, "op", front.OpWrite),
		inflight: newLimiter(l.Inflight), writes: &limit.Bucket{}, reads: &limit.Bucket{},
		writeShare: limit.NewKeyed[netip.Addr](keyedRoom, 0, 0),
		readShare:  limit.NewKeyed[netip.Addr](keyedRoom, 0, 0),
		byIP:       limit.NewKeyed[netip.Addr](keyedRoom, 0, 0),
		byTenant:   limit.NewKeyed[string](keyedRoom, 0, 0),
		byName:     limit.NewKeyed[string](keyedRoom, 0, 0),
		streams:    newStreams(s.d.Catalog),
		networks:   newStreams(s.d.Catalog),
	}
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

// set changes the limits from now on. Tokens that were taken stay taken, and requests that run go on.
func (s *service) set(l Limits) {
	s.limits.Store(&l)
	s.inflight.max.Store(int64(l.Inflight))
	s.writes.Set(float64(l.RPS), l.Burst)
	s.reads.Set(float64(l.ReadRPS), l.ReadRPS)
	for keyed, r := range map[*limit.Keyed[netip.Addr]]Rate{s.writeShare: l.writeShare(), s.readShare: l.readShare(), s.byIP: l.PerIP} {
		keyed.Set(float64(r.RPS), r.Burst)
	}
	for keyed, r := range map[*limit.Keyed[string]]Rate{s.byTenant: l.PerTenant, s.byName: l.PerPrincipal} {
		keyed.Set(float64(r.RPS), r.Burst)
	}
}

// param is the kind of path parameter that name stands for in the routes of the service.
func (s *service) param(name string) (PathParam, bool) {
	for _, p := range s.Params {
		if p.Name == name {
			return p, true
		}
	}
	return PathParam{}, false
}
