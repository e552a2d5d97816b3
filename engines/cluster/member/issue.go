package member

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"

	"ronbox/appliance/peer"
	"ronbox/store"
)

// join serves POST /join. Without a key it answers with the versions and the clock, so that a node
// that cannot join keeps its token.
func (s *Server) join(r *http.Request) (any, error) {
	q, err := readBody[joinRequest](r)
	if err != nil {
		return nil, err
	}
	if q.Key == nil {
		return s.answer(), nil
	}
	if err := errors.Join(s.mayIssue(q), s.reaches(r, q.Advertise)); err != nil {
		return nil, err
	}
	id, err := peer.NewID(s.d.Now())
	if err != nil {
		return nil, err
	}
	got, err := store.Commit(r.Context(), s.d.Store, store.Control, redeem{
		Hash: sha256.Sum256(q.Token), Key: sha256.Sum256(q.Key), Server: id,
		Note: store.Event{Event: "cluster.redeemed", Decision: "allow", Principal: q.Advertise},
	})
	if err != nil {
		return nil, err
	}
	return s.issue(got, q.Key)
}

// mayIssue returns an error if a node must not get a certificate from this one.
func (s *Server) mayIssue(q joinRequest) error {
	if len(q.Key) != ed25519.PublicKeySize {
		return &RemoteError{Code: CodeRequest, Detail: "key: not an ed25519 key"}
	}
	if err := peer.CheckAddress(q.Advertise); err != nil {
		return &RemoteError{Code: CodeRequest, Detail: "advertise: " + err.Error()}
	}
	if err := peer.ThisProgram(store.Schema).Judge(q.Versions); err != nil {
		return err
	}
	if s.d.Identity.Authority() == nil {
		return peer.ErrNoAuthority
	}
	return s.lead()
}

// reaches returns an error if this node would not reach the sender of r at its address: it is that
// of a member, or only the machine of the sender reaches it.
func (s *Server) reaches(r *http.Request, addr string) error {
	why := ""
	switch {
	case slices.Contains(s.d.Cluster.Members(), addr):
		why = "a member has it; if that is lost, remove it first"
	case isLoopback(addr) && !isLoopback(r.RemoteAddr):
		why = "only the machine of the node reaches it"
	default:
		return nil
	}
	return &RemoteError{
		Code:   CodeRequest,
		Detail: fmt.Sprintf("advertise: %s: %s. Set cluster.bind, or pass --advertise HOST:PORT", addr, why),
	}
}

// isLoopback reports whether only this machine reaches a host:port.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// answer returns an answer without a certificate.
func (s *Server) answer() joinAnswer {
	return joinAnswer{
		Versions: peer.ThisProgram(store.Schema),
		Cluster:  s.d.Identity.ClusterID(),
		Clock:    s.d.Now().UnixNano(),
	}
}

// issue returns an answer with a certificate.
func (s *Server) issue(server string, key ed25519.PublicKey) (any, error) {
	cert, err := s.d.Identity.Authority().Issue(server, key, s.d.Now())
	if err != nil {
		return nil, err
	}
	a := s.answer()
	a.Server, a.Cert, a.CA = server, string(cert), string(s.d.Identity.CACertPEM())
	return a, nil
}

// rejoin serves POST /rejoin: it issues a new id to a member that has lost its file, and removes
// the old one.
func (s *Server) rejoin(r *http.Request) (any, error) {
	q, err := readBody[joinRequest](r)
	if err != nil {
		return nil, err
	}
	if q.Key == nil {
		return s.answer(), nil
	}
	if err := s.mayIssue(q); err != nil {
		return nil, err
	}
	old := peer.PeerID(r)
	if old == s.d.Identity.ServerID() {
		return nil, &RemoteError{Code: CodeRequest, Detail: "this node leads"}
	}
	id, err := peer.NewID(s.d.Now())
	if err != nil {
		return nil, err
	}
	got, err := store.Commit(r.Context(), s.d.Store, store.Control, rejoin{
		Old: old, Member: s.d.Cluster.IsMember(old), Standby: s.d.Cluster.Standby(old),
		Key: sha256.Sum256(q.Key), Server: id,
		Note: store.Event{Event: "cluster.rejoined", Decision: "allow", Principal: old},
	})
	if err == nil && s.d.Cluster.IsMember(old) {
		err = s.d.Cluster.Remove(r.Context(), old)
	}
	if err != nil {
		return nil, err
	}
	return s.issue(got, q.Key)
}
