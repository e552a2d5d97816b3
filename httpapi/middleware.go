package httpapi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/httpapi/front"
)

// A stage is a wrapper around the handler of a route. It is applied once, when the route is bound,
// and only to routes that need it.
type stage struct {
	name string
	on   func(*Route) bool
	wrap func(s *Server, b *boundRoute, next Handler) Handler
}

// stages are the wrappers, outermost first. The order matters: counting surrounds everything that
// can fail; cheap refusals come first; unauthorized callers take no token of others' rates; and no
// body is read before its sender is known. Checking tokens is cheap for the node, because addresses
// that send invalid ones are refused.
func stages() []stage {
	return []stage{
		{"corr_id", every, correlate},
		{"headers", every, harden},
		{"cors", shared, share},
		{"access", every, account},
		{"recover", every, recovered},
		{"shape", every, checkShape},
		{"bypass", bypassing, limitBypass},
		{"gate", guarded, passGate},
		{"deadline", guarded, limitTime},
		{"inflight", takesSlot, limitInflight},
		{"forward", forwarded, forward},
		{"confirm", forwarded, confirm},
		{"auth", protected, authorize},
		{"rate", guarded, limitRate},
		{"caller", countsCaller, limitCaller},
		{"refuse", refusable, refuse},
		{"content", guarded, checkContent},
		{"body", readsBody, readBody},
		{"stream", streamsBody, openBody},
		{"query", matched, checkQuery},
		{"copy", copied, copyFirst},
	}
}

func every(*Route) bool          { return true }
func matched(r *Route) bool      { return r.Pattern != unmatched }
func bypassing(r *Route) bool    { return r.Class == ClassBypass }
func guarded(r *Route) bool      { return r.Class != ClassBypass && r.Class != ClassStatic }
func forwarded(r *Route) bool    { return guarded(r) && !r.Local }
func copied(r *Route) bool       { return forwarded(r) && r.Copy != CopyNone }
func takesSlot(r *Route) bool    { return guarded(r) && r.Class != ClassStream }
func protected(r *Route) bool    { return guarded(r) && (r.Scope != "" || len(r.AnyOf) > 0) }
func countsCaller(r *Route) bool { return protected(r) && r.Writes() }
func refusable(r *Route) bool    { return guarded(r) && r.Refuse != nil }
func takesBody(r *Route) bool    { return guarded(r) && r.Body != NoBody }
func readsBody(r *Route) bool    { return takesBody(r) && r.Body != StreamBody }
func streamsBody(r *Route) bool  { return takesBody(r) && r.Body == StreamBody }

// fit wraps the handler of b in its stages.
func (s *Server) fit(b *boundRoute) Handler {
	h, all := b.route.Handle, stages()
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].on(b.route) {
			h = all[i].wrap(s, b, h)
		}
	}
	return h
}

// refuse refuses requests that the state of the service excludes, whatever they contain.
func refuse(_ *Server, b *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		if err := b.route.Refuse(); err != nil {
			return err
		}
		return next(c)
	}
}

// corrHeader is X-Corr-ID in canonical form.
const corrHeader = "X-Corr-Id"

// correlate keeps the caller's correlation id if it is a ULID or a UUID, or creates one, and
// returns it in the answer.
func correlate(_ *Server, _ *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		if c.corrID = c.r.Header.Get(corrHeader); !IsULID(c.corrID) && !isUUID(c.corrID) {
			c.corrID = newCorrID(c.started)
		}
		c.Set(corrHeader, c.corrID)
		return next(c)
	}
}

// newCorrID returns a ULID. It identifies a request and is not secret.
func newCorrID(now time.Time) string {
	id := ulid.ULID{}
	_ = id.SetTime(ulid.Timestamp(now)) // fails only after the year 10889
	binary.BigEndian.PutUint64(id[6:], rand.Uint64())
	binary.BigEndian.PutUint16(id[14:], uint16(rand.Uint32()))
	return id.String()
}

// hardHeader is a header of every answer. All answers share its value, which is never modified:
// net/http replaces it or appends to a copy.
type hardHeader struct {
	name  string
	value []string
}

// hardHeaders returns the headers of an answer with a Content-Security-Policy, or with the default
// one if csp is "".
func hardHeaders(csp string) []hardHeader {
	if csp == "" {
		csp = "default-src 'none'; frame-ancestors 'none'"
	}
	return []hardHeader{
		{"X-Content-Type-Options", one("nosniff")},
		{frameOptions, one("DENY")},
		{"Referrer-Policy", one("no-referrer")},
		{"Content-Security-Policy", one(csp)},
	}
}

const frameOptions = "X-Frame-Options"

// hstsYear makes a browser require TLS for a year.
const hstsYear = "max-age=31536000"

func one(v string) []string { return []string{v}[:1:1] }

// harden sets headers that forbid browsers to do anything but read the answer, or more if the route
// permits it.
func harden(_ *Server, b *boundRoute, next Handler) Handler {
	fixed, hsts := hardHeaders(b.route.CSP), one(hstsYear)
	if b.route.Framed {
		fixed = slices.DeleteFunc(fixed, func(h hardHeader) bool { return h.name == frameOptions })
	}
	return func(c *Request) error {
		h := c.Header()
		for i := range fixed {
			h[fixed[i].name] = fixed[i].value
		}
		if c.settings.hsts && c.r.TLS != nil && c.peer.Relay == nil {
			h["Strict-Transport-Security"] = hsts
		}
		return next(c)
	}
}

// cors determines which pages may read answers. A nil cors permits none.
type cors struct {
	origins []string // exact, or "*" alone
	methods string
	headers string
}

const (
	corsAllow  = "Access-Control-Allow-Origin"
	corsPolicy = "Cross-Origin-Resource-Policy"
	corsMaxAge = "600" // seconds that a browser may cache a permission, and so the delay of a reload
	corsExpose = "Etag, Retry-After, X-Corr-Id, Idempotent-Replayed, RateLimit, Ronbox-Leader"
)

func newCORS(c front.CORS) *cors {
	if len(c.AllowOrigins) == 0 {
		return nil
	}
	return &cors{
		origins: slices.Clone(c.AllowOrigins),
		methods: strings.Join(c.AllowMethods, ", "),
		headers: strings.Join(c.AllowHeaders, ", "),
	}
}

// allows returns the header value that permits a page of origin, or "".
func (k *cors) allows(origin string) string {
	switch {
	case origin == "":
		return ""
	case slices.Contains(k.origins, "*"):
		return "*"
	case slices.Contains(k.origins, origin):
		return origin
	}
	return ""
}

// shared reports whether a page may read the answers of a route, including refusals and their
// Retry-After. Metrics are not shared, because they are permitted by network, which is that of the
// browser, not of the page.
func shared(r *Route) bool { return r.Class != ClassBypass || r.Scope == "" }

// share permits pages of listed origins to read the answer, or pages of any origin if the route is
// shared. Others get no header. Vary tells caches that the answer depends on the origin.
func share(_ *Server, b *boundRoute, next Handler) Handler {
	names := append([]string{corsExpose}, b.route.Expose...)
	if b.route.Copy == CopyOutage {
		names = append(names, AgeHeader)
	}
	expose := one(strings.Join(names, ", "))
	return func(c *Request) error {
		h, k := c.Header(), c.settings.cors
		switch {
		case b.route.open():
			h["Access-Control-Expose-Headers"] = expose
			c.open()
		case k != nil:
			h.Add("Vary", "Origin")
			if who := k.allows(c.r.Header.Get("Origin")); who != "" {
				h.Set(corsAllow, who)
				h["Access-Control-Expose-Headers"] = expose
			}
		}
		return next(c)
	}
}

// Values of the headers of shared routes, which are never modified.
var (
	anyOrigin = one("*")
	anyPage   = one("cross-origin")
)

// open permits pages of any origin to read and to embed the answer. A browser withholds it if the
// request had credentials.
func (c *Request) open() {
	h := c.Header()
	h[corsAllow], h[corsPolicy] = anyOrigin, anyPage
}

// errCORSOff is returned for a preflight request to a node that permits no page of another origin.
var errCORSOff = errors.New("pages of other origins may not read this node: server.cors.allow_origins is empty")

// isPreflight reports whether a browser asks whether a page may send a request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// preflight answers a preflight request of a listed origin. It returns false if the request is not
// permitted.
func (k *cors) preflight(c *Request) bool {
	h := c.Header()
	if !isPreflight(c.r) || h.Get(corsAllow) == "" {
		return false
	}
	c.permit(k.methods, k.headers)
	return true
}

// permit answers 204 with the methods and headers of requests that a page may send.
func (c *Request) permit(methods, headers string) {
	h := c.Header()
	h.Set("Access-Control-Allow-Methods", methods)
	h.Set("Access-Control-Allow-Headers", headers)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	c.WriteHeader(http.StatusNoContent)
}

// permitAny answers OPTIONS for a path with shared routes. A page of any origin may use their
// methods, and any header but Authorization. A page of a listed origin may also send what the list
// permits.
func (c *Request) permitAny(shared []string) {
	methods, headers := strings.Join(shared, ", "), "*"
	if k := c.settings.cors; k != nil && k.allows(c.r.Header.Get("Origin")) != "" {
		methods, headers = methods+", "+k.methods, headers+", "+k.headers
	}
	c.permit(methods, headers)
}

// panicError is a panic of a handler. It is answered as an internal error and logged once with its
// stack.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// recovered converts a panic to an error, so that it is answered, counted and logged like others.
func recovered(_ *Server, _ *boundRoute, next Handler) Handler {
	return func(c *Request) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = &panicError{value: v, stack: debug.Stack()}
			}
		}()
		return next(c)
	}
}

// Bounds of a request without its body. max_header bounds it as a whole at the connection.
const (
	maxTarget  = 8 << 10 // bytes of path and query, much more than any route needs
	maxHeaders = 64      // lines; browsers and proxies send about twenty
)

var (
	errTarget  = errors.New("the request target is longer than 8 KiB")
	errHeaders = errors.New("more than 64 header lines")
)

// checkShape refuses requests beyond these bounds.
func checkShape(_ *Server, _ *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		if len(c.r.RequestURI) > maxTarget {
			return errTarget
		}
		lines := 0
		for _, values := range c.r.Header {
			lines += len(values)
		}
		if lines > maxHeaders {
			return errHeaders
		}
		return next(c)
	}
}

// limitTime sets the deadline to the budget of the route, or earlier if the caller asks for that. A
// stream has no deadline.
func limitTime(_ *Server, b *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		if b.route.Class != ClassStream {
			c.deadline = c.started.Add(c.budget())
		}
		if err := c.shorten(); err != nil && !b.route.Hints {
			return err
		}
		defer c.release()
		return next(c)
	}
}

// budget returns the time for the route's work.
func (r *Request) budget() time.Duration {
	if r.route.Reloads {
		if d := r.service.limits.Load().Timeout; d > 0 {
			return d
		}
	}
	return r.route.Deadline
}
