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

// Request is one request on its way through the middleware, and the ResponseWriter of its answer. It lives on the goroutine of
// its connection only.
type Request struct {
	w        http.ResponseWriter
	r        *http.Request
	server   *Server
	route    *Route
	service  *service
	params   httprouter.Params
	peer     *front.Peer
	settings *settings // from its first moment to its last

	corrID   string
	actor    engines.Actor
	query    Query // nil without one
	body     []byte
	stream   io.Reader // of a route that reads its body as it comes
	bodyOver bool      // the body was read to its end, or ended early
	deadline time.Time // zero: none
	named    time.Time // by the caller as the latest; zero: none
	status   int       // 0 until the header is written
	reason   string    // of the problem answered, if any
	started  time.Time
	rests    bool                 // the connection, before its next request
	values   [maxValues][1]string // behind the first values of the answer's header
	used     int                  // of values

	base context.Context // the request's, within its span
	ctx  context.Context // nil until Context is called
	late *flow.Late      // ctx, where it has a deadline
}

// maxValues are the header values that an answer has: correlation id, type, cache, tag or replay, the caller's rate, and length.
const maxValues = 8

// A Handler decodes, calls its engine once and responds; what it returns becomes the problem that is answered.
type Handler func(*Request) error

// Context is the request's, ending at its deadline. A read from memory waits for nothing, and pays no timer.
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

// release frees what Context holds.
func (r *Request) release() {
	if r.late != nil {
		r.late.Release()
	}
}

// Actor is the caller, CorrID the id of the request in logs and answers.
func (r *Request) Actor() engines.Actor { return r.actor }
func (r *Request) CorrID() string       { return r.corrID }

// HTTP is the request as net/http has it, for http.ServeContent and its like.
func (r *Request) HTTP() *http.Request { return r.r }

// Head reports whether only the headers of the answer are asked for.
func (r *Request) Head() bool { return r.r.Method == http.MethodHead }

// Param is a path parameter, "" when the pattern has none of that name.
func (r *Request) Param(name string) string { return r.params.ByName(name) }

// NumberParam is a path parameter that the router has found to be a number.
func (r *Request) NumberParam(name string) uint64 {
	v, _ := strconv.ParseUint(r.Param(name), 10, 64)
	return v
}

// Body gives the body to its reader, once, so that it is not held while the request waits.
func (r *Request) Body() []byte {
	body := r.body
	r.body = nil
	return body
}

// Stream is the body of a StreamBody route as it comes: at most its cap, each piece within the read timeout, all of it within the
// deadline of the route.
func (r *Request) Stream() io.Reader { return r.stream }

// MediaType is the type that the body is declared to be of, without parameters.
func (r *Request) MediaType() string {
	kind, _ := declared(r.r)
	return kind
}

// Decode reads the whole body, JSON or of a route that takes it CBOR, into v, a struct, strictly.
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
	// ErrPrecondition says that If-Match or If-Unmodified-Since of the request does not hold: 412.
	ErrPrecondition = errors.New("what the request expects of the content does not hold")
	// ErrRange says that nothing of the content is in the Range of the request: 416.
	ErrRange = errors.New("the content has none of the bytes that Range asks for; Content-Range says how many it has")
)

// ServeContent answers with content as http.ServeContent does, whole or the parts that the request asks for, and refuses in the
// one form. The caller has set Etag, Cache-Control and what else it knows of content.
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

// failureFilter holds back what a library says of its own failures, which are answered in the one form instead.
type failureFilter struct {
	*Request
	failed int // status
}

// WriteHeader notes a failure, and passes on what is none.
func (w *failureFilter) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.failed = status
		return
	}
	w.Request.WriteHeader(status)
}

// Write drops the text of a failure.
func (w *failureFilter) Write(b []byte) (int, error) {
	if w.failed != 0 {
		return len(b), nil
	}
	return w.Request.Write(b)
}

// ReplayedHeader says that an earlier request did the work.
const ReplayedHeader = "Idempotent-Replayed"

// netHTTPBuffer is how much of an answer net/http holds back. What fits it gets its length from there: one header less
// here keeps the map of headers at the size it begins with.
const netHTTPBuffer = 2048

// Respond answers with v as JSON, not to be kept.
func (r *Request) Respond(status int, v any) error { return r.RespondCached(status, CacheNone, v) }

// RespondCached answers with v as JSON, to be kept as cache says.
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

// Send answers with JSON that is ready.
func (r *Request) Send(status int, cache string, body []byte) error {
	r.Set("Content-Type", TypeJSON)
	r.Set("Cache-Control", cache)
	if len(body) > netHTTPBuffer {
		r.Set("Content-Length", strconv.Itoa(len(body)))
	}
	r.WriteHeader(status)
	_, _ = r.Write(body) // the client has left, or reads it
	return nil
}

// SendTagged is Send with status 200, or answers 304 to a client that has the bytes already.
func (r *Request) SendTagged(cache, etag string, body []byte) error {
	r.Set("Etag", etag)
	if has, _ := Matches(r.r.Header["If-None-Match"], etag, true); has {
		r.Set("Cache-Control", cache)
		r.WriteHeader(http.StatusNotModified)
		return nil
	}
	return r.Send(http.StatusOK, cache, body)
}

// Bounds of a list of tags: a longer one is ignored, as if it were not there.
const (
	maxTags    = 64
	maxTagText = 4 << 10
)

// Matches reports whether the lines of If-Match or If-None-Match, if there are any, name a tag, or any tag ("*" alone). A weak comparison takes
// W/"x" for "x". A comma may stand within the quotes of a tag.
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

// Weight is what the lines of Accept-Encoding give to a coding, by its name or else as "*"; with 0 it is not to be sent.
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

// MarkReplayed says, if yes, that an earlier request did the work.
func (r *Request) MarkReplayed(yes bool) {
	if yes {
		r.Set(ReplayedHeader, "true")
	}
}

// Set gives the answer's header name, in its canonical spelling, the one value v.
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

// Header is the answer's.
func (r *Request) Header() http.Header { return r.w.Header() }

// WriteHeader notes the status.
func (r *Request) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.w.WriteHeader(status)
}

// Write answers 200 unless WriteHeader came before.
func (r *Request) Write(b []byte) (n int, err error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.w.Write(b)
}

// ReadFrom writes src to its end. The kernel copies what it can: a file, or a part of one that an io.LimitedReader bounds, never
// passes through the process.
func (r *Request) ReadFrom(src io.Reader) (n int64, err error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if to, ok := r.w.(io.ReaderFrom); ok {
		return to.ReadFrom(src)
	}
	return io.Copy(struct{ io.Writer }{r.w}, src)
}

// Flush sends what is held back.
func (r *Request) Flush() error { return r.control().Flush() }

// control reaches the deadlines and the buffer of the connection.
func (r *Request) control() *http.ResponseController { return http.NewResponseController(r.w) }

// Unwrap gives http.ResponseController the connection's own writer.
func (r *Request) Unwrap() http.ResponseWriter { return r.w }
