package httpapi

import (
	"context"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
)

// relayPrefix begins the headers that a node adds to a forwarded request. They are believed only on
// the peer port.
const relayPrefix = "Ronbox-Peer-"

const (
	relayAddr   = relayPrefix + "Addr"   // of the client; absent: unknown
	relayScheme = relayPrefix + "Scheme" // that the client used
	relayUID    = relayPrefix + "Uid"    // of a client at the admin socket
	relayScopes = relayPrefix + "Scopes" // of such a client, separated by commas
	relayInside = relayPrefix + "Inside" // "true": a page of the node's console asks for the client
)

// relayed returns the request to the leader at addr. It has the headers of the client except those
// of the connection, and names the client, the correlation id and the rest of the time that the
// client named.
func (r *Request) relayed(ctx context.Context, addr string) (*http.Request, error) {
	h := r.r.Header.Clone()
	dropHops(h)
	for name := range h {
		if strings.HasPrefix(name, relayPrefix) {
			delete(h, name)
		}
	}
	for _, name := range []string{timeoutHeader, deadlineHeader, "Expect", "Origin"} {
		delete(h, name) // Origin: this node decides which pages may read the answer
	}
	if !r.named.IsZero() {
		left := min(time.Until(r.named), maxTimeout*time.Second)
		if left <= 0 {
			return nil, context.DeadlineExceeded
		}
		h.Set(timeoutHeader, strconv.FormatFloat(left.Seconds(), 'f', 6, 64))
	}
	if _, given := h["User-Agent"]; !given {
		h["User-Agent"] = nil // so that the transport adds none
	}
	// net/http repeats a request with one of these headers by itself, but not if its name is in
	// lower case.
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if key, given := h[name]; given {
			delete(h, name)
			h[strings.ToLower(name)] = key
		}
	}
	h.Set(corrHeader, r.corrID)
	scheme, host := r.Origin()
	h.Set(relayScheme, scheme)
	r.namePeer(h)
	at := *r.r.URL
	at.Scheme, at.Host = "https", addr
	req := &http.Request{
		Method: r.r.Method, URL: &at, Host: host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	return req.WithContext(ctx), nil
}

// namePeer sets the headers that describe the client.
func (r *Request) namePeer(h http.Header) {
	p := r.peer
	if p.Addr.IsValid() {
		h.Set(relayAddr, p.Addr.String())
	}
	if p.Inside {
		h.Set(relayInside, "true")
	}
	if p.Socket {
		scopes, _ := r.settings.peers.Scopes(p.UID, p.GID)
		h.Set(relayUID, strconv.FormatUint(uint64(p.UID), 10))
		h.Set(relayScopes, strings.Join(scopes, ","))
	}
}

// relayRefused is the header of the answer to a node that is not a member. Nothing was done.
const relayRefused = relayPrefix + "Refused"

// relayPeer returns the client that node names in the headers of a forwarded request, and removes
// these headers. ok is false if they are malformed.
func relayPeer(node string, h http.Header) (p *front.Peer, ok bool) {
	p = &front.Peer{Inside: h.Get(relayInside) == "true"}
	p.Relay = &front.Relay{Node: node, Scheme: h.Get(relayScheme)}
	var bad error
	if addr := h.Get(relayAddr); addr != "" {
		p.Addr, bad = netip.ParseAddr(addr)
	}
	if uid := h.Get(relayUID); uid != "" && bad == nil {
		var n uint64
		n, bad = strconv.ParseUint(uid, 10, 32)
		p.Socket, p.UID = true, uint32(n)
		p.Relay.Scopes = strings.Split(h.Get(relayScopes), ",")
	}
	for name := range h {
		if strings.HasPrefix(name, relayPrefix) {
			delete(h, name)
		}
	}
	return p, bad == nil && p.Relay.Scheme != ""
}

// Relayed reports whether another node has forwarded the request for a client. It is to be believed
// only on the peer port, where a client's own header of that name does not arrive.
func Relayed(r *http.Request) bool { return r.Header.Get(relayScheme) != "" }

// PeerHandler returns the handler of the requests that other nodes of the cluster forward to this
// one. node returns the id in the verified certificate of the sender, or "" if there was none.
func (s *Server) PeerHandler(node func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := node(r)
		if from == "" {
			w.Header().Set(relayRefused, "true")
			s.refusePeer(w, http.StatusForbidden, ReasonForbidden, "the sender is not a node of this cluster")
			return
		}
		p, ok := relayPeer(from, r.Header)
		if !ok {
			s.refusePeer(w, http.StatusBadRequest, ReasonBadHeader, "the headers of a forwarded request are malformed")
			return
		}
		s.router.ServeHTTP(w, r.WithContext(front.WithPeer(r.Context(), p)))
	})
}

// refusePeer refuses a request that no node of the cluster sends.
func (s *Server) refusePeer(w http.ResponseWriter, status int, reason, detail string) {
	h, body := s.frontProblem(status, reason, detail)
	for name, values := range h {
		w.Header()[name] = values
	}
	s.rejected(serviceNode, reason, 1)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// OwnRequests returns a transport for requests that this node makes of another node of the cluster,
// with the rights of the user that it runs as. to is that of Cluster.Peer.
func OwnRequests(to http.RoundTripper) http.RoundTripper { return ownRequests{to} }

type ownRequests struct{ to http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t ownRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(relayScheme, "https")
	r.Header.Set(relayUID, strconv.Itoa(os.Getuid()))
	r.Header.Set(relayScopes, auth.ScopeAdmin)
	return t.to.RoundTrip(r)
}

// dropHops removes the headers of a connection, which are not forwarded.
func dropHops(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade",
	} {
		delete(h, name)
	}
}

// relayPart is the number of bytes that another node must take within the window of a long answer.
const relayPart = 64 << 10

// pacedWriter writes a long answer to another node of the cluster, with a deadline for each part.
// Answers on the listeners of package front have such deadlines already.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	window  time.Duration
}

func newPacedWriter(w http.ResponseWriter, window time.Duration) *pacedWriter {
	return &pacedWriter{w, http.NewResponseController(w), window}
}

func (w *pacedWriter) Write(b []byte) (n int, err error) {
	for err == nil && len(b) > 0 {
		var m int
		_ = w.control.SetWriteDeadline(time.Now().Add(w.window))
		m, err = w.ResponseWriter.Write(b[:min(len(b), relayPart)])
		n, b = n+m, b[m:]
	}
	return n, err
}

// FlushError sends buffered data.
func (w *pacedWriter) FlushError() error {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.window))
	return w.control.Flush()
}

// Unwrap returns the underlying writer, for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
