package httpapi

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
)

// Class says which gates and limits a route meets.
type Class int

const (
	ClassRead   Class = iota // answers from a view or a pointer; goes on while the node drains
	ClassWrite               // queues or commits; refused from the first moment of a drain
	ClassBypass              // never behind a queue, a limiter or a drain
	ClassStream              // stays open; has its own caps and no slot in flight
	ClassAdmin               // for the operator, over the socket
	ClassStatic              // the same bytes from the first moment to the last; holds nothing
)

// Body says what a route reads of a request.
type Body int

const (
	NoBody      Body = iota // a body is refused
	JSONBody                // application/json, up to the body cap
	SizedJSON               // the same, and Content-Length is required
	OptionJSON              // JSON, or nothing at all
	EitherBody              // JSON, or the same as CBOR
	SizedEither             // the same, and Content-Length is required
	StreamBody              // of Route.Media, as it comes and not encoded; read by Request.Stream
)

// sized reports whether Content-Length is required.
func (b Body) sized() bool { return b == SizedJSON || b == SizedEither }

// either reports whether CBOR is taken too.
func (b Body) either() bool { return b == EitherBody || b == SizedEither }

// QueryPolicy says what becomes of query parameters that a route does not know.
type QueryPolicy int

const (
	QueryStrict QueryPolicy = iota // refused, so that a misspelt one is not ignored
	QueryIgnore                    // dropped
	QueryPass                      // given to the handler; of one that comes more than once, the first
)

// Route is one entry of the table that feeds the router, the metric labels, the scopes, the limits, the document and the
// tests.
type Route struct {
	Method   string        // HEAD comes with every GET
	Pattern  string        // also the metric label: /registry/:v/payload, /edge/assets/*path
	Handle   Handler       //
	Service  string        // of its limits and codes; "": the one that lists it
	Scope    string        // of a token; "" is public, but for AnyOf
	AnyOf    []string      // scopes of which one is enough; the engine checks further
	Class    Class         //
	Deadline time.Duration // of the work; a caller may shorten it
	Reloads  bool          // Limits.Timeout takes the place of Deadline
	Drains   bool          // goes on while the node drains, whatever its class
	Endpoint string        // label of busy_rejections_total
	Socket   bool          // the admin socket only, whatever the configuration says
	Admin    bool          // the same, unless the configuration opens it on TCP
	AnyParam bool          // its handler checks the path parameters; the router takes any segment for one

	Query   []openapi.Param // parameters it knows
	Others  QueryPolicy     // of all other parameters
	Body    Body            //
	Media   string          // of a StreamBody
	MaxBody int64           // bytes; 0: the server's cap
	Long    bool            // its answer may be of any length: each window of it has a write deadline of its own
	Window  time.Duration   // what a client gets to take 64 KiB of a long answer; 0: the write timeout
	Hints   bool            // a Request-Timeout or Deadline that cannot be read is ignored, not refused
	CSP     string          // Content-Security-Policy of its answers; "": nothing may be loaded
	Expose  []string        // headers of its answers that pages of other origins may read, beside those of every route

	Summary  string
	Headers  []openapi.Param // of the request, that only some routes know
	In       any             // zero value of the body
	Answers  []openapi.Answer
	Problems []int // statuses of refusals of its own, beside those of its class
}

// methods lists what r is registered for.
func (r *Route) methods() []string {
	if r.Method == http.MethodGet {
		return []string{http.MethodGet, http.MethodHead}
	}
	return []string{r.Method}
}

// Writes reports whether the route changes anything.
func (r *Route) Writes() bool { return r.Method != http.MethodGet }

func (r *Route) long() bool { return r.Long || r.Class == ClassStream }

// knows reports whether the route has a query parameter.
func (r *Route) knows(name string) bool {
	for i := range r.Query { // which are too large to be copied for this
		if r.Query[i].Name == name {
			return true
		}
	}
	return false
}

// passesDrain reports whether the route queues and commits nothing: a read, or what only shows the node.
func (r *Route) passesDrain() bool {
	return r.Drains || r.Class == ClassRead || r.Class == ClassAdmin && r.Method == http.MethodGet
}

// DefaultDeadline is that of most routes.
const DefaultDeadline = 5 * time.Second

// EndpointRead is the label of reads in busy_rejections_total.
const EndpointRead = "read"

// Routes completes each route by fill, which knows what those of a service have in common.
func Routes(fill func(*Route), routes ...Route) []Route {
	for i := range routes {
		fill(&routes[i])
	}
	return routes
}

// Answers declares an answer of JSON.
func Answers(status int, body any) []openapi.Answer {
	return []openapi.Answer{{Status: status, Type: TypeJSON, Body: body}}
}

// AnswersRaw declares an answer of bytes that are no JSON of ours.
func AnswersRaw(kind, doc string) []openapi.Answer {
	return []openapi.Answer{{Status: http.StatusOK, Type: kind, Doc: doc}}
}

// AnswersNothing declares an answer without a body.
func AnswersNothing(doc string) []openapi.Answer {
	return []openapi.Answer{{Status: http.StatusNoContent, Doc: doc}}
}

// AnswersEvents declares the frames of a stream, which end with one that says that the node stops.
func AnswersEvents(events ...openapi.Event) []openapi.Answer {
	events = append(events, openapi.Event{Name: wire.EventShutdown, Doc: "the node stops", Body: struct{}{}})
	return []openapi.Answer{{Status: http.StatusOK, Type: TypeEvents, Events: events}}
}

// Tagged declares the answers of a read that has a validator. A nil body is any JSON.
func Tagged(body any) []openapi.Answer {
	if body == nil {
		body = jsontext.Value(nil)
	}
	full := Answers(http.StatusOK, body)[0]
	full.Headers = []openapi.Param{{Name: "ETag", Doc: "of these bytes", Required: true}}
	return []openapi.Answer{full, {Status: http.StatusNotModified, Doc: "these are the bytes of If-None-Match", Headers: full.Headers}}
}

// IfNoneMatch declares the request header of such a read.
func IfNoneMatch() []openapi.Param {
	return []openapi.Param{{Name: "If-None-Match", Doc: "tags of what the caller has"}}
}

// Replayed declares the answer header that says so.
func Replayed(doc string) openapi.Param {
	return openapi.Param{Name: ReplayedHeader, Doc: doc, Enum: []string{"true"}}
}
