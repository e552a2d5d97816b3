package member

import (
	"context"
	"net"
	"net/http"

	"ronbox/appliance/peer"
	"ronbox/appliance/systemd"
	"ronbox/httpapi"
)

// bindPort binds cluster.bind, or takes the socket that an earlier life or the service manager has
// opened.
func (m *Member) bindPort(ctx context.Context) (err error) {
	m.bind = m.d.Config().Cluster.Bind
	switch l := m.opened.(type) {
	case *systemd.Kept:
		if l.Bind == m.bind {
			m.ln = l.Listener
			return nil
		}
		if err := l.Close(); err != nil {
			return err
		}
	case net.Listener:
		m.bind, m.ln = "", l
		return nil
	}
	var lc net.ListenConfig
	m.ln, err = lc.Listen(ctx, "tcp", m.bind)
	return err
}

// split returns a handler of the peer port. Only requests that this node's peers have not forwarded
// for a client reach own: a client must not speak as the node that forwards for it.
func split(own, forwarded http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpapi.Relayed(r) {
			forwarded.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	})
}

// sender returns the id of the member that has sent r, or "". A node that was removed keeps its
// certificate, and would speak for its root. The leader knows every member that has a leader.
func (m *Member) sender(r *http.Request) string {
	if id := peer.PeerID(r); m.raft.IsMember(id) {
		return id
	}
	return ""
}

// raftPort is the peer port as raft uses it.
type raftPort struct {
	*peer.Port
	id *peer.Identity
}

// Dial implements cluster.Peers.
func (p raftPort) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return p.id.Dial(ctx, addr, peer.ProtoRaft)
}

// isMember reports whether a node may open raft connections. Only the list of a leader is new: one
// that was away may not know the member that leads now.
func (m *Member) isMember(id string) bool {
	return !m.started.Load() || !m.raft.Leads() || m.raft.IsMember(id)
}

// nowhere is a listener that no connection comes to.
type nowhere struct{}

// Accept implements net.Listener.
func (nowhere) Accept() (net.Conn, error) { return nil, net.ErrClosed }

// Addr implements net.Listener.
func (nowhere) Addr() net.Addr { return &net.TCPAddr{} }

// Close implements net.Listener.
func (nowhere) Close() error { return nil }
