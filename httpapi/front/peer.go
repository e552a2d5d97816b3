package front

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
)

// Peer is who sent a request.
type Peer struct {
	Addr   netip.Addr // of the client; the zero Addr over the socket, and where a proxy does not tell it clearly
	Socket bool       // over the admin socket, as UID and GID
	UID    uint32
	GID    uint32

	life *life // of its connection; nil in tests
}

// Serves says whose the answer is that will be sent to p next: a write of it that does not end in time is counted there.
func (p *Peer) Serves(service string) {
	if p.life != nil {
		p.life.service = service
	}
}

// String is for logs.
func (p *Peer) String() string {
	switch {
	case p.Socket:
		return "uid:" + strconv.FormatUint(uint64(p.UID), 10)
	case p.Addr.IsValid():
		return p.Addr.String()
	}
	return ""
}

type peerKey struct{}

// nobody is the peer of a request that came over no listener of ours, as in a test.
var nobody = &Peer{}

// PeerOf says who sent r: whoever is at the other end of the connection, or whom that one names if it is a trusted proxy.
// It is never nil, and not to be changed.
func PeerOf(r *http.Request) *Peer {
	p := connPeer(r)
	if p.life == nil || p.Socket || !p.life.e.f.live.Load().trusts(p.Addr) {
		return p
	}
	addr, told := forwarded(r.Header, p.life.e.f.live.Load().trusts)
	if !told {
		return p // the proxy asks for itself
	}
	return &Peer{Addr: addr, life: p.life}
}

// connPeer is the other end of the connection.
func connPeer(r *http.Request) *Peer {
	if p, ok := r.Context().Value(peerKey{}).(*Peer); ok {
		return p
	}
	return nobody
}

// WithPeer gives the requests of ctx a peer, as the listeners do.
func WithPeer(ctx context.Context, p *Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}
