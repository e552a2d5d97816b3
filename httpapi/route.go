package httpapi

import (
	"net/http"
	"time"

	"ronbox/httpapi/openapi"
)

// Class says which gates and limits a route meets.
type Class int

const (
	ClassRead   Class = iota // answers from a view or a pointer; goes on while the node drains
	ClassWrite               // queues or commits; refused from the first moment of a drain
	ClassBypass              // never behind a queue, a limiter or a drain
	ClassStream              // stays open; has its own caps and no place in flight
	ClassAdmin               // for the operator, over the socket
	ClassStatic              // the same bytes from the first moment to the last; holds nothing
)

// Body says what a route reads of a request.
type Body int

const (
	NoBody     Body = iota // a body is refused
	JSONBody               // application/json, up to the body cap
	SizedJSON              // the same, and its length must be told ahead
	OptionJSON             // JSON, or nothing at all
	EitherBody             // JSON, or the same as CBOR
)

// Route is one row of the table that feeds the router, the metric labels, the scopes, the limits, the document and the
// tests.
type Route struct {
	Method   string          // HEAD comes with every GET
	Pattern  string          // also the metric label: /registry/:v/payload
	Service  string          // whose limits and codes apply
	Scope    string          // a token's; "" is public, but for AnyOf
	AnyOf    []string        // scopes of which one lets in; the engine judges further
	Class    Class           //
	Deadline time.Duration   // of the work; a caller may shorten it
	Body     Body            //
	Endpoint string          // label of busy_rejections_total
	Query    []openapi.Param // parameters it knows; any other is refused
	Socket   bool            // the admin socket only, whatever the configuration says
	Admin    bool            // the same, unless the configuration opens it on TCP

	Summary    string
	Headers    []openapi.Param // of the request, that only some routes know
	In         any             // zero value of the body
	Reloads    bool            // the deadline is the wallet's, which a reload may change
	Answers    []openapi.Answer
	Problems   []int        // statuses of refusals of its own, beside those of its class
	Deprecated *Deprecation // nil: it stays

	handle handler
}

// A handler decodes, calls once and responds; what it returns becomes the problem that the caller is told.
type handler func(*call) error

// methods lists what r is registered for.
func (r *Route) methods() []string {
	if r.Method == http.MethodGet {
		return []string{http.MethodGet, http.MethodHead}
	}
	return []string{r.Method}
}

// writes tells whether the route changes anything.
func (r *Route) writes() bool { return r.Method != http.MethodGet }

// knows tells whether the route has a query parameter.
func (r *Route) knows(name string) bool {
	for i := range r.Query { // which are too large to be copied for this
		if r.Query[i].Name == name {
			return true
		}
	}
	return false
}
