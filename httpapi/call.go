package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/julienschmidt/httprouter"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi/front"
)

// call is one request on its way through the middleware, and the ResponseWriter that watches its answer. It lives on
// the goroutine of its connection only.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	route  *Route
	params httprouter.Params
	peer   *front.Peer
	live   *live // the settings, from its first moment to its last

	corrID   string
	actor    engines.Actor
	query    query // nil without one
	body     []byte
	deadline time.Time // zero: none
	status   int       // 0 until the header is written
	reason   string    // of the problem told, if any
	started  time.Time
	rests    bool             // the connection, before its next request
	lines    [maxLines]string // behind the first values of the answer's header
	used     int              // of lines

	base context.Context // the request's, within its span
	ctx  context.Context // nil until someone asks for it
	late *flow.Late      // that ctx, where it has a deadline
}

// maxLines are the header values that an answer has: correlation id, type, cache, tag or replay, the caller's rate, and length.
const maxLines = 8

// set gives the answer's header name, in its canonical spelling, the one value v.
func (c *call) set(name, v string) {
	if c.used == maxLines {
		c.Header()[name] = []string{v}
		return
	}
	at := c.used
	c.lines[at] = v
	c.used++
	c.Header()[name] = c.lines[at:c.used:c.used]
}

// context is the request's, ending at the deadline. A read from memory waits for nothing, and pays no timer.
func (c *call) context() context.Context {
	if c.ctx == nil {
		c.ctx = c.base
		if !c.deadline.IsZero() {
			c.late = flow.LateBy(c.base, c.deadline)
			c.ctx = c.late
		}
	}
	return c.ctx
}

// takeBody gives the body to who reads it, once, lest it be held while the call waits.
func (c *call) takeBody() []byte {
	body := c.body
	c.body = nil
	return body
}

// release frees what context holds.
func (c *call) release() {
	if c.late != nil {
		c.late.Release()
	}
}

// param is a path parameter, "" when the pattern has none of that name.
func (c *call) param(name string) string { return c.params.ByName(name) }

// Header is the answer's.
func (c *call) Header() http.Header { return c.w.Header() }

// WriteHeader notes the status.
func (c *call) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.w.WriteHeader(status)
}

// Write answers 200 unless WriteHeader came before.
func (c *call) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.w.Write(b)
}

// control reaches the deadlines and the buffer of the connection.
func (c *call) control() *http.ResponseController { return http.NewResponseController(c.w) }

// Unwrap gives http.ResponseController the connection's own writer.
func (c *call) Unwrap() http.ResponseWriter { return c.w }
