package httpapi

import (
	"cmp"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/auth"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
)

// Class determines the gates and limits of a route.
type Class int

const (
	ClassRead   Class = iota // reads a view or a pointer; permitted while the node drains
	ClassWrite               // queues or commits; refused when a drain begins
	ClassBypass              // no queue, limiter or drain applies
	ClassStream              // stays open; has its own limits and takes no inflight slot
	ClassAdmin               // for the operator, over the socket
	ClassStatic              // constant bytes; takes no slot
)

// Body is the kind of body that a route reads.
type Body int

const (
	NoBody      Body = iota // a body is refused
	JSONBody                // application/json, up to the body cap
	SizedJSON               // JSONBody with a required Content-Length
	OptionJSON              // JSON or no body
	EitherBody              // JSON, or the same structure in CBOR
	SizedEither             // EitherBody with a required Content-Length
	StreamBody              // of type Route.Media, not encoded; read from Request.Stream
)

// sized reports whether Content-Length is required.
func (b Body) sized() bool { return b == SizedJSON || b == SizedEither }

// either reports whether CBOR is accepted.
func (b Body) either() bool { return b == EitherBody || b == SizedEither }

// QueryPolicy determines how unknown query parameters are treated.
type QueryPolicy int

const (
	QueryStrict QueryPolicy = iota // refused, so that typing errors are noticed
	QueryIgnore                    // dropped
	QueryRaw                       // not parsed: the handler reads the raw query
)

// Route is one entry of the route table, from which the router, the metric labels, the scopes, the
// limits, the document and the tests are derived.
type Route struct {
	Method   string        // GET includes HEAD
	Pattern  string        // also a metric label: /registry/:v/payload, /edge/assets/*path
	Handle   Handler       //
	Service  string        // provides limits and codes; "": the one that lists it
	Scope    string        // required of a token; "": public, unless AnyOf is set
	AnyOf    []string      // alternatives to Scope; the engine checks further
	More     string        // scope with which the handler does more, see Request.HoldsMore; "": none
	Class    Class         //
	Deadline time.Duration // of the work; the caller may shorten it
	Reloads  bool          // Limits.Timeout replaces Deadline
	Drains   bool          // permitted while the node drains, whatever its class
	Endpoint string        // label of busy_rejections_total
	Page     bool          // not in the document: for people with a browser, or without a success
	Socket   bool          // on the admin socket only
	Admin    bool          // on the admin socket only, unless the configuration permits TCP
	AnyParam bool          // the handler checks path parameters; the router accepts any segment
	Local    bool          // every node of a cluster answers it itself, about itself
	Copy     Copy          // whether a node that does not lead answers from its copy; public routes only
	Refuse   func() error  // why every request is refused, before its content is looked at; nil: none is

	Query   []openapi.Param // known parameters
	Others  QueryPolicy     // unknown parameters
	Body    Body            //
	Media   string          // type of a StreamBody
	MaxBody int64           // bytes; 0: the server's cap
	Long    bool            // the answer may have any length: its write deadline is per window
	Window  time.Duration   // time for 64 KiB of a long answer; 0: the write timeout
	Hints   bool            // a malformed Request-Timeout or Deadline is ignored, not refused
	CSP     string          // Content-Security-Policy of its answers; "": the strictest
	Framed  bool            // a page of any origin may show its answers in a frame
	Expose  []string        // more headers of its answers that pages of other origins may read
	Shared  func() bool     // whether pages of any origin may read all its answers; nil: only listed ones

	ID       string // name of the operation in the document, a verb and nouns: getBalance
	Summary  string
	Doc      string          // of a write: what it changes, and what a repetition does
	Headers  []openapi.Param // of the request, in addition to the common ones
	In       any             // zero value of the body
	Answers  []openapi.Answer
	Problems []int // statuses of its own refusals, in addition to those of its class
}

// methods lists the methods that r is registered for.
func (r *Route) methods() []string {
	if r.Method == http.MethodGet {
		return []string{http.MethodGet, http.MethodHead}
	}
	return []string{r.Method}
}

// Writes reports whether the route changes anything.
func (r *Route) Writes() bool { return r.Method != http.MethodGet }

// open reports whether pages of any origin may read the answers.
func (r *Route) open() bool { return r.Shared != nil && r.Shared() }

func (r *Route) long() bool { return r.Long || r.Class == ClassStream }

// knows reports whether the route has a query parameter.
func (r *Route) knows(name string) bool {
	for i := range r.Query { // avoids copying large values
		if r.Query[i].Name == name {
			return true
		}
	}
	return false
}

// passesDrain reports whether a drain admits the route: a read, or an operator's route that only
// shows state.
func (r *Route) passesDrain() bool {
	return r.Drains || r.Class == ClassRead || r.Class == ClassAdmin && r.Method == http.MethodGet
}

// DefaultDeadline is the deadline of most routes.
const DefaultDeadline = 5 * time.Second

// EndpointRead is the Endpoint of reads.
const EndpointRead = "read"

// Routes calls fill for each route, to set the fields that the routes of a service have in common.
func Routes(fill func(*Route), routes ...Route) []Route {
	for i := range routes {
		fill(&routes[i])
	}
	return routes
}

// Read returns a fill for reads below prefix. They need scope, unless they have one or
// alternatives.
func Read(prefix, scope string) func(*Route) {
	return func(r *Route) {
		r.Method, r.Pattern, r.Class = http.MethodGet, prefix+r.Pattern, ClassRead
		r.Deadline = cmp.Or(r.Deadline, DefaultDeadline)
		r.Endpoint = cmp.Or(r.Endpoint, EndpointRead)
		if r.AnyOf == nil {
			r.Scope = cmp.Or(r.Scope, scope)
		}
	}
}

// Write returns a fill for writes below prefix. By default they are POST, their Endpoint is their
// Pattern, and they need the scope of the service with the name of their Endpoint.
func Write(prefix, service string) func(*Route) {
	return func(r *Route) {
		r.Endpoint = cmp.Or(r.Endpoint, r.Pattern)
		r.Method, r.Pattern, r.Class = cmp.Or(r.Method, http.MethodPost), prefix+r.Pattern, ClassWrite
		r.Deadline = cmp.Or(r.Deadline, DefaultDeadline)
		if r.AnyOf == nil {
			r.Scope = cmp.Or(r.Scope, service+"."+r.Endpoint)
		}
		r.readsJSON()
	}
}

// Admin returns a fill for the operator's routes below prefix. They need auth.ScopeAdmin, unless
// they have a scope or alternatives.
func Admin(prefix string) func(*Route) {
	return func(r *Route) {
		r.Pattern, r.Admin = prefix+r.Pattern, true
		r.Endpoint = cmp.Or(r.Endpoint, "admin")
		if r.AnyOf == nil {
			r.Scope = cmp.Or(r.Scope, auth.ScopeAdmin)
		}
		if r.Class != ClassStream {
			r.Class, r.Deadline = ClassAdmin, cmp.Or(r.Deadline, DefaultDeadline)
		}
		r.readsJSON()
	}
}

// readsJSON gives a route with a body the kind JSONBody, unless it has one.
func (r *Route) readsJSON() {
	if r.In != nil && r.Body == NoBody {
		r.Body = JSONBody
	}
}

// Answers describes a JSON answer.
func Answers(status int, body any) []openapi.Answer {
	return []openapi.Answer{{Status: status, Type: TypeJSON, Body: body}}
}

// AnswersRaw describes an answer of bytes.
func AnswersRaw(kind, doc string) []openapi.Answer {
	return []openapi.Answer{{Status: http.StatusOK, Type: kind, Doc: doc}}
}

// AnswersNothing describes an answer without a body.
func AnswersNothing(doc string) []openapi.Answer {
	return []openapi.Answer{{Status: http.StatusNoContent, Doc: doc}}
}

// AnswersEvents describes the frames of a stream. The last frame says that the node stops.
func AnswersEvents(events ...openapi.Event) []openapi.Answer {
	events = append(events, openapi.Event{Name: wire.EventShutdown, Doc: "the node stops", Body: struct{}{}})
	return []openapi.Answer{{Status: http.StatusOK, Type: TypeEvents, Events: events}}
}

// Tagged describes the answers of a read with an entity tag. A nil body is any JSON.
func Tagged(body any) []openapi.Answer {
	if body == nil {
		body = jsontext.Value(nil)
	}
	full := Answers(http.StatusOK, body)[0]
	full.Headers = []openapi.Param{{Name: "ETag", Doc: "of these bytes", Required: true}}
	return []openapi.Answer{
		full,
		{Status: http.StatusNotModified, Doc: "these are the bytes of If-None-Match", Headers: full.Headers},
	}
}

// IfNoneMatch describes the request header for such a read.
func IfNoneMatch() []openapi.Param {
	return []openapi.Param{{Name: "If-None-Match", Doc: "tags of the content that the caller has"}}
}

// Replayed describes the header ReplayedHeader.
func Replayed(doc string) openapi.Param {
	return openapi.Param{Name: ReplayedHeader, Doc: doc, Enum: []string{"true"}}
}
