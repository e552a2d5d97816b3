package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"ronbox/httpapi/front"
)

// maxAnswer bounds an answer of the node that a page is made of, bytes.
const maxAnswer = 4 << 20

var (
	// errReadOnly is returned for a call that would change something in a session that may not.
	errReadOnly = errors.New("this session may only look; enter again and allow changes")
	errTooLong  = errors.New("the node's answer is longer than 4 MiB")
)

type callerKey struct{}

// caller is the session that a page is made for, and the peer that shows it.
type caller struct {
	session *session
	peer    *front.Peer
	refused atomic.Bool // the node does not accept the token of the session
}

// inside carries the requests of the typed clients to the node's own router. The context of a
// request has its caller.
type inside struct {
	node  func() http.Handler
	asked *atomic.Uint64 // requests that the node has answered
}

// RoundTrip runs the request with the rights of its session.
func (t inside) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	by := callerIn(r.Context())
	if by == nil {
		return nil, errors.New("console: a call outside a session")
	}
	if !by.session.write && r.Method != http.MethodGet {
		return nil, errReadOnly
	}
	peer := &front.Peer{Addr: by.peer.Addr, Inside: true}
	r = r.Clone(r.Context())
	r.RequestURI = r.URL.RequestURI()
	r.Header.Del("Authorization")
	if by.session.token != "" {
		r.Header.Set("Authorization", "Bearer "+by.session.token)
	} else {
		peer = &front.Peer{Socket: true, UID: by.session.uid, GID: by.session.gid}
	}
	w := &buffer{header: http.Header{}}
	defer func() { // the node aborts an answer that it cannot finish
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
				panic(v)
			}
			answer, err = nil, io.ErrUnexpectedEOF
		}
	}()
	defer t.asked.Add(1)
	t.node().ServeHTTP(w, r.WithContext(front.WithPeer(r.Context(), peer)))
	if w.over {
		return nil, errTooLong
	}
	by.refused.CompareAndSwap(false, w.status == http.StatusUnauthorized)
	return w.response(r), nil
}

// buffer holds one answer of the node.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
	over   bool
}

// Header returns the header of the answer.
func (b *buffer) Header() http.Header { return b.header }

// WriteHeader notes the status.
func (b *buffer) WriteHeader(status int) {
	if b.status == 0 {
		b.status = status
	}
}

// Write keeps a part of the body. It fails if the body gets too long.
func (b *buffer) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	if b.body.Len()+len(p) > maxAnswer {
		b.over = true
		return 0, errTooLong
	}
	return b.body.Write(p)
}

func (b *buffer) response(r *http.Request) *http.Response {
	b.WriteHeader(http.StatusOK)
	return &http.Response{
		Status:        strconv.Itoa(b.status) + " " + http.StatusText(b.status),
		StatusCode:    b.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        b.header,
		Body:          io.NopCloser(&b.body),
		ContentLength: int64(b.body.Len()),
		Request:       r,
	}
}

// as returns a context for calls with the rights of s.
func as(ctx context.Context, s *session, peer *front.Peer) context.Context {
	return context.WithValue(ctx, callerKey{}, &caller{session: s, peer: peer})
}

// callerIn returns the caller of a context of as, or nil.
func callerIn(ctx context.Context) *caller {
	by, _ := ctx.Value(callerKey{}).(*caller)
	return by
}
