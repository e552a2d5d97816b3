package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/httpapi/auth"
	"ronbox/store"
)

// forwardGrace is the time after the deadline of a request for which the answer of the leader is
// awaited, because the leader observes the same deadline and knows the outcome.
const forwardGrace = time.Second

// opConnect is the label op of io_timeouts_total for connections to the node that leads.
const opConnect = "connect"

// forward sends requests to the node that leads, unless this one does. This node checks the size of
// the body and the share of the client's network. The leader authorizes the caller, because the
// other nodes have no tokens. Routes with a Copy pass if this node may look into its copy first.
func forward(s *Server, b *boundRoute, next Handler) Handler {
	cluster := s.d.Cluster
	if cluster == nil {
		return next
	}
	away := limitRate(s, b, checkContent(s, b, s.forward))
	return func(c *Request) error {
		switch {
		case cluster.Leads():
			return next(c)
		case c.peer.Relay != nil: // a request is forwarded once
			return store.ErrNotLeader
		case c.mayCopy():
			return next(c)
		}
		return away(c)
	}
}

// forward performs a request at the node that leads, once.
func (s *Server) forward(c *Request) error {
	if s.d.Cluster.Removed() {
		return errRemoved
	}
	id, addr, ok := s.d.Cluster.Leader()
	if !ok || id == s.d.Cluster.Self() {
		return store.ErrNotLeader
	}
	if c.peer.Socket && c.peer.UID != 0 && c.peer.UID != uint32(os.Getuid()) {
		why := c.peer.String() + " is a user of this machine only"
		return &auth.DeniedError{Scope: c.route.Scope, Reasons: []string{why}}
	}
	if c.route.Class == ClassStream {
		if !c.acquireStream() {
			return errStreams
		}
		defer c.releaseStream()
	}
	x := &exchange{c: c}
	defer x.open(s.gate.ctx)()
	if err := x.send(s.d.Cluster.Peer(), addr); err != nil {
		return err
	}
	return x.answer()
}

// exchange is a request that this node has forwarded, and the answer of the leader.
type exchange struct {
	c       *Request
	ctx     context.Context
	silence *time.Timer // ends ctx
	body    *passedBody // nil: none
	resp    *http.Response
	stage   atomic.Int32 // of the request
}

// Stages of a forwarded request, as the transport reports them.
const (
	stageUntold int32 = iota // the transport has not begun
	stageDials               // nothing was sent
	stageSent                // a part may have been sent
)

// errRemoved is returned if this node is no member of its cluster. The leader did nothing.
var errRemoved = fmt.Errorf("%w: this node was removed from the cluster", store.ErrNotLeader)

var errSilent = fmt.Errorf("%w: the leader did not answer in time", context.DeadlineExceeded)

// open begins to wait for the answer. The returned function releases all resources.
func (x *exchange) open(gate context.Context) (end func()) {
	ctx, cancel := context.WithCancelCause(x.c.base)
	//rawchan: it ends a context, and never waits
	x.silence = time.AfterFunc(x.patience(forwardGrace), func() { cancel(errSilent) })
	keep := func() bool { return true }
	if x.c.route.Class == ClassStream {
		keep = context.AfterFunc(gate, func() { cancel(errDraining) })
	}
	x.ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { x.stage.CompareAndSwap(stageUntold, stageDials) },
		WroteHeaders: func() { x.stage.Store(stageSent) },
	})
	return func() {
		x.silence.Stop()
		keep()
		cancel(nil)
		if x.resp != nil {
			_ = x.resp.Body.Close()
		}
		if x.body != nil {
			_ = x.body.end() // failed has reported it, or the leader has answered
		}
	}
}

// patience returns the longest time until the next byte of the answer: the rest of the time for the
// work and then grace, or two ping intervals of a stream.
func (x *exchange) patience(grace time.Duration) time.Duration {
	if x.c.deadline.IsZero() {
		return 2*x.c.service.limits.Load().Streams.Ping + x.c.settings.write
	}
	return max(0, time.Until(x.c.deadline)) + grace
}

// send sends the request and waits for the header of the answer.
func (x *exchange) send(to http.RoundTripper, addr string) error {
	req, err := x.c.relayed(x.ctx, addr)
	if err != nil {
		return err
	}
	if x.c.r.ContentLength != 0 {
		x.body = newPassedBody(x.c)
		req.Body, req.ContentLength = x.body, x.c.r.ContentLength
	}
	if x.resp, err = to.RoundTrip(req); err != nil {
		return x.failed(err)
	}
	if x.resp.Header.Get(relayRefused) != "" {
		return errRemoved
	}
	return nil
}

// failed returns the error for a request without an answer. The outcome of a write is unknown once
// a part of it was sent, and the caller settles it by the same request.
func (x *exchange) failed(err error) error {
	var fault error
	if x.body != nil {
		fault = x.body.end()
	}
	untouched := x.stage.Load() == stageDials
	var late net.Error
	if untouched && errors.As(err, &late) && late.Timeout() {
		x.c.service.lateConnects(1)
	}
	switch cause := context.Cause(x.ctx); {
	case fault != nil: // the leader got a truncated body, which it refuses
		return fault
	case !untouched && x.c.route.Writes():
		return fmt.Errorf("%w: forwarded: %w", flow.ErrUnknown, err)
	case cause != nil:
		return cause
	}
	return fmt.Errorf("%w: %w", store.ErrNotLeader, err)
}

// answer passes the answer on. Events and lines are sent as they arrive.
func (x *exchange) answer() error {
	h := x.c.Header()
	dropHops(x.resp.Header)
	for name, values := range x.resp.Header {
		if _, own := h[name]; !own {
			h[name] = values
		}
	}
	x.c.server.nameLeader(h)
	x.c.WriteHeader(x.resp.StatusCode)
	src := &answerBody{x: x}
	kind, _, _ := strings.Cut(x.resp.Header.Get("Content-Type"), ";")
	if kind == TypeEvents || kind == TypeLines {
		src.sendAsTheyCome()
	} else {
		_, _ = x.c.ReadFrom(src)
	}
	return src.err // nil if only the client has left
}

// answerBody reads the answer of the leader, which must not be silent for long.
type answerBody struct {
	x   *exchange
	err error // that truncates the answer
}

func (b *answerBody) Read(p []byte) (int, error) {
	b.x.silence.Reset(b.x.patience(b.x.c.settings.write))
	n, err := b.x.resp.Body.Read(p)
	b.x.silence.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = fmt.Errorf("%w: %w", store.ErrNotLeader, err)
		if cause := context.Cause(b.x.ctx); cause != nil {
			b.err = cause
		}
	}
	return n, err
}

// sendAsTheyCome sends each part of the answer without delay.
func (b *answerBody) sendAsTheyCome() {
	if b.x.c.Flush() != nil {
		return
	}
	for buf := make([]byte, 16<<10); ; {
		n, err := b.Read(buf)
		if n > 0 {
			if _, werr := b.x.c.Write(buf[:n]); werr != nil || b.x.c.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// passedBody is the body of a forwarded request. The transport may read it until end returns.
type passedBody struct {
	c     *Request
	in    io.Reader
	wire  *wireBody
	turn  chan struct{} // held by a read
	ended atomic.Bool
	fault error // of the client; guarded by turn
}

func newPassedBody(c *Request) *passedBody {
	b := &passedBody{c: c, turn: make(chan struct{}, 1)}
	if c.route.Body == StreamBody {
		pieces := &bodyPieces{wireBody{r: c.r.Body, left: c.maxBody()}, c}
		b.in, b.wire = pieces, &pieces.wireBody
		return b
	}
	b.wire = &wireBody{r: c.r.Body, left: c.maxBody()}
	b.in = b.wire
	return b
}

// Read reads a part of the client's body.
func (b *passedBody) Read(p []byte) (int, error) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.ended.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.in.Read(p)
	if err != nil && err != io.EOF && !b.ended.Load() {
		b.fault = err
	}
	return n, err
}

// Close is called by the transport. The body belongs to the client's connection.
func (b *passedBody) Close() error { return nil }

// end waits for a read under way and ends the body. It returns the error with which the client
// ended it before.
func (b *passedBody) end() error {
	b.ended.Store(true)
	select {
	case b.turn <- struct{}{}:
	default:
		b.hurry()
		b.turn <- struct{}{}
	}
	defer func() { <-b.turn }()
	b.c.bodyOver = b.wire.over
	return b.fault
}

// hurry makes a client that still sends its body notice that the answer is there. Without an answer
// yet it ends the read, after which the connection cannot be used again.
func (b *passedBody) hurry() {
	if b.c.status != 0 {
		_ = b.c.Flush()
		return
	}
	b.c.Header().Set("Connection", "close")
	_ = b.c.control().SetReadDeadline(time.Now())
}
