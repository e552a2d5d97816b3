package front

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
)

// Peer is who is at the other end of a request.
type Peer struct {
	Addr   netip.Addr // of the client; of none over the socket
	Socket bool       // over the admin socket, as UID and GID
	UID    uint32
	GID    uint32

	silent *atomic.Int64 // the connections of its endpoint that have not asked yet; nil without one
	asked  atomic.Bool
}

// ask notes that the peer's first request is here, or never comes.
func (p *Peer) ask() {
	if p.silent != nil && !p.asked.Load() && !p.asked.Swap(true) {
		p.silent.Add(-1)
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

// PeerOf says who sent r. It is never nil.
func PeerOf(r *http.Request) *Peer {
	if p, ok := r.Context().Value(peerKey{}).(*Peer); ok {
		return p
	}
	return nobody
}

// WithPeer gives the requests of ctx a peer, as the listeners do.
func WithPeer(ctx context.Context, p *Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}
