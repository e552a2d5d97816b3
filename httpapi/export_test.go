package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"

	"ronbox/appliance/flow"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/httpapi/limit"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/refusal"
)

// What the tests of package httpapi_test see of the inside. They are in that package because they
// make servers of the services, which import this one.

const (
	BypassInflight = bypassInflight
	MaxDepth       = maxDepth
	MaxHeaders     = maxHeaders
	MaxParams      = maxParams
	MaxScrapes     = maxScrapes
	MaxTarget      = maxTarget
	ExportChunk    = exportChunk
	TimeoutHeader  = timeoutHeader
)

var (
	ErrBodyCut   = errBodyCut
	ErrBodySlow  = errBodySlow
	ErrDraining  = errDraining
	ErrElsewhere = errElsewhere
	ErrEncoding  = errEncoding
	ErrHeaders   = errHeaders
	ErrInflight  = errInflight
	ErrLength    = errLength
	ErrMediaType = errMediaType
	ErrNested    = errNested
	ErrNoBody    = errNoBody
	ErrNoSchema  = errNoSchema
	ErrCORSOff   = errCORSOff
	ErrPath      = errPath
	ErrQueryLong = errQueryLong
	ErrScrape    = errScrape
	ErrStarting  = errStarting
	ErrStreams   = errStreams
	ErrTarget    = errTarget
	ErrMethod    = error(&methodError{[]string{"GET"}})
	ErrPanic     = error(&panicError{value: "boom"})
	ParseQuery   = parseQuery
	SharedMaps   = sharedMaps
	InternalMap  = internalMap
	IsUUID       = isUUID
	Bypassing    = bypassing
	Every        = every
	Guarded      = guarded
	Protected    = protected
	TakesBody    = takesBody
	TakesSlot    = takesSlot
	CountsCaller = countsCaller
)

func ErrRate(wait time.Duration) error { return &rateError{wait} }

// Router finds and runs the route of a request.
func (s *Server) Router() http.Handler { return s.router }

// Table is every route, once.
func (s *Server) Table() (out []Route) {
	for method, t := range s.router.all {
		for _, b := range t.fixed {
			if method == b.route.Method {
				out = append(out, *b.route)
			}
		}
		for i := range t.rows {
			if b := t.rows[i].bound; method == b.route.Method {
				out = append(out, *b.route)
			}
		}
	}
	slices.SortFunc(out, func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.Pattern, b.Pattern), cmp.Compare(a.Method, b.Method))
	})
	return out
}

// Missing are the pseudo-routes of requests that have none.
func (s *Server) Missing() (out []Route) {
	for _, b := range s.router.none {
		out = append(out, *b.route)
	}
	return out
}

// Served reports whether a service is there.
func (s *Server) Served(service string) bool { return s.services[service] != nil }

// Services lists the names of the services.
func (s *Server) Services() (out []string) {
	for name := range s.services {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// ServiceOf is the service that a path without a route belongs to.
func (s *Server) ServiceOf(path string) string {
	r, _ := http.NewRequest(http.MethodGet, "/", nil)
	r.URL.Path = path
	return s.router.missing(r).service.Name
}

// Slots are those of a limiter.
type Slots struct{ l *limiter }

func (s Slots) Acquire() bool { return s.l.acquire() }
func (s Slots) Release()      { s.l.release() }
func (s Slots) Taken() int64  { return s.l.n.Load() }
func (s Slots) Limit(n int64) { s.l.max.Store(n) }

func NewSlots(n int) Slots { return Slots{newLimiter(n)} }

func (s *Server) Inflight(service string) Slots { return Slots{s.services[service].inflight} }
func (s *Server) Bypass() Slots                 { return Slots{s.bypass} }
func (s *Server) Scrapes() Slots                { return Slots{s.scrapes} }

// Buckets are the rates of a service, for writes and for reads.
func (s *Server) Buckets(service string) (writes, reads *limit.Bucket) {
	return s.services[service].writes, s.services[service].reads
}

// LimitsOf are the current ones of a service.
func (s *Server) LimitsOf(service string) *Limits { return s.services[service].limits.Load() }

// SetLimits changes those of a service.
func (s *Server) SetLimits(service string, l Limits) { s.services[service].set(l) }

// OpenStreams are those of a service.
type OpenStreams struct{ *streams }

func (o OpenStreams) Count() float64                             { return o.count() }
func (o OpenStreams) Networks() int                              { return len(o.byIP) }
func (o OpenStreams) Acquire(p *front.Peer, l StreamLimits) bool { return o.acquire(p, l) }
func (o OpenStreams) Release(p *front.Peer)                      { o.release(p) }
func (s *Server) OpenStreams(service string) OpenStreams {
	return OpenStreams{s.services[service].streams}
}

// Reopen resets the gate to starting.
func (s *Server) Reopen() { s.gate = newGate() }

func (s *Server) GateState() Gate { return s.gate.load() }
func (s *Server) Document() *openapi.Document {
	doc, err := s.doc()
	if err != nil {
		panic(err)
	}
	return doc.Document
}
func (s *Server) Deps() *Deps            { return &s.d }
func (s *Server) Expanding() *flow.Slots { return s.expanding }
func (s *Server) Current() any           { return s.current.Load() }
func (s *Server) Peers() *auth.PeerMap   { return s.current.Load().peers }
func (s *Server) Now() time.Time         { return s.now() }

// Bind fits a route that is in no table.
func (s *Server) Bind(r *Route) func(http.ResponseWriter, *http.Request) {
	b := s.bind(r, r.Method)
	return func(w http.ResponseWriter, req *http.Request) { s.serve(w, req, b, nil) }
}

// DrainRetry is the Retry-After of a node that drains.
func (s *Server) DrainRetry() int {
	return s.retryAfter(s.current.Load(), s.services[serviceNode], refusal.WaitDrain, nil)
}

// Classify returns the row of err in a service.
func (s *Server) Classify(service string, err error) *refusal.Row {
	return &s.services[service].classify(err).Row
}

// Service returns what a service declares.
func (s *Server) Service(name string) *Service { return &s.services[name].Service }

// NewRequest is a request on its way to the handler of route.
func (s *Server) NewRequest(w http.ResponseWriter, r *http.Request, route *Route, p *front.Peer) *Request {
	c := &Request{
		w:        w,
		r:        r,
		server:   s,
		route:    route,
		service:  s.services[route.Service],
		peer:     p,
		settings: s.current.Load(),
		started:  time.Now(),
	}
	c.base = r.Context()
	return c
}

// SetBody sets the body.
func (r *Request) SetBody(body []byte) { r.body = body }

// SetParam sets a path parameter.
func (r *Request) SetParam(name, value string) {
	r.params = httprouter.Params{{Key: name, Value: value}}
}

// Templates are the routes of one method.
type Templates struct{ t *templates }

func (s *Server) Templates(method string) Templates { return Templates{s.router.all[method]} }

// Hits finds the route of a path, its parameters, and how many routes with parameters take it.
func (t Templates) Hits(path string) (route *Route, params httprouter.Params, hits int) {
	b, params := t.t.match(path, false)
	if b == nil {
		return nil, nil, 0
	}
	for i := range t.t.rows {
		if _, ok := t.t.rows[i].take(path, strings.Split(path, "/"), false); ok {
			hits++
		}
	}
	if t.t.fixed[path] != nil {
		hits++
	}
	return b.route, params, hits
}

// Match finds the route of a path.
func (s *Server) Match(method, path string) (*Route, bool) {
	b, _ := s.router.all[method].match(path, false)
	if b == nil {
		return nil, false
	}
	return b.route, true
}

// Stages names the stages of a route.
func Stages(r *Route) (names []string) {
	for _, st := range stages() {
		if st.on(r) {
			names = append(names, st.name)
		}
	}
	return names
}

// Override replaces the route of a fixed path.
func (s *Server) Override(path string, r *Route) {
	s.router.all[r.Method].fixed[path] = s.bind(r, r.Method)
}

// Feed is one client of a stream.
type Feed[T any] struct{ f *feed[T] }

func NewFeed[T any](c *Request, src *Source[T], sub *flow.Subscription[T], sent uint64) Feed[T] {
	return Feed[T]{&feed[T]{Source: src, c: c, sub: sub, sent: sent}}
}

func (f Feed[T]) Next() error   { return f.f.next() }
func (f Feed[T]) Out() *[]byte  { return &f.f.out }
func (f Feed[T]) Pending() bool { return f.f.sub.Stats().Pending > 0 }

// AllStages names the stages in their order.
func AllStages() (names []string) {
	for _, st := range stages() {
		names = append(names, st.name)
	}
	return names
}

// NodeRetry is the Retry-After of the node.
const NodeRetry = nodeRetry

// EndSpan ends the span of a request.
var EndSpan = endSpan

// StagesOf returns the handler of a route, and then the handler within each of its stages,
// innermost first.
func (s *Server) StagesOf(method, path string) (names []string, handlers []Handler, route *Route) {
	b, _ := s.router.all[method].match(path, false)
	h, all := b.route.Handle, stages()
	names, handlers = append(names, "handler"), append(handlers, h)
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].on(b.route) {
			h = all[i].wrap(s, b, h)
			names, handlers = append(names, "+"+all[i].name), append(handlers, h)
		}
	}
	return names, handlers, b.route
}
