package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/julienschmidt/httprouter"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi/front"
)

// Request is a request in the middleware, and the ResponseWriter of its answer. Only the goroutine
// of its connection uses it.
type Request struct {
	w        http.ResponseWriter
	r        *http.Request
	server   *Server
	route    *Route
	service  *service
	params   httprouter.Params
	peer     *front.Peer
	settings *settings // the same from start to end, but of a stream

	corrID   string
	actor    engines.Actor
	query    query // nil: no query
	body     []byte
	stream   io.Reader     // of a StreamBody route
	bodyOver bool          // the body has ended or failed
	confirms bool          // the answer begins after Cluster.Confirm
	copies   bool          // this node does not lead, and looks into its copy first
	age      time.Duration // of the copy; set for CopyOutage
	rests    bool          // delay the next request of the connection
	deadline time.Time     // zero: none
	named    time.Time     // the earliest that the caller named; zero: none
	status   int           // 0: the header was not written yet
	reason   string        // of the answered problem
	unsure   error         // of Cluster.Confirm: the answer is discarded
	started  time.Time
	checked  time.Time            // when the sender was authorized; zero: it needs no permission
	again    bool                 // it is authorized again
	values   [maxValues][1]string // storage of header values, which saves an allocation each
	used     int                  // number of values in use

	base context.Context // of the request, with its span
	ctx  context.Context // nil before the first call of Context
	late *flow.Late      // ctx, if it has a deadline
}

// maxValues is the number of headers that most answers have at most: correlation id, type, cache,
// tag or replay, the caller's rate, and length.
const maxValues = 8

// A Handler decodes the request, calls its engine once and responds. An error that it returns is
// answered as a problem.
type Handler func(*Request) error

// Context returns the context of the request, which ends at its deadline. A request that never
// waits needs no timer.
func (r *Request) Context() context.Context {
	if r.ctx == nil {
		r.ctx = r.base
		if !r.deadline.IsZero() {
			r.late = flow.LateBy(r.base, r.deadline)
			r.ctx = r.late
		}
	}
	return r.ctx
}

// release releases the resources of Context.
func (r *Request) release() {
	if r.late != nil {
		r.late.Release()
	}
}

// Actor returns the caller. CorrID returns the correlation id of the request.
func (r *Request) Actor() engines.Actor { return r.actor }
func (r *Request) CorrID() string       { return r.corrID }

// HTTP returns the request of net/http, for functions such as http.ServeContent.
func (r *Request) HTTP() *http.Request { return r.r }

// Origin returns the scheme and host that the client requested, as named by a trusted proxy if
// there is one. The host is not validated.
func (r *Request) Origin() (scheme, host string) { return front.Origin(r.r) }

// Head reports whether only the headers of the answer are requested.
func (r *Request) Head() bool { return r.r.Method == http.MethodHead }

// Param returns a path parameter, or "" if the pattern does not have it.
func (r *Request) Param(name string) string { return r.params.ByName(name) }

// NumberParam returns a path parameter that the router has validated as a number.
func (r *Request) NumberParam(name string) uint64 {
	v, _ := strconv.ParseUint(r.Param(name), 10, 64)
	return v
}

// Body returns the body, once, so that it can be freed while the request waits.
func (r *Request) Body() []byte {
	body := r.body
	r.body = nil
	return body
}

// Stream returns the body of a StreamBody route. It is bounded by the cap, each read by the read
// timeout, and all reads by the deadline of the route.
func (r *Request) Stream() io.Reader { return r.stream }

// MediaType returns the declared type of the body, without parameters.
func (r *Request) MediaType() string {
	kind, _ := declared(r.r)
	return kind
}

// Decode decodes the whole body strictly into v, a struct. The body is JSON, or CBOR if the route
// accepts it.
func (r *Request) Decode(v any) error {
	body := r.Body()
	if r.route.Body.either() && r.MediaType() == TypeCBOR {
		var err error
		if body, err = FromCBOR(body); err != nil {
			return err
		}
	}
	return Decode(body, v)
}

// Values of Cache-Control.
const (
	CacheNone    = "no-store"
	CacheAsk     = "no-cache"
	CacheForever = "public, max-age=31536000, immutable"
)

// Media types of answers and bodies.
const (
	TypeJSON   = "application/json"
	TypeCBOR   = "application/cbor"
	TypeLines  = "application/x-ndjson"
	TypeEvents = "text/event-stream"
	TypeBytes  = "application/octet-stream"
	typeText   = "text/plain; charset=utf-8"
)

var (
	// ErrPrecondition is returned if If-Match or If-Unmodified-Since does not hold: status 412.
	ErrPrecondition = errors.New("a precondition of the request does not hold")
	// ErrRange is returned if the content has no byte in the requested Range: status 416.
	ErrRange = errors.New("the content has no byte in the requested Range; Content-Range has its length")
)

// ServeContent answers with content, whole or in parts, like http.ServeContent, but refuses with
// problems. The caller must set Etag, Cache-Control and the headers that describe the content.
func (r *Request) ServeContent(name string, modified time.Time, content io.ReadSeeker) error {
	w := &failureFilter{Request: r}
	http.ServeContent(w, r.r, name, modified, content)
	switch w.failed {
	case 0:
		return nil
	case http.StatusPreconditionFailed:
		return ErrPrecondition
	case http.StatusRequestedRangeNotSatisfiable:
		return ErrRange
	}
	return errors.New("the content cannot be read")
}

// failureFilter suppresses the failure answers of http.ServeContent, which are replaced by
// problems.
type failureFilter struct {
	*Request
	failed int // the status, or 0
}

// WriteHeader records a failure status and forwards others.
func (w *failureFilter) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.failed = status
		return
	}
	w.Request.WriteHeader(status)
}

// Write discards the text of a failure.
func (w *failureFilter) Write(b []byte) (int, error) {
	if w.failed != 0 {
		return len(b), nil
	}
	return w.Request.Write(b)
}

// ReplayedHeader marks an answer to a request that an earlier one has performed.
const ReplayedHeader = "Idempotent-Replayed"

// netHTTPBuffer is the size of answers that net/http buffers. It sets the length of those itself,
// and one header less keeps the header map at its initial size.
const netHTTPBuffer = 2048

// Respond answers with v as JSON and forbids caching.
func (r *Request) Respond(status int, v any) error { return r.RespondCached(status, CacheNone, v) }

// RespondCached answers with v as JSON and with cache as Cache-Control.
func (r *Request) RespondCached(status int, cache string, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	return r.Send(status, cache, body)
}

// encode returns one line of JSON.
func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	return append(body, '\n'), err
}

// Send answers with encoded JSON.
func (r *Request) Send(status int, cache string, body []byte) error {
	r.Set("Content-Type", TypeJSON)
	r.Set("Cache-Control", cache)
	if len(body) > netHTTPBuffer {
		r.Set("Content-Length", strconv.Itoa(len(body)))
	}
	r.WriteHeader(status)
	_, _ = r.Write(body) // an error means that the client has left
	return nil
}

// SendTagged is Send with status 200 and an entity tag. It answers 304 if the client has the same
// content.
func (r *Request) SendTagged(cache, etag string, body []byte) error {
	r.Set("Etag", etag)
	if has, _ := Matches(r.r.Header["If-None-Match"], etag, true); has {
		r.Set("Cache-Control", cache)
		r.WriteHeader(http.StatusNotModified)
		return nil
	}
	return r.Send(http.StatusOK, cache, body)
}

// Bounds of a list of entity tags. A longer list is ignored.
const (
	maxTags    = 64
	maxTagText = 4 << 10
)

// Matches reports whether the lines of If-Match or If-None-Match contain a tag, or are "*". given
// is false if there is no valid list. A weak comparison ignores the prefix W/. A tag may contain a
// comma within its quotes.
func Matches(lines []string, etag string, weak bool) (yes, given bool) {
	list, quoted := strings.Join(lines, ","), false
	if len(lines) == 0 || len(list) > maxTagText {
		return false, false
	}
	tags := strings.FieldsFunc(list, func(c rune) bool {
		quoted = quoted != (c == '"')
		return !quoted && (c == ',' || c == ' ' || c == '\t')
	})
	yes = len(tags) == 1 && tags[0] == "*" || slices.ContainsFunc(tags, func(tag string) bool {
		return tag == etag || weak && strings.TrimPrefix(tag, "W/") == etag
	})
	return yes && len(tags) <= maxTags, len(tags) <= maxTags
}

// Weight returns the weight of a coding in the lines of Accept-Encoding, by name or by "*". 0 means
// that it is not acceptable.
func Weight(lines []string, coding string) (q float64) {
	named := false
	for _, line := range lines {
		for one := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(strings.ToLower(strings.ReplaceAll(one, " ", "")), ";")
			if name = strings.TrimPrefix(strings.TrimSpace(name), "x-"); name != coding && (named || name != "*") {
				continue
			}
			named, q = name == coding, 1
			if v, weighed := strings.CutPrefix(params, "q="); weighed {
				q, _ = strconv.ParseFloat(v, 64) // malformed: 0
			}
		}
	}
	return q
}

// Empty answers 204.
func (r *Request) Empty() error {
	r.Set("Cache-Control", CacheNone)
	r.WriteHeader(http.StatusNoContent)
	return nil
}

// MarkReplayed sets ReplayedHeader if yes.
func (r *Request) MarkReplayed(yes bool) {
	if yes {
		r.Set(ReplayedHeader, "true")
	}
}

// Set sets the header name, in canonical form, to the single value v.
func (r *Request) Set(name, v string) {
	if r.used == maxValues {
		r.Header()[name] = []string{v}
		return
	}
	at := &r.values[r.used]
	at[0] = v
	r.used++
	r.Header()[name] = at[:]
}

// Header returns the headers of the answer.
func (r *Request) Header() http.Header { return r.w.Header() }

// WriteHeader writes and records the status.
func (r *Request) WriteHeader(status int) {
	if r.begin(status) {
		r.w.WriteHeader(status)
	}
}

// begin records the status of an answer before its first byte. It returns false if there must be no
// answer, because the node cannot confirm that it leads.
func (r *Request) begin(status int) bool {
	if r.status == 0 {
		if r.confirms && !r.confirmed() {
			return false
		}
		r.status = status
	}
	return true
}

// Write writes a part of the answer, with status 200 unless WriteHeader was called.
func (r *Request) Write(b []byte) (n int, err error) {
	if !r.begin(http.StatusOK) {
		return 0, r.unsure
	}
	return r.w.Write(b)
}

// ReadFrom copies src to the answer. If src is a file, or a part of one in an io.LimitedReader, the
// kernel copies it without passing it through the process.
func (r *Request) ReadFrom(src io.Reader) (n int64, err error) {
	if !r.begin(http.StatusOK) {
		return 0, r.unsure
	}
	if to, ok := r.w.(io.ReaderFrom); ok {
		return to.ReadFrom(src)
	}
	return io.Copy(struct{ io.Writer }{r.w}, src)
}

// Flush sends buffered data.
func (r *Request) Flush() error {
	if r.unsure != nil {
		return r.unsure
	}
	return r.control().Flush()
}

// control returns the controller of the connection's deadlines and buffer.
func (r *Request) control() *http.ResponseController { return http.NewResponseController(r.w) }

// Unwrap returns the underlying writer, for http.ResponseController.
func (r *Request) Unwrap() http.ResponseWriter { return r.w }
